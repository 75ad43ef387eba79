"""structural_test: Whether `block` is a sound pre-norm block of a decoder."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lessonkit.exercises.exercise import Exercise

from .common import READY_MADE

CLOSE = 1e-4


def _same(got, expected):
    """Equal but for rounding."""
    return torch.allclose(got, expected, rtol=CLOSE, atol=CLOSE)


def reference(block, x, losses):
    """Whether block is a pre-norm decoder block."""
    attended, thought, whole, larger = block(x, 1.0, 0.0), block(x, 0.0, 1.0), block(x, 1.0, 1.0), 10 * x
    n = x.shape[1]

    def several(changed):
        """Texts (n, batch, n, d) as one batch, for a block that does not mind company."""
        return changed.flatten(0, 1)

    def hears_no_future():
        """What comes up to i stays as it is when all after it changes, for every i."""
        future = torch.ones(n, n, dtype=torch.bool).triu(1)[:, None, :, None]
        after = block(several(torch.where(future, torch.randn(n, *x.shape), x)), 1.0, 1.0).view(n, *x.shape)
        return _same(torch.where(future, whole, after), whole.expand_as(after))

    def hears_the_past():
        """Attention's findings from j on change when the vector at j does, for every j."""
        at_j = torch.eye(n, dtype=torch.bool)[:, None, :, None]
        other = several(torch.where(at_j, torch.randn(n, *x.shape), x))
        moved = (block(other, 1.0, 0.0) - other).view(n, *x.shape) - (attended - x)
        return bool((moved.abs().amax(dim=(1, 3)) > CLOSE)[torch.ones(n, n, dtype=torch.bool).triu()].all())

    sound = (
        _same(block(x, 0.0, 0.0), x)
        and not _same(attended, x)
        and not _same(thought, x)
        and _same(block(larger, 1.0, 0.0) - larger, attended - x)
        and _same(block(larger, 0.0, 1.0) - larger, thought - x)
        and _same(block(attended, 0.0, 1.0), whole)
        and all(_same(block(x[b : b + 1], 1.0, 1.0), whole[b : b + 1]) for b in range(len(x)))
        and hears_no_future()
        and hears_the_past()
    )
    return torch.tensor(sound)


def solution(block, x, losses):
    def same(got, expected):
        return torch.allclose(got, expected, rtol=1e-4, atol=1e-4)

    zeroed, whole = block(x, 0.0, 0.0), block(x, 1.0, 1.0)       # (batch, n, d)
    attended, thought = block(x, 1.0, 0.0), block(x, 0.0, 1.0)
    questions = [
        same(zeroed, x),
        not same(attended, x),
        not same(thought, x),
        same(block(10 * x, 1.0, 0.0) - 10 * x, attended - x),
        same(block(10 * x, 0.0, 1.0) - 10 * x, thought - x),
        same(block(attended, 0.0, 1.0), whole),
    ]
    for b in range(len(x)):                                      # alone as in the batch
        questions.append(same(block(x[b : b + 1], 1.0, 1.0), whole[b : b + 1]))
    for i in range(x.shape[1] - 1):                              # whatever comes after i
        future = x.clone()
        future[:, i + 1 :] = torch.randn_like(x[:, i + 1 :])
        questions.append(same(block(future, 1.0, 1.0)[:, : i + 1], whole[:, : i + 1]))
    for j in range(x.shape[1]):    # what is found from j on depends on x at j
        other = x.clone()
        other[:, j] = torch.randn_like(x[:, j])
        moved = (block(other, 1.0, 0.0) - other) - (attended - x)
        questions.append((moved[:, j:].abs().amax(dim=(0, 2)) > 1e-4).all())
    return all(questions)


