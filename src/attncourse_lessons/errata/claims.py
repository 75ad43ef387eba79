"""Errata of tables and names, where another line gives the slip away; and overclaims, true of less than they say."""

import math
import re
from dataclasses import replace

import torch
from torch import Tensor

from attncourse.attention import MultiHeadAttention, attend, causal_mask
from attncourse.sizes import count_parameters, layer_cost, preset
from attncourse.transformer import Decoder, EncoderDecoder, LanguageModel, TransformerConfig
from attncourse_lessons.errata.entry import (
    CS11711,
    CSE576,
    CSE5321,
    FOUNDATIONS,
    PARAMETRIC,
    Erratum,
    Finding,
    drawn,
    equal,
    near,
)
from attncourse_lessons.results import MODIFICATIONS, TRANSLATION

NARANG = "Do Transformer Modifications Transfer?"
GPT_3 = "Transformer architecture specifications, From GPT-3"


def _another_model(activation) -> Finding:
    baseline, name = preset("t5 base").config.activation, activation()
    return Finding(name.lower() != baseline, f"row 2 is {name}; row 1, the baseline, has {baseline}")


RELU_TWICE = Erratum(
    name="ReLU twice",
    decks=(FOUNDATIONS, CSE5321),
    place=NARANG,
    claim="row 2: ReLU, 223M, 2.179 ± 0.003",
    correction="GeLU; ReLU is what row 1 has, with other numbers",
    question="Are rows 1 and 2 two different models?",
    lecture="transformer",
    printed=lambda: "ReLU",
    corrected=lambda: "GeLU",
    check=_another_model,
    slip=True,
)


def _published(names) -> Finding:
    known = {row.name for row in MODIFICATIONS}
    unknown = [name for name in names() if name not in known]
    return Finding(not unknown, f"not in the paper: {', '.join(unknown)}" if unknown else "the paper has that row")


REZERO = Erratum(
    name="Rezero renamed",
    decks=(FOUNDATIONS, CSE5321),
    place=NARANG,
    claim="rows Resnet, Resnet + LayerNorm, …; in the other Resero",
    correction="Rezero: a residual path that starts at zero",
    question="Does the paper have a row of that name?",
    lecture="transformer",
    printed=lambda: ("Resnet", "Resero"),
    corrected=lambda: ("Rezero",),
    check=_published,
    slip=True,
)


def _of_t5(layers: int, heads: int):
    def check(width) -> Finding:
        config = replace(preset("t5 base").config, n_layers=layers, d_ff=width(), n_heads=heads)
        millions = count_parameters(config, EncoderDecoder).total / 1e6
        return Finding(abs(millions - 223) < 1, f"{millions:.0f} million parameters; the row says 223")

    return check


D_FF_8 = Erratum(
    name="d_ff of the 8 layers",
    decks=(FOUNDATIONS, CSE5321),
    place=NARANG,
    claim="8 layers, d_ff = 4096, H = 18: 223M",
    correction="4608: layers × d_ff is the same in all these rows",
    question="Counted: is it the 223 million of the row?",
    lecture="many_heads",
    printed=lambda: 4096,
    corrected=lambda: 4608,
    check=_of_t5(layers=8, heads=18),
    slip=True,
)

D_FF_6 = Erratum(
    name="d_ff of the 6 layers",
    decks=(CSE5321,),
    place=NARANG,
    claim="6 layers, d_ff = 1044, H = 24: 223M",
    correction="6144",
    question="Counted: is it the 223 million of the row?",
    lecture="many_heads",
    printed=lambda: 1044,
    corrected=lambda: 6144,
    check=_of_t5(layers=6, heads=24),
    slip=True,
)


def _of_gpt_3(name: str, millions: int):
    def check(changed) -> Finding:
        config = replace(preset(name).config, d_head=128, **changed())
        counted = count_parameters(config, LanguageModel).total / 1e6
        said = f"{counted:,.0f} million parameters; the paper's table D.1 says {millions:,}"
        return Finding(abs(counted - millions) < 5, said)

    return check


HEADS_24 = Erratum(
    name="24 heads",
    decks=(CSE5321,),
    place=GPT_3,
    claim="GPT-3 XL: d_model 2048, 24 heads of 128 (copied faithfully from the paper)",
    correction="16 heads of 128",
    question="Counted: is it what the paper's own table D.1 says?",
    lecture="many_heads",
    printed=lambda: {"n_heads": 24},
    corrected=lambda: {"n_heads": 16},
    check=_of_gpt_3("gpt-3 xl", 1320),
)

