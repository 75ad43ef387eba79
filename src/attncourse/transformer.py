"""The Transformer, every choice a field of its config: blocks, encoder, decoder, and the models made of them."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Self, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attncourse import positions
from attncourse._checks import check_at_least, check_dropout, check_heads, check_one_of, check_tokens, check_whole
from attncourse.attention import KeyValueCache, MultiHeadAttention, combine_masks, lengths_to_mask
from attncourse.layers import ACTIVATIONS, Activation, FeedForward, LayerNorm, Packing, PostNorm, PreNorm, RMSNorm, drop
from attncourse.positions import RotationStyle

Positions = Literal["none", "integer", "binary", "sinusoidal", "learned", "shaw", "bucketed", "rope"]

# What a config may say, beside the numbers that must be at least 1.
CHOICES: dict[str, tuple[str, ...]] = {
    "activation": ACTIVATIONS,
    "norm": ("layer", "rms"),
    "norm_place": ("pre", "post"),
    "positions": get_args(Positions),
    "rope_style": get_args(RotationStyle),
}
SIZES = (
    *("vocabulary", "vocabulary_target", "d_model", "n_layers", "n_layers_decoder", "n_heads", "n_kv_heads"),
    *("d_head", "d_ff", "max_length", "max_distance", "n_buckets"),
)


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Every choice of a Transformer. The defaults are a small model for a laptop, with the norms in front.

    Raises ValueError for sizes and choices that are wrong by themselves; the parts refuse what does not fit together.
    """

    vocabulary: int
    """How many tokens there are: on both sides, unless `vocabulary_target` says otherwise for the target."""
    vocabulary_target: int | None = None
    d_model: int = 256
    n_layers: int = 3
    """Blocks in the encoder, or in the only stack; the decoder has as many unless `n_layers_decoder` says otherwise."""
    n_layers_decoder: int | None = None
    n_heads: int = 4
    n_kv_heads: int | None = None
    """Heads of keys and values: fewer than n_heads makes groups (GQA), one is multi-query."""
    d_head: int | None = None
    """Width of a head; d_model / n_heads unless given."""
    d_ff: int | None = None
    """Width of the feed-forward network; 4 d_model unless given."""
    activation: Activation = "relu"
    norm: Literal["layer", "rms"] = "layer"
    norm_place: Literal["pre", "post"] = "pre"
    norm_eps: float = 1e-5
    final_norm: bool | None = None
    """A norm behind the last block: with norm_place="pre" unless said otherwise, as nothing else normalises its sum."""
    embedding_norm: bool = False
    """A norm behind the embedding, as in BERT and BART."""
    positions: Positions = "sinusoidal"
    max_length: int = 512
    """The most positions of a table or of RoPE. "shaw" and "bucketed" clip distances and know no maximum.

    To try a trained model on longer texts, build `type(model)(replace(model.config, max_length=…))` and load the
    trained one's state: only learned positions have parameters that this changes.
    """
    max_distance: int = 128
    """Where "shaw" clips distances (Shaw et al. 2018: 16), and "bucketed" puts all beyond in one bucket (T5: 128)."""
    n_buckets: int = 32
    rope_base: float = 10000.0
    rope_style: RotationStyle = "half"
    scale_scores: bool = True
    """Divide the scores by √d_head. T5 does not."""
    scale_embedding: bool | None = None
    """Multiply embeddings by √d_model (Vaswani et al. 2017, section 3.4): with a fixed table of positions unless said
    otherwise. A sinusoid's numbers are about 1; an unscaled embedding's, about 1 / √d_model, would drown in them."""
    n_segments: int = 0
    """Learned vectors for the segments of the input, as BERT has for its two sentences."""
    tie_output: bool = True
    """The output's matrix is the (target's) embedding. Press and Wolf 2017."""
    share_embedding: bool = True
    """Source and target have one table of embeddings, if they have one vocabulary."""
    bias: bool = True
    """Biases in the linear layers and in LayerNorm."""
    dropout: float = 0.1
    """On the embedding and on the output of every sublayer."""
    dropout_attention: float = 0.0
    dropout_ff: float = 0.0
    """On the hidden layer of the feed-forward network."""

    def __post_init__(self) -> None:
        sizes = {name: value for name, value in vars(self).items() if name in SIZES and value is not None}
        check_at_least(1, **sizes)
        check_at_least(0, n_segments=self.n_segments)
        for name, allowed in CHOICES.items():
            check_one_of(name, getattr(self, name), allowed)
        if not self.norm_eps >= 0:
            raise ValueError(f"norm_eps: got {self.norm_eps}, expected 0 or more")
        if not self.rope_base > 0:
            raise ValueError(f"rope_base: got {self.rope_base}, expected more than 0")
        check_dropout(dropout=self.dropout, dropout_attention=self.dropout_attention, dropout_ff=self.dropout_ff)
        check_heads(self.d_model, self.n_heads, self.kv_heads, self.d_head)

    # What is left to follow from the rest, settled.

    @property
    def width_head(self) -> int:
        return self.d_model // self.n_heads if self.d_head is None else self.d_head

    @property
    def width_ff(self) -> int:
        return 4 * self.d_model if self.d_ff is None else self.d_ff

    @property
    def kv_heads(self) -> int:
        return self.n_heads if self.n_kv_heads is None else self.n_kv_heads

    @property
    def layers_decoder(self) -> int:
        return self.n_layers if self.n_layers_decoder is None else self.n_layers_decoder

    @property
    def target_words(self) -> int:
        return self.vocabulary if self.vocabulary_target is None else self.vocabulary_target

    @property
    def ends_in_norm(self) -> bool:
        return self.norm_place == "pre" if self.final_norm is None else self.final_norm

    @property
    def shares_embedding(self) -> bool:
        return self.share_embedding and self.target_words == self.vocabulary

    @property
    def scales_embedding(self) -> bool:
        return self.positions in positions.TABLES if self.scale_embedding is None else self.scale_embedding

    @property
    def longest(self) -> int | None:
        """The most tokens that the positions allow; None where they know no maximum."""
        return None if self.positions in ("none", "shaw", "bucketed") else self.max_length


