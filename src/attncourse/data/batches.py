"""From pairs of sentences to padded tensors."""

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from attncourse._checks import check_at_least
from attncourse.data.parallel import Pair
from attncourse.data.tokenizer import BOS, EOS, PAD, Tokenizer


class EncodedPair(NamedTuple):
    source: list[int]
    target: list[int]


class Batch(NamedTuple):
    """`target_out` is `target_in` one step later: what the decoder must say when it has read so far."""

    source: Int[Tensor, "batch n_source"]
    lengths: Int[Tensor, " batch"]
    target_in: Int[Tensor, "batch n_target"]
    target_out: Int[Tensor, "batch n_target"]

    def to(self, device: torch.device | str) -> "Batch":
        """The batch on this device: a model and what it reads must be on the same one."""
        return move(self, device)


def encode_pairs(pairs: Sequence[Pair], source: Tokenizer, target: Tokenizer) -> list[EncodedPair]:
    """Token ids of both sides, computed once so that every epoch need not."""
    return [EncodedPair(source.encode(pair.source), target.encode(pair.target)) for pair in pairs]


def pad_batch(
    sequences: Sequence[Sequence[int] | Tensor], pad: int = PAD
) -> tuple[Int[Tensor, "batch n"], Bool[Tensor, "batch n"]]:
    """Sequences of several lengths as one rectangle, filled up with `pad` at the end, and where the real tokens are.

    The mask comes from the lengths, not from the ids: a real token may have the id of the padding.
    Raises ValueError where there is no sequence, TypeError for a sequence that is no row of whole numbers.

    >>> tokens, mask = pad_batch([[7, 8, 9], [5]], pad=0)
    >>> tokens
    tensor([[7, 8, 9],
            [5, 0, 0]])
    >>> mask
    tensor([[ True,  True,  True],
            [ True, False, False]])
    """
    if not len(sequences):
        raise ValueError("sequences: got none, expected at least one")
    rows = [s if isinstance(s, Tensor) else torch.tensor(s, dtype=None if s else torch.int64) for s in sequences]
    for i, row in enumerate(rows):
        if row.ndim != 1 or row.is_floating_point() or row.dtype == torch.bool:
            got = f"{row.dtype} of shape {tuple(row.shape)}"
            raise TypeError(f"sequences[{i}]: got {got}, expected whole numbers of shape (n,)")
    tokens = pad_sequence(rows, batch_first=True, padding_value=pad)              # (batch, n)
    lengths = torch.tensor([len(row) for row in rows], device=tokens.device)      # (batch,)
    return tokens, torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]


def collate(pairs: Sequence[EncodedPair]) -> Batch:
    """Pad a few pairs to one length: <bos> t1 … tn goes in, t1 … tn <eos> must come out.

    Raises ValueError for an empty list or an empty source, TypeError for pairs of texts.
    """
    if pairs and not isinstance(pairs[0], EncodedPair):
        raise TypeError(f"pairs: got {type(pairs[0]).__name__}, expected EncodedPair, as encode_pairs makes them")
    if not pairs or not all(pair.source for pair in pairs):
        got = "an empty source" if pairs else "none"
        raise ValueError(f"pairs: got {got}, expected one or more, with at least one token in each source")

    return Batch(
        source=rectangle([pair.source for pair in pairs]),                        # (batch, n_source)
        lengths=torch.tensor([len(pair.source) for pair in pairs]),               # (batch,)
        target_in=rectangle([[BOS, *pair.target] for pair in pairs]),             # (batch, n_target)
        target_out=rectangle([[*pair.target, EOS] for pair in pairs]),            # (batch, n_target)
    )


def rectangle(rows: Sequence[Sequence[int]]) -> Int[Tensor, "batch n"]:
    """As `pad_batch`, for lists alone, and many times as fast: a GPU should not wait for its batches."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    real = np.arange(lengths.max()) < lengths[:, None]                            # (batch, n)
    tokens = np.full(real.shape, PAD)
    tokens[real] = np.fromiter(chain.from_iterable(rows), np.int64, lengths.sum())
    return torch.from_numpy(tokens)


def batches(pairs: Sequence[EncodedPair], batch_size: int, seed: int) -> Iterator[Batch]:
    """One epoch in an order drawn from `seed`, each batch of pairs of like length, so that little of it is padding."""
    generator = torch.Generator().manual_seed(seed)
    shuffled = [pairs[i] for i in torch.randperm(len(pairs), generator=generator)]
    # Sorting whole epochs would make the same batches every time; sorting a few batches at a time does not.
    pool = 20 * batch_size
    for start in range(0, len(shuffled), pool):
        nearby = sorted(shuffled[start : start + pool], key=lambda pair: len(pair.target))
        groups = [nearby[i : i + batch_size] for i in range(0, len(nearby), batch_size)]
        for i in torch.randperm(len(groups), generator=generator):
            yield collate(groups[i])


def batch_by_tokens(lengths: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Share out sequences into batches of like length: from the shortest on, as many in each as fit with their padding.

    A batch is padded to a rectangle, (how many sequences) × (the longest of them), which is at most `batch_tokens`. A
    sequence that is longer than that is a batch of its own. Each index comes once; equals stay in the order given.

    >>> batch_by_tokens([5, 2, 9, 2, 4], batch_tokens=10)
    [[1, 3], [4, 0], [2]]
    """
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if not batches or (len(batches[-1]) + 1) * lengths[i] > batch_tokens:
            batches.append([])
        batches[-1].append(i)
    return batches


