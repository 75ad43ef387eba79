"""Beyond text: the same blocks, fed with pictures (ViT) and with sound (wav2vec 2.0)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, overload

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from attncourse._checks import (
    check_at_least,
    check_boolean,
    check_one_of,
    check_shape,
    min_max,
    values_are_cheap_to_read,
)
from attncourse.attention import lengths_to_mask
from attncourse.layers import Activation, LayerNorm, make_dropout
from attncourse.positions import FixedPositions, grid_sinusoids, make_table
from attncourse.transformer import Positions, Stack, TransformerConfig, Weights, initialise

# Pictures


def patchify(
    images: Shaped[Tensor, "batch channels height width"], patch: int
) -> Shaped[Tensor, "batch n_patches channels*{patch}*{patch}"]:
    """Cut pictures into square patches, read row by row like a page; each becomes one vector.

    Within a patch the numbers run over channel, row, column: a matrix on these vectors is a convolution with kernel and
    stride of one patch. Raises ValueError where `patch` does not divide height and width.
    Dosovitskiy et al. 2021, section 3.1.

    >>> patchify(torch.arange(16).view(1, 1, 4, 4), 2)
    tensor([[[ 0,  1,  4,  5],
             [ 2,  3,  6,  7],
             [ 8,  9, 12, 13],
             [10, 11, 14, 15]]])
    """
    check_shape("images", images, "batch channels height width")
    check_at_least(1, patch=patch)
    _check_patch(patch, *images.shape[2:])
    x = images.unflatten(3, (-1, patch)).unflatten(2, (-1, patch))    # (batch, channels, rows, patch, columns, patch)
    x = x.permute(0, 2, 4, 1, 3, 5)                                   # (batch, rows, columns, channels, patch, patch)
    return x.flatten(3).flatten(1, 2)                                 # (batch, n_patches, channels · patch²)


def unpatchify(
    patches: Shaped[Tensor, "batch n_patches channels*{patch}*{patch}"], patch: int, height: int, width: int
) -> Shaped[Tensor, "batch channels {height} {width}"]:
    """Put the patches of `patchify` back into pictures of height × width.

    Raises ValueError where `patch` does not divide them, or the patches are too many, too few or of another width.
    """
    _check_patch(patch, height, width)
    rows, columns = height // patch, width // patch
    check_shape("patches", patches, "batch n_patches channels*patch*patch", n_patches=rows * columns)
    if patches.shape[2] % patch**2:
        raise ValueError(f"patches: got width {patches.shape[2]}, expected a multiple of patch² = {patch**2}")
    x = patches.unflatten(2, (-1, patch, patch)).unflatten(1, (rows, columns))
    x = x.permute(0, 3, 1, 4, 2, 5)                                   # (batch, channels, rows, patch, columns, patch)
    return x.flatten(4).flatten(2, 3)                                 # (batch, channels, height, width)


@dataclass(frozen=True, kw_only=True)
class ViTConfig(TransformerConfig):
    """A Transformer's choices, and what the pictures are. Only the fields of a single stack are read.

    Raises ValueError for what no model can be built from.
    """

    vocab_size: int = field(default=1, init=False, repr=False)  # there are no words here
    image_size: int
    """Height and width of the pictures, in pixels."""
    patch: int
    """Height and width of a patch, in pixels."""
    channels: int = 3
    n_classes: int
    positions: Positions = "learned"
    """A vector for each place ("learned"), its row and its column ("sinusoidal", in two dimensions), or "none"."""
    activation: Activation = "gelu"
    norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, image_size=self.image_size, channels=self.channels, n_classes=self.n_classes)
        _check_patch(self.patch, self.image_size, self.image_size)
        check_one_of("positions", self.positions, ("none", "learned", "sinusoidal"))

    @property
    def n_patches(self) -> int:
        return (self.image_size // self.patch) ** 2


class ViT(nn.Module):
    """Patches are the words, a class token in front collects what they say, and one layer reads it out.

        x = [class; patches W] + positions,   logits = norm(blocks(x))₀ V

    Dosovitskiy et al. 2021, equations 1 to 4. For pre-training they give the head a hidden layer; here it has none, as
    in their fine-tuning.

    >>> model = ViT(ViTConfig(image_size=8, patch=2, channels=1, n_classes=10, d_model=32))
    >>> logits, weights = model(torch.rand(5, 1, 8, 8), with_weights=True)
    >>> logits.shape, weights.shape
    (torch.Size([5, 10]), torch.Size([5, 3, 4, 17, 17]))
    """

    def __init__(self, config: ViTConfig):
        super().__init__()
        self.config = config
        n, d_model = 1 + config.n_patches, config.d_model
        self.patches = nn.Linear(config.channels * config.patch**2, d_model)
        self.class_token = nn.Parameter(torch.empty(d_model))
        grid = config.positions == "sinusoidal"
        self.positions = GridPositions(n, d_model) if grid else make_table(config.positions, n, d_model)
        self.dropout = make_dropout(config.dropout)
        self.stack = Stack(config)
        self.head = nn.Linear(d_model, config.n_classes)
        initialise(self)
        nn.init.normal_(self.class_token, std=0.02)  # of zeros, the first norm would make 0 / √ε

    def forward(self, images: Float[Tensor, "batch channels height width"], with_weights: bool = False):
        """Logits of the classes, (batch, n_classes).

        `with_weights=True` returns (logits, weights), the weights (batch, n_layers, n_heads, n, n); token 0 of the
        n = 1 + n_patches is the class token.
        Raises ValueError for pictures of another size or number of channels, TypeError for whole numbers.
        """
        size, channels = self.config.image_size, self.config.channels
        axes = "batch channels height width"
        _check_floats("images", images, axes, channels=channels, height=size, width=size)
        x = self.patches(patchify(images, self.config.patch))                         # (batch, n_patches, d_model)
        x = torch.cat([self.class_token.expand(x.shape[0], 1, -1), x], dim=1)             # (batch, n, d_model)
        if self.positions is not None:
            x = x + self.positions(x.shape[1])
        weights = Weights() if with_weights else None
        x = self.stack(self.dropout(x), weights=weights)                              # (batch, n, d_model)
        logits = self.head(x[:, 0])                                                   # (batch, n_classes)
        return logits if weights is None else (logits, torch.stack(weights.self_attn, dim=1))


class GridPositions(FixedPositions):
    """`sinusoidal_2d` for a square of patches, and zeros for the class token before them: 1 + side² places."""

    def __init__(self, max_length: int, d_model: int):
        super().__init__("sinusoidal", max_length, d_model)

    def _compute(self) -> dict[str, Tensor]:
        side = math.isqrt(self.max_length - 1)
        with torch.device("cpu"):
            grid = grid_sinusoids(side, side, self.d_model)                           # (side², d_model)
        return {"table": F.pad(grid, (0, 0, 1, 0))}


def attention_rollout(weights: Float[Tensor, "*batch n_layers n_heads n n"]) -> Float[Tensor, "*batch n n"]:
    """How much of each input token there is in each token at the top, if values were only averaged: rows sum to 1.

        R = ½(A_L + I) … ½(A_2 + I) ½(A_1 + I),   A_ℓ the mean of layer ℓ's tables over its heads

    It follows the weights and the residual path alone, and knows nothing of what values, projections and feed-forward
    networks do. Raises ValueError for tables that are not square. Abnar and Zuidema 2020, section 3.

    >>> swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> attention_rollout(swap.expand(1, 1, 2, 2))  # one layer, one head
    tensor([[0.5000, 0.5000],
            [0.5000, 0.5000]])
    """
    if weights.ndim < 4 or weights.shape[-1] != weights.shape[-2]:
        raise ValueError(f"weights: got shape {tuple(weights.shape)}, expected (*batch, n_layers, n_heads, n, n)")
    stays = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)
    rolled = stays
    for layer in weights.mean(dim=-3).unbind(dim=-3):                                 # (*batch, n, n)
        rolled = (layer + stays) / 2 @ rolled
    return rolled.expand(*weights.shape[:-4], *stays.shape)


# Sound


@overload
def count_frames(n_samples: int, kernels: Sequence[int], strides: Sequence[int]) -> int: ...
@overload
def count_frames(n_samples: Tensor, kernels: Sequence[int], strides: Sequence[int]) -> Tensor: ...
def count_frames(n_samples, kernels, strides):
    """How many frames convolutions of these widths and strides, without padding, make of so many samples.

    `n_samples` may be a tensor of lengths. Raises ValueError for samples too few for one frame.

    >>> count_frames(16000, kernels=(10, 3, 3, 3, 3, 2, 2), strides=(5, 2, 2, 2, 2, 2, 2))  # a second, in wav2vec 2.0
    49
    """
    n_frames = n_samples
    for kernel, stride in zip(kernels, strides, strict=True):
        n_frames = (n_frames - kernel) // stride + 1
    least = (min_max(n_frames) or (1,))[0] if isinstance(n_frames, Tensor) else n_frames
    if not torch.compiler.is_compiling() and least < 1:
        got = n_samples.tolist() if isinstance(n_samples, Tensor) else n_samples
        raise ValueError(f"n_samples: got {got}, expected enough for one frame")
    return n_frames


class FeatureEncoder(nn.Module):
    """A waveform to frames: convolutions that each step over several samples, with a norm over the channels and GELU.

    A frame sees its own samples and no padding, so what stands after a sound's end changes no frame within it.
    Raises ValueError for kernels and strides that are not as many, a waveform of another shape or too short.
    Baevski et al. 2020, section 2.
    """

    def __init__(self, d_feature: int, kernels: Sequence[int], strides: Sequence[int]):
        super().__init__()
        _check_convolutions(kernels, strides)
        self.kernels, self.strides = tuple(kernels), tuple(strides)
        channels = [1, *[d_feature] * len(kernels)]
        self.convolutions = nn.ModuleList(
            nn.Conv1d(channels[i], d_feature, kernels[i], strides[i], bias=False) for i in range(len(kernels))
        )
        self.norms = nn.ModuleList(LayerNorm(d_feature) for _ in kernels)

    def forward(self, waveform: Float[Tensor, "batch n_samples"]) -> Float[Tensor, "batch n_frames d_feature"]:
        _check_floats("waveform", waveform, "batch n_samples")
        self.n_frames(waveform.shape[1])
        x = waveform.unsqueeze(1)                                                     # (batch, 1, n_samples)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.gelu(norm(convolution(x).mT)).mT                                    # (batch, d_feature, fewer)
        return x.mT                                                                   # (batch, n_frames, d_feature)

    def n_frames(self, n_samples):
        """`count_frames` for this encoder."""
        return count_frames(n_samples, self.kernels, self.strides)


def span_mask(
    batch: int,
    n_frames: int,
    p: float,
    span: int,
    generator: torch.Generator | None = None,
    lengths: Int[Tensor, " batch"] | None = None,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "{batch} {n_frames}"]:
    """Which frames to hide: True in spans of `span` frames, which may overlap.

    A sequence of n frames gets s = max(1, round(p · n)) spans. Their starts are drawn without replacement, uniformly,
    out of the n − span + 1 frames at which a whole span fits (if those are fewer than s, a span starts at each).
    Raises ValueError for a p outside 0..1, or a sequence shorter than a span.
    Baevski et al. 2020, section 3.1; there p = 0.065 and span = 10, and a start may be any of the n frames.

    >>> mask = span_mask(1, 100_000, p=0.065, span=10, generator=torch.Generator().manual_seed(0))
    >>> round(mask.float().mean().item(), 2)  # 1 − (1 − p)^10
    0.49
    """
    if not 0 <= p <= 1:
        raise ValueError(f"p: got {p}, expected a probability")
    if not 1 <= span <= n_frames:
        raise ValueError(f"span: got {span}, expected 1..{n_frames}, so that one fits into n_frames")
    n = torch.full((batch,), n_frames, device=device) if lengths is None else lengths
    check_shape("lengths", n, "batch", batch=batch)
    if (found := min_max(n)) and not span <= found[0] <= found[1] <= n_frames:
        raise ValueError(f"lengths: got {n.tolist()}, expected each within {span}..{n_frames}, the span to n_frames")
    fits = lengths_to_mask(n - span + 1, n_frames)                                    # (batch, n_frames)
    # The s lowest of independent random numbers stand at s places drawn without replacement.
    lot = _uniform((batch, n_frames), generator, n.device).masked_fill(~fits, 2.0)    # (batch, n_frames)
    n_spans = (p * n).round().clamp(min=1).unsqueeze(1)                               # (batch, 1)
    starts = (lot.argsort(dim=1).argsort(dim=1) < n_spans) & fits                     # (batch, n_frames)
    started = starts.cumsum(dim=1)                                                    # (batch, n_frames)
    ended = F.pad(started, (span, 0))[:, :n_frames]                                   # (batch, n_frames)
    return started > ended


def sample_negatives(
    mask: Bool[Tensor, "batch n_frames"], n_negatives: int, generator: torch.Generator | None = None
) -> Int[Tensor, "n_masked {n_negatives}"]:
    """Distractors for each masked frame: indices into the list of masked frames, x[mask].

    Each is drawn uniformly, with replacement, from the other masked frames of the same sequence.
    Raises ValueError for fewer than one, or a sequence in which just one frame is masked, TypeError for a mask that is
    not boolean. Baevski et al. 2020, section 3.2.

    >>> mask = torch.tensor([[True, False, True], [True, True, False]])
    >>> sample_negatives(mask, 3)
    tensor([[1, 1, 1],
            [0, 0, 0],
            [3, 3, 3],
            [2, 2, 2]])
    """
    check_shape("mask", mask, "batch n_frames")
    check_boolean("mask", mask, "a frame is masked")
    check_at_least(1, n_negatives=n_negatives)
    n_masked = mask.sum(dim=1)                                                        # (batch,)
    if values_are_cheap_to_read(n_masked) and (n_masked == 1).any():
        raise ValueError(f"mask: got {n_masked.tolist()} masked frames, expected none or at least 2 in each sequence")
    sequence = mask.nonzero()[:, 0]                                                   # (n_masked,)
    first, n_others = (n_masked.cumsum(0) - n_masked)[sequence], n_masked[sequence] - 1
    own = torch.arange(len(sequence), device=mask.device) - first                     # (n_masked,)
    lot = _uniform((len(sequence), n_negatives), generator, mask.device)              # (n_masked, n_negatives)
    drawn = (lot * n_others.unsqueeze(1)).long()
    drawn = drawn + (drawn >= own.unsqueeze(1))  # step over itself
    return first.unsqueeze(1) + drawn


def contrastive_loss(
    context: Float[Tensor, "n d"],
    targets: Float[Tensor, "n d"],
    negatives: Float[Tensor, "n n_negatives d"],
    temperature: float = 0.1,
) -> Float[Tensor, ""]:
    """Cross entropy in nats of telling each target from its negatives, by their cosines with the context; mean over n.

        −log( exp(cos(c, q) / κ) / Σ exp(cos(c, q̃) / κ) ),   q̃ over q and the negatives

    A negative that happens to equal its target is not treated apart.
    Raises ValueError for shapes that do not fit, no rows, or a temperature (κ) that is not above 0.
    Baevski et al. 2020, equation 3.

    >>> c = torch.tensor([[1.0, 0.0]])
    >>> contrastive_loss(c, targets=c, negatives=-c.unsqueeze(1), temperature=1.0)  # log(1 + e⁻²)
    tensor(0.1269)
    """
    check_shape("context", context, "n d")
    n, d = context.shape
    check_shape("targets", targets, "n d", n=n, d=d)
    check_shape("negatives", negatives, "n n_negatives d", n=n, d=d)
    if not n:
        raise ValueError(f"context: got shape {tuple(context.shape)}, expected at least one row")
    if temperature <= 0:
        raise ValueError(f"temperature: got {temperature}, expected a number above 0")
    candidates = torch.cat([targets.unsqueeze(1), negatives], dim=1)                  # (n, 1 + n_negatives, d)
    similarity = F.cosine_similarity(context.unsqueeze(1), candidates, dim=-1)        # (n, 1 + n_negatives)
    return F.cross_entropy(similarity / temperature, similarity.new_zeros(n, dtype=torch.long))


class Quantizer(nn.Module):
    """A vector to one of n_entries^n_groups codes: a choice from each codebook, side by side, and a linear layer.

    In training the choice is drawn: Gumbel noise on the scores, and the one-hot choice takes the softmax's gradient
    (straight through). In evaluation it is the best. `temperature` is the softmax's; lower it as training goes on.
    Raises ValueError for n_groups that do not divide d_code, or vectors of another width.
    Baevski et al. 2020, section 2 and equation 1; Jang et al. 2017.
    """

    def __init__(self, d_feature: int, d_code: int, n_groups: int = 2, n_entries: int = 32, temperature: float = 2.0):
        super().__init__()
        if n_groups < 1 or d_code % n_groups:
            raise ValueError(f"n_groups: got {n_groups}, expected a divisor of d_code = {d_code}")
        self.temperature = temperature
        self.scores = nn.Linear(d_feature, n_groups * n_entries)
        self.codebooks = nn.Parameter(torch.randn(n_groups, n_entries, d_code // n_groups))
        self.output = nn.Linear(d_code, d_code)
        initialise(self)
        nn.init.normal_(self.scores.weight)  # scores near 1 would drown in the noise, and the codes say nothing

    def forward(
        self, x: Float[Tensor, "n d_feature"], generator: torch.Generator | None = None
    ) -> tuple[Float[Tensor, "n d_code"], Float[Tensor, "n n_groups n_entries"]]:
        """Returns (codes, probabilities), the probabilities without noise or temperature."""
        check_shape("x", x, "n d_feature", d_feature=self.scores.in_features)
        scores = self.scores(x).unflatten(-1, self.codebooks.shape[:2])               # (n, n_groups, n_entries)
        noisy = scores
        if self.training:
            gumbel = -(-_uniform(scores.shape, generator, x.device).clamp(min=1e-9).log()).log()
            noisy = scores + gumbel.to(scores.dtype)
        soft = (noisy / self.temperature).softmax(dim=-1)
        hard = F.one_hot(noisy.argmax(dim=-1), scores.shape[-1]).to(soft.dtype)
        choice = hard + (soft - soft.detach())                                          # hard forward, soft backward
        chosen = torch.einsum("nge,ged->ngd", choice, self.codebooks).flatten(1)      # (n, d_code)
        return self.output(chosen), scores.softmax(dim=-1)


def diversity_loss(probabilities: Float[Tensor, "n n_groups n_entries"]) -> Float[Tensor, ""]:
    """How unevenly the entries are used: Σ p̄ log p̄ / (n_groups · n_entries), p̄ the mean over the n vectors.

    It is the negative entropy, so it is lowest, −log(n_entries) / n_entries, where all entries are used alike.
    Raises ValueError for another shape. Baevski et al. 2020, equation 4.

    >>> diversity_loss(torch.full((5, 2, 4), 0.25)), -math.log(4) / 4
    (tensor(-0.3466), -0.34657359027997264)
    """
    check_shape("probabilities", probabilities, "n n_groups n_entries")
    mean = probabilities.mean(dim=0)                                                  # (n_groups, n_entries)
    return (mean * mean.clamp(min=torch.finfo(mean.dtype).tiny).log()).mean()         # 0 log 0 = 0, its gradient finite


@dataclass(frozen=True, kw_only=True)
class Wav2Vec2Config(TransformerConfig):
    """A Transformer's choices, and those of wav2vec 2.0: by default a miniature for sound at 8 kHz, a frame each 10 ms.

    The paper's base model has at 16 kHz d_feature = 512, kernels (10, 3, 3, 3, 3, 2, 2), strides (5, 2, 2, 2, 2, 2, 2),
    n_entries = 320, d_code = 256 and n_negatives = 100. Raises ValueError for what no model can be built from.
    """

    vocab_size: int = field(default=1, init=False, repr=False)  # there are no words here
    activation: Activation = "gelu"
    d_feature: int = 64
    kernels: tuple[int, ...] = (10, 3, 3, 3, 3)
    strides: tuple[int, ...] = (5, 2, 2, 2, 2)
    p: float = 0.065
    """The share of the frames at which a span to hide starts."""
    span: int = 10
    n_groups: int = 2
    n_entries: int = 32
    d_code: int = 64
    n_negatives: int = 20
    temperature: float = 0.1
    """κ of the contrastive loss. The quantizer's is another, `Wav2Vec2.quantizer.temperature`."""
    diversity: float = 0.1
    """α, the diversity loss's share."""