WIDTH_5140 = Erratum(
    name="a width of 5140",
    decks=(CSE5321,),
    place=GPT_3,
    claim="GPT-3 13B: d_model 5140, 40 heads of 128 (copied faithfully from the paper)",
    correction="5120, which is 40 · 128",
    question="Counted: is it what the paper's own table D.1 says?",
    lecture="many_heads",
    printed=lambda: {"n_heads": 40, "d_model": 5140},
    corrected=lambda: {"n_heads": 40, "d_model": 5120},
    check=_of_gpt_3("gpt-3 13b", 12850),
)


def _has_its_subject(rows) -> Finding:
    models = [row.model for row in rows()]
    own = [model for model in models if model.startswith("Transformer")]
    return Finding(bool(own), f"{len(own)} of {len(models)} rows are Transformers")


NO_TRANSFORMER = Erratum(
    name="no row of the Transformer",
    decks=(CSE576, PARAMETRIC),
    place="Great Results with Transformers",
    claim="Great results with Transformers: a table that ends with ConvS2S Ensemble",
    correction="base 27.3 and 38.1, big 28.4 and 41.8 BLEU are missing",
    question="Is there a Transformer in the table?",
    lecture="transformer",
    printed=lambda: [row for row in TRANSLATION if not row.model.startswith("Transformer")],
    corrected=lambda: TRANSLATION,
    check=_has_its_subject,
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
    lecture="errata_lab",
    printed=lambda: "BertVis",
    corrected=lambda: "BertViz",
    check=_name_in_its_link,
)


def _something_is_compared(sentence) -> Finding:
    compared = bool(re.search(r"increase with", sentence()))
    said = "it says with what they do not increase" if compared else "it says what operations do not do to a length"
    return Finding(compared, said)


WITH = Erratum(
    name="a missing with",
    decks=(PARAMETRIC,),
    place="If not recurrence, then what? How about attention?",
    claim="Number of unparallelizable operations does not increase sequence length.",
    correction="does not increase with sequence length, as a twin of the slide has it",
    question="Does the sentence say with what it does not increase?",
    lecture="bottleneck",
    printed=lambda: "does not increase sequence length",
    corrected=lambda: "does not increase with sequence length",
    check=_something_is_compared,
    slip=True,
)

# Sentences that are true of something less than they say, and words that two decks use differently.

DOG = ["The", "dog", "chased", "another", "dog"]


def _scores_held(numbers) -> Finding:
    n, x = 10, drawn(1, 10, 16)
    counted = {}
    for heads in (1, 8):
        tables: list[Tensor] = []
        MultiHeadAttention(16, heads)(x, weights=tables)
        counted[heads] = tables[0].numel()
    said = {heads: numbers(n, heads) for heads in counted}
    return Finding(said == counted, f"said {said[8]} scores for 8 heads and 10 words, counted {counted[8]}")


SAME_COMPUTATION = Erratum(
    name="same amount of computation",
    decks=(PARAMETRIC,),
    place="Multi-headed attention",
    claim="Same amount of computation as single-head self-attention!",
    correction="in matrix products; the tables of scores, and the softmax over them, are h times as many",
    question="Is that how many scores there are?",
    lecture="many_heads",
    printed=lambda n, heads: n * n,
    corrected=lambda n, heads: heads * n * n,
    check=_scores_held,
    kind="overclaim",
)


def _cost_of_a_layer(cost) -> Finding:
    n, d = 30, 1000
    counted = layer_cost("self-attention", n, d).multiply_adds
    said = cost(n, d)
    return Finding(abs(said / counted - 1) < 0.01, f"30 words, d = 1000: said {said:,}, counted {counted:,}")


N_SQUARED = Erratum(
    name="O(n²d) alone",
    decks=(CSE576, FOUNDATIONS, CSE5321, CS11711),
    place="Quadratic computation …; Computational Complexity per layer; RNNs vs. Transformers",
    claim="its total number of operations grows as O(n²d)",
    correction="O(nd² + n²d): the projections rule while n is below d (the paper's table 1 leaves them out, too)",
    question="Thirty words, d = 1000, as one slide proposes: is it what a layer computes?",
    lecture="self_attention",
    printed=lambda n, d: 2 * n * n * d,
    corrected=lambda n, d: 3 * n * d * d + 2 * n * n * d,
    check=_cost_of_a_layer,
    kind="overclaim",
)


