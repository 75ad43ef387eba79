"""How good a model is: its loss, what it gets exactly right, and how both change with the source's length."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attncourse._checks import check_at_least, check_boolean, check_shape
from attncourse.data.batches import pad_batch
from attncourse.data.tokenizer import PAD
from attncourse.transformer import cross_entropy
from commandkit.errors import require_extra


def token_loss(
    logits: Float[Tensor, "batch n_target vocab_size"],
    target: Int[Tensor, "batch n_target"],
    pad: int = PAD,
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Cross entropy in nats, averaged over the real target tokens: padding counts for nothing.

    Raises ValueError for a target of another shape than the logits have in front, and what `cross_entropy` raises.
    """
    if logits.shape[:-1] != target.shape:
        expected = f"{tuple(logits.shape[:-1])}, as the logits have"
        raise ValueError(f"target: got shape {tuple(target.shape)}, expected {expected}")
    return cross_entropy(logits, target, label_smoothing, pad)


def perplexity(
    log_probabilities: Float[Tensor, "*batch n"], mask: Bool[Tensor, "*batch n"] | None = None
) -> Float[Tensor, ""]:
    """How many equally likely tokens would be as hard to guess: e to the mean of −log p, over all tokens at once.

    `log_probabilities` are natural logarithms, one for each token that did come. `mask` is True where there is a token;
    without one, all count. Two perplexities compare only where both count the same tokens of the same text. (Taking
    logarithms to base 2, and 2 to their mean, gives the same number.) Computed in float64.
    Raises TypeError for a mask that is not boolean, ValueError for one of another shape, or no token at all.

    >>> round(perplexity(torch.tensor([0.25, 0.25]).log()).item(), 4)
    4.0
    """
    check_shape("log_probabilities", log_probabilities, "*batch n")
    if mask is not None:
        check_boolean("mask", mask, "there is a token")
        if mask.shape != log_probabilities.shape:
            got, expected = tuple(mask.shape), tuple(log_probabilities.shape)
            raise ValueError(f"mask: got shape {got}, expected {expected}, as log_probabilities")
        log_probabilities = log_probabilities[mask]                                   # (n_tokens,)
    if not log_probabilities.numel():
        raise ValueError("log_probabilities: got no token, expected at least one")
    if log_probabilities.device.type == "mps":                                        # which has no float64
        log_probabilities = log_probabilities.cpu()
    return torch.exp(-log_probabilities.double().mean())


@torch.no_grad()
def text_log_probabilities(
    model: nn.Module, texts: Sequence[Sequence[int]], batch_size: int = 64
) -> list[Float[Tensor, " n"]]:
    """How likely a language model, `model(tokens) -> logits`, finds each token of each text but the first, in nats.

    `texts` are token ids, <bos> in front. The model is put in evaluation mode and left there. Raises ValueError for a
    text of fewer than two tokens.
    """
    if any(len(text) < 2 for text in texts):
        raise ValueError("texts: got one without a token to predict, expected <bos> and at least one token more")
    model.eval()
    device = next(model.parameters()).device
    scores: list[Tensor] = [torch.empty(0)] * len(texts)
    by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))                # little padding in a batch
    for start in range(0, len(texts), batch_size):
        chosen = by_length[start : start + batch_size]
        tokens = pad_batch([texts[i] for i in chosen])[0].to(device)                  # (batch, n)
        log_p = model(tokens[:, :-1]).log_softmax(dim=-1)                             # (batch, n - 1, vocab_size)
        log_p = log_p.gather(-1, tokens[:, 1:, None]).squeeze(-1).cpu()               # (batch, n - 1)
        for i, row in zip(chosen, log_p, strict=True):
            scores[i] = row[: len(texts[i]) - 1].clone()
    return scores


def exact_match(answers: Sequence[str], truths: Sequence[str]) -> list[bool]:
    """Which answers are right to the last character. Raises ValueError for lists of different length."""
    if len(answers) != len(truths):
        raise ValueError(f"answers: got {len(answers)} for {len(truths)} truths, expected one for each")
    return [answer == truth for answer, truth in zip(answers, truths, strict=True)]


def accuracy_by_length(
    right: Sequence[bool], lengths: Sequence[int], edges: Sequence[int]
) -> dict[tuple[int, int], float]:
    """The share that is right, bucket by bucket: {(shortest, longest): accuracy}.

    `edges` are the longest lengths of the buckets, ascending: (8, 16) makes 1–8 and 9–16. Empty buckets are left out; a
    length beyond the last edge raises ValueError.
    """
    if max(lengths) > edges[-1]:
        raise ValueError(f"edges: got {list(edges)}, expected the last to reach the longest length, {max(lengths)}")
    buckets = {}
    for shortest, longest in zip([1, *(edge + 1 for edge in edges)], edges, strict=False):
        inside = [ok for ok, length in zip(right, lengths, strict=True) if shortest <= length <= longest]
        if inside:
            buckets[shortest, longest] = sum(inside) / len(inside)
    return buckets


