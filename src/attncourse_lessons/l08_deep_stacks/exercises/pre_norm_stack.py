"""pre_norm_stack: All blocks, one after the other, and the norm that a pre-norm stack ends in."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient
from lessonkit.exercises.observe import gradient_reaches

from .common import READY_MADE, normed, parts


def reference(x, blocks, final_norm):
    """The blocks one after the other, and a norm after the last: nothing else has normalised what they added up."""
    for block in blocks:
        x = block(x)
    return final_norm(x)


def solution(x, blocks, final_norm):
    for block in blocks:
        x = block(x)
    return final_norm(x)


exercise = Exercise(
    "pre_norm_stack",
    reference=reference,
    solution=solution,
    returns=("output",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=6,
    hints=(
        "The blocks hold their residual connections themselves. What is left to do between them?",
        "In a pre-norm stack no norm stands in the path of x. How large is x after twelve blocks, and who has seen to "
        "it that the output layer hears something of the usual size?",
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
    """every block once, in their order, and nothing between them"""
    x, blocks, _ = _tower(draw, 3)
    return answer(x, blocks, lambda y: y)


@aspect("final norm", points=0.5, hint=2)
def final_norm(answer, draw):
    """what comes out has passed the final norm, once"""
    x, blocks, final_norm = _tower(draw, 1)
    return answer(x, blocks, final_norm)


@aspect("any depth", points=0.5, hint=1)
def any_depth(answer, draw):
    """works for no block at all, and for more than a dozen"""
    x, blocks, final_norm = _tower(draw, 13 + int(draw.integers(8, 1)))
    return torch.stack([answer(x, [], final_norm), answer(x, blocks, final_norm)])


@aspect("gradient", points=1, hint=1, explain=explain_missing_gradient("x"))
def gradient(answer, draw):
    """a gradient comes back through the final norm and every block to x"""
    x, blocks, final_norm = _tower(draw, 3)
    x.requires_grad_()
    return gradient_reaches(answer(x, blocks, final_norm), [x], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ORDER = ("blocks", "any depth")
NORM = ("final norm", "any depth")

slip("no final norm", NORM, {"final_norm(x)": "x"}, words="""
    The blocks' sum was returned as it is. (A deck's code does so.) Each block adds to x, so x grows with depth, and
    no norm has ever touched it: the norms inside the blocks are on the branches. The output layer would then give
    logits of a size that depends on how deep the stack is.""")
slip("a norm after each block", ("any depth",),
     {"block(x)": "final_norm(block(x))", "return final_norm(x)": "return x"},
     words="""
    The final norm was called after every block, so it stands in the path of x after all. It is called once, at the
    end.""")
slip("a second residual connection", ("blocks", "final norm", "any depth"), {"block(x)": "x + block(x)"}, words="""
    x was added once more around each block. The blocks have their residual connections inside: with silent
    sublayers such a stack would double x at every block.""")
slip("all blocks hear the first x", ORDER, {"for block": "first = x\nfor block", "block(x)": "block(first)"}, words="""
    Each block worked on the original x, so the stack is only as deep as its last block. Hand on what the block
    before has returned.""")
slip("norm in front of the stack", NORM,
     {"for block": "x = final_norm(x)\nfor block", "return final_norm(x)": "return x"},
     words="""
    The norm stands before the first block, where x has not yet grown. It belongs after the last.""")
slip("cut off from the gradient", ("gradient",),
     {"block(x)": "block(x.detach())"},
     {"return final_norm(x)": "return final_norm(x.detach())"},  # behind the last block
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


# ------------------------------------------------------------------------------------------------------ further from it


@variant("a block too few", fails=("blocks", "final norm", "any depth"))
def the_first_block_left_out(x, blocks, final_norm):
    """Without a special case for one."""
    for block in blocks[1:]:
        x = block(x)
    return final_norm(x)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a while loop")
def a_while_loop(x, blocks, final_norm):
    """By numbers."""
    i = 0
    while i < len(blocks):
        x, i = blocks[i](x), i + 1
    return final_norm(x)


@alternative("recursion, returned in float64")
def recursion_returned_in_float64(x, blocks, final_norm):
    """A stack is a block and the stack above it."""

    def climb(y, above):
        return climb(above[0](y), above[1:]) if above else y

    return final_norm(climb(x, list(blocks))).double()
