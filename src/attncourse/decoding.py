"""Writing a target when nobody tells the model what comes next: greedily, by beams, or by chance.

On a GPU each token waits for it: which sentences have ended decides whether, and with which, the next step is taken.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attncourse._checks import check_at_least, check_whole
from attncourse.data import BOS, EOS, PAD, EncodedPair, Tokenizer, collate
from attncourse.fast_step import fast_step
from attncourse.recurrent import Seq2Seq
from attncourse.transformer import EncoderDecoder
from attncourse.unpadding import unpadded_start


class DecodingState(Protocol):
    """What a model remembers between two steps. A state that was given to `step` or `select` is used up."""

    def select(self, rows: Tensor, /) -> Self:
        """The same for these rows of the batch, in this order; a row may come more than once."""
        ...


S = TypeVar("S", bound=DecodingState)


class Model(Protocol[S]):
    """What can be decoded, with a source: `Seq2Seq`, `EncoderDecoder`, and yours, if it has these."""

    @property
    def max_positions(self) -> int | None:
        """The most tokens that its positions allow."""
        ...

    def start(self, source: Tensor, lengths: Tensor, /) -> S:
        """Read the source."""
        ...

    def step(self, token: Tensor, state: S, with_weights: bool = False, /) -> tuple[Tensor, S, Tensor | None]:
        """Read one token a row: (logits of the next (batch, vocab_size), state, weights (batch, n_memory))."""
        ...


class PromptedModel(Protocol[S]):
    """What can be decoded, with a prompt in place of a source: `LanguageModel`, and yours, if it has these."""

    @property
    def max_positions(self) -> int | None:
        """The most tokens that its positions allow, the prompt's among them."""
        ...

    def start(self) -> S:
        """Nothing is read yet."""
        ...

    def read(self, tokens: Tensor, state: S, /) -> Tensor:
        """Read (batch, n) tokens at once: logits of the next (batch, vocab_size). The state changes."""
        ...

    def step(self, token: Tensor, state: S, with_weights: bool = False, /) -> tuple[Tensor, S, Tensor | None]:
        """As a `Model`'s."""
        ...


class SpecialTokens(NamedTuple):
    """The ids with a meaning of their own. Those of `attncourse.data`, unless a checkpoint has others."""

    pad: int | None = PAD
    """Never written; after a text's end stands this, or `eos` where a vocabulary has no padding."""
    bos: int = BOS
    """What a decoder reads first."""
    eos: int | None = EOS
    """Ends a text; None: nothing does."""

    @property
    def fill(self) -> int:
        """What stands after the end."""
        return next((token for token in (self.pad, self.eos) if token is not None), 0)


SPECIAL = SpecialTokens()


class Decoded(NamedTuple):
    """What was written, up to <eos> or the last token allowed, padded after it; and where the model looked."""

    tokens: Int[Tensor, "batch n_target"]
    weights: Float[Tensor, "batch n_target n_memory"] | None


def greedy(
    model: Model | PromptedModel,
    source: Int[Tensor, "batch n_source"],
    lengths: Int[Tensor, " batch"],
    max_length: int = 150,
    with_weights: bool = False,
    special: SpecialTokens = SPECIAL,
) -> Decoded:
    """Take the most probable token at each step, until every sentence has said <eos> or has `max_length` tokens.

    `weights[b, t]` is where the model looked when it wrote `tokens[b, t]`. A language model continues the prompts in
    `source`, which begin with <bos> if its training texts did; its continuation comes back without them, and without
    weights. Padding is never written. Decoding ends early where the model's positions do (for all rows, where those of
    the longest prompt do). The model is put in evaluation mode and left as it was. `special` are the ids of another
    vocabulary than `attncourse.data`'s.
    Raises ValueError for a `max_length` below 1, and a prompt that leaves no position free.
    """
    return _write(model, source, lengths, lambda logits: logits.argmax(dim=-1), max_length, special, with_weights)


