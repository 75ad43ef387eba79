"""average_heads: A key (or value) projection for groups, made from one with a head for each query head."""

import torch

from lessonkit.exercises.exercise import Exercise

from .common import READY_MADE


def reference(weight, n_heads, n_kv_heads):
    """The mean over the heads of each group. Ainslie et al. 2023, section 2.1."""
    heads = weight.unflatten(0, (n_kv_heads, n_heads // n_kv_heads, -1))
    return heads.mean(dim=1).flatten(0, 1)


def solution(weight, n_heads, n_kv_heads):
    shared = n_heads // n_kv_heads
    heads = weight.unflatten(0, (n_kv_heads, shared, -1))  # (n_kv_heads, shared, d_head, d)
    return heads.mean(dim=1).flatten(0, 1)                 # (n_kv_heads * d_head, d_model)


exercise = Exercise(
    "average_heads",
    reference=reference,
    solution=solution,
    returns=("weight",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    extra=True,
    hints=(
        "A row of the weight makes one column of the keys. Which rows belong to head 0, and which heads to group 0?",
        "Cut the first axis into three: group, head within the group, column within the head. Which one is averaged "
        "over?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _projection(draw, n_heads, n_kv_heads):
    """A weight (n_heads · d_head, d_model) and the two numbers."""
    d_head, d_model = draw.sizes(2, 4, 9)
    return draw.normal(n_heads * d_head, d_model), n_heads, n_kv_heads


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("groups", points=1, hint=1)
def groups(answer, draw):
    """each new head is the mean of its group's"""
    return answer(*_projection(draw, *((6, 2), (6, 3), (8, 2), (8, 4))[draw.integers(4, 1)]))


@aspect("all into one", points=0.5, hint=2)
def all_into_one(answer, draw):
    """one group: the mean of all heads"""
    return answer(*_projection(draw, 4, 1))


@aspect("each its own", points=0.5, hint=2)
def each_its_own(answer, draw):
    """as many groups as heads: nothing changes"""
    return answer(*_projection(draw, 3, 3))


# -------------------------------------------------------------------------------------- one slip away from the solution

NOT_MEANS = ("groups", "all into one")
CUT = "n_kv_heads, shared, -1"

slip("dealt out like cards", ("groups",), {CUT: "shared, n_kv_heads, -1", "dim=1": "dim=0"}, words="""
    Heads 0, 2, 4 were averaged into the first and 1, 3, 5 into the second. But query heads 0, 1, 2 will use the
    first: their former keys are what it should resemble.""")
slip("summed", NOT_MEANS, {"mean": "sum"}, words="""
    The heads of a group were added up. Keys of three times the size make scores of three times the size; the mean keeps
    them as large as they were.""")
slip("divided by another number", ("groups", "all into one", "each its own"),
     {"heads.mean(dim=1)": "(heads.sum(dim=1) / n_kv_heads)"}, words="""
    The sum was divided by another number than that of the heads in it. A mean over the heads of a group divides by how
    many those are, n_heads / n_kv_heads, which is neither the number of groups nor that of all heads.""")
slip("divided by another number", ("groups", "each its own"),
     {"heads.mean(dim=1)": "(heads.sum(dim=1) / n_heads)"})
slip("divided by the root", NOT_MEANS,
     {"heads.mean(dim=1)": "(heads.sum(dim=1) / shared**0.5)"}, words="""
    The sum was divided by the *root* of how many heads are in it. That keeps the variance of independent numbers; asked
    for is the mean.""")
slip("the first of each group", NOT_MEANS, {".mean(dim=1)": "[:, 0]"}, words="""
    One head of each group was kept and the others thrown away. The paper tried that, too, and found the mean to be
    better: it keeps something of each.""")
slip("columns of a head averaged", NOT_MEANS, {CUT: "n_kv_heads, -1, shared", "dim=1": "dim=2"}, words="""
    Neighbouring rows were averaged, and these belong to the same head: its columns, which mean different things. What
    should be averaged is the first column of one head with the first column of the next.""")
slip("averaged, and kept once for each head", NOT_MEANS, {"(dim=1)": "(dim=1, keepdim=True).expand_as(heads)",
     ".flatten(0, 1)": ".flatten(0, 2)"}, words="""
    Every old head got the mean of its group, so there are still as many heads as before, in copies. The copies are made
    at the moment of use, by repetition; what is stored, and cached, is one head for each group.""")
slip("the weight on its side", (*NOT_MEANS, "each its own"), {".flatten(0, 1)": ".flatten(0, 1).mT"}, words="""
    The result is transposed. `nn.Linear` keeps its weight as (outputs, inputs): the heads' columns are its *rows*, and
    what you return has to go back into such a layer.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a loop over the groups")
def a_loop_over_the_groups(weight, n_heads, n_kv_heads):
    """Head by head."""
    heads = weight.chunk(n_heads)
    shared = n_heads // n_kv_heads
    return torch.cat([sum(heads[g * shared : (g + 1) * shared]) / shared for g in range(n_kv_heads)])


@alternative("a matrix that averages, in float64")
def a_matrix_that_averages_in_float64(weight, n_heads, n_kv_heads):
    """The means as a product."""
    shared, d_head = n_heads // n_kv_heads, weight.shape[0] // n_heads
    group = torch.arange(n_heads) // shared
    means = (group == torch.arange(n_kv_heads)[:, None]).double() / shared
    heads = weight.double().reshape(n_heads, d_head, -1)
    return torch.einsum("gh,hdm->gdm", means, heads).reshape(n_kv_heads * d_head, -1)


@alternative("one group after the other, by index")
def one_group_after_the_other_by_index(weight, n_heads, n_kv_heads):
    """Adds into a new weight, row by row."""
    shared, d_head = n_heads // n_kv_heads, weight.shape[0] // n_heads
    new = torch.zeros(n_kv_heads * d_head, weight.shape[1], dtype=weight.dtype)
    rows = torch.arange(weight.shape[0])
    to = rows // d_head // shared * d_head + rows % d_head               # head's group, and the column within it
    return new.index_add(0, to, weight / shared)
