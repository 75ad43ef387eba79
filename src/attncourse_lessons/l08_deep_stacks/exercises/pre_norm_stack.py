"""pre_norm_stack: All blocks, one after the other, and the norm that a pre-norm stack ends in."""

import torch

from lessonkit.exercises.exercise import Exercise

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


@aspect("blocks", points=1)
def blocks(answer, draw):
    """every block once, in their order, and nothing between them"""
    x, blocks, _ = _tower(draw, 3)
    return answer(x, blocks, lambda y: y)


@aspect("final norm", points=1)
def final_norm(answer, draw):
    """what comes out has passed the final norm, once"""
    x, blocks, final_norm = _tower(draw, 1)
    return answer(x, blocks, final_norm)


@aspect("any depth", points=1)
def any_depth(answer, draw):
    """works for no block at all, and for five"""
    x, blocks, final_norm = _tower(draw, 5)
    return torch.stack([answer(x, [], final_norm), answer(x, blocks, final_norm)])


# -------------------------------------------------------------------------------------------------------- wrong answers


@misconception("no final norm", fails=("final norm", "any depth"))
def no_final_norm(x, blocks, final_norm):
    """The blocks' sum was returned as it is. (A deck's code does so.) Each block adds to x, so x grows with depth, and
    no norm has ever touched it: the norms inside the blocks are on the branches. The output layer would then give
    logits of a size that depends on how deep the stack is."""
    for block in blocks:
        x = block(x)
    return x


@misconception("a norm after each block", fails=("any depth",))
def a_norm_after_each_block(x, blocks, final_norm):
    """The final norm was called after every block, so it stands in the path of x after all. It is called once, at the
    end."""
    for block in blocks:
        x = final_norm(block(x))
    return x


@misconception("a second residual connection", fails=("blocks", "final norm", "any depth"))
def a_second_residual_connection(x, blocks, final_norm):
    """x was added once more around each block. The blocks have their residual connections inside: with silent sublayers
    such a stack would double x at every block."""
    for block in blocks:
        x = x + block(x)
    return final_norm(x)


@misconception("all blocks hear the first x", fails=("blocks", "any depth"))
def all_blocks_hear_the_first_x(x, blocks, final_norm):
    """Each block worked on the original x, so the stack is only as deep as its last block. Hand on what the block
    before has returned."""
    y = x
    for block in blocks:
        y = block(x)
    return final_norm(y)


@misconception("norm in front of the stack", fails=("final norm", "any depth"))
def norm_in_front_of_the_stack(x, blocks, final_norm):
    """The norm stands before the first block, where x has not yet grown. It belongs after the last."""
    x = final_norm(x)
    for block in blocks:
        x = block(x)
    return x


@misconception("blocks backwards", fails=("blocks", "any depth"))
def blocks_backwards(x, blocks, final_norm):
    """The last block came first. The blocks stand in the list in the order in which x passes them."""
    for block in reversed(blocks):
        x = block(x)
    return final_norm(x)


@misconception("a block too few", fails=("blocks", "any depth"))
def a_block_too_few(x, blocks, final_norm):
    """Not all blocks were used: look where the loop begins and ends. `for block in blocks` needs no numbers."""
    for i in range(len(blocks) - 1):
        x = blocks[i](x)
    if len(blocks) == 1:
        x = blocks[0](x)
    return final_norm(x)


@variant("a block too few", fails=("blocks", "final norm", "any depth"))
def a_block_too_few_2(x, blocks, final_norm):
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
