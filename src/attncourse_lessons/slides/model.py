"""The code slide's language model, in our words and repaired, and what it becomes when errata are put back."""

import math
from collections.abc import Collection
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attncourse._checks import check_at_least, check_one_of, check_tokens
from attncourse_lessons.slides.erratum import Finding, drawn, near

EPS = 1e-5


class Norm(nn.Module):
    """LayerNorm with a gain and a bias, and the ways in which decks print it."""

    def __init__(self, d_model: int, faults: Collection[str]):
        super().__init__()
        self.faults = faults
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim=-1, keepdim=True)                                   # (batch, n, 1)
        if "a sum for the mean" in self.faults:
            mean = x.sum(dim=-1, keepdim=True)
        off = x * mean if "a product for the difference" in self.faults else x - mean
        variance = off.square().mean(dim=-1, keepdim=True)                    # (batch, n, 1)
        if "a root too many" in self.faults:
            scale = variance.sqrt().add(1e-12).sqrt() + EPS                   # (1e-12: √ has no gradient at 0)
        elif "ε outside the root" in self.faults:
            scale = variance.add(1e-12).sqrt() + EPS
        else:
            scale = (variance + EPS).sqrt()
        shift = 1.0 if "unit mean" in self.faults else 0.0
        return ((x - mean) / scale + shift) * self.weight + self.bias