def make_norm(config: TransformerConfig) -> nn.Module:
    if config.norm == "rms":
        return RMSNorm(config.d_model, config.norm_eps)
    return LayerNorm(config.d_model, config.norm_eps, config.bias)


class Embedding(nn.Module):
    """Tokens to vectors: a row of the table for each, scaled, its position added, normalised, as the config says.

    Raises ValueError for positions past the maximum, and for tokens outside of the vocabulary (looked at on the CPU
    alone: on a GPU that would mean waiting).
    """

    def __init__(self, config: TransformerConfig, vocabulary: int):
        super().__init__()
        d_model = config.d_model
        self.tokens = nn.Embedding(vocabulary, d_model)
        self.scale = d_model**0.5 if config.scales_embedding else 1.0
        self.positions = positions.make_table(config.positions, config.max_length, d_model)
        self.segments = nn.Embedding(config.n_segments, d_model) if config.n_segments else None
        self.norm = make_norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = drop(config.dropout)
        for table in (self.tokens, self.segments):
            if table is not None:                                 # tied, it gives logits of variance about one
                nn.init.normal_(table.weight, std=d_model**-0.5)

    def forward(
        self, tokens: Int[Tensor, "batch n"], start: int = 0, segments: Int[Tensor, "batch n"] | None = None
    ) -> Float[Tensor, "batch n d_model"]:
        """`start` is the position of the first token."""
        check_tokens("tokens", tokens, self.tokens.num_embeddings)
        x = self.tokens(tokens) * self.scale                                              # (batch, n, d_model)
        if self.positions is not None:
            x = x + self.positions(tokens.shape[1], start)
        if self.segments is not None:
            segments = torch.zeros_like(tokens) if segments is None else segments
            check_tokens("segments", segments, self.segments.num_embeddings, batch=tokens.shape[0], n=tokens.shape[1])
            x = x + self.segments(segments)
        elif segments is not None:
            raise ValueError(f"segments: got shape {tuple(segments.shape)}, expected None: the model has no n_segments")
        return self.dropout(self.norm(x))


class BlockCache(NamedTuple):
    """What one block remembers while it decodes."""

    own: KeyValueCache
    cross: KeyValueCache