def sample(
    model: Model | PromptedModel,
    source: Int[Tensor, "batch n_source"],
    lengths: Int[Tensor, " batch"],
    max_length: int = 150,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
    special: SpecialTokens = SPECIAL,
) -> Decoded:
    """Draw each token from the model's distribution, after `warp_logits` has changed it; otherwise as `greedy`.

    Equal generators draw equal texts; a generator lives on the model's device. Raises ValueError as `warp_logits` does.
    """
    return _write(
        model,
        source,
        lengths,
        lambda logits: torch.multinomial(
            warp_logits(logits, temperature, top_k, top_p).softmax(dim=-1), 1, generator=generator
        ).squeeze(-1),
        max_length,
        special,
    )


def warp_logits(
    logits: Float[Tensor, "batch vocab_size"],
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Float[Tensor, "batch vocab_size"]:
    """Divide the logits by `temperature`, and forbid (−∞) all but the likely tokens. The largest logit becomes 0.

    `top_k` leaves the k likeliest (Fan et al. 2018), `top_p` the fewest whose probabilities add up to at least p
    (nucleus sampling, Holtzman et al. 2020). With both, p is of what k has left.
    Raises ValueError for a temperature that is not positive, a top_k below 1, a top_p outside of 0 < p ≤ 1.

    >>> warp_logits(torch.tensor([[1.0, 3.0, 2.0]]), top_k=2)
    tensor([[-inf,  0., -1.]])
    """
    if not temperature > 0:
        raise ValueError(f"temperature: got {temperature}, expected more than 0 (`greedy` is its limit at 0)")
    # The largest becomes 0, so that no temperature overflows; sums of many small probabilities need 32 bits.
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    logits = (logits - logits.amax(dim=-1, keepdim=True)) / temperature
    if top_k is not None:
        check_at_least(1, top_k=top_k)
        best, index = logits.topk(min(top_k, logits.shape[-1]), dim=-1)
        logits = torch.full_like(logits, -math.inf).scatter(-1, index, best)
    if top_p is not None:
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p: got {top_p}, expected more than 0 and at most 1")
        probabilities, index = logits.softmax(dim=-1).sort(dim=-1, descending=True)
        # A token is left out if those likelier than it reach p already: the first never is.
        enough = probabilities.cumsum(dim=-1) - probabilities >= top_p
        logits = logits.masked_fill(enough.scatter(-1, index, enough), -math.inf)
    return logits


class Beams(NamedTuple):
    """The best hypotheses of each source, the best first, and their length-normalised log-probabilities.

    Where there are fewer hypotheses than beams, the rest are empty and score −∞.
    """

    tokens: Int[Tensor, "batch n_beams n_target"]
    scores: Float[Tensor, "batch n_beams"]


@torch.no_grad()
def beam_search(
    model: Model | PromptedModel,
    source: Int[Tensor, "batch n_source"],
    lengths: Int[Tensor, " batch"],
    n_beams: int = 4,
    length_penalty: float = 0.6,
    max_length: int = 150,
    special: SpecialTokens = SPECIAL,
) -> Beams:
    """Keep the `n_beams` best beginnings at each step, and return the `n_beams` best of what they became.

    A hypothesis y scores log p(y) / ((5 + |y|) / 6)^length_penalty, so a penalty above 0 is kind to long ones (Wu et
    al. 2016, section 7, without coverage). A source is done when nothing that is still being written can enter its
    best; it then leaves the batch. What is unfinished at `max_length` competes as it is. Hypotheses are padded after
    their <eos>.
    Raises ValueError for fewer than one beam, a negative penalty, and prompts of different length.
    """
    check_at_least(1, n_beams=n_beams)
    if length_penalty < 0:
        raise ValueError(f"length_penalty: got {length_penalty}, expected 0 or more: it divides a negative number")
    with _evaluating(model):
        state, token, prompts, max_length = _begin(model, source, lengths, max_length, special.bos)
        if prompts is not None and prompts.offsets.any():
            raise ValueError(f"lengths: got {lengths.tolist()}, expected prompts of one length for beam search")
        batch, device = len(source), source.device
        # Row b · n_beams + k of the state is beam k of sentence b. All start equal, so all but one start impossible.
        state = state.select(torch.arange(batch, device=device).repeat_interleave(n_beams))
        token = token.repeat_interleave(n_beams)                                      # (batch · n_beams,)
        step = fast_step(model, max_length)
        totals: Tensor | None = None                                                  # (open, n_beams): log p so far
        written = token.new_empty(batch, n_beams, 0)                                  # (open, n_beams, t)
        sentences = torch.arange(batch, device=device)                                # (open,): which are being written
        best: Beams | None = None
        for t in range(1, max_length + 1):
            logits, state, _ = step(token, state, False)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))      # sums of many small numbers
            log_p = _without_pad(logits.log_softmax(dim=-1), special)                 # (open · n_beams, vocab_size)
            log_p, vocab_size = log_p.unflatten(0, (-1, n_beams)), log_p.shape[-1]    # (open, n_beams, vocab_size)
            if totals is None:
                totals = log_p.new_full((batch, n_beams), -math.inf)
                totals[:, 0] = 0.0
                best = Beams(token.new_full((batch, n_beams, max_length), EMPTY), torch.full_like(totals, -math.inf))
            assert best is not None
            # Twice as many candidates as beams: even if n_beams of them end here, n_beams go on. To end, a text must be
            # among the first n_beams, as it would have to be to go on.
            totals, index = (totals.unsqueeze(-1) + log_p).flatten(1).topk(min(2 * n_beams, n_beams * vocab_size))
            beam, token = index // vocab_size, index % vocab_size                     # (open, 2 · n_beams) each
            candidates = torch.cat([_pick(written, beam), token.unsqueeze(-1)], dim=-1)
            ended = (token == (EMPTY if special.eos is None else special.eos)) | (t == max_length)
            kept = ended & (torch.arange(token.shape[1], device=device) < n_beams)
            scores = (totals / ((5 + t) / 6) ** length_penalty).masked_fill(~kept, -math.inf)
            best = _keep_best(best, sentences, candidates, scores)

            totals, order = totals.masked_fill(ended, -math.inf).topk(n_beams)        # (open, n_beams)
            beam, token, written = beam.gather(1, order), token.gather(1, order), _pick(candidates, order)
            # Log-probabilities only fall, and the divisor is largest at the end: no beam can score better than this.
            reachable = totals[:, 0] / ((5 + max_length) / 6) ** length_penalty
            open_ = (reachable > best.scores[sentences, -1]).nonzero().squeeze(-1)
            if not len(open_):
                break
            rows = (open_.unsqueeze(-1) * n_beams + beam[open_]).flatten()            # (open · n_beams,)
            state = state.select(rows)
            sentences, totals, written = sentences[open_], totals[open_], written[open_]
            token = token[open_].flatten()
        assert best is not None
        tokens = best.tokens.masked_fill(best.scores.isneginf().unsqueeze(-1), EMPTY)
        return Beams(_filled(tokens, special), best.scores)