class Pretext(NamedTuple):
    """What wav2vec 2.0 learns from: n_masked frames that were hidden, what was guessed there and what was there."""

    context: Float[Tensor, "n_masked d_code"]
    targets: Float[Tensor, "n_masked d_code"]
    probabilities: Float[Tensor, "n_masked n_groups n_entries"]
    mask: Bool[Tensor, "batch n_frames"]


class Wav2Vec2(nn.Module):
    """Hide spans of the frames of a sound, and tell from the rest which code stood at each hidden frame.

        z = features of the waveform,   c = blocks(z, with a learned vector where masked),   q = quantizer(z)

    Among what is plainer than in the paper: positions are sinusoidal (or another of the config's), where the paper has
    one more convolution, over the frames; and a norm looks at one frame at a time after every convolution.
    Waveforms should have mean zero and variance one. Baevski et al. 2020.

    >>> model = Wav2Vec2(Wav2Vec2Config(d_model=32))
    >>> waveform = torch.randn(2, 8000)
    >>> model.features(waveform).shape
    torch.Size([2, 99, 32])
    >>> model.loss(waveform).shape
    torch.Size([])
    """

    def __init__(self, config: Wav2Vec2Config):
        super().__init__()
        self.config = config
        d_model, d_feature = config.d_model, config.d_feature
        self.encoder = FeatureEncoder(d_feature, config.kernels, config.strides)
        self.norm = LayerNorm(d_feature)
        self.project = nn.Linear(d_feature, d_model)
        self.hidden = nn.Parameter(torch.randn(d_model))
        self.positions = make_table(config.positions, config.max_length, d_model)
        self.dropout = make_dropout(config.dropout)
        self.stack = Stack(config)
        self.guess = nn.Linear(d_model, config.d_code)
        initialise(self)
        self.quantizer = Quantizer(d_feature, config.d_code, config.n_groups, config.n_entries)

    def forward(
        self,
        waveform: Float[Tensor, "batch n_samples"],
        lengths: Int[Tensor, " batch"] | None = None,
        mask: Bool[Tensor, "batch n_frames"] | None = None,
        generator: torch.Generator | None = None,
    ) -> Pretext:
        """Hide the frames where `mask` is True (drawn by `span_mask` unless given), and guess them.

        `lengths` counts the real samples of each waveform. Raises ValueError for waveforms too short for a span.
        """
        frames = self.frames(waveform)                                                # (batch, n_frames, d_feature)
        n_real = None if lengths is None else self.encoder.n_frames(lengths)          # (batch,)
        if mask is None:
            p, span = self.config.p, self.config.span
            mask = span_mask(len(frames), frames.shape[1], p, span, generator, n_real, frames.device)
        context = self.contextualise(frames, n_real, mask)                            # (batch, n_frames, d_model)
        targets, probabilities = self.quantizer(frames[mask], generator)              # (n_masked, d_code), ...
        return Pretext(self.guess(context[mask]), targets, probabilities, mask)

    def loss(
        self,
        waveform: Float[Tensor, "batch n_samples"],
        lengths: Int[Tensor, " batch"] | None = None,
        generator: torch.Generator | None = None,
    ) -> Float[Tensor, ""]:
        """Contrastive + α · diversity, of spans, codes and negatives drawn anew. Baevski et al. 2020, equation 2."""
        context, targets, probabilities, mask = self(waveform, lengths, generator=generator)
        negatives = targets[sample_negatives(mask, self.config.n_negatives, generator)]
        contrast = contrastive_loss(context, targets, negatives, self.config.temperature)
        return contrast + self.config.diversity * diversity_loss(probabilities)

    def features(
        self, waveform: Float[Tensor, "batch n_samples"], lengths: Int[Tensor, " batch"] | None = None
    ) -> Float[Tensor, "batch n_frames d_model"]:
        """The context vectors of all frames with nothing hidden: what a probe or a recogniser reads."""
        n_real = None if lengths is None else self.encoder.n_frames(lengths)
        return self.contextualise(self.frames(waveform), n_real)

    def frames(self, waveform: Float[Tensor, "batch n_samples"]) -> Float[Tensor, "batch n_frames d_feature"]:
        """What the convolutions hear."""
        return self.norm(self.encoder(waveform))

    def contextualise(
        self,
        frames: Float[Tensor, "batch n_frames d_feature"],
        lengths: Int[Tensor, " batch"] | None = None,
        mask: Bool[Tensor, "batch n_frames"] | None = None,
    ) -> Float[Tensor, "batch n_frames d_model"]:
        """Let the frames look at each other: all but those after `lengths` (in frames), the masked ones hidden."""
        x = self.project(frames)                                                      # (batch, n_frames, d_model)
        if mask is not None:
            check_shape("mask", mask, "batch n_frames", batch=x.shape[0], n_frames=x.shape[1])
            x = torch.where(mask.unsqueeze(-1), self.hidden, x)
        if self.positions is not None:
            x = x + self.positions(x.shape[1])
        real = None if lengths is None else lengths_to_mask(lengths, x.shape[1]).unsqueeze(1)     # (batch, 1, n_frames)
        return self.stack(self.dropout(x), real)


