"""Lines of slides that this lesson tests: as printed, as they should be, and what tells them apart."""

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from attncourse.attention import attend
from attncourse.counting import preset
from attncourse.layers import layer_norm
from attncourse_lessons.slides.erratum import (
    CS11711,
    CSE576,
    CSE5321,
    EPS,
    FOUNDATIONS,
    PARAMETRIC,
    Erratum,
    Finding,
    N,
    drawn,
    near,
    over_features,
    rows_share_one,
)
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
    by="trusted",
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
    by="trusted",
    slip=True,
)


MAX_LEN = Erratum(
    name="max_len not handed on",
    decks=(CS11711,),
    place="In code, class TransformerLM",
    claim="Block(d_model, nhead, dim_ff) for _ in range(num_layers): max_len stays 128",
    correction="pass max_len on to the blocks, whose mask is made for it",
    question="A model for 256 tokens: does it read 200?",
    printed=partial(small_model, "max_len not handed on"),
    corrected=small_model,
    check=longer_than_128,
)


# Sentences that say too much, and conventions that no other lecture has a place for


def _forecast(states) -> Finding:
    x = drawn(6, 4)
    other = x.clone()
    other[3] += 1
    return near(states(other)[3], states(x)[3], "when x_t changes, the forecast of x_t moves by")


HAS_READ = Erratum(
    name="h_t has read x_t",
    decks=(CS11711,),
    place="Recap: sequence model",
    claim="f(x_1, …) → h_1, …; p(· | x_<t) = softmax(W h_tᵀ)",
    correction="of x_≤t, so the next token's; or shift the inputs by one and say so, as training code does",
    question="Does the forecast of x_t stay when x_t changes?",
    printed=lambda x: x.cumsum(dim=0),                                        # h_t of x_1 … x_t
    corrected=lambda x: torch.cat([torch.zeros(1, 4), x[:-1]]).cumsum(dim=0),
    check=_forecast,
    kind="convention",
)


SOFTMAX_OF_ONE = Erratum(
    name="the softmax of one number",
    decks=(FOUNDATIONS,),
    place="Recipe for Self-Attention, with its vectorised form",
    claim="α_ij = softmax(e_ij); A = softmax(E)",
    correction="softmax over j: the formula beside it says so. In code, dim=-1",
    question="Does each row sum to one?",
    printed=lambda scores: scores[..., None].softmax(dim=-1)[..., 0],
    corrected=lambda scores: scores.softmax(dim=-1),
    check=rows_share_one,
    kind="convention",
)


def _row_of_the_table(embed) -> Finding:
    table, word = drawn(8, 5), 3                                              # (d, |V|), a word's number
    return near(embed(table, word), table[:, word], "from the word's column it is off by")


ONE_HOT = Erratum(
    name="a word for its one-hot vector",
    decks=(CSE576,),
    place="Self-Attention: keys, queries, values from the same sequence",
    claim="For each w_i, let x_i = E w_i, where w_i is a word",
    correction="w_i as a one-hot vector: the product then picks a column. In code one looks the column up",
    question="Is it the word's column of E?",
    printed=lambda table, word: (table * word).sum(dim=-1),
    corrected=lambda table, word: table @ F.one_hot(torch.tensor(word), table.shape[1]).to(table.dtype),
    check=_row_of_the_table,
    kind="convention",
    by="shapes",
)


def _of_all_words(weigh) -> Finding:
    x = drawn(5, 8)
    _, weights = attend(x, x, x)
    return near(weigh(x @ x.mT / 8**0.5), weights, "from attention's weights it is off by")


EACH_OTHER = Erratum(
    name="each other word",
    decks=(FOUNDATIONS,),
    place="Self-attention, in one sentence",
    claim="each word attends to each other word within the input (or output)",
    correction="all words of the sentence, itself among them; its own formula sums over all j",
    question="Are these the weights of self-attention?",
    printed=lambda scores: scores.softmax(dim=-1),
    misread=lambda scores: scores.masked_fill(torch.eye(len(scores)).bool(), -torch.inf).softmax(dim=-1),
    corrected=lambda scores: scores.softmax(dim=-1),
    check=_of_all_words,
    kind="no error",
    by="trusted",
)