@dataclass
class Weights:
    """The attention weights of a stack: a tensor (batch, n_heads, n_query, n_key) for each block, from the first up."""

    own: list[Tensor] = field(default_factory=list)
    cross: list[Tensor] = field(default_factory=list)


class Block(nn.Module):
    """Look around, look at the memory (if `cross`), think: each on a residual path of its own.

    "rope" and "bucketed" positions belong to the stack, which hands them to its blocks: a block by itself has none.
    Vaswani et al. 2017, section 3.1; with norm_place="pre", Xiong et al. 2020, figure 1b.
    """

    def __init__(
        self, config: TransformerConfig, causal: bool = False, cross: bool = False, rope: positions.RoPE | None = None
    ):
        super().__init__()
        self.causal = causal
        shaw = config.positions == "shaw"
        relative = positions.ShawRelative(config.max_distance, config.width_head) if shaw else None
        self.attention = self._residual(config, self._attention(config, rope, relative))
        self.cross = self._residual(config, self._attention(config)) if cross else None
        self.ff = self._residual(
            config,
            FeedForward(config.d_model, config.width_ff, config.activation, config.bias, config.dropout_ff),
        )

    def forward(
        self,
        x: Float[Tensor, "batch n d_model"],
        mask: Bool[Tensor, "*#batch #n n_key"] | None = None,
        memory: Float[Tensor, "batch n_memory d_model"] | None = None,
        memory_mask: Bool[Tensor, "*#batch #n n_memory"] | None = None,
        bias: Float[Tensor, "n_heads n n_key"] | None = None,
        cache: BlockCache | None = None,
        weights: Weights | None = None,
        packing: Packing | None = None,
        memory_packing: Packing | None = None,
    ) -> Float[Tensor, "batch n d_model"]:
        """The arguments are those of `MultiHeadAttention`, for its two uses.

        Raises ValueError for a memory that is missing, or given to a block that looks at none.
        """
        remembered = cache is not None and cache.cross.complete
        if (memory is not None or remembered) != (self.cross is not None):
            got = "None" if memory is None else f"shape {tuple(memory.shape)}"
            expected = "None: this block does not look at one" if self.cross is None else "what the encoder gives"
            raise ValueError(f"memory: got {got}, expected {expected}")
        x = self.attention(
            x,
            mask=mask,
            causal=self.causal,
            bias=bias,
            cache=None if cache is None else cache.own,
            weights=None if weights is None else weights.own,
            packing=packing,
        )
        if self.cross is not None:
            x = self.cross(
                x,
                memory=memory,
                mask=memory_mask,
                cache=None if cache is None else cache.cross,
                weights=None if weights is None else weights.cross,
                packing=packing,
                memory_packing=memory_packing,
            )
        return self.ff(x)

    @staticmethod
    def _attention(config: TransformerConfig, rope=None, relative=None) -> MultiHeadAttention:
        return MultiHeadAttention(
            config.d_model,
            config.n_heads,
            config.n_kv_heads,
            config.d_head,
            config.bias,
            config.dropout_attention,
            scale=None if config.scale_scores else 1.0,
            rope=rope,
            relative=relative,
        )

    @staticmethod
    def _residual(config: TransformerConfig, sublayer: nn.Module) -> nn.Module:
        wrapper = PreNorm if config.norm_place == "pre" else PostNorm
        return wrapper(make_norm(config), sublayer, config.dropout)