class Score(NamedTuple):
    """Of 100. Two scores compare only where their signatures are the same."""

    score: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False) -> Score:
    """How many runs of one to four words the translations share with the references, over the whole corpus.

    Papineni et al. 2002 as `sacrebleu` computes it (Post 2018): it cuts up plain text itself, by rule 13a, cased unless
    `lowercase`. Raises ValueError for no sentences, lists of different length, or an empty reference, TypeError for a
    single text, MissingExtra where sacrebleu is not installed.
    """
    _check_translations(hypotheses, references)
    with require_extra("BLEU", "train"):
        from sacrebleu import BLEU
    metric = BLEU(lowercase=lowercase)
    return Score(metric.corpus_score(hypotheses, [references]).score, str(metric.get_signature()))


def chrf(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False) -> Score:
    """As `bleu`, with runs of one to six letters: kinder to a wrong ending. chrF2 (Popović 2015), by sacrebleu."""
    _check_translations(hypotheses, references)
    with require_extra("chrF", "train"):
        from sacrebleu import CHRF
    metric = CHRF(lowercase=lowercase)
    return Score(metric.corpus_score(hypotheses, [references]).score, str(metric.get_signature()))


def bootstrap_bleu(
    matches: Int[Tensor, "n 4"],
    words: Int[Tensor, " n"],
    reference_words: Int[Tensor, " n"],
    samples: int = 1000,
    seed: int = 0,
) -> Float[Tensor, " samples"]:
    """BLEU of `samples` corpora, each of n sentences drawn with replacement from these n (Koehn 2004).

    Of each sentence: `matches[i, k - 1]`, how many of the translation's k-grams stand in the reference (clipped), its
    words, and the reference's. Equal seeds draw the same sentences, so the difference of two systems' is paired. There
    is no smoothing: a corpus without any common 4-gram scores 0. Computed in float64.
    Raises ValueError for shapes that do not fit, no sentence, or fewer than one sample.
    """
    check_shape("matches", matches, "n 4")
    check_at_least(1, samples=samples, sentences=len(matches))
    for name, counts in (("words", words), ("reference_words", reference_words)):
        if counts.shape != matches.shape[:1]:
            raise ValueError(f"{name}: got shape {tuple(counts.shape)}, expected ({len(matches)},), as matches")
    n_grams = (words[:, None] - torch.arange(4, device=words.device)).clamp(min=0)    # (n, 4): those that were written
    counts = torch.cat([matches, n_grams, words[:, None], reference_words[:, None]], dim=1).double().cpu()
    drawn = torch.randint(len(counts), (samples, len(counts)), generator=torch.Generator().manual_seed(seed))
    times = torch.zeros(samples, len(counts), dtype=torch.float64).scatter_add_(
        1, drawn, torch.ones(drawn.shape, dtype=torch.float64)
    )                                                                                 # how often each was drawn
    sums = times @ counts                                                             # (samples, 10)
    matching, written, ours, theirs = sums[:, :4], sums[:, 4:8], sums[:, 8], sums[:, 9]
    brevity = (1 - theirs / ours).clamp(max=0)                                        # log of the penalty
    return 100 * torch.exp(brevity + (matching / written).log().mean(dim=1))


def _check_translations(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    for name, texts in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(texts, str):
            raise TypeError(f"{name}: got one text, expected a list of them, [{texts!r}]")
    if not hypotheses or len(hypotheses) != len(references):
        got = f"{len(hypotheses)} for {len(references)} references"
        raise ValueError(f"hypotheses: got {got}, expected one for each, and at least one")
    if empty := [i for i, reference in enumerate(references) if not reference.strip()]:
        raise ValueError(f"references[{empty[0]}]: got an empty text, expected a translation")


def alignment_error(
    weights: Sequence[Float[Tensor, "n_target n_source"]], truth: Sequence[Bool[Tensor, "n_target n_source"]]
) -> float:
    """The share of target pieces whose largest weight stands at a source piece that they do not translate.

    One table of each for every sentence; a piece without any True in its row of `truth` has no partner, and is not
    counted. This is Och and Ney's (2003) alignment error rate, 1 − (|A∩S| + |A∩P|) / (|A| + |S|), where A links each
    piece that has a partner to its largest weight, and the true links are all possible ones (P), none of them demanded
    (S = ∅): a row has but one largest weight, and must not be blamed for a second partner. Where every piece has one
    partner, demanding them all (S = P) gives the same number.
    Raises ValueError for lists or tables that do not fit each other, or where nothing has a partner, TypeError for a
    truth that is not boolean.

    >>> alignment_error([torch.tensor([[0.9, 0.1], [0.6, 0.4]])], [torch.tensor([[True, False], [False, True]])])
    0.5
    """
    if len(weights) != len(truth):
        raise ValueError(f"weights: got {len(weights)} tables for {len(truth)} of the truth, expected one for each")
    right = counted = 0
    for i, (table, true) in enumerate(zip(weights, truth, strict=True)):
        check_boolean(f"truth[{i}]", true, "two pieces belong together")
        check_shape(f"weights[{i}]", table, "n_target n_source")
        if table.shape != true.shape:
            got, expected = tuple(table.shape), tuple(true.shape)
            raise ValueError(f"weights[{i}]: got shape {got}, expected {expected}, as truth[{i}]")
        hits = true.gather(1, table.argmax(dim=1, keepdim=True))[:, 0]               # (n_target,)
        counted += int(true.any(dim=1).sum())
        right += int(hits.sum())                                                     # no hit where nothing is true
    if not counted:
        raise ValueError("truth: got no piece with a partner, expected at least one")
    return 1 - right / counted