def _reaches(dilations) -> Finding:
    n, k = 1000, 3
    reach = 1 + (k - 1) * sum(dilations(n, k))
    return Finding(reach >= n, f"{len(dilations(n, k))} layers of width 3 connect {reach} of 1,000 places")


def _layers(n: int, k: int) -> int:
    return math.ceil(math.log(n, k))


LOG_PATH = Erratum(
    name="a logarithm without its dilation",
    decks=(FOUNDATIONS,),
    place="Computational Complexity per layer, the paper's table 1",
    claim="Convolutional: maximum path length O(log_k(n))",
    correction="with dilated convolutions; the paper's text says so, and O(n/k) without",
    question="Do so many layers connect the first place with the last?",
    printed=lambda n, k: [1] * _layers(n, k),
    corrected=lambda n, k: [k**layer for layer in range(_layers(n, k))],
    check=_reaches,
    kind="overclaim",
)


def _as_attention(layer) -> Finding:
    query, key, value = drawn(3, 5, 8)
    return near(layer(query, key, value), attend(query, key, value)[0], "from attention it is off by")


MATMULS = Erratum(
    name="only matrix multiplications",
    decks=(CS11711,),
    place="Transformers, Attention is All You Need",
    claim="Fast: only matrix multiplications",
    correction="mostly: softmax, norms and activations are none, take little arithmetic, and not as little time",
    question="Matrix products alone: is it attention?",
    printed=lambda query, key, value: query @ key.mT @ value / math.sqrt(8),
    corrected=lambda query, key, value: (query @ key.mT / math.sqrt(8)).softmax(dim=-1) @ value,
    check=_as_attention,
    by="trusted",
    kind="overclaim",
)


def _told_apart(layer) -> Finding:
    x = drawn(N, 8)
    y = layer(x, torch.full((N, N), 1 / N))                                   # all attend to all alike
    apart = (y - y.mean(dim=0)).norm(dim=-1).min().item()
    return Finding(apart > 0.1, f"after a layer of equal weights a token is {apart:.1g} away from the mean of all")


TRICKS = Erratum(
    name="tricks that change nothing",
    decks=(PARAMETRIC,),
    place="What is left in a Transformer Encoder Block that we have not covered?",
    claim="These tricks don't improve what the model is able to do",
    correction="training is their aim; and a layer that averages needs the residual connection to keep tokens apart",
    question="Attention weights that are all alike: are tokens still told apart after the layer?",
    printed=lambda x, weights: weights @ x,
    corrected=lambda x, weights: x + weights @ x,
    check=_told_apart,
    kind="overclaim",
)


def _older_than(year) -> Finding:
    """A weighted average whose weights come from comparing a query with keys: Nadaraya's and Watson's of 1964."""
    query, keys, values = drawn(1, 1), drawn(7, 1, seed=1), drawn(7, 2, seed=2)
    kernel = torch.exp(-((query - keys.mT) ** 2) / 2)                         # (1, 7)
    smoothed = kernel @ values / kernel.sum()
    attended = (query @ keys.mT - keys.mT**2 / 2).softmax(dim=-1) @ values
    same = torch.allclose(smoothed, attended, atol=1e-5)
    return Finding(same and year() <= 1964, f"said {year()}; the same average, with a given kernel, is of 1964")


AFTER_2010 = Erratum(
    name="a new idea from after 2010",
    decks=(CSE576,),
    place="Attention is a general Deep Learning technique, the upshot",
    claim="A new idea from after 2010! From NMT!",
    correction="in translation, 2014; averaging by similarity is kernel regression, 1964; keys are learned since 1991",
    question="Is the weighted average by similarity younger than that?",
    printed=lambda: 2010,
    corrected=lambda: 1964,
    check=_older_than,
    kind="overclaim",
    by="trusted",
)


def _so_in(facts: Mapping[str, str]) -> Callable[..., Finding]:
    """A test of a claim that names what all of these have: does it name what each of them has?"""

    def check(said) -> Finding:
        others = [f"{name}: {fact}" for name, fact in facts.items() if fact not in said()]
        return Finding(not others, f"not so: {'; '.join(others)}" if others else f"so in all {len(facts)} that we name")

    return check