class Stack(nn.Module):
    """Blocks one above the other, and the norm behind the last: what all the models below, and ViT, are made of."""

    def __init__(
        self, config: TransformerConfig, n_layers: int | None = None, causal: bool = False, cross: bool = False
    ):
        super().__init__()
        _check_config(config)
        n_layers = config.n_layers if n_layers is None else n_layers
        check_at_least(1, n_layers=n_layers)
        rope, self.bias = None, None
        if config.positions == "rope":
            rope = positions.RoPE(config.width_head, config.max_length, config.rope_base, config.rope_style)
        if config.positions == "bucketed":
            self.bias = positions.BucketedBias(
                config.n_heads, config.n_buckets, config.max_distance, bidirectional=not causal
            )
        self.blocks = nn.ModuleList(Block(config, causal, cross, rope) for _ in range(n_layers))
        self.norm = make_norm(config) if config.ends_in_norm else nn.Identity()

    def forward(
        self,
        x: Float[Tensor, "batch n d_model"],
        mask: Bool[Tensor, "*#batch #n n_key"] | None = None,
        memory: Float[Tensor, "batch n_memory d_model"] | None = None,
        memory_mask: Bool[Tensor, "*#batch #n n_memory"] | None = None,
        caches: Sequence[BlockCache] | None = None,
        weights: Weights | None = None,
        packing: Packing | None = None,
        memory_packing: Packing | None = None,
    ) -> Float[Tensor, "batch n d_model"]:
        """The arguments are those of a block; `caches` has one for each."""
        bias = None
        if self.bias is not None:
            n = x.shape[1] if packing is None else packing.shape[1]
            start = caches[0].own.length if caches else 0
            bias = self.bias(n, start + n, start)                                         # (n_heads, n, start + n)
        for i, block in enumerate(self.blocks):
            x = block(
                x,
                mask=mask,
                memory=memory,
                memory_mask=memory_mask,
                bias=bias,
                cache=caches[i] if caches else None,
                weights=weights,
                packing=packing,
                memory_packing=memory_packing,
            )
        return self.norm(x)

    def remember(self, memory: Tensor, caches: Sequence[BlockCache], packing: Packing | None = None) -> None:
        """Let each block's cross-attention put the memory's keys and values into its cache."""
        for block, cache in zip(self.blocks, caches, strict=True):
            block.cross.sublayer.remember(memory, cache.cross, packing)  # type: ignore[union-attr, operator]