def _keep_best(best: Beams, sentences: Tensor, tokens: Tensor, scores: Tensor) -> Beams:
    """The finished candidates of these sentences compete with what had finished before."""
    n_beams, t = best.scores.shape[1], tokens.shape[2]
    padded = tokens.new_full((*tokens.shape[:2], best.tokens.shape[2]), EMPTY)
    padded[:, :, :t] = tokens
    scores, order = torch.cat([best.scores[sentences], scores], dim=1).topk(n_beams)
    best.tokens[sentences] = _pick(torch.cat([best.tokens[sentences], padded], dim=1), order)
    best.scores[sentences] = scores
    return best


def _pick(hypotheses: Int[Tensor, "batch n t"], index: Int[Tensor, "batch m"]) -> Int[Tensor, "batch m t"]:
    return hypotheses.gather(1, index.unsqueeze(-1).expand(-1, -1, hypotheses.shape[-1]))


class _Prompts(NamedTuple):
    """Prompts go in together as far as the shortest reaches; the tokens that the others have left are then fed one by
    one, in the place of what the model would choose."""

    rest: Int[Tensor, "batch n_rest"]
    offsets: Int[Tensor, " batch"]
    """How many tokens of `rest` are a row's own prompt."""


class _Beginning(NamedTuple):
    """The state before the first token, that token, what is left of the prompts, and how much may be written."""

    state: Any
    token: Int[Tensor, " batch"]
    prompts: _Prompts | None
    max_length: int


