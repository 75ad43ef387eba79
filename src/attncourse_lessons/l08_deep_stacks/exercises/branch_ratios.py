"""branch_ratios: How large what each sublayer adds is, beside what it is added to: a measurement on a model."""

import math

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import apart, require_variation

from .common import READY_MADE, normed


def reference(x, branches, real):
    """Token by token |f(x)| / |x|, averaged over the real tokens, at every branch of a residual stack."""
    found = []
    for branch in branches:
        added = branch(x)
        found.append((added.norm(dim=-1) / x.norm(dim=-1))[real].mean())
        x = x + added
    return torch.stack(found)


def solution(x, branches, real):
    ratios = []
    for branch in branches:
        added = branch(x)                                     # (batch, n, d_model)
        ratio = added.norm(dim=-1) / x.norm(dim=-1)           # (batch, n)
        ratios.append(ratio[real].mean())
        x = x + added
    return torch.stack(ratios)


exercise = Exercise(
    "branch_ratios",
    reference=reference,
    solution=solution,
    returns=("ratios",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Take one token and one branch. Which two vectors do you compare, and what is one number for that? The average "
        "over tokens comes after it: what would a single token with a huge x do to a ratio of two averages?",
        "A branch is only f, without the residual connection. What does the next branch read, and beside which x is "
        "its own output to be judged?",
        "`real` is a table (batch, n) of booleans. Which numbers may enter the mean, and by how many do you divide?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _stack(draw, n_branches, all_real=True):
    """[x, branches, real]: vectors of very different lengths; branches that read a norm of x, each of its own size."""
    batch, n, d = draw.sizes(3, 3, 8)
    x = (0.5 + 4 * draw.uniform(batch, n, 1)) * draw.normal(batch, n, d)
    branches = []
    for i in range(n_branches):
        own = draw.child(f"branch {i}")
        W, size = own.normal(d, d) / math.sqrt(d), 0.3 + 2 * own.uniform(1)
        branches.append(lambda y, W=W, size=size: size * (normed(y) @ W).tanh() + 0.2 * y.flip(-1))
    lengths = torch.full((batch,), n)
    if not all_real:
        lengths[:-1] = 1 + draw.integers(n - 1, batch - 1)
    return [x, branches, torch.arange(n) < lengths[:, None]]


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("one branch", points=1, hint=1)
def one_branch(answer, draw):
    """the length of what is added over the length of x, token by token, then the mean"""
    return answer(*_stack(draw, 1))


@aspect("along the stack", points=1, hint=2)
def along_the_stack(answer, draw):
    """each branch is judged beside the x that it is added to"""
    return answer(*_stack(draw, 4))


@aspect("what each branch reads", points=1, hint=2)
def what_each_branch_reads(answer, draw):
    """the first reads x, and every other what the branches before it have left"""
    x, branches, real = _stack(draw, 3)
    read = []

    def watched(branch):
        def reads(y):
            read.append(y.detach().clone())
            return branch(y)

        return reads

    require_variation(answer(x, [watched(branch) for branch in branches], real))
    if len(read) != len(branches):
        raise AspectFailed(Problem("unusable", f"{len(branches)} branches were called {len(read)} times"))
    return torch.stack(read)


@aspect("padding", points=1, hint=3, explain=explain_worst("they differ by {size} from those of the tokens alone"))
def padding(answer, draw):
    """only real tokens enter the mean, all of them alike: the same ratios as for a batch of nothing but these"""
    x, branches, real = _stack(draw, 2, all_real=False)
    real[-1, 1] = False                                                       # a hole between two tokens
    real[0, -2:] = False                                                      # and fewer tokens in the first sentence
    alone = x[real][None]                                                     # (1, tokens, d_model)
    ratios = require_variation(answer(x, branches, real))
    return ratios - answer(alone, branches, torch.ones(alone.shape[:2], dtype=torch.bool))


@aspect("not moved by padding", points=0.5, hint=3,
        explain=explain_worst("it changes by {size} when only the padding does"))
def not_moved_by_padding(answer, draw):
    """what stands in the padding changes nothing"""
    x, branches, real = _stack(draw, 3, all_real=False)
    other = torch.where(real[..., None], x, 5 * draw.normal(*x.shape))
    return apart(require_variation(answer(x, branches, real)), answer(other, branches, real))


@aspect("two branches exchanged", points=0.5, hint=2)
def two_branches_exchanged(answer, draw):
    """the order of the branches matters, and each ratio stands in its branch's place"""
    x, branches, real = _stack(draw, 2)
    return answer(x, branches[::-1], real)


# -------------------------------------------------------------------------------------- one slip away from the solution

EVERY = tuple(aspect.name for aspect in exercise.aspects)
VALUES = ("one branch", "along the stack", "two branches exchanged")
STACK = ("along the stack", "what each branch reads", "two branches exchanged")
RATIO, MEAN, NEXT = "added.norm(dim=-1) / x.norm(dim=-1)", "ratio[real].mean()", "x = x + added"

slip("a ratio of means", VALUES,
     {RATIO: "added.norm(dim=-1), x.norm(dim=-1)", MEAN: "ratio[0][real].mean() / ratio[1][real].mean()"},
     {RATIO: "added.norm(dim=-1), x.norm(dim=-1)",  # the size of all together, over the size of all together
      MEAN: "ratio[0][real].square().mean().sqrt() / ratio[1][real].square().mean().sqrt()"},
     words="""
    First both lengths were averaged over the tokens, and then divided. Tokens with a large x then count for more than
    the others. The contract wants the ratio of each token first, and the mean of the ratios.""")
slip("beside the x after the sum", VALUES, {RATIO: "added.norm(dim=-1) / (x + added).norm(dim=-1)"}, words="""
    The output of the branch was compared with the sum that already contains it. Asked for is the x that it is added
    *to*.""")
slip("upside down", VALUES, {RATIO: "x.norm(dim=-1) / added.norm(dim=-1)"}, words="""
    The ratio is upside down: x over what is added. A branch that adds nothing has the ratio 0.""")
slip("squares of lengths", VALUES, {RATIO: "added.square().sum(dim=-1) / x.square().sum(dim=-1)"}, words="""
    These are ratios of squared lengths. The root is missing.""")
slip("growth for size", VALUES, {RATIO: "(x + added).norm(dim=-1) / x.norm(dim=-1) - 1"}, words="""
    This says by how much x grows. A branch may turn x, or cancel a part of it, and add a lot without any growth.
    Measure the length of what is added.""")
slip("every branch reads the first x", STACK, {NEXT: ""}, words="""
    All branches were given the x from below the stack. Each of them reads, and is added to, the x that the branches
    before it have left.""")
slip("no residual connection", STACK, {NEXT: "x = added"}, words="""
    The next branch read what the last one returned, without the x to which it is added. A branch here is f alone: the
    residual connection around it is yours to make.""")
slip("padding counted", ("padding", "not moved by padding"),
     {MEAN: "ratio.mean()"},
     words="""
    Padding entered the mean. What stands there is nobody's token, and a batch with more padding would have other
    ratios.""")
slip("the mask read as a length", ("padding",),
     {MEAN: "ratio[torch.arange(ratio.shape[1]) < real.sum(dim=1)[:, None]].mean()"}, words="""
    The mask was read as a length: so many places from the front. That is right only where all padding stands behind.
    The mask says *where* tokens are, not only how many there are.""")
slip("zeros for the padding", ("padding",), {MEAN: "(ratio * real).mean()"}, words="""
    The padding's ratios were set to zero, and then counted: the sum was divided by all places. Divide by the number of
    real tokens.""")
slip("each sentence alike", ("padding",), {MEAN: "((ratio * real).sum(dim=1) / real.sum(dim=1)).mean()"}, words="""
    The mean was taken in each sentence first, and then over the sentences, so a token of a short sentence counts for
    more. All real tokens count alike.""")


# ------------------------------------------------------------------------------------------------------ further from it


SEVERAL = tuple(name for name in EVERY if name not in ("one branch", "what each branch reads"))


@misconception("one number for all", fails=SEVERAL)
def one_number_for_all(x, branches, real):
    """The branches' ratios were averaged: one number says nothing about where in the stack a branch is large. Return
    one for each branch."""
    ratios = []
    for branch in branches:
        added = branch(x)
        ratios.append((added.norm(dim=-1) / x.norm(dim=-1))[real].mean())
        x = x + added
    return torch.stack(ratios).mean(dim=0, keepdim=True)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("first the stream, then the lengths")
def first_the_stream_then_the_lengths(x, branches, real):
    """Keeps every level of the residual stream; what is added is the difference of two levels, up to rounding."""
    stream = [x.double()]
    for branch in branches:
        stream.append(stream[-1] + branch(stream[-1].float()).double())
    levels = torch.stack(stream)                                          # (L + 1, batch, n, d)
    lengths = levels.diff(dim=0).norm(dim=-1) / levels[:-1].norm(dim=-1)
    return lengths[:, real].mean(dim=1)


@alternative("weights for the tokens")
def weights_for_the_tokens(x, branches, real):
    """A weighted mean, and lengths by hand."""
    weights = real / real.sum()
    ratios = []
    for branch in branches:
        added = branch(x)
        ratio = (added.square().sum(dim=-1) / x.square().sum(dim=-1)).sqrt()
        ratios.append((weights * ratio).sum())
        x = x + added
    return torch.stack(ratios)


@alternative("a list of numbers")
def a_list_of_numbers(x, branches, real):
    """Token by token."""
    rows, ratios = [tuple(place) for place in real.nonzero().tolist()], []
    for branch in branches:
        added = branch(x)
        found = [float(added[place].norm() / x[place].norm()) for place in rows]
        ratios.append(sum(found) / len(found))
        x = added + x
    return torch.tensor(ratios)
