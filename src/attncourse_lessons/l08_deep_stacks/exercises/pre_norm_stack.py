"""pre_norm_stack: What an output layer would read if a pre-norm stack ended here: at every depth."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient
from lessonkit.exercises.observe import gradient_reaches

from .common import READY_MADE, normed, parts


def reference(x, blocks, final_norm):
    """The final norm of x before the first block and after each, (L + 1, batch, n, d); the last is the output."""
    levels = [final_norm(x)]
    for block in blocks:
        x = block(x)
        levels.append(final_norm(x))
    return torch.stack(levels)


def solution(x, blocks, final_norm):
    levels = [final_norm(x)]
    for block in blocks:
        x = block(x)
        levels.append(final_norm(x))
    return torch.stack(levels)


exercise = Exercise(
    "pre_norm_stack",
    reference=reference,
    solution=solution,
    returns=("levels",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    hints=(
        "The blocks hold their residual connections themselves. What is left to do between them?",
        "In a pre-norm stack no norm stands in the path of x. How large is x after twelve blocks, and what ensures "
        "that the output layer reads something of the usual size?",
        "Two things are kept apart: x, which goes on to the next block as the last block left it, and the list of what "
        "an output layer would read. How many entries has that list if there are no blocks?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _tower(draw, n_blocks):
    """x, a list of pre-norm blocks, and a final norm."""
    x, *_, final_norm = parts(draw)
    d = x.shape[-1]
    blocks = []
    for i in range(n_blocks):
        W_1, W_2 = draw.child(f"block {i}").normal(2, d, d)
        blocks.append(lambda y, W_1=W_1, W_2=W_2: y + (normed(y) @ W_1).relu() @ W_2)
    return x, blocks, final_norm


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("blocks", points=1, hint=1)
def blocks(answer, draw):
    """every block once, in their order, and x kept before the first and after each"""
    x, blocks, _ = _tower(draw, 3)
    return answer(x, blocks, lambda y: y)


@aspect("final norm", points=0.5, hint=2)
def final_norm(answer, draw):
    """each level has passed the final norm, once"""
    x, blocks, final_norm = _tower(draw, 1)
    return answer(x, blocks, final_norm)


@aspect("output", points=0.5, hint=2)
def output(answer, draw):
    """the last level is what the whole stack puts out"""
    x, blocks, final_norm = _tower(draw, 2)
    return _last(answer(x, blocks, final_norm))


@aspect("any depth", points=0.5, hint=3)
def any_depth(answer, draw):
    """works for no block at all, and for more than a dozen"""
    x, blocks, final_norm = _tower(draw, 13 + int(draw.integers(8, 1)))
    return torch.cat([answer(x, [], final_norm), answer(x, blocks, final_norm)])


@aspect("gradient", points=0.5, hint=1, explain=explain_missing_gradient("x"))
def gradient(answer, draw):
    """a gradient comes back from the last level through every block to x"""
    x, blocks, final_norm = _tower(draw, 3)
    x.requires_grad_()
    return gradient_reaches(_last(answer(x, blocks, final_norm)), [x], draw)


def _last(levels):
    """The output, also of an answer that returns nothing else."""
    return levels[-1] if levels.dim() == 4 else levels


# -------------------------------------------------------------------------------------- one slip away from the solution

ORDER = ("blocks", "output", "any depth")
NORM = ("final norm", "output", "any depth")
LEVELS = ("blocks", "final norm", "any depth")
FIRST, EACH = "levels = [final_norm(x)]", "append(final_norm(x))"

slip("no final norm", NORM, {FIRST: "levels = [x]", EACH: "append(x)"}, words="""
    The blocks' sum was returned as it is. Each block adds to x, so x grows with depth, and no norm has ever touched
    it: the norms inside the blocks are on the branches. The output layer would then give logits of a size that depends
    on how deep the stack is.""")
slip("only the last level is normed", ("final norm", "any depth"),
     {FIRST: "levels = [x]", EACH: "append(x)",
      "return torch.stack(levels)": "return torch.stack([*levels[:-1], final_norm(levels[-1])])"},
     words="""
    The output has passed the final norm, the levels before it have not. An output layer that reads one of them would
    read vectors of another size than it is used to. Each level passes the norm.""")
slip("level 0 without the norm", ("final norm", "any depth"), {FIRST: "levels = [x]"}, words="""
    The levels after each block have passed the final norm, and level 0 has not. An output layer that reads x before the
    first block needs vectors of its usual size, too.""")
slip("the norm stands in the path", ("output", "any depth"),
     {"x = block(x)": "x = final_norm(block(x))", EACH: "append(x)"},
     words="""
    What has passed the final norm went on to the next block, so the norm stands in the path of x after all. Keep
    both: x itself for the next block, and its normalised form for the list.""")
slip("the norm stands in the path", NORM,
     {FIRST: "x = final_norm(x)\nlevels = [x]", "x = block(x)": "x = final_norm(block(x))", EACH: "append(x)"})
slip("a second residual connection", (*ORDER, "final norm"), {"x = block(x)": "x = x + block(x)"}, words="""
    x was added once more around each block. The blocks have their residual connections inside: if the
    sublayers write nothing, such a stack doubles x at every block.""")
slip("all blocks read the first x", ORDER, {"levels =": "first = x\nlevels =", "block(x)": "block(first)"}, words="""
    Each block worked on the original x, so the stack is only as deep as its last block. Hand on what the block
    before has returned.""")
slip("norm in front of the stack", NORM, {FIRST: "x = final_norm(x)\nlevels = [x]", EACH: "append(x)"}, words="""
    The norm stands before the first block, where x has not yet grown. It belongs after the last.""")
slip("the output alone", LEVELS, {"return torch.stack(levels)": "return final_norm(x)"}, words="""
    This is the output of the whole stack, and right. What an output layer would read at the levels below it is
    missing: stack them all, the lowest first.""")
slip("the level before the first block left out", LEVELS, {FIRST: "levels = []"}, words="""
    The list begins after the first block. A stack of no blocks is a stack, too: level 0 is the final norm of x as it
    came in, and there is one level more than there are blocks.""")
slip("the last level first", (*LEVELS, "output"), {"stack(levels)": "stack(levels[::-1])"}, words="""
    The levels stand upside down. Level 0 is x before any block, and the last level is the output.""")
slip("cut off from the gradient", ("gradient",),
     {"x = block(x)": "x = block(x.detach())"},
     {EACH: "append(final_norm(x.detach()))"},
     words="""
    The numbers are right, but the gradient does not get down the stack: `.detach()`, `.data` and `torch.no_grad()`
    forget where numbers came from. Each block would learn for itself, or not at all, and the words' vectors never.""")