def _uniform(shape: Sequence[int], generator: torch.Generator | None, device: torch.device) -> Tensor:
    """Uniform numbers in 0..1, drawn where the generator lives: the same ones on every device."""
    return torch.rand(*shape, generator=generator, device=device if generator is None else generator.device).to(device)


def _check_patch(patch: int, height: int, width: int) -> None:
    if patch < 1 or height % patch or width % patch:
        raise ValueError(f"patch: got {patch}, expected a divisor of height and width = {height}, {width}")


def _check_convolutions(kernels: Sequence[int], strides: Sequence[int]) -> None:
    if not len(kernels) == len(strides) > 0 or min(*kernels, *strides) < 1:
        raise ValueError(f"strides: got {strides} for kernels {kernels}, expected one for each, none below 1")


def _check_floats(name: str, x: Tensor, axes: str, **sizes: int) -> None:
    check_shape(name, x, axes, **sizes)
    if not x.is_floating_point():
        raise TypeError(f"{name}: got {x.dtype}, expected floating point numbers")


# Dosovitskiy et al. 2021, table 1, for ImageNet's classes; and one for the 8 × 8 digits of scikit-learn.
VIT_BASE_16 = ViTConfig(image_size=224, patch=16, n_classes=1000, d_model=768, n_layers=12, n_heads=12)
VIT_LARGE_16 = ViTConfig(image_size=224, patch=16, n_classes=1000, d_model=1024, n_layers=24, n_heads=16)
VIT_HUGE_14 = ViTConfig(image_size=224, patch=14, n_classes=1000, d_model=1280, n_layers=32, n_heads=16)
VIT_DIGITS = ViTConfig(image_size=8, patch=2, channels=1, n_classes=10, d_model=64, n_layers=3, n_heads=4, d_ff=128)