def _cheaper_when_said(cheaper) -> Finding:
    wrong = []
    for n in (10, 100, 1000, 10_000):
        costs = [layer_cost(kind, n, 512).multiply_adds for kind in ("self-attention", "recurrent")]
        if cheaper(n, 512) != (costs[0] < costs[1]):
            wrong.append(f"n = {n}: attention {costs[0] / costs[1]:.1f} times the recurrence")
    return Finding(not wrong, "; ".join(wrong) or "as counted, at four lengths")


SHORT_IS_CHEAPER = Erratum(
    name="cheaper while n is small",
    decks=(FOUNDATIONS,),
    place="Computational Complexity per layer",
    claim="n << d: complexity per layer is lower for a Transformer",
    correction="of the pairs alone; with its projections it costs more than a simple recurrence at every length",
    question="Is attention cheaper than a simple recurrence exactly where this says so?",
    lecture="self_attention",
    printed=lambda n, d: n < d,
    corrected=lambda n, d: False,
    check=_cheaper_when_said,
    kind="overclaim",
)


def _dogs_equal(equal_with) -> Finding:
    words = {word: vector for word, vector in zip(DOG, drawn(len(DOG), 8), strict=True)}
    x = torch.stack([words[word] for word in DOG])                            # (n, d)
    wrong = []
    for mask in (None, causal_mask(len(DOG))):
        output, _ = attend(x, x, x, mask)
        apart = (output[1] - output[4]).abs().max().item()
        if equal_with(mask is not None) != (apart < 1e-5):
            where = "without a mask" if mask is None else "under a causal mask"
            wrong.append(f"{where} they differ by {apart:.2f}")
    return Finding(not wrong, "; ".join(wrong) or "right with and without a mask")


IDENTICAL = Erratum(
    name="identical output",
    decks=(CSE5321,),
    place="Positional Embeddings, Motivating Example",
    claim="the output is identical for the same token in different positions",
    correction="without a mask, as in the slide's code; under a causal mask, as Llama's, two dogs see other words",
    question="Are the two dogs equal exactly where this says so?",
    lecture="order",
    printed=lambda causal: True,
    corrected=lambda causal: not causal,
    check=_dogs_equal,
    kind="overclaim",
)


def _layer(query: Tensor, key: Tensor, value: Tensor, matrices: Tensor) -> Tensor:
    """A layer with its projections inside, as `nn.MultiheadAttention` is."""
    query, key, value = (x @ W for x, W in zip((query, key, value), matrices, strict=True))
    return (query @ key.mT / math.sqrt(query.shape[-1])).softmax(dim=-1) @ value


def _projected_once(call) -> Finding:
    x, matrices = drawn(5, 8), drawn(3, 8, 8, seed=1) / math.sqrt(8)
    return near(call(x, matrices), _layer(x, x, x, matrices), "from the equation it is off by")


PROJECTED_TWICE = Erratum(
    name="projected twice",
    decks=(CSE5321,),
    place="Positional Embeddings, code",
    claim="mha(W_q(embeddings), W_k(embeddings), W_v(embeddings))",
    correction="mha(x, x, x): nn.MultiheadAttention projects inside, and two matrices in a row are one other matrix",
    question="With W_q, W_k and W_v as the projections: is it softmax(QKᵀ/√d)V?",
    lecture="many_heads",
    printed=lambda x, W: _layer(x @ W[0], x @ W[1], x @ W[2], W),
    corrected=lambda x, W: _layer(x, x, x, W),
    check=_projected_once,
    kind="overclaim",
)


def _finds_the_dogs(places) -> Finding:
    sentences = DOG, ["<start>", *DOG]
    found = [tuple(words[i] for i in places(words) if i < len(words)) for words in sentences]
    said = " and ".join(", ".join(words) or "nothing" for words in found)
    return Finding(all(words == ("dog", "dog") for words in found), f"finds {said}")


OUTPUTS_2_AND_5 = Erratum(
    name="outputs 2 and 5",
    decks=(CSE5321,),
    place="Positional Embeddings, code",
    claim="dog1_out = output[0, 2]; dog2_out = output[0, 5]",
    correction="look the word up: 2 and 5 are the dogs behind exactly one start token, as this tokenizer has it",
    question="Are the dogs found with a start token and without?",
    lecture="order",
    printed=lambda words: (2, 5),
    corrected=lambda words: [i for i, word in enumerate(words) if word == "dog"],
    check=_finds_the_dogs,
    kind="overclaim",
)


