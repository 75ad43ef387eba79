"""The attention viewer: who looks at whom, by layer and head and token; it moves without a kernel, too."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import traitlets
from matplotlib.figure import Figure
from torch import Tensor, nn

from attncourse._checks import check_one_of
from attncourse.data import BOS, EOS, Tokenizer
from attncourse.decoding import greedy
from attncourse.recurrent import Seq2Seq
from attncourse.transformer import AttentionWeights, Encoder, EncoderDecoder, LanguageModel, Weights
from attncourse.viz.figures import cells, check_shares
from attncourse.viz.live_widget import LiveWidget
from attncourse.viz.style import AMBER, BLUE, INK, ORANGE, SKY, WEIGHTS, bare, figure

MOST_TOKENS = 128  # a side: more of them nobody can tell apart, and a page would draw for seconds
MOST_WEIGHTS = 4_000_000  # a kind: each is a byte in the notebook, before compression


class Kind(NamedTuple):
    """One of the three uses of attention: its name, and what stands on its two sides."""

    label: str
    queries: str
    keys: str


KINDS = {
    "encoder": Kind("encoder self-attention", "source tokens", "source tokens"),
    "decoder": Kind("decoder self-attention", "target tokens", "target tokens"),
    "cross": Kind("cross-attention", "target tokens", "source tokens"),
    "self": Kind("self-attention", "tokens", "tokens"),
}


class attention_viewer(LiveWidget):
    """Lines from each token to those that it looks at, as wide and as dark as the weight; a head, or all of them.

    `weights` are what the package's models return: a tensor (n_query, n_key), (n_heads, n_query, n_key) or
    (n_layers, n_heads, n_query, n_key), in front of these a batch of one; a stack's `Weights`; or an encoder–decoder's
    `AttentionWeights`, whose three kinds of attention share one viewer. Two models by name, {"trained": weights,
    "untrained": weights}, stand side by side, with the kinds that both have.

    The queries are `target`, or the `source` itself where there is no target; the keys are `source`. `written`, as long
    as the target, names what was written at each of its places: a decoder that has read <bos> looks for the first word,
    so there cross-attention is read more easily. `title` is for the page and for the files that the viewer saves.

    `kind`, `view` ("one" head or "all"), `layer`, `head` (counted from 0 as in weights[layer, head]; None is the mean
    of the heads) and `threshold` (no lines for smaller weights, in whole percents) say how it stands at first. They
    change as the reader moves it, and move it when they are set. `page()` is the viewer as a web page of its own.

    Percentages are those of the exact weights, rounded. More than 128 tokens are shown in blocks: a block's weight is
    what its keys get together, averaged over its queries; the viewer says so.

    Raises ValueError for weights that are NaN, negative, or do not sum to 1 over the last axis (all zero they may be: a
    padded query looks at nothing), for tokens of another number, a start that is not there; TypeError for tokens that
    are one text, and for weights of another kind.

    >>> viewer = attention_viewer([[0.1, 0.9], [0.5, 0.5]], ["a", "b"], ["x", "y"])
    >>> print(viewer.still()[1])
    Attention viewer, cross-attention. x looks most at b (90 %); y looks most at a (50 %).
    """

    _esm = Path(__file__).with_suffix(".js")
    _css = Path(__file__).with_suffix(".css")
    kept = ("kind", "view", "layer", "head", "threshold", "pinned")

    content = traitlets.Dict().tag(sync=True)
    packed = traitlets.Bytes().tag(sync=True)
    kind = traitlets.Unicode().tag(sync=True)
    view = traitlets.Unicode("one").tag(sync=True)
    layer = traitlets.Int(0).tag(sync=True)
    head = traitlets.Int(0, allow_none=True).tag(sync=True)
    threshold = traitlets.Float(0.05).tag(sync=True)
    pinned: traitlets.List = traitlets.List().tag(sync=True)
    """The token that stays in focus: ["query" or "key", its index], or nothing."""

    def __init__(
        self,
        weights: Any,
        source: Sequence[str],
        target: Sequence[str] | None = None,
        written: Sequence[str] | None = None,
        title: str = "",
        kind: str | None = None,
        view: str = "one",
        layer: int = 0,
        head: int | None = 0,
        threshold: float = 0.05,
    ):
        models = dict(weights) if isinstance(weights, Mapping) else {"": weights}
        if not 1 <= len(models) <= 2:
            raise ValueError(f"weights: got {len(models)} models, expected one, or two to compare")
        tables = {name: _by_kind(given, target is not None) for name, given in models.items()}
        first, *_ = tables.values()
        shared = [name for name in KINDS if all(name in table for table in tables.values())]
        if not shared:
            kinds = " and ".join("/".join(table) for table in tables.values())
            raise ValueError(f"weights: got two models with no kind of attention in common ({kinds})")
        self._titled = title
        self._shown: dict[str, list[np.ndarray]] = {}
        described: list[dict[str, Any]] = []
        packed = []
        for name in shared:
            queries, keys = _sides(name, source, target, written)
            n_maps = max(table[name].shape[0] * table[name].shape[1] for table in tables.values())
            blocks = _block(len(queries), n_maps), _block(len(keys), n_maps)
            maps = []
            for model, table in tables.items():
                where = " ".join(filter(None, (model, KINDS[name].label if len(first) > 1 else "weights")))
                maps.append(_shown_maps(where, table[name], len(queries), len(keys), blocks))
                packed.append(_pack(maps[-1]))
            self._shown[name] = maps
            causal = name == "self" and len(queries) > 1 and not any(np.triu(each, 1).any() for each in maps)
            described.append(
                {
                    "name": name,
                    "label": ("causal " if causal else "") + KINDS[name].label,
                    "sides": KINDS[name][1:],
                    "queries": _labels(queries, blocks[0]),
                    "keys": _labels(keys, blocks[1]),
                    "note": _note(queries, keys, blocks),
                    # Where a model has several heads, their mean stands after the last.
                    "shapes": [[len(each), each.shape[1] - (each.shape[1] > 1)] for each in maps],
                }
            )
        # Before the start is looked at, which needs it.
        self._content: dict[str, Any] = {"title": title, "models": list(models), "kinds": described}
        super().__init__(
            content=self._content | {"colours": [[BLUE, SKY], [ORANGE, AMBER]]},
            packed=zlib.compress(b"".join(packed)),
            kind=("cross" if "cross" in shared else shared[0]) if kind is None else kind,
            view=view,
            layer=layer,
            head=head,
            threshold=threshold,
        )

    @traitlets.validate("kind")
    def _check_kind(self, proposal):
        check_one_of("kind", proposal["value"], [kind["name"] for kind in self._content["kinds"]])
        return proposal["value"]

    @traitlets.validate("view")
    def _check_view(self, proposal):
        check_one_of("view", proposal["value"], ("one", "all"))
        return proposal["value"]

    @traitlets.validate("layer", "head")
    def _check_index(self, proposal):
        name, value = proposal["trait"].name, proposal["value"]
        most = max(shape[name == "head"] for kind in self._content["kinds"] for shape in kind["shapes"])
        if value is not None and not 0 <= value < most:
            raise ValueError(f"{name}: got {value}, expected one of 0..{most - 1}")
        return value

    @traitlets.validate("threshold")
    def _check_threshold(self, proposal):
        if not 0 <= proposal["value"] <= 1:
            raise ValueError(f"threshold: got {proposal['value']}, expected a weight from 0 to 1")
        return proposal["value"]

    def still(self) -> tuple[Figure, str]:
        """A heatmap of the head that is selected, or of all of them, for each model; and what it shows in words."""
        kind = next(kind for kind in self._content["kinds"] if kind["name"] == self.kind)
        draw = _all_heads if self.view == "all" else _one_head
        drawn, said = draw(kind, self._shown[self.kind], self._content["models"], self.layer, self.head)
        title = f" “{self._titled}”" if self._titled else ""
        note = f" {kind['note']}" if kind["note"] else ""
        return drawn, f"Attention viewer{title}, {kind['label']}. {said}{note}"


def show_attention(
    model: nn.Module | Mapping[str, nn.Module],
    text: str,
    tokenizer: Tokenizer,
    target_tokenizer: Tokenizer | None = None,
    written: str | None = None,
    **start: Any,
) -> attention_viewer:
    """Let a model read a text, and see where it looks: `show_attention(model, "twenty-one", english, german)`.

    A `LanguageModel` reads <bos> and the text, an `Encoder` the text. An `EncoderDecoder` or a `Seq2Seq` reads the text
    and writes, with a tokenizer of its own, what it takes for the translation; or `written`, if that is given. Two
    models by name are compared on the same tokens, those that the first one writes. `start` is what `attention_viewer`
    takes: title, kind, view, layer, head, threshold. The model is put in evaluation mode and left as it was.

    Raises TypeError for other models and a missing target_tokenizer, ValueError for a Seq2Seq that looks at one vector.
    """
    models = dict(model) if isinstance(model, Mapping) else {"": model}
    seen: dict[str, Any] = {}
    sides: dict[str, Any] = {}
    ids: list[int] | None = None
    for name, each in models.items():
        if isinstance(each, EncoderDecoder | Seq2Seq):
            if target_tokenizer is None:
                raise TypeError("target_tokenizer: got None, expected the tokenizer of what the model writes")
            if isinstance(each, Seq2Seq) and each.summary != "attention":
                raise ValueError(f"model: got summary={each.summary!r}, one vector to look at, expected 'attention'")
            if ids is None and written is not None:
                ids = [*target_tokenizer.encode(written), EOS]
            seen[name], ids = _read_and_write(each, tokenizer.encode(text), ids)
            read = target_tokenizer.pieces([BOS, *ids[:-1]])
            sides = {"source": tokenizer.pieces(text), "target": read, "written": target_tokenizer.pieces(ids)}
        elif isinstance(each, LanguageModel | Encoder):
            tokens = [BOS, *tokenizer.encode(text)] if isinstance(each, LanguageModel) else tokenizer.encode(text)
            seen[name] = _read(each, tokens)
            sides = {"source": tokenizer.pieces(tokens)}
        else:
            expected = "a LanguageModel, Encoder, EncoderDecoder or Seq2Seq (for others: attention_viewer)"
            raise TypeError(f"model: got {type(each).__name__}, expected {expected}")
    return attention_viewer(seen if isinstance(model, Mapping) else seen[""], **sides, **start)


@contextmanager
def _watched(model: nn.Module) -> Iterator[None]:
    """In evaluation mode, without gradients; afterwards each part is in its own mode again."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


