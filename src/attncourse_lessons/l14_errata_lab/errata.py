"""Lines of slides that this lesson tests: as printed, as they should be, and what tells them apart."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from attncourse.layers import layer_norm
from attncourse_lessons.slides.erratum import CS11711, EPS, FOUNDATIONS, Erratum, Finding, drawn, near, over_features
from attncourse_lessons.slides.model import longer_than_128, small_model


def _questions_differ(make) -> Finding:
    z, matrix = drawn(3, 4), drawn(4, 4, seed=1)
    queries = torch.stack([make(z, matrix, i) for i in range(3)])             # (3, ...)
    moved = z.clone()
    moved[0] += 1                                                             # only the first may ask anything new
    again = torch.stack([make(moved, matrix, i) for i in range(3)])
    return near(again[1:], queries[1:], "when z_1 changes, the other queries change by")


ONE_Z = Erratum(
    name="Qz for all",
    decks=(FOUNDATIONS,),
    place="Encoder-Decoder Attention",
    claim="q_i = Qz",
    correction="q_i = Q z_i: each position asks a question of its own",
    question="When z_1 changes, do the other queries stay?",
    printed=lambda z, matrix, i: z @ matrix.mT,
    corrected=lambda z, matrix, i: matrix @ z[i],
    check=_questions_differ,
    slip=True,
)


def _small_vectors(norm) -> Finding:
    x = drawn(64, 64)                                                         # (n, d)
    errors = {size: (norm(size * x) - F.layer_norm(size * x, (64,))).abs().max().item() for size in (1.0, 0.01)}
    said = f"worst error {errors[1.0]:.1g} for vectors of size 1, {errors[0.01]:.1g} for size 0.01"
    return Finding(errors[0.01] < 1e-3, said)


def _eps_outside(x: Tensor) -> Tensor:
    deviation = over_features((x - over_features(x)).square()).sqrt()                         # (n, 1)
    return (x - over_features(x)) / (deviation + EPS)


EPS_OUTSIDE = Erratum(
    name="ε outside the root",
    decks=(FOUNDATIONS, CS11711),
    place="Training Trick #2: Layer Normalization; Layer Normalization",
    claim="(x − μ)/(σ + ε) in one, (x − μ)/σ in the other",
    correction="√(σ² + ε), as in torch and in this course",
    question="Are vectors of size 0.01 normalised as torch does it?",
    printed=_eps_outside,
    corrected=layer_norm,
    check=_small_vectors,
    kind="convention",
)


def _name_in_its_link(name) -> Finding:
    said, link = name(), "https://github.com/jessevig/bertviz"
    return Finding(link.endswith("/" + said.lower()), f"{said}, and the link beside it ends with {link.split('/')[-1]}")


BERTVIS = Erratum(
    name="BertVis",
    decks=(CS11711,),
    place="What Happens w/ Multi-heads?",
    claim="See also BertVis",
    correction="BertViz, as the link in the same line says",
    question="Is it the name in the link?",
    printed=lambda: "BertVis",
    corrected=lambda: "BertViz",
    check=_name_in_its_link,
)


MAX_LEN = Erratum(
    name="max_len not handed on",
    decks=(CS11711,),
    place="In code, class TransformerLM",
    claim="Block(d_model, nhead, dim_ff) for _ in range(num_layers): max_len stays 128",
    correction="hand max_len on to the blocks, whose mask is made for it",
    question="A model for 256 tokens: does it read 200?",
    printed=partial(small_model, "max_len not handed on"),
    corrected=small_model,
    check=longer_than_128,
)

ERRATA = (ONE_Z, EPS_OUTSIDE, BERTVIS, MAX_LEN)