def _share_of_pre_norm(said) -> Finding:
    """Decoder-only models up to 2024 whose reports say where their norms are."""
    pre_norm = ("GPT-2", "GPT-3", "LLaMA", "Llama 2", "Llama 3", "Mistral 7B", "Phi-3", "Qwen 2", "OLMo")
    others = ("OPT 350M", "Gemma 2", "OLMo 2")                                # post-norm, sandwich, res-post-norm
    share = len(pre_norm) / len(pre_norm + others)
    return Finding(said(share), f"{share:.0%} of those that we name have pre-norm alone; not {', '.join(others)}")


EVERYONE = Erratum(
    name="the one thing everyone agrees on",
    decks=(CSE576, CSE5321),
    place="Pre vs Post norm",
    claim="The one thing everyone agrees on (in 2024)",
    correction="a heading, and the slide itself goes on: almost all, with BERT and OPT 350M as exceptions",
    question="Is that the share of models with pre-norm alone?",
    printed=lambda share: share > 0.7,                                        # almost all
    misread=lambda share: share == 1,                                         # the heading without the slide
    corrected=lambda share: share > 0.7,
    check=_share_of_pre_norm,
    kind="no error",
    by="trusted",
)

QUADRATIC = Erratum(
    name="production models are quadratic",
    decks=(CSE576, CSE5321),
    place="Do we even need to remove the quadratic cost of attention?",
    claim="In practice, production Transformer language models use quadratic cost attention",
    correction="in all layers of some, in some layers of others; Mistral 7B has windows in every layer",
    question="Is it so in all layers of the models that report it?",
    printed=lambda: {"full"},
    corrected=lambda: {"full", "windows", "full and windows"},
    check=_so_in({"Llama 2": "full", "GPT-3": "full and windows", "Mistral 7B": "windows",
                  "Gemma 2": "full and windows"}),
    kind="overclaim",
    by="trusted",
)

TWO_TYPES = Erratum(
    name="two types of Transformers",
    decks=(CS11711,),
    place="Two Types of Transformers",
    claim="Encoder-Decoder Model (e.g. T5, MBART); Decoder Only Model (e.g. GPT, LLaMa)",
    correction="three: encoder-only, as BERT, is missing, and the lecture is not about it",
    question="Has each model its type?",
    printed=lambda: {"encoder–decoder", "decoder-only"},
    corrected=lambda: {"encoder–decoder", "decoder-only", "encoder-only"},
    check=_so_in({"T5": "encoder–decoder", "GPT-2": "decoder-only", "BERT": "encoder-only"}),
    kind="overclaim",
    by="trusted",
)


def _groups(said) -> Finding:
    """Llama 2's report (Touvron et al. 2023): 34B and 70B share keys. The 7B we can build."""
    config = preset("llama 2 7b").config
    reported = {"7B": "grouped" if config.kv_heads < config.n_heads else "multi-head", "70B": "grouped"}
    wrong = [f"the {size} has {kind} attention" for size, kind in reported.items() if said(size) != kind]
    return Finding(not wrong, "; ".join(wrong) or "right for the 7B and the 70B")


LLAMA_2_GROUPS = Erratum(
    name="Llama 2 shares its keys",
    decks=(CS11711,),
    place="Original Transformer vs. LLama",
    claim="Llama 2: attention, Grouped-query",
    correction="its 34B and 70B; 7B and 13B have multi-head attention",
    question="Is it so in the small one and in the large one?",
    printed=lambda size: "grouped",
    corrected=lambda size: "grouped" if size in ("34B", "70B") else "multi-head",
    check=_groups,
    kind="overclaim",
    by="trusted",
)


ERRATA = (
    ONE_Z, EPS_OUTSIDE, BERTVIS, MAX_LEN, HAS_READ, SOFTMAX_OF_ONE, ONE_HOT, EACH_OTHER, LOG_PATH, MATMULS, TRICKS,
    AFTER_2010, EVERYONE, QUADRATIC, TWO_TYPES, LLAMA_2_GROUPS,
)  # fmt: skip