def epoch_batches(pairs: Sequence[EncodedPair], batch_tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """One epoch: the indices of the pairs of each batch, every pair once, pairs of like length together.

    A pair counts as the longer of its sides, the target's <bos> (or <eos>) with it. So neither of a batch's rectangles,
    n · longest source and n · (longest target + 1), holds more than `batch_tokens`; as Vaswani et al. 2017 count,
    section 5.1, and of the two what an encoder and a decoder each have to hold in memory. Of pairs that count the same
    those drawn first come together, and the batches come in an order that is drawn too, both from seed and epoch. An
    epoch can be taken up in its middle: `epoch_batches(…)[done:]`. Raises ValueError for no pairs or no tokens.
    """
    check_at_least(1, batch_tokens=batch_tokens)
    if not pairs:
        raise ValueError("pairs: got none, expected at least one")
    return draw_batches([max(len(pair.source), len(pair.target) + 1) for pair in pairs], batch_tokens, seed, epoch)


def combined_seed(seed: int, number: int) -> int:
    """A seed for the `number`-th thing that a run draws, another for each run: torch's CPU takes 32 bits of a seed.

    >>> combined_seed(0, 7), combined_seed(1, 7)
    (7, 1000010)
    """
    return (seed * 1_000_003 + number) % 2**32


def draw_batches(lengths: Sequence[int], batch_tokens: int, seed: int, epoch: int) -> list[list[int]]:
    """One epoch of anything that has lengths: what `epoch_batches` does with pairs."""
    check_at_least(1, batch_tokens=batch_tokens)
    generator = torch.Generator().manual_seed(combined_seed(seed, epoch))
    drawn = torch.randperm(len(lengths), generator=generator).tolist()
    batches = [[drawn[j] for j in batch] for batch in batch_by_tokens([lengths[i] for i in drawn], batch_tokens)]
    return [batches[k] for k in torch.randperm(len(batches), generator=generator).tolist()]


def move(batch: Any, device: torch.device | str, non_blocking: bool = False) -> Any:
    """A batch, a NamedTuple of tensors, on this device."""
    return type(batch)(*(x.to(device, non_blocking=non_blocking) for x in batch))


def loader(
    examples: Sequence[Any],
    indices: Iterable[Sequence[int]],
    device: torch.device | str = "cpu",
    collate: Callable[[Sequence[Any]], Any] = collate,
    workers: int = 0,
) -> Iterator[Any]:
    """The batches of these indices, on the device; for a GPU by way of pinned memory.

    So many `workers` make them ahead, in other processes. That pays where making a batch takes longer than taking it
    from another process, some milliseconds: with images, not with padded tokens. Starting them takes longer than many a
    batch, so `indices` may be an epoch, or as many as one likes in a row.
    `collate` makes a batch, a NamedTuple of tensors, of a few examples: by default a `Batch` of pairs.
    """
    on_gpu = torch.device(device).type == "cuda"
    # Without a generator of its own the DataLoader would draw from torch's, and dropout would come out otherwise.
    load: Iterable[Any] = DataLoader(
        examples,  # type: ignore[arg-type]
        batch_sampler=indices,  # type: ignore[arg-type]
        collate_fn=collate,
        generator=torch.Generator(),
        num_workers=workers,
        pin_memory=on_gpu,
        worker_init_fn=_leave_ctrl_c_to_the_first,
    )
    for batch in load:
        yield move(batch, device, non_blocking=on_gpu)            # from pinned memory alone


def _leave_ctrl_c_to_the_first(number: int) -> None:
    """A terminal sends it to all processes; a step under way is finished first, and needs its batch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class TextBatch(NamedTuple):
    """`tokens_out` is `tokens_in` one step later: what a language model must say when it has read so far."""

    tokens_in: Int[Tensor, "batch n"]
    tokens_out: Int[Tensor, "batch n"]

    def to(self, device: torch.device | str) -> "TextBatch":
        """The batch on this device."""
        return move(self, device)


def encode_texts(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Token ids of each text between <bos> and <eos>, as a language model reads it."""
    return [[BOS, *tokenizer.encode(text), EOS] for text in texts]


def text_batches(texts: Sequence[Sequence[int]], batch_tokens: int, max_length: int, seed: int) -> Iterator[TextBatch]:
    """One epoch of what `encode_texts` returns, in an order drawn from `seed`.

    A text of more than `max_length` tokens is cut into pieces, and each but the first is read as if nothing had gone
    before. Pieces of like length share a batch, as many as `batch_tokens` hold with their padding, but at least one.
    """
    check_at_least(1, batch_tokens=batch_tokens, max_length=max_length)
    pieces = cut(texts, max_length)
    generator = torch.Generator().manual_seed(seed)
    shuffled = [pieces[i] for i in torch.randperm(len(pieces), generator=generator)]
    groups = batch_by_tokens([len(piece) - 1 for piece in shuffled], batch_tokens)
    for k in torch.randperm(len(groups), generator=generator):
        tokens, _ = pad_batch([shuffled[i] for i in groups[k]])                   # (batch, n + 1)
        yield TextBatch(tokens_in=tokens[:, :-1], tokens_out=tokens[:, 1:])


def cut(texts: Sequence[Sequence[int]], max_length: int) -> list[Sequence[int]]:
    """Texts as pieces of which `max_length` tokens are read, and as many predicted, at most.

    A piece ends with the token that the next begins with: each is predicted once.
    """
    return [text[i : i + max_length + 1] for text in texts for i in range(0, len(text) - 1, max_length)]