def _read(model: LanguageModel | Encoder, tokens: list[int]) -> Any:
    batch = torch.tensor([tokens], device=next(model.parameters()).device)
    with _watched(model):
        if isinstance(model, LanguageModel):
            return model(batch, with_weights=True)[1]
        model(batch, weights=(weights := Weights()))
        return weights


def _read_and_write(model: EncoderDecoder | Seq2Seq, source: list[int], ids: list[int] | None) -> tuple[Any, list[int]]:
    """The weights, and what was written, with <eos> unless there was no room for it."""
    device = next(model.parameters()).device
    batch, lengths = torch.tensor([source], device=device), torch.tensor([len(source)], device=device)
    with _watched(model):
        if ids is None:
            ids = greedy(model, batch, lengths, max_length=2 * len(source) + 10).tokens[0].tolist()
        target_in = torch.tensor([[BOS, *ids[:-1]]], device=device)                       # (1, n_target)
        return model(batch, lengths, target_in, with_weights=True)[1], ids


# What comes in


def _by_kind(weights: Any, has_target: bool) -> dict[str, Tensor]:
    """(n_layers, n_heads, n_query, n_key) for each kind of attention."""
    if isinstance(weights, AttentionWeights):
        return {name: _four_axes(name, each) for name, each in weights._asdict().items()}
    if isinstance(weights, Weights):
        own = _four_axes("weights.self_attn", torch.stack(weights.self_attn, dim=1))
        if not weights.cross_attn:
            return {"self": own}
        return {"decoder": own, "cross": _four_axes("weights.cross_attn", torch.stack(weights.cross_attn, dim=1))}
    return {"cross" if has_target else "self": _four_axes("weights", weights)}