def _begin(model: Any, source: Tensor, lengths: Tensor, max_length: int, bos: int) -> _Beginning:
    check_at_least(1, max_length=max_length)
    if not hasattr(model, "read"):
        first = source.new_full((len(source),), bos, dtype=torch.long)
        # A subclass may start otherwise; the package's own starts sooner without padding.
        start = partial(unpadded_start, model) if type(model) is EncoderDecoder else model.start
        return _Beginning(start(source, lengths), first, None, min(max_length, model.max_positions or max_length))
    check_whole("source", source, "batch n")
    check_whole("lengths", lengths, "batch", batch=len(source))
    shortest = int(lengths.min())
    if not 1 <= shortest <= int(lengths.max()) <= source.shape[1]:
        raise ValueError(f"lengths: got {lengths.tolist()}, expected each within 1..{source.shape[1]}, as padded")
    if model.max_positions is not None:                                                     # the last token is not read
        max_length = min(max_length, model.max_positions + 1 - int(lengths.max()))
        if max_length < 1:
            got, expected = f"a prompt of {int(lengths.max())} tokens", f"at most {model.max_positions}"
            raise ValueError(f"source: got {got}, expected {expected}, the model's positions")
    source, state = source.long(), model.start()
    if shortest > 1:
        model.read(source[:, : shortest - 1], state)
    prompts = _Prompts(source[:, shortest:], lengths - shortest)
    return _Beginning(state, source[:, shortest - 1], prompts, max_length)


@torch.no_grad()
def _write(
    model: Model | PromptedModel,
    source: Tensor,
    lengths: Tensor,
    choose: Callable[[Tensor], Tensor],
    max_length: int,
    special: SpecialTokens,
    with_weights: bool = False,
) -> Decoded:
    """Step by step, `choose` the next tokens from the logits."""
    eos = EMPTY if special.eos is None else special.eos
    with _evaluating(model):
        state, token, prompts, max_length = _begin(model, source, lengths, max_length, special.bos)
        n_rest = 0 if prompts is None else int(prompts.offsets.max())
        rows = torch.arange(len(source), device=source.device)                        # whose sentence each row writes
        finished = torch.zeros_like(rows, dtype=torch.bool)
        tokens = torch.full((len(source), n_rest + max_length), EMPTY, device=source.device)
        looked: list[tuple[Tensor, Tensor]] = []
        step = fast_step(model, max_length)
        for t in range(n_rest + max_length):
            logits, state, weights = step(token, state, with_weights)
            token = choose(_without_pad(logits, special))                             # (rows,)
            dictated = torch.zeros_like(finished)
            if prompts is not None and t < n_rest:
                dictated = t < prompts.offsets[rows]
                token = torch.where(dictated, prompts.rest[rows, t], token)
            tokens[rows, t] = token.masked_fill(finished, EMPTY)
            if weights is not None:
                looked.append((rows, weights))
            finished = finished | (token == eos) & ~dictated
            n_open = len(rows) - int(finished.sum())
            if not n_open:
                break
            # Copying what is remembered costs about a step: finished sentences leave when they are half of the batch.
            if 2 * n_open <= len(rows):
                keep = (~finished).nonzero().squeeze(-1)
                rows, token, finished, state = rows[keep], token[keep], finished[keep], state.select(keep)
        if prompts is not None:                                                       # each row's prompt ends elsewhere
            at = prompts.offsets.unsqueeze(-1) + torch.arange(max_length, device=source.device)
            tokens = tokens.gather(1, at)                                             # (batch, max_length)
        where = _stack_weights(looked, len(source)) if looked and prompts is None else None
        return Decoded(_filled(tokens, special), where)


EMPTY = -1  # where nothing has been written: no token's id


def _without_pad(
    logits: Float[Tensor, "batch vocab_size"], special: SpecialTokens
) -> Float[Tensor, "batch vocab_size"]:
    """Padding stands after a text and is never part of it."""
    if special.pad is not None:
        logits[:, special.pad] = -math.inf
    return logits