class Encoder(nn.Module):
    """Tokens to states, each of which may look everywhere: BERT's shape, and the first half of an encoder–decoder."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        _check_config(config)
        self.config = config
        self.embedding = Embedding(config, config.vocabulary)
        self.stack = Stack(config)
        initialise(self)

    def forward(
        self,
        tokens: Int[Tensor, "batch n"],
        lengths: Int[Tensor, " batch"] | None = None,
        segments: Int[Tensor, "batch n"] | None = None,
        mask: Bool[Tensor, "*#batch n n"] | None = None,
        weights: Weights | None = None,
    ) -> Float[Tensor, "batch n d_model"]:
        """Nothing behind a sequence's length is looked at, and what comes out there means nothing.

        Without `lengths` all tokens are real. `mask` forbids more: a window, say. `weights` collects the attention
        weights.
        """
        x = self.embedding(tokens, segments=segments)                                     # (batch, n, d_model)
        mask = mask if lengths is None else combine_masks(source_mask(tokens, lengths), mask)
        return self.stack(x, mask, weights=weights)


class State:
    """Where a decoding stands: what each block remembers of the tokens read so far, and of the memory."""

    def __init__(self, n_layers: int, memory_mask: Bool[Tensor, "batch 1 n_memory"] | None = None):
        self.caches = [BlockCache(KeyValueCache(), KeyValueCache()) for _ in range(n_layers)]
        self.memory_mask = memory_mask

    @property
    def length(self) -> int:
        return self.caches[0].own.length

    def select(self, rows: Int[Tensor, " n"]) -> Self:
        """Keep these rows of the batch, in this order; a row may be kept more than once. Returns the state, changed."""
        for cache in self.caches:
            cache.own.select(rows)
            cache.cross.select(rows)
        if self.memory_mask is not None:
            self.memory_mask = self.memory_mask.index_select(0, rows)
        return self


class Decoder(nn.Module):
    """Tokens to states that see their own past alone, and the memory of an encoder if `cross`."""

    def __init__(self, config: TransformerConfig, cross: bool = True):
        super().__init__()
        _check_config(config)
        self.embedding = Embedding(config, config.target_words)
        self.stack = Stack(config, config.layers_decoder, causal=True, cross=cross)
        initialise(self)

    def forward(
        self,
        tokens: Int[Tensor, "batch n"],
        memory: Float[Tensor, "batch n_memory d_model"] | None = None,
        memory_mask: Bool[Tensor, "batch 1 n_memory"] | None = None,
        state: State | None = None,
        weights: Weights | None = None,
        packing: Packing | None = None,
        memory_packing: Packing | None = None,
        mask: Bool[Tensor, "*#batch n n"] | None = None,
    ) -> Float[Tensor, "batch n d_model"]:
        """With a `state`, `tokens` are the next ones and all before them are remembered in it.

        `mask` forbids more than the future.
        """
        x = self.embedding(tokens, start=0 if state is None else state.length)
        return self.stack(
            x if packing is None else packing.pack(x),
            mask=mask,
            memory=memory,
            memory_mask=memory_mask,
            caches=None if state is None else state.caches,
            weights=weights,
            packing=packing,
            memory_packing=memory_packing,
        )


class AttentionWeights(NamedTuple):
    """Where an encoder–decoder looked: (batch, n_layers, n_heads, n_query, n_key) each."""

    encoder: Float[Tensor, "batch n_layers n_heads n_source n_source"]
    decoder: Float[Tensor, "batch n_layers n_heads n_target n_target"]
    cross: Float[Tensor, "batch n_layers n_heads n_target n_source"]


class _Writer(nn.Module):
    """What writes tokens: a decoder, an output that makes logits of its states, and a loss."""

    config: TransformerConfig
    decoder: Decoder
    output: nn.Linear
    loss: Callable[..., Tensor]
    _packed_loss: Callable[..., Tensor]

    def tie(self) -> None:
        """Share the matrices that the config says are one. Call it again where torch has parted them: in `to_empty`."""
        if self.config.tie_output:
            self.output.weight = self.decoder.embedding.tokens.weight

    @property
    def longest(self) -> int | None:
        """The most tokens that its positions allow."""
        return self.config.longest

    def compiled_loss(self, **options) -> Callable[..., Tensor]:
        """`loss`, compiled, and without padding still: where the real tokens are is found outside of the graph.

        Keep what comes back: a second call compiles again. `options` are torch.compile's. (torch.compile(model.loss)
        works, too, but a graph cannot find out how many tokens are real, so it computes the padding.)
        """
        return functools.partial(self.loss, packed_loss=torch.compile(self._packed_loss, **options))


class EncoderDecoder(_Writer):
    """The Transformer of "Attention is all you need": an encoder reads the source, a decoder writes the target.

    Called and decoded like `attncourse.recurrent.Seq2Seq`. Vaswani et al. 2017, figure 1.
    """

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.output = nn.Linear(config.d_model, config.target_words, bias=False)
        initialise(self.output)
        self.tie()

    def tie(self) -> None:
        if self.config.shares_embedding:
            self.decoder.embedding.tokens = self.encoder.embedding.tokens
        super().tie()

    def forward(
        self,
        source: Int[Tensor, "batch n_source"],
        lengths: Int[Tensor, " batch"],
        target_in: Int[Tensor, "batch n_target"],
        with_weights: bool = False,
    ):
        """Teacher forcing in one pass: logits of each next token, given the true ones before it.

        They are (batch, n_target, vocabulary); `with_weights=True` returns (logits, AttentionWeights).
        Raises ValueError for a source length outside 1..n_source, positions past the maximum, tokens out of the
        vocabulary.
        """
        seen, written = (Weights(), Weights()) if with_weights else (None, None)
        check_tokens("target_in", target_in, self.config.target_words, batch=source.shape[0])
        mask = source_mask(source, lengths, least=1)                                      # (batch, 1, n_source)
        memory = self.encoder(source, mask=mask, weights=seen)                            # (batch, n_source, d_model)
        logits = self.output(self.decoder(target_in, memory, mask, weights=written))
        if seen is None or written is None:
            return logits
        stacked = (torch.stack(each, dim=1) for each in (seen.own, written.own, written.cross))
        return logits, AttentionWeights(*stacked)

    def loss(
        self,
        source: Int[Tensor, "batch n_source"],
        lengths: Int[Tensor, " batch"],
        target_in: Int[Tensor, "batch n_target"],
        target_out: Int[Tensor, "batch n_target"],
        label_smoothing: float = 0.0,
        pad: int = 0,
        packed_loss: Callable[..., Tensor] | None = None,
    ) -> Float[Tensor, ""]:
        """Cross entropy in nats, averaged over the real target tokens: what `forward` and `token_loss` give, sooner.

        Padding behind the real tokens is left out between the attentions, so it costs next to nothing there. `pad` is a
        token of the vocabulary that is never an answer. (`packed_loss` is for `compiled_loss`.)
        Raises ValueError as `forward`, and for a `target_out` of another shape or of padding alone.
        """
        mask = source_mask(source, lengths, least=1)                                      # (batch, 1, n_source)
        check_tokens("target_in", target_in, self.config.target_words, batch=source.shape[0])
        batch, n_target = target_in.shape
        check_tokens("target_out", target_out, self.config.target_words, batch=batch, n=n_target)
        if torch.compiler.is_compiling():  # a compiled graph has fixed shapes: here padding is computed and ignored
            return cross_entropy(self(source, lengths, target_in), target_out, label_smoothing, pad)
        packed, real = Packing(mask.squeeze(1)), _pack_real("target_out", target_out, pad)
        packed_loss = self._packed_loss if packed_loss is None else packed_loss
        return packed_loss(source, mask, packed, target_in, target_out, real, label_smoothing, pad)

    def _packed_loss(self, source, mask, packed, target_in, target_out, real, label_smoothing, pad):
        memory = self._read(source, mask, packed)                                         # (n_source_tokens, d_model)
        states = self.decoder(target_in, memory, mask, packing=real, memory_packing=packed)
        return cross_entropy(self.output(states), real.pack(target_out), label_smoothing, pad)

    def start(self, source: Int[Tensor, "batch n_source"], lengths: Int[Tensor, " batch"]) -> State:
        """Read the source; nothing is written yet."""
        mask = source_mask(source, lengths, least=1)                                      # (batch, 1, n_source)
        packing = Packing(mask.squeeze(1))
        memory = self._read(source, mask, packing)                                        # (n_source_tokens, d_model)
        state = State(self.config.layers_decoder, mask)
        self.decoder.stack.remember(memory, state.caches, packing)
        return state

    def _read(self, source: Tensor, mask: Tensor, packing: Packing) -> Float[Tensor, "n_source_tokens d_model"]:
        """What `encoder` gives, for the real tokens alone."""
        return self.encoder.stack(packing.pack(self.encoder.embedding(source)), mask, packing=packing)

    def step(
        self, token: Int[Tensor, " batch"], state: State, with_weights: bool = False
    ) -> tuple[Float[Tensor, "batch vocabulary"], State, Float[Tensor, "batch n_source"] | None]:
        """Read one token more: (logits of the next, the state, which has changed, weights).

        The weights are the mean over the heads of the last block's cross-attention; None unless asked for.
        """
        weights = Weights() if with_weights else None
        states = self.decoder(token.unsqueeze(1), None, state.memory_mask, state, weights)    # (batch, 1, d_model)
        looked = None if weights is None else weights.cross[-1].mean(dim=1).squeeze(1)    # (batch, n_source)
        return self.output(states).squeeze(1), state, looked                              # (batch, vocabulary)


class LanguageModel(_Writer):
    """A decoder alone: each token is predicted from those before it. GPT's and Llama's shape."""

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.config = config
        self.decoder = Decoder(config, cross=False)
        self.output = nn.Linear(config.d_model, config.target_words, bias=False)
        initialise(self.output)
        self.tie()

    def forward(
        self,
        tokens: Int[Tensor, "batch n"],
        *,
        mask: Bool[Tensor, "*#batch n n"] | None = None,
        with_weights: bool = False,
    ):
        """Logits of each next token, (batch, n, vocabulary). Padding behind a sequence changes nothing before it.

        `mask` forbids more than the future: a window, say.
        `with_weights=True` returns (logits, weights), the weights (batch, n_layers, n_heads, n, n).
        Raises ValueError for positions past the maximum, tokens out of the vocabulary.
        """
        weights = Weights() if with_weights else None
        logits = self.output(self.decoder(tokens, weights=weights, mask=mask))            # (batch, n, vocabulary)
        return logits if weights is None else (logits, torch.stack(weights.own, dim=1))

    def loss(
        self,
        tokens_in: Int[Tensor, "batch n"],
        tokens_out: Int[Tensor, "batch n"],
        label_smoothing: float = 0.0,
        pad: int = 0,
        mask: Bool[Tensor, "*#batch n n"] | None = None,
        packed_loss: Callable[..., Tensor] | None = None,
    ) -> Float[Tensor, ""]:
        """Cross entropy in nats, averaged over the real tokens of `tokens_out`: those of `tokens_in`, one later.

        `pad` is a token of the vocabulary that is never an answer: in front, it takes a prompt out of the loss.
        (`packed_loss` is for `compiled_loss`.)
        Raises ValueError as `forward`, and for a `tokens_out` of another shape or of padding alone.
        """
        check_tokens("tokens_in", tokens_in, self.config.target_words)
        batch, n = tokens_in.shape
        check_tokens("tokens_out", tokens_out, self.config.target_words, batch=batch, n=n)
        if torch.compiler.is_compiling():
            return cross_entropy(self(tokens_in, mask=mask), tokens_out, label_smoothing, pad)
        real = _pack_real("tokens_out", tokens_out, pad)
        packed_loss = self._packed_loss if packed_loss is None else packed_loss
        return packed_loss(tokens_in, tokens_out, real, mask, label_smoothing, pad)

    def _packed_loss(self, tokens_in, tokens_out, real, mask, label_smoothing, pad):
        states = self.decoder(tokens_in, packing=real, mask=mask)                         # (n_tokens, d_model)
        return cross_entropy(self.output(states), real.pack(tokens_out), label_smoothing, pad)

    def start(self) -> State:
        """Nothing is read yet."""
        return State(self.config.layers_decoder)

    def read(self, tokens: Int[Tensor, "batch n"], state: State) -> Float[Tensor, "batch vocabulary"]:
        """Read n tokens more, at once; logits of what follows the last of them. The state changes."""
        return self.output(self.decoder(tokens, state=state)[:, -1])                      # (batch, vocabulary)

    def step(
        self, token: Int[Tensor, " batch"], state: State, with_weights: bool = False
    ) -> tuple[Float[Tensor, "batch vocabulary"], State, Float[Tensor, "batch n"] | None]:
        """Read one token more: (logits of the next, the state, which has changed, weights over the tokens read)."""
        weights = Weights() if with_weights else None
        states = self.decoder(token.unsqueeze(1), state=state, weights=weights)           # (batch, 1, d_model)
        looked = None if weights is None else weights.own[-1].mean(dim=1).squeeze(1)      # (batch, n)
        return self.output(states).squeeze(1), state, looked


def source_mask(
    source: Int[Tensor, "batch n_source"], lengths: Int[Tensor, " batch"], least: int = 0
) -> Bool[Tensor, "batch 1 n_source"]:
    """`lengths_to_mask` for sequences of at least `least` tokens. Raises ValueError for other lengths."""
    check_whole("source", source, "batch n_source")
    check_whole("lengths", lengths, "batch", batch=source.shape[0])
    return lengths_to_mask(lengths, source.shape[1], least)[:, None]                      # (batch, 1, n_source)


def _check_config(config: TransformerConfig) -> None:
    if not isinstance(config, TransformerConfig):
        raise TypeError(f"config: got {type(config).__name__}, expected a TransformerConfig")


def _pack_real(name: str, tokens: Tensor, pad: int) -> Packing:
    """Up to each row's last real token: padding between real ones is read by those behind it."""
    packing = Packing((tokens != pad).flip(1).cumsum(1).flip(1) > 0)
    if not len(packing.index):
        raise ValueError(f"{name}: got padding alone, expected at least one real token")
    return packing


def cross_entropy(
    logits: Float[Tensor, "*batch vocabulary"], answers: Int[Tensor, "*batch"], label_smoothing: float, pad: int
) -> Float[Tensor, ""]:
    """Nats a token, averaged over the answers that are not `pad`; the shapes are the caller's to check.

    `label_smoothing` is the share of the truth that all tokens of the vocabulary get alike (Szegedy et al. 2016).
    Raises ValueError for a share that is not 0 to 1.
    """
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"label_smoothing: got {label_smoothing}, expected 0 to 1")
    logits, answers = logits.flatten(0, -2), answers.flatten()                            # (n_tokens, vocabulary)
    return F.cross_entropy(logits, answers, ignore_index=pad, label_smoothing=label_smoothing)


def initialise(model: nn.Module) -> None:
    """Matrices by Glorot and Bengio 2010, equation 16 ("Xavier"), biases zero; tables have initialised themselves."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
