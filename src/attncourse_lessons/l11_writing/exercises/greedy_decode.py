"""greedy_decode: Write a sentence in each row, token by token, always the likeliest."""

from typing import Any

import torch
from torch import Tensor

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.observe import Draw

from .common import READY_MADE


def reference(next_logits, n_sentences, bos, eos, pad, max_length):
    tokens = torch.full((n_sentences, 1), bos)
    finished = torch.zeros(n_sentences, dtype=torch.bool)
    while tokens.shape[1] <= max_length and not finished.all():
        best = next_logits(tokens).argmax(dim=-1).masked_fill(finished, pad)
        tokens = torch.cat([tokens, best[:, None]], dim=1)
        finished = finished | (best == eos)
    rest = torch.full((n_sentences, max_length + 1 - tokens.shape[1]), pad)
    return torch.cat([tokens[:, 1:], rest], dim=1)


def solution(next_logits, n_sentences, bos, eos, pad, max_length):
    tokens = torch.full((n_sentences, max_length + 1), pad)
    tokens[:, 0] = bos
    finished = torch.zeros(n_sentences, dtype=torch.bool)
    for t in range(max_length):
        best = next_logits(tokens[:, : t + 1]).argmax(dim=-1)     # (n_sentences,)
        tokens[:, t + 1] = best.masked_fill(finished, pad)
        finished = finished | (best == eos)
        if finished.all():
            break
    return tokens[:, 1:]


