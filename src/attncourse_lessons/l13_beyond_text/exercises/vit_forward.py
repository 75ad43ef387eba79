"""vit_forward: Logits of the classes of images that are cut into patches."""

import math

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient
from lessonkit.exercises.observe import gradient_reaches

from .common import READY_MADE


def reference(patches, embed, class_token, positions, stack, head):
    """Dosovitskiy et al. 2021, equations 1 to 4."""
    x = embed(patches)
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1) + positions
    return head(stack(x)[:, 0])


def solution(patches, embed, class_token, positions, stack, head):
    x = embed(patches)                                     # (batch, n_patches, d)
    first = class_token.expand(len(x), 1, -1)              # (batch, 1, d)
    x = torch.cat([first, x], dim=1) + positions           # (batch, 1 + n_patches, d)
    return head(stack(x)[:, 0])


exercise = Exercise(
    "vit_forward",
    reference=reference,
    solution=solution,
    returns=("logits",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Follow the shapes: (batch, n_patches, d) after `embed`, one more row in front, the same shape after `stack`. "
        "How many rows does `positions` have? So what has a position?",
        "`class_token` is one vector of width d, for all images. `expand` makes (batch, 1, d) of it, without a copy; "
        "`torch.cat` puts it in front, along the axis of the patches.",
        "Embed, put the class token in front, add the positions to all of them, run the stack, and give the head row 0 "
        "of each image, (batch, d).",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _mixes(draw, d):
    """A stack with drawn matrices in which every token looks at all: what comes out depends on what stands where."""
    W_Q, W_K, W_V = (draw.normal(d, d) / math.sqrt(d) for _ in range(3))

    def stack(x):
        _check(x, "stack", 3, d)
        weights = (2 * (x @ W_Q) @ (x @ W_K).mT / math.sqrt(d)).softmax(dim=-1)
        return torch.tanh(x) + weights @ (x @ W_V)

    return stack


def _check(x, name, ndim, width):
    if x.ndim != ndim or x.shape[-1] != width:
        expected = "(batch, n, d)" if ndim == 3 else "(batch, d)"
        raise ValueError(f"{name}: got shape {tuple(x.shape)}, expected {expected} with d = {width}")


class _Vision:
    """Drawn parts of a ViT: patches, embed, class_token, positions, stack, head."""

    def __init__(self, draw, batch=None):
        n, d, d_patch, n_classes, some = draw.sizes(5, 3, 9)
        self.patches = draw.normal(batch or some, n, d_patch)
        self.class_token = draw.normal(d)
        self.positions = draw.normal(1 + n, d)
        self.stack = _mixes(draw, d)
        matrix, rows = draw.normal(d_patch, d) / math.sqrt(d_patch), draw.normal(d, n_classes)
        self.embed = lambda patches: patches @ matrix
        self.head = lambda x: x @ rows

    def answered(self, answer, **others):
        parts = vars(self) | others
        names = ("patches", "embed", "class_token", "positions", "stack", "head")
        return answer(*(parts[name] for name in names))

    def handed_to_the_stack(self, answer):
        """What the answer's stack is given, (batch, 1 + n, d), whatever is read out afterwards."""
        handed = []

        def stack(x):
            handed.append(x.clone())
            return self.stack(x)

        self.answered(answer, stack=stack)
        if not handed:
            raise ValueError("stack: was never called")
        return torch.cat(handed)


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("logits", points=2, hint=3)
def logits(answer, draw):
    """everything in its place"""
    return _Vision(draw).answered(answer)


@aspect("the class token", points=1, hint=3)
def the_class_token(answer, draw):
    """what is read out stands at the class token's place, and nowhere else"""
    parts = _Vision(draw)
    return parts.answered(answer, positions=torch.zeros_like(parts.positions), stack=lambda x: x.tanh())


@aspect("its position", points=1, hint=1)
def its_position(answer, draw):
    """the class token has a position of its own, the first"""
    return _Vision(draw).handed_to_the_stack(answer)[:, 0]


@aspect("the patches' positions", points=1, hint=1)
def the_patches_positions(answer, draw):
    """patch i has position i + 1"""
    return _Vision(draw).handed_to_the_stack(answer)[:, 1:]


@aspect("a single image", points=1, hint=2)
def a_single_image(answer, draw):
    """one image is a batch, too"""
    return _Vision(draw, batch=1).answered(answer)


@aspect("gradient", points=1, hint=2, explain=explain_missing_gradient("patches", "class_token", "positions"))
def gradient(answer, draw):
    """the class token and the positions can be learned, and what comes before the patches"""
    parts = _Vision(draw)
    inputs = [parts.patches, parts.class_token, parts.positions]
    for tensor in inputs:
        tensor.requires_grad_()
    return gradient_reaches(parts.answered(answer), inputs, draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

POSITIONS = ("logits", "its position", "the patches' positions", "a single image")
READOUT = ("logits", "the class token", "a single image")
BUT_GRADIENT = ("logits", "the class token", "its position", "the patches' positions", "a single image")
EMBEDDED, PLUS_POSITIONS, CLASS_TOKEN = "embed(patches)", " + positions", "[:, 0]"

slip("no position for the class token", ("logits", "its position", "a single image"),
     {EMBEDDED: f"{EMBEDDED} + positions[1:]", PLUS_POSITIONS: ""},
     words="""
    The patches got their positions, and the class token came in without one. Count the rows of `positions`: there is
    one more than there are patches, and the first is the class token's.""")

slip("positions one off", POSITIONS, {EMBEDDED: f"{EMBEDDED} + positions[:-1]", PLUS_POSITIONS: ""}, words="""
    The positions were handed out before the class token stood in front: patch 0 took the first, which is the class
    token's, and the last was left over. Put the class token in front first, then add all positions to all rows.""")

slip("no positions", (*POSITIONS, "gradient"), {PLUS_POSITIONS: ""}, words="""
    Without positions the patches have no order: shuffle them and the logits stay the same (lecture @order). Every row
    gets its position added, before the stack.""")

slip("positions after the stack", POSITIONS, {PLUS_POSITIONS: "", "stack(x)": "(stack(x) + positions)"}, words="""
    The positions were added to what came out of the stack. By then attention has done its work, without knowing
    what stood where. They belong to what goes in.""")

slip("the class token after the patches", POSITIONS, {"[first, x]": "[x, first]", CLASS_TOKEN: "[:, -1]"}, words="""
    The class token was put after the patches and is read there. That could be learned as well; but positions come in an
    order, and row 0 of them is the class token's: with it at the end every patch has its neighbour's.""")

slip("reads the last patch", READOUT, {CLASS_TOKEN: "[:, -1]"}, words="""
    The last row went to the head, as one does with a recurrent network. There is nothing special about the last patch,
    the lower right corner. What was put in front to be read out is the class token.""")

slip("averages all rows", READOUT,
     {CLASS_TOKEN: ".mean(dim=1)"},
     {CLASS_TOKEN: "[:, 1:].mean(dim=1)"},  # those of the patches
     words="""
    The mean over the rows went to the head. That is another way to read a ViT out; here the class token was put in to
    do that work, and it alone is read.""")

slip("a row of logits for every token", READOUT, {CLASS_TOKEN: ""}, words="""
    All rows went to the head, (batch, n, d), and there is an answer for every patch. An image has one class: hand the
    head one vector for each image.""")

slip("the class token joins after the stack", (*BUT_GRADIENT, "gradient"),
     {EMBEDDED: f"stack({EMBEDDED} + positions[1:])", "class_token": "(class_token + positions[0])",
      PLUS_POSITIONS: "", "stack(x)": "x"},
     words="""
    The class token stood in front only when the stack was done, so it has looked at no patch, and every image gets
    the same logits. It has to go through the stack with the patches: that is where it collects.""")

slip("softmax already applied", READOUT, {f"{CLASS_TOKEN})": f"{CLASS_TOKEN}).softmax(dim=-1)"}, words="""
    These are probabilities. Logits are what the head gives; the loss applies its own softmax, and one on top of the
    other makes every answer look uncertain.""")

slip("squeezed axes", ("a single image",), {f"{CLASS_TOKEN})": f"{CLASS_TOKEN}).squeeze()"}, words="""
    `squeeze()` removes every axis of length one, and the batch's, too, when there is a single image. Name the axis
    that you mean, or take row 0 by indexing.""")

slip("cut off from the gradient", ("gradient",),
     {"class_token": "class_token.data", "+ positions": "+ positions.data"},
     {"class_token": "class_token.detach()"},  # the class token alone
     {f"{CLASS_TOKEN})": f"{CLASS_TOKEN}).detach()"},  # everything, at the end
     words="""
    The numbers are right, but something was copied without its history (`.detach()`, `.data`, `torch.tensor(…)`, a
    `no_grad`), and will stay for ever what it was at the start. The class token and the positions are learned.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("the class token after the patches", fails=BUT_GRADIENT)
def a_patch_read_in_its_place(patches, embed, class_token, positions, stack, head):
    """And read in front, where now a patch stands."""
    x = embed(patches)
    x = torch.cat([x, class_token.expand(len(x), 1, -1)], dim=1) + positions
    return head(stack(x)[:, 0])


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("positions added to each part")
def positions_added_to_each_part(patches, embed, class_token, positions, stack, head):
    """The class token's before it is repeated, the patches' before they are joined."""
    first = (class_token + positions[0]).repeat(patches.shape[0], 1, 1)
    return head(stack(torch.cat((first, embed(patches) + positions[1:]), 1))[:, 0, :])


@alternative("a table to be filled")
def a_table_to_be_filled(patches, embed, class_token, positions, stack, head):
    """An empty sequence, row 0 and the rest."""
    found = embed(patches)
    x = torch.empty(found.shape[0], found.shape[1] + 1, found.shape[2])
    x[:, 0] = class_token
    x[:, 1:] = found
    return head(stack(x + positions[None]).select(1, 0))


@alternative("one image at a time")
def one_image_at_a_time(patches, embed, class_token, positions, stack, head):
    """A loop over the batch."""
    logits = []
    for one in patches:
        x = torch.vstack([class_token, embed(one[None])[0]]) + positions
        logits.append(head(stack(x[None])[:, 0])[0])
    return torch.stack(logits)


@alternative("float64 logits")
def float64_logits(patches, embed, class_token, positions, stack, head):
    """The head's answer in double precision, and all rows given to the stack before one is taken."""
    x = embed(patches)
    x = torch.cat([class_token[None, None].expand(x.size(0), -1, -1), x], dim=-2).add(positions)
    first, *_ = stack(x).unbind(dim=1)
    return head(first).double()