def _variance_of_scores(variance) -> Finding:
    d, d_k = 64, 16
    x, y = drawn(2, 4000, d)                                                  # as LayerNorm leaves them: mean 0, size 1
    query, key = (W / math.sqrt(3 * d) for W in drawn(2, d, d_k, seed=1))     # the size of nn.Linear's at the start
    measured = ((x @ query) * (y @ key)).sum(dim=-1).div(math.sqrt(d_k)).var().item()
    said = variance(query, key)
    return Finding(abs(said / measured - 1) < 0.2, f"said {said:.2f}, measured {measured:.2f}")


VARIANCE = Erratum(
    name="variance from LayerNorm",
    decks=(FOUNDATIONS,),
    place="Training Trick #3: Scaled Dot Product Attention",
    claim="After LayerNorm, the mean and variance of vector elements is 0 and 1",
    correction="of x, not of xW_Q and yW_K, whose product is taken; what those have is W's doing",
    question="nn.Linear's usual start: is that the variance of q·k/√d_k?",
    lecture="many_heads",
    printed=lambda query, key: 1.0,
    corrected=lambda query, key: ((query @ key.mT).square().sum() / query.shape[-1]).item(),
    check=_variance_of_scores,
    kind="overclaim",
)


def _one_or_none(lookup) -> Finding:
    table = {"aunt": 1, "tea": 2}
    found = lookup(table, "uncle")
    return equal(found, 0, "a key that is not there matches")


EXACTLY_ONE = Erratum(
    name="exactly one pair",
    decks=(FOUNDATIONS,),
    place="Intuition for Attention Mechanism",
    claim="Each query (hash) maps to exactly one key-value pair",
    correction="at most one: a table may not hold the key",
    question="How many pairs does a missing key match?",
    lecture="lookup",
    printed=lambda table, key: 1,
    corrected=lambda table, key: int(key in table),
    check=_one_or_none,
    kind="overclaim",
)


def _order_by_products(score) -> Finding:
    """A key may be made longer, across the query's direction, without matching any better or worse."""
    query, keys = torch.tensor([1.0, 0.0]), torch.tensor([[0.9, 0.0], [1.0, 9.0]])
    scores = torch.stack([score(query, key) for key in keys])
    products, best = keys @ query, int(scores.argmax())
    said = f"of products 0.9 and 1.0 the larger score goes to {products[best].item():.1f}"
    return Finding(best == int(products.argmax()), said)


SIZE_OF_K = Erratum(
    name="√|k|",
    decks=(CS11711,),
    place="Attention Score Functions (2)",
    claim="Fix: scale by size of the vector, q·k/√|k|",
    correction="√d_k: how many numbers a key has (the line above it says so), and not how long it is",
    question="Does the key with the larger product get the larger score?",
    lecture="lookup",
    printed=lambda query, key: query @ key / key.norm().sqrt(),
    corrected=lambda query, key: query @ key / math.sqrt(len(key)),
    check=_order_by_products,
    kind="convention",
)


def _looks_across(decoder) -> Finding:
    config = TransformerConfig(vocabulary=5, d_model=8, n_layers=1, n_heads=2)
    across = all(block.cross is not None for block in decoder(config).stack.blocks)
    return Finding(across, "it looks at a memory" if across else "it looks at nobody but itself")


DECODER = Erratum(
    name="the word decoder",
    decks=(CSE576, CSE5321, FOUNDATIONS),
    place="The Transformer Decoder; Encoder-Decoder Attention",
    claim="The Transformer Decoder: a stack without cross-attention in two decks, with it in a third",
    correction="here a decoder looks across, unless we say decoder-only",
    question="Does it look across?",
    lecture="transformer",
    printed=lambda config: Decoder(config, cross=False),
    corrected=lambda config: Decoder(config, cross=True),
    check=_looks_across,
    kind="convention",
)

CLAIMS = (
    RELU_TWICE, REZERO, D_FF_8, D_FF_6, HEADS_24, WIDTH_5140, NO_TRANSFORMER, BERTVIS, WITH,
    SAME_COMPUTATION, N_SQUARED, SHORT_IS_CHEAPER, IDENTICAL, PROJECTED_TWICE, OUTPUTS_2_AND_5, VARIANCE, EXACTLY_ONE,
    SIZE_OF_K, DECODER,
)  # fmt: skip

__all__ = ["CLAIMS"]