slip("so many blocks and no more", ("any depth",),
     {"in blocks": "in blocks[:3]"},
     {"in blocks": "in blocks[:6]"},
     {"in blocks": "in blocks[:12]"},
     words="""
    A number of blocks was written into the code. How many there are is what `blocks` says: a stack may have none, and
    it may have a hundred.""")
slip("blocks backwards", ORDER, {"in blocks": "in reversed(blocks)"}, words="""
    The last block came first. The blocks stand in the list in the order in which x passes them.""")
slip("a block too few", ORDER, {"in blocks": "in blocks[: max(1, len(blocks) - 1)]"}, words="""
    Not all blocks were used: look where the loop begins and ends. `for block in blocks` needs no numbers.""")


slip("stacked on another axis", (*LEVELS, "output"), {"torch.stack(levels)": "torch.stack(levels, dim=1)"}, words="""
    The levels were stacked as the second axis, after the batch. They come first: (levels, batch, n, d), which is what
    `torch.stack` makes unless told otherwise.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("a block too few", fails=("blocks", "final norm", "output", "any depth"))
def the_first_block_left_out(x, blocks, final_norm):
    """Without a special case for one."""
    levels = [final_norm(x)]
    for block in blocks[1:]:
        x = block(x)
        levels.append(final_norm(x))
    return torch.stack(levels)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a while loop")
def a_while_loop(x, blocks, final_norm):
    """By numbers."""
    levels, i = [final_norm(x)], 0
    while i < len(blocks):
        x, i = blocks[i](x), i + 1
        levels.append(final_norm(x))
    return torch.stack(levels)


@alternative("the norm of all levels at once")
def the_norm_of_all_levels_at_once(x, blocks, final_norm):
    """First the residual stream, then one norm for all of it."""
    stream = [x]
    for block in blocks:
        stream.append(block(stream[-1]))
    return final_norm(torch.stack(stream))


@alternative("recursion, returned in float64")
def recursion_returned_in_float64(x, blocks, final_norm):
    """A stack is a level and the stack above it."""

    def climb(y, above):
        here = final_norm(y).unsqueeze(0)
        return torch.cat([here, climb(above[0](y), above[1:])]) if above else here

    return climb(x, list(blocks)).double()