exercise = Exercise(
    "greedy_decode",
    reference=reference,
    solution=solution,
    returns=("tokens",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=20,
    hints=(
        "Which sentences have ended? Keep a boolean for each of them, which <eos> alone turns to True, and look at it "
        "twice: when a token is written, and when you ask whether to go on.",
        "Begin with whole numbers `tokens` of shape (n_sentences, 1), all <bos>. Each round: `next_logits(tokens)`, "
        "argmax over the vocabulary, pad in place of it where the sentence has already ended, and append a column.",
        "Update `finished` with `|` after the new column is made, so that the <eos> itself is still written. When all "
        "have ended, stop; cut off the column of <bos>, and fill up with pad to `max_length` columns. One sentence "
        "alone is a table of one row.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


class _Writer:
    """A model that writes a text of its own for each sentence, and says <eos> first as token number `ends[b]`.

    It says it once more two tokens later: an end that is taken back then would show. An `odd` one says <pad> as token
    number 2 of each sentence, and <bos> as number 3.
    """

    def __init__(self, draw: Draw, ends: list[int], max_length: int, odd: bool = False):
        vocab_size = 9
        self.bos, self.eos, self.pad = draw.sizes(3, 0, vocab_size - 1)
        self.ends, self.calls, self.odd = torch.tensor(ends), 0, odd
        self.by_place = draw.normal(max_length + 1, len(ends), vocab_size)
        self.by_past = draw.normal(max_length + 1, vocab_size, vocab_size)
        self.by_place[:, :, [self.eos, self.pad, self.bos]] = -100.0
        self.by_past[:, :, [self.eos, self.pad, self.bos]] = 0.0

    def __call__(self, tokens: Tensor) -> Tensor:
        batch, n = self.by_place.shape[1], tokens.shape[1]
        if tokens.shape[0] != batch or n > len(self.by_place):
            raise ValueError(f"tokens: got shape {tuple(tokens.shape)}, expected {batch} sentences, none too long")
        self.calls += 1
        past = sum(4 * self.by_past[j][tokens[:, j]] for j in range(n))               # (batch, vocab_size)
        logits = self.by_place[n - 1] + past
        if self.odd and n in (2, 3):
            logits[:, self.pad if n == 2 else self.bos] = 90.0
        logits[(self.ends == n) | (self.ends + 2 == n), self.eos] = 100.0
        return logits

    def write(self, answer: Any, max_length: int) -> Tensor:
        return answer(self, len(self.ends), self.bos, self.eos, self.pad, max_length)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("tokens", points=2, hint=2)
def tokens(answer, draw):
    """at each step the likeliest token, given all that was written before"""
    batch, n = draw.sizes(2, 3, 6)
    return _Writer(draw, [99] * batch, n).write(answer, n)


@aspect("the ends", points=2, hint=3)
def the_ends(answer, draw):
    """each sentence ends with its own <eos>, and after it there is padding"""
    ends = [1 + e for e in draw.sizes(3, 0, 5)]
    return _Writer(draw, ends, 8).write(answer, 8)


@aspect("no step for nothing", points=1, hint=1)
def no_step_for_nothing(answer, draw):
    """when all have ended the model is not asked any more"""
    ends = [1 + e for e in draw.sizes(3, 0, 5)]
    writer = _Writer(draw, ends, 9)
    writer.write(answer, 9)
    return torch.tensor(writer.calls)


@aspect("whichever it is", points=1, hint=1)
def whichever_it_is(answer, draw):
    """a <pad> or a <bos> that the model writes is a token like any other, and no end"""
    return _Writer(draw, [99] * 3, 6, odd=True).write(answer, 6)[:, 1:3]


@aspect("whole numbers", points=1, hint=2)
def whole_numbers(answer, draw):
    """what comes back can be looked up in a vocabulary"""
    written = _Writer(draw, [99, 2], 4).write(answer, 4)
    return torch.tensor(not written.is_floating_point())


@aspect("one sentence", points=1, hint=3)
def one_sentence(answer, draw):
    """a single sentence is a batch of one, and one that never ends is cut at `max_length`"""
    (n,) = draw.sizes(1, 7, 9)
    return _Writer(draw, [99], n).write(answer, n)


# -------------------------------------------------------------------------------------- one slip away from the solution

ENDS = ("the ends", "no step for nothing")
EVERY_TEXT = ("tokens", "the ends", "one sentence")
PADDED, STOPS, WRITTEN = ".masked_fill(finished, pad)", "    if finished.all():\n        break\n", "tokens[:, 1:]"

slip("runs past <eos>", ENDS, {PADDED: "", STOPS: ""}, words="""
    Sentences go on after their <eos>. The model does not stop by itself: whatever it is asked, it answers with some
    token. Remember which sentences have ended, and write padding there.""")
slip("the end is forgotten", ENDS, {"finished | (best == eos)": "tokens[:, t + 1] == eos"}, words="""
    A sentence was remembered as ended for one step only: its next token is padding, which is no <eos>, and it went on.
    What has ended stays ended: keep what `finished` was, and add to it with `|`.""")
slip("the first <eos> ends all", ENDS, {"finished.all()": "finished.any()"}, words="""
    As soon as one sentence had ended, writing stopped for all of them, in the middle of their words. Stop when
    *all* have ended: any or all?""")
slip("never stops early", ("no step for nothing",), {STOPS: ""}, words="""
    What comes back is right, but the model was asked `max_length` times, although all sentences had ended long
    before. With a limit of 150 and captions of 15 that is ten times the cost.""")
slip("asked once more", ("no step for nothing",),
     {STOPS: "", "    tokens[:, t + 1] = best": "    if finished.all():\n        break\n    tokens[:, t + 1] = best"},
     words="""
    What comes back is right, but the model was asked once more after all sentences had ended: whether they have is to
    be looked at *before* it is asked again.""")
slip("only those that have not ended", (*ENDS, "whole numbers"),
     {"best = next_logits(tokens[:, : t + 1]).argmax(dim=-1)":
      "best = torch.full((n_sentences,), eos)\n"
      "    best[~finished] = next_logits(tokens[~finished, : t + 1]).argmax(dim=-1)"},
     words="""
    The model was given only the sentences that have not ended. It would save work; but this one takes all sentences of
    the batch each time: let it answer for those that have ended, too, and write padding there.""")
slip("as wide as the longest sentence", ("the ends",), {WRITTEN: "tokens[:, 1 : t + 2]"}, words="""
    The table is as wide as the longest sentence. The contract asks for `max_length` columns, whatever was written: fill
    up with padding.""")
slip("only the last token is read", (*EVERY_TEXT, "no step for nothing", "whichever it is"),
     {"[:, : t + 1]": "[:, t : t + 1]"}, words="""
    The model was shown the last token alone, and so it thinks each time that the sentence begins there. Without a
    cache it remembers nothing: `next_logits` wants all that is written so far, <bos> in front.""")
slip("<bos> comes along", (*EVERY_TEXT, "whichever it is"),
     {WRITTEN: "tokens[:, :-1]"},
     {WRITTEN: "tokens"},  # beside all the others
     words="""
    The <bos> that you put in front came back as the first token. It was the model's starting signal, not something
    that it wrote.""")
slip("<eos> itself is left out", ("the ends",), {PADDED: ".masked_fill(finished | (best == eos), pad)"}, words="""
    Padding stands where <eos> should stand. A sentence that ended by itself and one that was cut off then look the
    same. Write the <eos>, and only what comes after it is padding: update `finished` after the token is written.""")
slip("starts with padding", EVERY_TEXT, {"tokens[:, 0] = bos\n": ""}, words="""
    The model was started with something else than <bos>. It has learned what follows a <bos>, and nothing about
    what follows padding.""")
slip("one step short", ("tokens", "one sentence"), {"range(max_length)": "range(max_length - 1)"}, words="""
    The last place stays empty although the sentence had not ended: <bos> was counted as one of the `max_length`
    tokens. It is not written by the model.""")
slip("an <eos> where the room ends", ("tokens", "one sentence"),
     {"return tokens[:, 1:]": "tokens[~finished, -1] = eos\nreturn tokens[:, 1:]"}, words="""
    A sentence that had not ended got an <eos> in its last place. The model did not write it. One that is cut off ends
    without: so everybody can tell the two apart.""")
slip("a pad taken for the end", ("whichever it is",),
     {"finished | (best == eos)": "finished | (best == eos) | (best == pad)"},
     {"best.masked_fill(finished, pad)\n    finished = finished | (best == eos)":
      "best.masked_fill(finished, pad)\n    finished = finished | (tokens[:, t + 1] == pad) | (best == eos)"},
     words="""
    The model wrote a <pad> in the middle of a sentence, and that was taken for its end. A trained model hardly ever
    does so; but what ends a sentence is <eos>. Keep a boolean for that, and do not read it off the tokens.""")
slip("tokens forbidden to the model", ("whichever it is",),
     {".argmax(dim=-1)": ".index_fill(1, torch.tensor([bos, pad]), -torch.inf).argmax(dim=-1)"},
     {".argmax(dim=-1)": ".index_fill(1, torch.tensor([pad]), -torch.inf).argmax(dim=-1)"},
     {".argmax(dim=-1)": ".index_fill(1, torch.tensor([bos]), -torch.inf).argmax(dim=-1)"}, words="""
    The model was not let write <pad> or <bos>. Real programs often forbid them. Here the likeliest token is asked for,
    whichever it is.""")
slip("tokens as floats", ("whole numbers",), {WRITTEN: f"{WRITTEN}.float()"}, words="""
    The tokens are right, as floating-point numbers: nothing can be looked up with those. torch makes a table of whole
    numbers if it is filled with one.""")
slip("squeezed axes", ("one sentence",), {WRITTEN: f"{WRITTEN}.squeeze()"}, words="""
    `squeeze()` removes every axis of length one, the batch's too when there is one sentence in it. Keep the axes.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("runs past <eos>", fails=("the ends",))
def runs_until_all_have_said_eos(next_logits, n_sentences, bos, eos, pad, max_length):
    """Until all have said <eos>, and filled up."""
    tokens = torch.full((n_sentences, 1), bos)
    while tokens.shape[1] <= max_length and not (tokens == eos).any(dim=1).all():
        best = next_logits(tokens).argmax(dim=-1)
        tokens = torch.cat([tokens, best[:, None]], dim=1)
    rest = torch.full((n_sentences, max_length + 1 - tokens.shape[1]), pad)
    return torch.cat([tokens[:, 1:], rest], dim=1)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("written into a table of padding")
def written_into_a_table_of_padding(next_logits, n_sentences, bos, eos, pad, max_length):
    """All the room is there from the beginning."""
    tokens = torch.full((n_sentences, max_length + 1), pad)
    tokens[:, 0] = bos
    open_ = torch.ones(n_sentences, dtype=torch.bool)
    for t in range(max_length):
        best = next_logits(tokens[:, : t + 1]).argmax(dim=-1)
        tokens[open_, t + 1] = best[open_]
        open_ = open_ & (best != eos)
        if not open_.any():
            break
    return tokens[:, 1:]


@alternative("lists, sentence by sentence")
def lists_sentence_by_sentence(next_logits, n_sentences, bos, eos, pad, max_length):
    """One column for all, then each sentence by itself."""
    written = [[bos] for _ in range(n_sentences)]
    for _ in range(max_length):
        if all(eos in row for row in written):
            break
        for row, logits in zip(written, next_logits(torch.tensor(written)), strict=True):
            row.append(pad if eos in row else int(torch.argmax(logits)))
    return torch.tensor([row[1:] + [pad] * (max_length + 1 - len(row)) for row in written])
