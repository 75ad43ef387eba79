"""The published sizes, and what a size costs: parameters, FLOPs and cache, counted from the config alone.

`layer_cost` counts one layer of each kind, to compare them. All other counts are those of the models in
`attncourse.transformer`, to the last one. Nothing is built to make them; only `saved_activation_bytes` runs something.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from attncourse._checks import check_at_least, check_one_of
from attncourse.layers import GATES
from attncourse.transformer import Encoder, EncoderDecoder, LanguageModel, TransformerConfig

ModelClass = type[Encoder] | type[EncoderDecoder] | type[LanguageModel]
MODELS: tuple[ModelClass, ...] = (Encoder, EncoderDecoder, LanguageModel)


# What a size costs


class Parameters(NamedTuple):
    """How many numbers a model learns, by what they are for. A matrix that two parts share counts once, in the first.

    `embedding` has the tables of tokens and segments; `output` is 0 where it is tied to the embedding.
    """

    embedding: int
    positions: int
    attention: int
    cross_attention: int
    feed_forward: int
    norms: int
    output: int

    @property
    def total(self) -> int:
        return sum(self)


class Flops(NamedTuple):
    """The floating-point operations of one forward pass, by what they are for; cross-attention is counted within.

    `projections` are those to query, key and value, and the output projection of the heads. `scores_and_average` is
    what grows with n²: q · k for each pair, and the weighted average of the values (with Shaw's terms, which grow with
    n times the distances that are told apart). `output` makes the logits.
    """

    projections: int
    scores_and_average: int
    feed_forward: int
    output: int

    @property
    def total(self) -> int:
        return sum(self)


def count_parameters(config: TransformerConfig, model: ModelClass) -> Parameters:
    """The parameters of `model(config)`, where `model` is Encoder, EncoderDecoder or LanguageModel.

    Raises ValueError for another model.

    >>> config, model, *_ = preset("gpt-2 small")
    >>> count_parameters(config, model).total
    124439808
    """
    n_encoder, n_decoder, n_cross = _layers(config, model)
    n_layers, n_stacks = n_encoder + n_decoder, (n_encoder > 0) + (n_decoder > 0)
    d_model, d_ff, d_head = config.d_model, config.width_ff, config.width_head
    d_query, d_key = config.n_heads * d_head, config.kv_heads * d_head

    def linear(d_in: int, d_out: int) -> int:
        return d_in * d_out + d_out * config.bias

    attention = linear(d_model, d_query) + 2 * linear(d_model, d_key) + linear(d_query, d_model)
    feed_forward = _widening(config) * linear(d_model, d_ff) + linear(d_ff, d_model)
    norm = d_model * (2 if config.norm == "layer" and config.bias else 1)

    source_words = config.vocab_size if n_encoder else 0
    decoder_vocab_size = config.decoder_vocab_size if n_decoder else 0
    shared = model is EncoderDecoder and config.shares_embedding
    positions = {
        "learned": n_stacks * config.max_length * d_model,
        "shaw": n_layers * 2 * (2 * config.max_distance + 1) * d_head,
        "bucketed": n_stacks * config.n_buckets * config.n_heads,
    }
    return Parameters(
        embedding=(source_words + (0 if shared else decoder_vocab_size) + n_stacks * config.n_segments) * d_model,
        positions=positions.get(config.positions, 0),
        attention=n_layers * attention,
        cross_attention=n_cross * attention,
        feed_forward=n_layers * feed_forward,
        norms=(2 * n_layers + n_cross + n_stacks * (config.ends_in_norm + config.embedding_norm)) * norm,
        output=decoder_vocab_size * ((not config.tie_output) * d_model + config.output_bias),
    )


def count_flops(config: TransformerConfig, model: ModelClass, batch: int, n: int, n_target: int | None = None) -> Flops:
    """The FLOPs of one forward pass of `model(config)` over `batch` sequences of n tokens; a multiply-add is two.

    An EncoderDecoder reads sources of n tokens and writes targets of `n_target`, as many unless given.

    What torch's FlopCounterMode counts, and no more: matrix products. Looking up embeddings, norms, softmax,
    activations and turning by RoPE count 0; the added bias of "bucketed" too. Attention counts its full square, with a
    causal mask or a window as well, although much of it is thrown away (and a good kernel leaves most of that out).
    Padding counts as tokens do: `loss`, which skips it, does less.

    Raises ValueError for another model, for a target where there is none, and for a length below 1 or past what the
    positions allow.

    >>> config, model, *_ = preset("gpt-3 175b")
    >>> count_flops(config, model, batch=1, n=2048)._asdict()           # doctest: +NORMALIZE_WHITESPACE
    {'projections': 237494511599616, 'scores_and_average': 19791209299968,
     'feed_forward': 474989023199232, 'output': 2529517633536}
    """
    n_encoder, n_decoder, n_cross = _layers(config, model)
    if n_target is not None and model is not EncoderDecoder:
        raise ValueError(f"n_target: got {n_target} for {model.__name__}, expected none: it has one sequence, n")
    _check_lengths(config, batch, n=n, n_target=n_target)
    n_source, n_target = (0, n) if model is LanguageModel else (n, n if n_target is None else n_target)
    d_model, d_ff, d_head = config.d_model, config.width_ff, config.width_head
    d_query, d_key = config.n_heads * d_head, config.kv_heads * d_head

    # In all blocks, of one sequence: tokens that pass through, those that ask, those that answer, and pairs of the two.
    tokens = n_encoder * n_source + n_decoder * n_target
    asking, answering = tokens + n_cross * n_target, tokens + n_cross * n_source
    pairs = n_encoder * n_source**2 + n_decoder * n_target**2 + n_cross * n_target * n_source
    if config.positions == "shaw":                                # a query meets a key and a value for each distance
        pairs += tokens * (2 * config.max_distance + 1)
    multiply_add = 2 * batch
    return Flops(
        projections=multiply_add * 2 * (asking * d_model * d_query + answering * d_model * d_key),
        scores_and_average=multiply_add * 2 * pairs * d_query,
        feed_forward=multiply_add * (_widening(config) + 1) * tokens * d_model * d_ff,
        output=multiply_add * n_target * d_model * config.decoder_vocab_size if n_decoder else 0,
    )


def count_training_flops(
    config: TransformerConfig, model: ModelClass, batch: int, n: int, n_target: int | None = None
) -> int:
    """The FLOPs of one step of training: three times those of the forward pass.

    Each product Y = X W of the forward pass asks for two as large on the way back, for the gradients of X and of W.
    (A kernel that does not keep the weights, as FlashAttention, computes the scores once more: not counted here.)

    The rule of thumb is 6 N for each token, with N parameters: 2 forward, 4 back. It leaves out the scores, which no
    parameter makes, and so goes wrong where n is not small against d_model. Kaplan et al. 2020, section 2.1, who leave
    the embeddings out of N; below they are in, because a tied output multiplies by them.

    Raises ValueError as `count_flops` does.

    >>> config, model, *_ = preset("gpt-3 175b")
    >>> rule = 6 * count_parameters(config, model).total * 2048
    >>> round(count_training_flops(config, model, batch=1, n=2048) / rule, 3)
    1.027
    """
    return 3 * count_flops(config, model, batch, n, n_target).total


def attention_share(config: TransformerConfig, n: int, model: ModelClass = LanguageModel) -> float:
    """Which share of a forward pass over n tokens goes to scores and weighted averages, from 0 to 1.

    In blocks of the usual shape (n_heads · d_head = d_model, d_ff = 4 d_model) it is n / (n + 6 d_model), less what the
    output takes: as models widen, attention's square matters less. Raises ValueError as `count_flops` does.

    >>> [round(attention_share(preset(name).config, 2048), 2) for name in ("gpt-3 small", "gpt-3 xl", "gpt-3 175b")]
    [0.23, 0.13, 0.03]
    """
    flops = count_flops(config, model, 1, n)
    return flops.scores_and_average / flops.total


def cache_bytes(config: TransformerConfig, batch: int, n: int, bytes_per_number: int = 2, n_source: int = 0) -> int:
    """The bytes that the keys and values of `batch` sequences of n tokens take in all blocks of a decoder.

        2 · layers · batch · n_kv_heads · n · d_head · bytes

    bytes in bfloat16, four in float32. Raises ValueError for a length below 1 or past what the positions allow.

    >>> for name in ("llama 2 7b", "llama 3 8b"):
    ...     print(name, cache_bytes(preset(name).config, batch=1, n=4096) / 2**30, "GiB")
    llama 2 7b 2.0 GiB
    llama 3 8b 0.5 GiB
    """
    _check_lengths(config, batch, n=n, n_source=n_source or None)
    n_kept = n if config.window is None else min(n, config.window - 1)
    numbers = 2 * config.decoder_layers * batch * config.kv_heads * (n_kept + n_source) * config.width_head
    return numbers * bytes_per_number


def saved_activation_bytes(function: Callable[[], Any]) -> int:
    """The bytes that autograd keeps for the way back when `function()` is called: the memory of its activations.

    Each storage counts once, whole, however many operations keep it or a view of it. Parameters, and all that asked for
    a gradient before the call, are left out; what they are cast to (autocast) is new, and counts. The function runs
    once. On the meta device the count costs no memory: `torch.device("meta")` around model and batch. What is kept
    depends on the device and the format of the numbers, since kernels differ in what they save for themselves.

    >>> layer, x = torch.nn.Linear(10, 20), torch.ones(5, 10)
    >>> saved_activation_bytes(lambda: layer(x).relu())                   # 5 · 10 inputs and 5 · 20 outputs, in float32
    600
    """
    storages: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        origin = tensor if tensor._base is None else tensor._base         # of a view, what it looks into
        if not (origin.is_leaf and origin.requires_grad):
            storage = tensor.untyped_storage()
            # The address of its memory would not do: on the meta device there is none. Held, so that none comes twice.
            storages[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        function()
    return sum(storage.nbytes() for storage in storages.values())


# What one layer costs, of four kinds

LayerKind = Literal["self-attention", "restricted", "recurrent", "convolution"]
LAYER_KINDS: tuple[LayerKind, ...] = ("self-attention", "restricted", "recurrent", "convolution")


class LayerCost(NamedTuple):
    """What a layer over one sequence asks for.

    `multiply_adds` are those of its matrix products (torch's FlopCounterMode counts two for each). `sequential_steps`
    must be taken one after the other. `path_length` is how many cells or layers a signal passes through, on the
    shortest way between the two positions that are furthest apart.
    """

    multiply_adds: int
    sequential_steps: int
    path_length: int


def layer_cost(kind: LayerKind, n: int, d: int, width: int | None = None) -> LayerCost:
    """What a layer over n positions costs, its inputs, outputs and everything between them d wide.

    * "self-attention": queries, keys and values are projected, every position meets every other. One head, without the
      output projection that several need.
    * "restricted": a position meets itself and `width` on each side, or all where that is more.
    * "recurrent": tanh(x W + h U), one position after another. A GRU has three such pairs of matrices, an LSTM four.
    * "convolution": one matrix for each place of a window, again itself and `width` on each side.

    At the edges a window is counted as full, as the padded products of an implementation are.

    Raises ValueError for another kind, for sizes below 1, and for a width where there is no window, or none where there
    is one. Vaswani et al. 2017, table 1, gives the orders of growth, and leaves the projections out.

    >>> layer_cost("self-attention", n=30, d=512)
    LayerCost(multiply_adds=24514560, sequential_steps=1, path_length=1)
    >>> layer_cost("recurrent", n=30, d=512)
    LayerCost(multiply_adds=15728640, sequential_steps=30, path_length=30)
    """
    check_one_of("kind", kind, LAYER_KINDS)
    check_at_least(1, n=n, d=d)
    windowed = kind in ("restricted", "convolution")
    if windowed != (width is not None):
        expected = "how many positions on each side it meets" if windowed else "none: it has no window"
        raise ValueError(f"width: got {width} for {kind!r}, expected {expected}")
    met, path = n, 1
    if width is not None:
        check_at_least(1, width=width)
        met, path = min(2 * width + 1, n), max(1, math.ceil((n - 1) / width))
    if kind == "recurrent":
        return LayerCost(2 * n * d**2, n, n)
    if kind == "convolution":
        return LayerCost(n * met * d**2, 1, path)
    return LayerCost(3 * n * d**2 + 2 * n * met * d, 1, path)


def _layers(config: TransformerConfig, model: ModelClass) -> tuple[int, int, int]:
    """How many blocks the encoder has, how many the decoder, and how many of these look at a memory."""
    if model not in MODELS:
        is_class = isinstance(model, type)
        got = model.__name__ if is_class else f"an instance of {type(model).__name__}"
        raise ValueError(f"model: got {got}, expected one of {', '.join(each.__name__ for each in MODELS)}")
    n_encoder = 0 if model is LanguageModel else config.n_layers
    n_decoder = 0 if model is Encoder else config.decoder_layers
    return n_encoder, n_decoder, n_decoder if model is EncoderDecoder else 0


def _widening(config: TransformerConfig) -> int:
    """How many matrices lead from d_model to d_ff: a gated network has two."""
    return 2 if config.activation in GATES else 1


def _check_lengths(config: TransformerConfig, batch: int, **lengths: int | None) -> None:
    check_at_least(1, batch=batch)
    for name, n in lengths.items():
        if n is not None and (n < 1 or (config.max_positions is not None and n > config.max_positions)):
            most = config.max_positions
            expected = "at least 1" if most is None else f"1 to {most}, what its positions allow"
            raise ValueError(f"{name}: got {n}, expected {expected}")


# The published sizes


class Preset(NamedTuple):
    """A size that somebody published: `model(config)` builds it."""

    config: TransformerConfig
    model: ModelClass
    printed: str
    """The number of parameters as its source prints it; empty where there is none."""
    source: str
    note: str = ""
    """What is different here, and why the count is not what was printed."""


class PrintedRow(NamedTuple):
    """A row of Brown et al. 2020, table 2.1, as it is printed."""

    name: str
    parameters: str
    n_layers: int
    d_model: int
    n_heads: int
    d_head: int

    @property
    def multiplies_out(self) -> bool:
        """Whether the heads side by side are as wide as the model."""
        return self.n_heads * self.d_head == self.d_model


GPT_3_TABLE = (
    PrintedRow("gpt-3 small", "125M", 12, 768, 12, 64),
    PrintedRow("gpt-3 medium", "350M", 24, 1024, 16, 64),
    PrintedRow("gpt-3 large", "760M", 24, 1536, 16, 96),
    PrintedRow("gpt-3 xl", "1.3B", 24, 2048, 24, 128),
    PrintedRow("gpt-3 2.7b", "2.7B", 32, 2560, 32, 80),
    PrintedRow("gpt-3 6.7b", "6.7B", 32, 4096, 32, 128),
    PrintedRow("gpt-3 13b", "13.0B", 40, 5140, 40, 128),
    PrintedRow("gpt-3 175b", "175.0B", 96, 12288, 96, 128),
)
"""As printed: in two rows n_heads · d_head is not d_model. The presets of these names are as they can be run."""

# The numbers of parameters in table D.1 of the same paper (1,320 and 12,850 million) say which column is wrong.
GPT_3_REPAIRS = {"gpt-3 xl": {"n_heads": 16}, "gpt-3 13b": {"d_model": 5120}}

GPT_3_NOTES = {
    "gpt-3 medium": "356M: table D.1 prints that.",
    "gpt-3 xl": "16 heads: the table prints 24 × 128, which is not 2048 and would make 1.5B.",
    "gpt-3 13b": "d_model 5120, 40 × 128: the table prints 5140. 12.9B: table D.1 prints 12,850M.",
    "gpt-3 175b": "174.6B: table D.1 prints that.",
}


def preset(name: str) -> Preset:
    """The published size of this name. Raises ValueError for an unknown one.

    >>> config, model, *_ = preset("vaswani base")
    >>> model.__name__, config.d_model, config.n_layers, config.n_heads
    ('EncoderDecoder', 512, 6, 8)
    """
    if name not in PRESETS:
        raise ValueError(f"name: got {name!r}, expected one of {', '.join(PRESETS)}")
    return PRESETS[name]


def _vaswani(printed: str, note: str, **size) -> Preset:
    config = TransformerConfig(
        vocab_size=37_000, n_layers=6, norm_place="post", positions="sinusoidal", scale_embedding=True, **size
    )
    return Preset(config, EncoderDecoder, printed, "Vaswani et al. 2017, table 3", note)


def _gpt(**size) -> TransformerConfig:
    return TransformerConfig(vocab_size=50_257, positions="learned", activation="gelu tanh", **size)


def _gpt_3(row: PrintedRow) -> Preset:
    size = {"n_layers": row.n_layers, "d_model": row.d_model, "n_heads": row.n_heads, "d_head": row.d_head}
    config = _gpt(max_length=2048, dropout=0.0, **size | GPT_3_REPAIRS.get(row.name, {}))
    sparse = "Every block here is dense; theirs alternate with locally banded sparse ones, at no change to the count."
    note = " ".join(filter(None, (GPT_3_NOTES.get(row.name), sparse)))
    return Preset(config, LanguageModel, row.parameters, "Brown et al. 2020, table 2.1", note)


def _t5(printed: str, **size) -> Preset:
    config = TransformerConfig(
        vocab_size=32_128, d_head=64, norm="rms", norm_eps=1e-6, positions="bucketed", scale_scores=False, bias=False,
        dropout_attention=0.1, dropout_ff=0.1, **size,
    )  # fmt: skip
    note = (
        f"The source says about {printed}. 32,128 words: 32,000 pieces and 100 sentinels, padded. "
        "T5 divides the states by √d_model before the tied output; that has no parameters, and is not done here."
    )
    return Preset(config, EncoderDecoder, printed, "Raffel et al. 2020, section 3.7 (T5 1.0)", note)


def _llama(printed: str, source: str, note: str = "", **size) -> Preset:
    config = TransformerConfig(
        d_model=4096, n_layers=32, n_heads=32, norm="rms", activation="swiglu", positions="rope", tie_output=False,
        bias=False, dropout=0.0, **size,
    )  # fmt: skip
    return Preset(config, LanguageModel, printed, source, note)


PRESETS: dict[str, Preset] = {
    "laptop translation": Preset(
        TransformerConfig(vocab_size=8000), EncoderDecoder, "", "this course", "The defaults: two cores can train it."
    ),
    "laptop language model": Preset(
        TransformerConfig(
            vocab_size=8000, n_layers=4, d_ff=688, norm="rms", activation="swiglu", positions="rope", bias=False
        ),
        LanguageModel,
        "",
        "this course",
        "Llama's choices at a width that two cores can train. d_ff is 8/3 d_model, as the gate is a third matrix.",
    ),
    "vaswani base": _vaswani(
        "65M",
        "63M: with 37,000 words, as section 5.1 has it for English to German. The printed 65M asks for about 41,000, "
        "the big model's 213M for about 36,000: no one vocabulary gives both.",
        d_model=512, n_heads=8, d_ff=2048,
    ),
    "vaswani big": _vaswani(
        "213M", "214M: see the base model.", d_model=1024, n_heads=16, d_ff=4096, dropout=0.3
    ),
    "bert base": Preset(
        TransformerConfig(
            vocab_size=30_522, d_model=768, n_layers=12, n_heads=12, activation="gelu", norm_place="post",
            norm_eps=1e-12, embedding_norm=True, positions="learned", max_length=512, n_segments=2,
            dropout_attention=0.1,
        ),
        Encoder,
        "110M",
        "Devlin et al. 2019, section 3",
        "109M: without the pooler, 768² + 768, which would make 109,482,240. 30,522 words: the released uncased model.",
    ),
    "t5 small": _t5("60M", d_model=512, n_layers=6, n_heads=8, d_ff=2048),
    "t5 base": _t5("220M", d_model=768, n_layers=12, n_heads=12, d_ff=3072),
    "gpt-2 small": Preset(
        _gpt(d_model=768, n_layers=12, n_heads=12, max_length=1024, dropout_attention=0.1),
        LanguageModel,
        "117M",
        "Radford et al. 2019, table 2",
        "124M: its authors have since called the table's count an error.",
    ),
    **{row.name: _gpt_3(row) for row in GPT_3_TABLE},
    "llama 2 7b": _llama(
        "7B", "Touvron et al. 2023 (Llama 2), table 1, and the released model",
        vocab_size=32_000, d_ff=11_008, max_length=4096,
    ),
    "llama 3 8b": _llama(
        "8B", "Grattafiori et al. 2024, table 3, and the released model",
        "The table rounds the vocabulary to 128,000; the released model has 128,256 words.",
        vocab_size=128_256, n_kv_heads=8, d_ff=14_336, max_length=8192, rope_base=500_000.0,
    ),
}  # fmt: skip