def _four_axes(name: str, weights: Any) -> Tensor:
    if not isinstance(weights, Tensor):
        try:
            weights = torch.from_numpy(np.asarray(weights, dtype=float))
        except (TypeError, ValueError):
            expected = "a tensor, an AttentionWeights, a Weights, or two of these by name"
            raise TypeError(f"{name}: got {type(weights).__name__}, expected {expected}") from None
    if weights.ndim == 5 and len(weights) == 1:
        weights = weights[0]
    if not 2 <= weights.ndim <= 4 or not weights.numel():
        batch = "; of a batch, show one: weights[i]" if weights.ndim == 5 else ""
        raise ValueError(
            f"{name}: got shape {tuple(weights.shape)}, expected (n_layers, n_heads, n_query, n_key), "
            f"(n_heads, n_query, n_key) or (n_query, n_key){batch}"
        )
    return weights.detach().reshape((1,) * (4 - weights.ndim) + weights.shape)


def _sides(
    kind: str, source: Sequence[str], target: Sequence[str] | None, written: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """The queries' tokens and the keys'."""
    for name, tokens in (("source", source), ("target", target), ("written", written)):
        if isinstance(tokens, str):
            raise TypeError(f"{name}: got one text, expected a list of its tokens")
    if target is None and kind in ("decoder", "cross"):
        raise ValueError(f"target: got None, expected the tokens that look, for {KINDS[kind].label}")
    if written is not None and len(written) != len(target or ()):
        raise ValueError(f"written: got {len(written)} tokens, expected {len(target or ())}, one a token of the target")
    if kind in ("encoder", "self"):
        return list(map(str, source)), list(map(str, source))
    assert target is not None
    if kind == "decoder":
        return list(map(str, target)), list(map(str, target))
    return list(map(str, written or target)), list(map(str, source))


# What goes out


def _block(n: int, n_maps: int) -> int:
    """How many tokens stand together, so that a side has 128 of them at most, and fewer where there are many heads."""
    most = min(MOST_TOKENS, int((MOST_WEIGHTS / n_maps) ** 0.5))
    return -(-n // max(1, most))


def _shown_maps(name: str, table: Tensor, n_query: int, n_key: int, blocks: tuple[int, int]) -> np.ndarray:
    """(n_layers, n_heads, queries, keys), in blocks, and where there are several heads their mean after the last."""
    if tuple(table.shape[2:]) != (n_query, n_key):
        got, expected = tuple(table.shape[2:]), (n_query, n_key)
        raise ValueError(f"{name}: got {got[0]} queries by {got[1]} keys, expected {expected}, as there are tokens")
    layers = []
    for i, layer in enumerate(table):
        weights = layer.double().cpu().numpy()                                            # (n_heads, n_query, n_key)
        check_shares(name, weights, within=f"layer {i}")
        if blocks != (1, 1):
            keys = np.add.reduceat(weights, range(0, n_key, blocks[1]), axis=2)
            looking = np.add.reduceat(weights.sum(axis=2) > 0, range(0, n_query, blocks[0]), axis=1, dtype=int)
            weights = np.add.reduceat(keys, range(0, n_query, blocks[0]), axis=1) / np.maximum(looking, 1)[..., None]
        if len(weights) > 1:
            weights = np.concatenate([weights, weights.mean(axis=0, keepdims=True)])
        layers.append(weights.clip(0, 1))
    return np.stack(layers)


def quantise(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A byte a weight: how many 255ths of its row's top, (*, n_key) uint8, and the tops, (*,) uint16, in 65,535ths.

    Within 0.4 of a hundredth, and a rounded percentage is the exact weight's. What is not zero does not become zero.
    """
    tops = np.ceil(weights.max(axis=-1) * 65535)
    step = np.maximum(tops, 1)[..., None] / 65535 / 255
    levels = np.rint(weights / step)
    # A level is less than half a percent, so the next one is on the right side of the rounding.
    levels += np.sign(percent(weights) - percent(levels * step))
    levels = np.where(weights > 0, levels.clip(1, 255), 0)
    return levels.astype(np.uint8), tops.astype("<u2")


def restore(levels: np.ndarray, tops: np.ndarray) -> np.ndarray:
    """The weights that the viewer shows."""
    return levels * (np.maximum(tops.astype(float), 1)[..., None] / 65535 / 255)


def percent(weights: np.ndarray) -> np.ndarray:
    """Whole percents, halves rounded up, as in the browser."""
    return np.floor(100 * weights + 0.5)


def _pack(maps: np.ndarray) -> bytes:
    levels, tops = quantise(maps)
    return tops.tobytes() + levels.tobytes()


def _labels(tokens: Sequence[str], block: int) -> list[str]:
    if block == 1:
        return list(tokens)
    pieces = [tokens[i : i + block] for i in range(0, len(tokens), block)]
    return [f"{i * block}–{i * block + len(piece) - 1}: {piece[0]} …" for i, piece in enumerate(pieces)]


def _note(queries: list[str], keys: list[str], blocks: tuple[int, int]) -> str:
    if blocks == (1, 1):
        return ""
    return (
        f"{len(queries)} queries and {len(keys)} keys, too many to show one by one: they stand in blocks of "
        f"{blocks[0]} and of {blocks[1]}. A weight is what the keys of a block get together, averaged over its queries."
    )


# The still picture


def _one_head(
    kind: dict, maps: list[np.ndarray], models: list[str], layer: int, head: int | None
) -> tuple[Figure, str]:
    queries, keys = kind["queries"], kind["keys"]
    width, height = (min(6.0, max(1.2, share * len(side))) for share, side in ((0.6, keys), (0.4, queries)))
    drawn, _ = figure((1.5 + width) * len(maps), 1.2 + height, columns=len(maps))
    said = []
    for ax, name, every, shape in zip(drawn.axes, models, maps, kind["shapes"], strict=True):
        i = min(layer, shape[0] - 1)
        j = min(shape[1] if head is None else min(head, shape[1] - 1), every.shape[1] - 1)
        cells(ax, every[i, j], queries, keys, numbers=len(queries) * len(keys) <= 60)
        ax.xaxis.tick_top()
        for labels, room in ((ax.get_xticklabels(), width), (ax.get_yticklabels(), height)):
            size = min(10.0, 60 * room / len(labels))
            for label in labels:
                label.set_fontsize(max(size, 1.5))
        if sum(map(len, keys)) > 8 * width or len(keys) > 12:
            ax.tick_params(axis="x", labelrotation=90)
        ax.set_ylabel(f"{kind['sides'][0]} (queries)")
        ax.set_xlabel(f"{kind['sides'][1]} (keys)")
        which = "" if shape == [1, 1] else f"layer {i}, " + ("mean of the heads" if head is None else f"head {j}")
        called = ", ".join(filter(None, (name, which)))
        if called:
            ax.set_title(called, pad=10, color=INK)
        said.append((f"{called}: " if called else "") + _in_words(every[i, j], queries, keys))
    return drawn, " ".join(said)


def _all_heads(
    kind: dict, maps: list[np.ndarray], models: list[str], layer: int, head: int | None
) -> tuple[Figure, str]:
    layers, heads = (max(shape[axis] for shape in kind["shapes"]) for axis in (0, 1))
    queries, keys = kind["queries"], kind["keys"]
    few = max(len(queries), len(keys)) <= 16  # then their words stand at the first head and below the last layer
    side = min(1.7 if few else 1.1, 11 / (heads * len(maps)))
    width, height = side * (heads + 0.4) * len(maps), side * layers
    drawn, _ = figure(0.5 + width + few, 0.7 + height + 0.6 * few, layers, (heads + 1) * len(maps) - 1)
    axes = np.array(drawn.axes).reshape(layers, -1)
    said = []
    for ax in drawn.axes:
        ax.set_axis_off()
    for number, (name, every, shape) in enumerate(zip(models, maps, kind["shapes"], strict=True)):
        for i in range(shape[0]):
            for j in range(shape[1]):
                ax = axes[i, number * (heads + 1) + j]
                ax.set_axis_on()
                ax.imshow(every[i, j], cmap=WEIGHTS, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
                bare(ax)
                ax.tick_params(length=0, labelsize=7)
                if few and j == 0:
                    ax.set_yticks(range(len(queries)), queries)
                if few and i == shape[0] - 1:
                    ax.set_xticks(range(len(keys)), keys, rotation=90)
                if i == 0:
                    ax.set_title(f"head {j}" if j or not name else f"{name}\nhead {j}", fontsize=9)
                if j == 0:
                    ax.set_ylabel(f"layer {i}", fontsize=9)
        first = every[:, : shape[1]].max(axis=-1).mean(axis=-1)                            # (n_layers, n_heads)
        i, j = np.unravel_index(first.argmax(), first.shape)
        said.append(
            (f"{name}: " if name else "") + f"{shape[0]} layers of {shape[1]} heads; the sharpest is layer {i}, "
            f"head {j}, where a query gives {first[i, j]:.0%} to its first choice on average.".replace("%", " %")
        )
    return drawn, " ".join(said)


def _in_words(weights: np.ndarray, queries: list[str], keys: list[str]) -> str:
    """Each query's first choice; of many queries, the eight that are surest."""
    best, order = weights.argmax(axis=1), range(len(queries))
    few = len(queries) <= 12
    chosen = list(order) if few else sorted(order, key=lambda i: -weights[i].max())[:8]
    clauses = []
    for i in chosen:
        share = percent(weights[i].max())
        looks = f"looks most at {keys[best[i]]} ({share:.0f} %)" if weights[i].any() else "looks at nothing"
        clauses.append(f"{queries[i]} {looks}")
    return ("" if few else f"Of {len(queries)} queries, the surest: ") + "; ".join(clauses) + "."