exercise = Exercise(
    "structural_test",
    reference=reference,
    solution=solution,
    returns=("sound",),
    forbidden=READY_MADE,
    truths=True,
    seeds=2,
    difficulty=3,
    minutes=45,
    hints=(
        "Go through the sentences that describe a sound block. Each is a question that can be asked by calling "
        "`block` once or twice and comparing: what must stay equal, and what must change where a sublayer does "
        "anything? Write one after the other, and run the check in between.",
        "`block(x, 0.0, 0.0)` must be x. What attention found is `block(x, 1.0, 0.0) - x`: if it gets a normalised "
        "x, that must be the same for `10 * x`. And a block is its halves one after the other: hand to the second half "
        "what the first returns.",
        "For the future and for batch invariance there are tests in lectures @masking and @order: put different "
        "numbers after position i (to a norm, a constant added to all features is no change), and take one text out of "
        "the batch. For the past it is the other way round: change x at position j, and what attention finds there and "
        "after it must change. Allow for rounding: `torch.allclose(…, rtol=1e-4, atol=1e-4)`.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


class _Parts(NamedTuple):
    """What a block is made of: four matrices (d, d) for attention, two for the feed-forward network."""

    W: Tensor
    up: Tensor
    down: Tensor

    def attention(self, h: Tensor, allowed: Tensor | None = None) -> Tensor:
        query, key, value = h @ self.W[0], h @ self.W[1], h @ self.W[2]
        mask = torch.ones(h.shape[1], h.shape[1], dtype=torch.bool).tril() if allowed is None else allowed
        scores = query @ key.mT / math.sqrt(h.shape[-1])          # plain: a check calls this some thousand times
        return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1) @ value @ self.W[3]

    def ff(self, h: Tensor) -> Tensor:
        return (h @ self.up).relu() @ self.down


Block = Callable[[Tensor, float, float, _Parts], Tensor]
Norm = Callable[[Tensor], Tensor]


def _ln(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _rms(x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], eps=1e-6)


def _gain(x: Tensor) -> Tensor:
    """A norm whose gain and bias have been trained."""
    return _ln(x) * torch.linspace(0.5, 1.5, x.shape[-1]) + 0.1


def _root_too_many(x: Tensor) -> Tensor:
    off = x - x.mean(dim=-1, keepdim=True)
    return off / (off.square().mean(dim=-1, keepdim=True).sqrt().sqrt() + 1e-5)


def _with_the_neighbour(x: Tensor) -> Tensor:
    """Each text also hears the one beside it in the batch."""
    return _ln(_ln(x) + _ln(x).roll(1, dims=0))


def _with_the_first(x: Tensor) -> Tensor:
    """The first text hears itself alone; all others hear it, too."""
    return torch.cat([_ln(x[:1]), _ln(_ln(x[1:]) + _ln(x[:1]))])


def _with_the_next(x: Tensor) -> Tensor:
    """Each word also hears the one after it."""
    return _ln(_ln(x) + torch.cat([_ln(x)[:, 1:], _ln(x)[:, -1:]], dim=1))


def _itself(x: Tensor) -> Tensor:
    return x


def _pre(first: Norm, second: Norm | None = None, allowed: Callable[[int], Tensor] | None = None) -> Block:
    """A pre-norm block with these norms on the side roads, and a mask of its own if there is one."""

    def block(x, a, f, p):
        x = x + a * p.attention(first(x), None if allowed is None else allowed(x.shape[1]))
        return x + f * p.ff((second or first)(x))

    return block


def _one_ahead(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril(1)


def _everybody(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool)


def _first_ahead(n: int) -> Tensor:
    """Causal, but for the first position, which sees the second."""
    allowed = torch.ones(n, n, dtype=torch.bool).tril()
    allowed[0, 1:2] = True
    return allowed


def _not_itself(n: int) -> Tensor:
    """Only what came before; the first, which has nobody before it, sees itself."""
    allowed = torch.ones(n, n, dtype=torch.bool).tril(-1)
    allowed[0, 0] = True
    return allowed


def _itself_alone(n: int) -> Tensor:
    return torch.eye(n, dtype=torch.bool)


def _not_the_first(n: int) -> Tensor:
    """Nobody sees the first position but itself."""
    allowed = torch.ones(n, n, dtype=torch.bool).tril()
    allowed[1:, 0] = False
    return allowed


def _last_but_one_ahead(n: int) -> Tensor:
    """Causal, but for the last position but one, which sees the last."""
    allowed = torch.ones(n, n, dtype=torch.bool).tril()
    allowed[-2:-1, -1] = True
    return allowed


def _last_but_one_unseen(n: int) -> Tensor:
    """Causal, but the last position does not see the one before it."""
    allowed = torch.ones(n, n, dtype=torch.bool).tril()
    allowed[-1, -2:-1] = False
    return allowed


def _last_alone(n: int) -> Tensor:
    """Causal, but the last position sees itself alone."""
    allowed = torch.ones(n, n, dtype=torch.bool).tril()
    allowed[-1, :-1] = False
    return allowed


def _late(n: int) -> Tensor:
    """A mask made for three positions, behind which nothing is forbidden."""
    allowed = torch.ones(n, n, dtype=torch.bool).tril()
    allowed[3:, 3:] = True
    return allowed


def _attention_from_the_norm(x, a, f, p):
    h = _ln(x)
    x = h + a * p.attention(h)
    return x + f * p.ff(_ln(x))


def _ff_from_the_norm(x, a, f, p):
    x = _ln(x + a * p.attention(_ln(x)))
    return x + f * p.ff(x)


def _both_from_the_norm(x, a, f, p):
    x = _ln(x)
    x = _ln(x + a * p.attention(x))
    return x + f * p.ff(x)


def _post(x, a, f, p):
    x = _ln(x + a * p.attention(x))
    return _ln(x + f * p.ff(x))


def _sandwich(x, a, f, p):
    """What a sublayer found is normalised once more before it is added: another style, and sound."""
    x = x + a * _ln(p.attention(_ln(x)))
    return x + f * _rms(p.ff(_ln(x)))


def _replaced(x, a, f, p):
    x = a * p.attention(_ln(x))
    return x + f * p.ff(_ln(x))


def _side_by_side(x, a, f, p):
    return x + a * p.attention(_ln(x)) + f * p.ff(_ln(x))


def _exchanged(x, a, f, p):
    """The feed-forward network first."""
    x = x + f * p.ff(_ln(x))
    return x + a * p.attention(_ln(x))


def _no_ff(x, a, f, p):
    return x + a * p.attention(_ln(x))


def _no_attention(x, a, f, p):
    return x + f * p.ff(_ln(x))


def _faint(x, a, f, p):
    """A hundredth of x is exchanged for its norm."""
    return _pre(_ln)(0.99 * x + 0.01 * _ln(x), a, f, p)


def _by_thirds(x, a, f, p):
    """Right in mathematics, and rounded more than need be."""
    x = (x / 3 + a * p.attention(_gain(x)) / 3) * 3
    return (x / 7 + f * p.ff(_gain(x)) / 7) * 7


# A family without a sound block gets this one: else a test that accuses every block would be right.
DIVERGED = _pre(_ln)
SOUND = ("a sound block, whose loss has risen, because it was trained at too high a rate", True, DIVERGED)


def _blocks(
    name: str, meaning: str, *family: tuple[str, bool, Block], hint: int, points: float = 1, most: int = 3
) -> None:
    """An aspect: blocks, each with its story and whether it is sound, on two to `most` texts."""
    blocks = family if any(sound for _, sound, _ in family) else (*family, SOUND)

    def look(answer, draw):
        batch = 2 + int(draw.integers(most - 1, 1))
        n, d = 5 + int(draw.integers(2, 1)), 6 + 2 * int(draw.integers(2, 1))
        x = 2 * draw.normal(batch, n, d) + 1
        W = draw.normal(4, d, d) / math.sqrt(d)
        W[0] /= 2                                                         # nobody is heard too faintly to tell
        parts = _Parts(W, draw.normal(d, 2 * d), draw.normal(2 * d, d) / d)

        def of(block: Block) -> Callable[[Tensor, float, float], Tensor]:
            return lambda x, a, f: block(x, float(a), float(f), parts)

        said = []
        for _, _, block in blocks:
            steps = torch.arange(12)
            losses = 2 + 3 * torch.exp(-steps / 3) if block is not DIVERGED else 5 + steps / 4
            said.append(answer(of(block), x, (losses + 0.05 * draw.normal(12)).tolist()))
        return torch.stack(said)

    def explain(got, expected):
        for (story, sound, _), said in zip(blocks, got, strict=True):
            if bool(said) != sound:
                return f"{'accuses' if sound else 'misses'} {story}"
        return None

    look.__doc__ = meaning
    exercise.aspect(name, points=points, hint=hint, explain=explain)(look)


_blocks(
    "the printed block",
    "catches residuals from the normalised x, in both sublayers; leaves a block with RMSNorm alone",
    ("the slide's block: both residuals start at the normalised x", False, _both_from_the_norm),
    ("a sound block with RMSNorm", True, _pre(_rms)),
    hint=2,
    points=0.5,
)


_blocks(
    "half repaired",
    "catches it in one of the two sublayers, whichever it is",
    ("a block in which attention's residual starts at the normalised x", False, _attention_from_the_norm),
    ("a block in which the feed-forward network's residual starts at the normalised x", False, _ff_from_the_norm),
    ("a sound block whose norms have a gain and a bias", True, _pre(_gain)),
    hint=2,
    points=0.5,
)


_blocks(
    "norms elsewhere",
    "catches a post-norm block; leaves alone one that also normalises what its sublayers found",
    ("a post-norm block", False, _post),
    ("a sound block that also normalises what its sublayers found", True, _sandwich),
    hint=2,
)


_blocks(
    "nothing kept",
    "catches a residual connection that is missing",
    ("a block in which what attention found takes the place of x", False, _replaced),
    ("a block that returns zeros", False, lambda x, a, f, p: torch.zeros_like(x)),
    hint=2,
)


_blocks(
    "the future",
    "catches a block that looks ahead, be it by one step, or only late in the text",
    ("a block without a mask", False, _pre(_ln, allowed=_everybody)),
    ("a block that looks one step ahead", False, _pre(_ln, allowed=_one_ahead)),
    ("a block whose mask was made for three positions", False, _pre(_ln, allowed=_late)),
    ("a block in which the first position, and no other, looks one step ahead", False, _pre(_ln, allowed=_first_ahead)),
    ("a block in which the last position but one, and no other, looks ahead", False,
     _pre(_ln, allowed=_last_but_one_ahead)),
    ("a block whose feed-forward network gets the next token", False, _pre(_ln, _with_the_next)),
    ("a block with RMSNorm and without a mask", False, _pre(_rms, allowed=_everybody)),  # a constant added is seen
    hint=3,
)


_blocks(
    "the past",
    "catches a block in which a position does not attend to itself, or to what came before it",
    ("a block whose attention leaves out the position itself", False, _pre(_ln, allowed=_not_itself)),
    ("a block in which a position attends to itself and to nothing else", False, _pre(_ln, allowed=_itself_alone)),
    ("a block in which nothing attends to the first position", False, _pre(_ln, allowed=_not_the_first)),
    ("a block in which the last position attends to itself alone", False, _pre(_ln, allowed=_last_alone)),
    ("a block in which the last position does not attend to the one before it", False,
     _pre(_ln, allowed=_last_but_one_unseen)),
    hint=3,
)


_blocks(
    "the company",
    "catches a block whose answer depends on the rest of the batch",
    ("a block in which each text also gets its neighbour in the batch", False, _pre(_with_the_neighbour)),
    ("a block in which only the feed-forward network gets the neighbour", False, _pre(_ln, _with_the_neighbour)),
    ("a block in which all texts get the first of the batch", False, _pre(_with_the_first)),
    hint=3,
    most=2,  # who lets them change places finds nothing
)


_blocks(
    "no norm",
    "catches a sublayer that gets x at whatever size it has",
    ("a block in which attention gets x as it is", False, _pre(_itself, _ln)),
    ("a block in which the feed-forward network gets x as it is", False, _pre(_ln, _itself)),
    ("a sound block with two kinds of norm", True, _pre(_rms, _ln)),
    hint=2,
)


_blocks(
    "a root too many",
    "catches the norm that divides by √σ",
    ("a block whose norms divide by √σ + ε", False, _pre(_root_too_many)),
    ("a sound block with RMSNorm", True, _pre(_rms)),
    hint=2,
)


_blocks(
    "left out",
    "catches a sublayer that is never called",
    ("a block without a feed-forward network", False, _no_ff),
    ("a block without attention", False, _no_attention),
    hint=1,
)


_blocks(
    "side by side",
    "catches sublayers that do not work one after the other, in this order",
    ("a block whose sublayers both get the x that came in", False, _side_by_side),
    ("a block with the feed-forward network first", False, _exchanged),
    hint=2,
)


_blocks(
    "faint, or rounding",
    "tells a faint fault from rounding",
    ("a block in which a hundredth of x is exchanged for its norm", False, _faint),
    ("a sound block that differs from another by rounding alone, about 1e-6", True, _by_thirds),
    hint=3,
)


EVERY_BLOCK = tuple(aspect.name for aspect in exercise.aspects)
RESIDUALS = ("the printed block", "half repaired", "norms elsewhere", "nothing kept")


def _but(*caught):
    return tuple(name for name in EVERY_BLOCK if name not in caught)


# -------------------------------------------------------------------------------------- one slip away from the solution

FAINT = ("faint, or rounding",)
ATTENDED = "same(block(10 * x, 1.0, 0.0) - 10 * x, attended - x)"
THOUGHT = "same(block(10 * x, 0.0, 1.0) - 10 * x, thought - x)"
FROM_ZEROED = {  # what a sublayer finds at 10 x, whatever the residual connection does to 10 x
    ATTENDED: "same(block(10 * x, 1.0, 0.0) - block(10 * x, 0.0, 0.0), attended - zeroed)",
    THOUGHT: "same(block(10 * x, 0.0, 1.0) - block(10 * x, 0.0, 0.0), thought - zeroed)",
}
HALVES = "same(block(attended, 0.0, 1.0), whole),"

slip("an x that is normalised already", ("the printed block", "half repaired", "side by side", *FAINT),
     {"zeroed, whole =": "x = torch.nn.functional.layer_norm(x, x.shape[-1:])\nzeroed, whole =",
      **FROM_ZEROED, HALVES: ""},
     words="""
    Zeroed sublayers were tried on an x of mean 0 and size 1. A norm does nothing to such an x, so a residual from the
    normalised x looks like one from x. Try it on vectors that are neither centred nor of size one.""")

slip("the future is not tried", ("the future",),
     {"range(x.shape[1] - 1)": "()"},
     {"range(x.shape[1] - 1)": "(0,)"},  # the outputs at the first position alone are compared
     words="""
    No question was asked about the future, or not at every place: change what stands after position i, for several i,
    and compare the outputs up to i.""")

slip("attention alone must not look ahead", ("the future",),
     {"same(block(future, 1.0, 1.0)[:, : i + 1], whole": "same(block(future, 1.0, 0.0)[:, : i + 1], attended"},
     words="""
    The future was tried with the feed-forward network zeroed. It has no mask, but it can still be given the wrong
    tokens. Try the whole block.""")
slip("only their length is changed", ("the future",),
     {"future[:, i + 1 :] = torch.randn_like(x[:, i + 1 :])": "future[:, i + 1 :] *= 5"}, words="""
    The later vectors were multiplied by a number. A norm divides by their size again, so that no sublayer notices the
    change, and a block that looks ahead passes. Draw the replacement, `torch.randn_like(…)`.""")
slip("the company is not tried", ("the company",),
     {"range(len(x))": "()"},
     {"range(len(x))": "(0,)"},  # the first text alone
     words="""
    No question was asked about the batch, or only about one of its texts. A text must get the same output alone and
    among others: take each of them out, and compare.""")
slip("the past is not tried", ("the past",), {"for j in range(x.shape[1])": "for j in ()"}, words="""
    You tested that nothing attends to the future. You did not test that all positions attend to the past, or only by a
    comparison that sound and broken blocks pass alike: the output at the changed position differs in any case, since x
    is added to it. A mask can forbid too much: the position itself, or what came before it. Change one position; what
    attention finds there and at each place after it must change.""")

slip("attending to itself is not tried", ("the past",), {"moved[:, j:]": "moved[:, j + 1 :]"}, words="""
    What comes after the changed position was looked at, and the position itself was not. A position attends to itself,
    too: what attention finds *there* must change with it. (The output there differs in any case, since x is added to
    it: compare what was found, `block(x, 1.0, 0.0) - x`.)""")

TO_THE_FUTURE = {"future[:, i + 1 :] = torch.randn_like(x[:, i + 1 :])": "future[:, i + 1 :] += 1"}
TO_THE_PAST = {"other[:, j] = torch.randn_like(x[:, j])": "other[:, j] += 1"}
WITH_LAYER_NORM = ("half repaired", "norms elsewhere", "nothing kept", "the past", "the company", "left out",
                   "side by side", *FAINT)  # the families whose sound block has it

slip("a constant is added", ("the future",), TO_THE_FUTURE, words="""
    The vectors were changed by adding a constant to all features. LayerNorm subtracts it again, so that no sublayer
    notices the change: a block that looks ahead passes, and a sound one seems to be deaf to the past. Draw the
    replacement, `torch.randn_like(…)`.""")
slip("a constant is added", ("the future", *WITH_LAYER_NORM), TO_THE_PAST, {**TO_THE_FUTURE, **TO_THE_PAST})

slip("one size of x", ("no norm", "a root too many"), {f"{ATTENDED},": "", f"{THOUGHT},": ""}, words="""
    Everything was tried at one size of x. Whether a sublayer gets a *normalised* x shows only when x grows: the
    sublayer's output must stay the same.""")

slip("one size of x", ("no norm",), {f"{THOUGHT},": ""}, {f"{ATTENDED},": ""})  # for one of the two sublayers

slip("nothing need be found", ("left out",), {"not same(attended, x),": "", "not same(thought, x),": ""}, words="""
    Everything that must stay the same was compared, and nothing that must change. A block without one of its sublayers
    passes that: with the sublayer multiplied by 1, something has to be added to x.""")

slip("the order of the halves", ("side by side",), {HALVES: ""}, words="""
    Each sublayer was tried by itself, and never the two together. One after the other, they must give what the whole
    block gives: the feed-forward network gets what attention has left.""")

slip("equal to the last digit", FAINT, {"same(zeroed, x)": "torch.equal(zeroed, x)"}, words="""
    No difference at all was allowed, so a sound block failed because of rounding. Float32 has about seven digits. Allow
    a small difference: `torch.allclose` does.""")

slip("a faint fault taken for rounding", FAINT, {"atol=1e-4": "atol=0.2", **FROM_ZEROED}, words="""
    So much was allowed that a faint fault passed for rounding. Rounding moves these numbers by about a millionth.""")


RISEN = ("nothing kept", "the future", "the past", "the company", "left out", "side by side")  # their sound block's
slip("a loss that rises is an error", RISEN,
     {"questions = [": "questions = [\n        losses[-1] < losses[0],"}, words="""
    A sound block was accused because its loss did not fall: it was trained at too high a learning rate. The losses say
    how a training run went, not whether the block is what it should be. Test only the block.""")
slip("what comes later need not move", ("the past",), {"moved[:, j:]": "moved[:, j : j + 1]"}, words="""
    When x changes at a position, what attention finds there was looked at, and nothing that comes after. A block in
    which each position attends to itself alone passes that. It must change at every later position, too.""")
slip("the texts only change places", ("the company",),
     {"questions.append(same(block(x[b : b + 1], 1.0, 1.0), whole[b : b + 1]))":
      "questions.append(same(block(x.flip(0), 1.0, 1.0), whole.flip(0)))"},
     words="""
    The texts of the batch only changed places. Of two texts each still has the other for its neighbour, and a block
    that mixes a text with its neighbour gives the same. Take each text out of the batch, and compare.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("the loss fell, so it is right", fails=EVERY_BLOCK)
def the_loss_fell_so_it_is_right(block, x, losses):
    """The verdict came from the losses. They fell for the broken blocks, too: networks learn around most faults,
    and a block that looks ahead even does better. And one sound block was trained at too high a rate. The loss
    says *that* something is learned. To find out what the block is, test the block."""
    return sum(losses[-4:]) < sum(losses[:4])


@variant("the loss fell, so it is right", fails=EVERY_BLOCK)
def the_loss_fell_and_the_shape_is_right(block, x, losses):
    """And what comes out are numbers of the right shape."""
    output = block(x, 1.0, 1.0)
    return losses[-1] < losses[0] and output.shape == x.shape and bool(output.isfinite().all())


@misconception("acquits every block", fails=EVERY_BLOCK)
def acquits_every_block(block, x, losses):
    """No block was accused, not even one that returns nothing but zeros. Either nothing was compared, or something
    that every block has, such as the shape of what comes out."""
    return block(x, 1.0, 1.0).shape == x.shape


@variant("acquits every block", fails=EVERY_BLOCK)
def acquits_what_says_the_same_twice(block, x, losses):
    """Two calls on the same input are compared."""
    return torch.allclose(block(x, 0.0, 0.0), block(x.clone(), 0.0, 0.0))


@misconception("accuses every block", fails=EVERY_BLOCK)
def accuses_every_block(block, x, losses):
    """Sound blocks were accused, too. The test demands something that need not be so: a block that *works* changes x,
    and every output may depend on its own word and on what came before. Only a block whose findings are multiplied by 0
    must return x. Or the test allows no rounding, as `torch.equal` does not."""
    return torch.allclose(block(x, 1.0, 1.0), x, rtol=1e-4, atol=1e-4)


@variant("accuses every block", fails=EVERY_BLOCK)
def accuses_what_is_not_zeroed(block, x, losses):
    """One sublayer is zeroed, the other is not."""
    return all(torch.allclose(block(x, a, f), x, rtol=1e-4, atol=1e-4) for a, f in ((0, 1), (1, 0), (0, 0)))


@variant("accuses every block", fails=EVERY_BLOCK)
def accuses_what_is_not_post_norm(block, x, losses):
    """The output is expected to be normalised, which is post-norm."""
    output = block(x, 1.0, 1.0)
    centred = output.mean(dim=-1).abs().max() < 1e-4
    return bool(centred) and torch.allclose(block(x, 0.0, 0.0), x, atol=1e-4)


@misconception("only zeroed sublayers", fails=_but(*RESIDUALS, "faint, or rounding"))
def only_zeroed_sublayers(block, x, losses):
    """That zeroed sublayers must give the identity is the best single question, but not the only one. It says nothing
    about what the sublayers read, at which size, and in which order. Go on through the other
    sentences of the contract."""
    return torch.allclose(block(x, 0.0, 0.0), x, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a list of questions")
def a_list_of_questions(block, x, losses):
    """One after the other, each with its name."""

    def far(a, b):
        return (a - b).abs().max().item()

    found = {(a, f): block(x, a, f) for a in (0, 1) for f in (0, 1)}
    broken = []
    if far(found[0, 0], x) > 1e-4:
        broken.append("zeroed sublayers")
    for key in ((1, 0), (0, 1)):
        if far(found[key], x) < 1e-3:
            broken.append("left out")
        for size in (3.0, 20.0):
            if far(block(size * x, *key) - size * x, found[key] - x) > 1e-3:
                broken.append("size")
    if far(block(found[1, 0], 0, 1), found[1, 1]) > 1e-4:
        broken.append("order")
    for j in range(1, x.shape[1]):
        moved = x.clone()
        moved[:, j:] = torch.randn_like(x[:, j:])
        if far(block(moved, 1, 1)[:, :j], found[1, 1][:, :j]) > 1e-4:
            broken.append("future")
        moved = x.clone()
        moved[:, j - 1] += torch.randn(x.shape[-1])
        change = (block(moved, 1, 0) - moved - found[1, 0] + x).abs()
        if min(change[:, i].max() for i in range(j - 1, x.shape[1])) < 1e-4:
            broken.append("past")
    for b in range(x.shape[0]):
        if far(block(x[b : b + 1], 1, 1)[0], found[1, 1][b]) > 1e-4:
            broken.append("company")
    return not broken


@alternative("prefixes of single texts")
def prefixes_of_single_texts(block, x, losses):
    """Future and company in one: each beginning of each text, all alone. A tensor comes back."""
    whole = block(x, 1.0, 1.0)
    ok = torch.ones((), dtype=torch.bool)
    for b in range(len(x)):
        for n in range(1, x.shape[1] + 1):
            ok &= torch.isclose(block(x[b : b + 1, :n], 1.0, 1.0), whole[b : b + 1, :n], rtol=1e-4, atol=1e-4).all()
    heard = torch.zeros(x.shape[1], x.shape[1], dtype=torch.bool)                    # (who, whom), in attention
    for j in range(x.shape[1]):
        other = x.index_copy(1, torch.tensor([j]), torch.randn(len(x), 1, x.shape[2]))
        heard[:, j] = (block(other, 1.0, 0.0) - other - block(x, 1.0, 0.0) + x).abs().amax(dim=(0, 2)) > 1e-4
    ok &= (heard == torch.ones_like(heard).tril()).all()
    for s in (1.0, 4.0, 16.0):
        y = s * x
        ok &= torch.isclose(block(y, 0.0, 0.0), y, rtol=1e-4, atol=1e-5).all()
        for a, f in ((1.0, 0.0), (0.0, 1.0)):
            gain = block(y, a, f) - y
            ok &= torch.isclose(gain, block(x, a, f) - x, rtol=1e-3, atol=1e-4).all() & (gain.abs().max() > 1e-2)
    return ok & torch.isclose(block(block(x, 1.0, 0.0), 0.0, 1.0), whole, rtol=1e-4, atol=1e-4).all()