class SlideBlock(nn.Module):
    """Attention and a feed-forward network, pre-norm. x (batch, n, d_model) in and out."""

    forbidden: Tensor

    def __init__(self, d_model: int, n_heads: int, d_ff: int, max_length: int, faults: Collection[str]):
        super().__init__()
        self.n_heads, self.faults = n_heads, faults
        self.norm_1, self.norm_2 = Norm(d_model, faults), Norm(d_model, faults)
        self.project = nn.Linear(d_model, 3 * d_model)
        self.output = nn.Linear(d_model, d_model)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        i, j = torch.arange(max_length)[:, None], torch.arange(max_length)
        forbidden = j > i                                                     # (max_length, max_length)
        if "i > i" in faults:
            forbidden = torch.zeros_like(forbidden)
        if "not even itself" in faults:
            forbidden = j >= i
        self.register_buffer("forbidden", forbidden, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if "the residual from the normalised x" in self.faults:
            x = self.norm_1(x)
            x = x + self.attend(x)
            x = self.norm_2(x)
            return x + self.down(self.up(x).relu())
        x = x + self.attend(self.norm_1(x))
        return x + self.down(self.up(self.norm_2(x)).relu())

    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        """What values are multiplied by, (batch, n_heads, n, n), of queries and keys (batch, n_heads, n, d_head)."""
        n = query.shape[-2]
        scores = query @ key.mT / math.sqrt(query.shape[-1])                  # (batch, n_heads, n, n)
        forbidden = self.forbidden[:n, :n]
        if "weights set to 0" in self.faults:
            return scores.softmax(dim=-1) * ~forbidden
        weights = scores.masked_fill(forbidden, -torch.inf).softmax(dim=-1)
        return weights.mT if "sum over the query" in self.faults else weights

    def split(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values, (batch, n_heads, n, d_head) each, of x (batch, n, d_model)."""
        batch, n, _ = x.shape
        return [part.view(batch, n, self.n_heads, -1).transpose(1, 2) for part in self.project(x).chunk(3, dim=-1)]

    def merge(self, heads: Tensor) -> Tensor:
        """(batch, n_heads, n, d_head) -> (batch, n, d_model)."""
        return heads.transpose(1, 2).flatten(2)

    def attend(self, x: Tensor) -> Tensor:
        query, key, value = self.split(x)
        found = self.merge(self.weights(query, key) @ value)                  # (batch, n, d_model)
        return self.output.weight @ found if "Y on the left" in self.faults else self.output(found)


# Mistakes that are on no slide. The structural tests were written without them in mind.


class Unscaled(SlideBlock):
    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        return super().weights(query * math.sqrt(query.shape[-1]), key)       # takes the division back


class OverTheQueries(SlideBlock):
    def weights(self, query: Tensor, key: Tensor) -> Tensor:
        n = query.shape[-2]
        scores = query @ key.mT / math.sqrt(query.shape[-1])                  # (batch, n_heads, n, n)
        return scores.masked_fill(self.forbidden[:n, :n], -torch.inf).softmax(dim=-2)


class HeadsNotMovedBack(SlideBlock):
    def merge(self, heads: Tensor) -> Tensor:
        return heads.flatten(1).view(heads.shape[0], heads.shape[2], -1)      # heads and tokens are mixed


class KeysForValues(SlideBlock):
    def split(self, x: Tensor) -> list[Tensor]:
        query, key, _ = super().split(x)
        return [query, key, key]


class NoSecondResidual(SlideBlock):
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(self.norm_1(x))
        return self.down(self.up(self.norm_2(x)).relu())


ON_NO_SLIDE: dict[str, type[SlideBlock]] = {
    "no 1/√d_k": Unscaled,
    "softmax over the queries": OverTheQueries,
    "heads merged without a transpose": HeadsNotMovedBack,
    "keys in place of values": KeysForValues,
    "no residual around the network": NoSecondResidual,
}


class SlideModel(nn.Module):
    """A causal language model of `n_layers` blocks: learned positions, and a norm after the last block.

    `faults` are names of errata in `FAULTS`, which it gets back; `block` may be one of `ON_NO_SLIDE`. Raises ValueError
    for other faults, and for token ids outside of the vocabulary. Texts longer than `max_length` raise IndexError, as
    tables do.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int = 64,
        n_heads: int = 4,
        n_layers: int = 2,
        d_ff: int = 256,
        max_length: int = 128,
        faults: Collection[str] = (),
        block: type[SlideBlock] = SlideBlock,
    ):
        super().__init__()
        check_at_least(1, vocab_size=vocab_size, n_heads=n_heads, n_layers=n_layers, d_ff=d_ff, max_length=max_length)
        for fault in faults:
            check_one_of("faults", fault, FAULTS)
        self.faults = frozenset(faults)
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        table = min(max_length, 128) if "max_len not handed on" in faults else max_length
        blocks = (block(d_model, n_heads, d_ff, table, self.faults) for _ in range(n_layers))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.Identity() if "no final norm" in faults else Norm(d_model, self.faults)
        self.logits = nn.Linear(d_model, vocab_size)

    def embed(self, tokens: Tensor) -> Tensor:
        """(batch, n, d_model): what goes into the first block."""
        check_tokens("tokens", tokens, self.tokens.num_embeddings)
        places = torch.arange(tokens.shape[1])                                # (n,)
        if "positions by the batch" in self.faults:
            places = torch.arange(tokens.shape[0])[:, None]                   # (batch, 1)
        return self.tokens(tokens) + self.positions(places)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (batch, n, vocab_size) of the next token."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.logits(self.norm(x))

    @torch.no_grad()
    def zero_sublayers(self) -> "SlideModel":
        """Set to zero what the sublayers write with: they find nothing more. Returns the model, changed."""
        for block in self.blocks:
            assert isinstance(block, SlideBlock)
            for last in (block.output, block.down):
                last.weight.zero_()
                last.bias.zero_()
        return self


def small_model(*faults: str, block: type[SlideBlock] = SlideBlock, **sizes: int) -> SlideModel:
    """One with drawn parameters, the same at every call: to look at, not to train."""
    sizes = {"vocab_size": 20, "d_model": 16, "d_ff": 32, "max_length": 64} | sizes
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return SlideModel(**sizes, faults=faults, block=block)


def drawn_tokens(batch: int, n: int) -> Tensor:
    return torch.randint(20, (batch, n), generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def alone_and_in_a_batch(build) -> Finding:
    model, tokens = build(), drawn_tokens(3, 7)
    return near(model(tokens[-1:])[0], model(tokens)[-1], "alone and as the last of three, a text's logits differ by")


@torch.no_grad()
def longer_than_128(build) -> Finding:
    logits = build(max_length=256)(drawn_tokens(1, 200))
    said = "" if logits.isfinite().all() else ", some of them nan or infinite"
    return Finding(not said, f"200 of 256 tokens: logits {tuple(logits.shape)}{said}")


@torch.no_grad()
def logits_by_depth(build) -> Finding:
    sizes = [build(n_layers=depth, d_model=64, d_ff=256)(drawn_tokens(4, 20)).std().item() for depth in (2, 24)]
    said = f"logits of size {sizes[0]:.2f} with 2 blocks, {sizes[1]:.2f} with 24"
    return Finding(abs(sizes[1] / sizes[0] - 1) < 0.2, said)


FAULTS = (
    "sum over the query", "i > i", "not even itself", "weights set to 0", "Y on the left",
    "a sum for the mean", "a product for the difference", "a root too many", "unit mean", "ε outside the root",
    "the residual from the normalised x", "positions by the batch", "max_len not handed on", "no final norm",
)  # fmt: skip
"""The errata that a small language model can be given back."""

# Structural tests: each asks one question of a model that a function builds, untrained.


def _hears_no_future(build) -> Finding:
    model, tokens = build(), drawn_tokens(2, 9)
    other = tokens.clone()
    other[:, 5:] = (other[:, 5:] + 7) % 20
    return near(model(other)[:, :5], model(tokens)[:, :5], "when the future changes, the past moves by")


def _shares_sum_to_one(build) -> Finding:
    block = build().blocks[0]
    query, key = drawn(2, 1, block.n_heads, 6, 4)
    sums = block.weights(query, key).sum(dim=-1)
    return near(sums, torch.ones_like(sums), "a row's sum is off by")


def _comes_back(build) -> Finding:
    model, tokens = build().zero_sublayers(), drawn_tokens(2, 9)
    x = model.embed(tokens)
    for block in model.blocks:
        x = block(x)
    return near(x, model.embed(tokens), "with zeroed sublayers x moves by")


def _norms_as_torch(build) -> Finding:
    norm, x = build().blocks[0].norm_1, drawn(64, 16)
    wide = F.layer_norm
    errors = [(norm(size * x + size) - wide(size * x + size, (16,))).abs().max().item() for size in (1.0, 0.01)]
    return Finding(max(errors) < 1e-3, f"against torch: worst error {max(errors):.1g}")


STRUCTURAL = {
    "the past stays": _hears_no_future,
    "rows sum to 1": _shares_sum_to_one,
    "identity at zero": _comes_back,
    "norm as torch's": _norms_as_torch,
    "batch invariance": alone_and_in_a_batch,
    "200 tokens": longer_than_128,
    "size at depth": logits_by_depth,
}


@torch.no_grad()
def attention_as_torchs(block: type[SlideBlock] = SlideBlock) -> Finding:
    """A parity test: what torch's own layer gives with the same parameters and the same mask."""
    ours = small_model(block=block).blocks[0]
    assert isinstance(ours, SlideBlock)
    torchs, x = nn.MultiheadAttention(16, ours.n_heads, batch_first=True), drawn(2, 9, 16)
    torchs.load_state_dict({
        "in_proj_weight": ours.project.weight, "in_proj_bias": ours.project.bias,
        "out_proj.weight": ours.output.weight, "out_proj.bias": ours.output.bias,
    })  # fmt: skip
    expected, _ = torchs(x, x, x, attn_mask=ours.forbidden[:9, :9], need_weights=False)
    return near(ours.attend(x), expected, "against torch's layer: worst error")


@torch.no_grad()
def structural(*faults: str, block: type[SlideBlock] = SlideBlock) -> dict[str, Finding]:
    """What each structural test finds in untrained models with these faults. A model that crashes fails.

    >>> [name for name, found in structural("weights set to 0").items() if not found.passes]
    ['the past stays', 'rows sum to 1']
    """
    found = {}
    for name, test in STRUCTURAL.items():
        try:
            found[name] = test(partial(small_model, *faults, block=block))
        except (RuntimeError, IndexError) as error:
            found[name] = Finding(False, f"{type(error).__name__}: {str(error).splitlines()[0]}")
    return found