def _filled(tokens: Int[Tensor, "*batch n"], special: SpecialTokens) -> Int[Tensor, "*batch n_longest"]:
    """As wide as the longest text, at least one column, and padding where nothing is written."""
    written = (tokens != EMPTY).flatten(0, -2).any(dim=0).nonzero()
    longest = int(written[-1]) + 1 if len(written) else 1
    return tokens[..., :longest].masked_fill(tokens[..., :longest] == EMPTY, special.fill)


def _stack_weights(looked: list[tuple[Tensor, Tensor]], batch: int) -> Float[Tensor, "batch n_target n_memory"]:
    weights = looked[0][1].new_zeros(batch, len(looked), looked[0][1].shape[1])
    for t, (rows, step) in enumerate(looked):
        weights[rows, t] = step
    return weights


@contextmanager
def _evaluating(model) -> Iterator[None]:
    """In evaluation mode; afterwards each part, which may have been frozen, is in its own mode again."""
    modes = [(part, part.training) for part in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


class Translation(NamedTuple):
    """A sentence in the target language, and the alignment of its pieces with the source's."""

    text: str
    source_pieces: list[str]
    target_pieces: list[str]
    weights: Float[Tensor, "n_target n_memory"]


def translate(
    model: Seq2Seq | EncoderDecoder, texts: Sequence[str], source: Tokenizer, target: Tokenizer, batch_size: int = 250
) -> list[Translation]:
    """Translate sentences greedily, in batches, in the order given; <eos> is the last target piece.

    Raises TypeError for a single text.
    """
    if isinstance(texts, str):
        raise TypeError(f"texts: got one text, expected a list of them, [{texts!r}]")
    translations = []
    device = next(model.parameters()).device
    for start in range(0, len(texts), batch_size):
        chunk = [EncodedPair(source.encode(text), []) for text in texts[start : start + batch_size]]
        batch = collate(chunk)
        tokens, weights = greedy(model, batch.source.to(device), batch.lengths.to(device), with_weights=True)
        assert weights is not None
        for pair, ids, rows in zip(chunk, tokens.tolist(), weights.cpu(), strict=True):
            ids = ids[: ids.index(EOS) + 1] if EOS in ids else ids
            n_memory = min(len(pair.source), rows.shape[1])
            rows = rows[: len(ids), :n_memory]
            translations.append(Translation(target.decode(ids), source.pieces(pair.source), target.pieces(ids), rows))
    return translations


def beam_translate(
    model: Seq2Seq | EncoderDecoder,
    texts: Sequence[str],
    source: Tokenizer,
    target: Tokenizer,
    n_beams: int = 4,
    length_penalty: float = 0.6,
    batch_size: int = 64,
) -> list[str]:
    """The best hypothesis of `beam_search` for each sentence, in the order given; with one beam, `greedy`'s.

    Sentences of like length share a batch. A translation ends when it has twice as many pieces as the longest source of
    its batch, and ten: a model that has not learned to end would write on and on. Raises TypeError for a single text,
    ValueError as `beam_search`.
    """
    if isinstance(texts, str):
        raise TypeError(f"texts: got one text, expected a list of them, [{texts!r}]")
    device = next(model.parameters()).device
    pairs = [EncodedPair(source.encode(text), []) for text in texts]
    written = [""] * len(texts)
    by_length = sorted(range(len(pairs)), key=lambda i: len(pairs[i].source))
    # The same memory for any number of beams.
    batch_size = max(1, 4 * batch_size // n_beams)
    for start in range(0, len(pairs), batch_size):
        chosen = by_length[start : start + batch_size]
        batch = collate([pairs[i] for i in chosen])
        tokens, lengths, most = batch.source.to(device), batch.lengths.to(device), 2 * batch.source.shape[1] + 10
        if n_beams == 1:
            best = greedy(model, tokens, lengths, most).tokens
        else:
            best = beam_search(model, tokens, lengths, n_beams, length_penalty, most).tokens[:, 0]
        for i, ids in zip(chosen, best.tolist(), strict=True):
            written[i] = target.decode(ids)
    return written
