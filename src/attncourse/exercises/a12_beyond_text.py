"""Assignment 12: pictures as sequences of patches, sound as frames of which some are hidden.

What is drawn by chance in training is handed to the answers as random numbers, so that each has one right result.
Function bodies below stand in for a learner's: they use torch alone, and the argument names of the contract.
"""

import math

import torch

from attncourse import beyond_text
from attncourse.exercises.answering import AspectFailed, Problem
from attncourse.exercises.core import Exercise
from attncourse.exercises.judge import arrives, told
from attncourse.exercises.observe import gradients, reached, telling

READY_MADE = ("attncourse.beyond_text",)

# ------------------------------------------------------------------------------------------------------------ patchify

patchify = Exercise(
    "patchify",
    reference=beyond_text.patchify,
    returns=("patches",),
    forbidden=(
        *READY_MADE,
        "torch.nn.functional.unfold",
        "torch.nn.Unfold",
        "torch.nn.functional.pixel_unshuffle",
        "torch.nn.PixelUnshuffle",
    ),
    difficulty=2,
    minutes=20,
    hints=(
        "A row of pixels runs through several patches, so no `reshape` alone can do it. Which numbers of the picture "
        "belong to patch 0? Write down their rows and columns.",
        "A row number r is two numbers: which row of patches, r // patch, and which row inside the patch, r % patch. "
        "A reshape can cut the axis into these two, and the columns' axis likewise.",
        "Cut: (batch, channels, rows, patch, columns, patch). Then bring the axes into the order in which the result "
        "is to be read, rows and columns of patches first, and only then join axes.",
    ),
)


def _picture(draw):
    """(images, patch, rows of patches, columns of patches): not square, several channels."""
    batch, channels, rows, columns, patch = draw.sizes(5, 2, 6)
    patch = min(patch, 3)
    return draw.normal(batch, channels, rows * patch, columns * patch), patch, rows, columns


@patchify.aspect("patches", points=2)
def _(answer, draw):
    """every number in its place, in pictures that are not square"""
    images, patch, *_ = _picture(draw)
    return answer(images, patch)


@patchify.aspect("order of the patches", points=1)
def _(answer, draw):
    """row by row, as one reads a page"""
    images, patch, *_ = _picture(draw)
    flat = images[:, :1, ::patch, ::patch]                                # (batch, 1, rows, columns)  one grey a patch
    return answer(flat.repeat_interleave(patch, 2).repeat_interleave(patch, 3), patch)


@patchify.aspect("order in a patch", points=1)
def _(answer, draw):
    """inside a patch, too: row by row"""
    images, patch, *_ = _picture(draw)
    return answer(images[:, :1, :patch, :patch].repeat(1, 1, 4, 4), patch)


@patchify.aspect("channels", points=1)
def _(answer, draw):
    """a patch has all channels, one after the other"""
    images, patch, *_ = _picture(draw)
    return answer(images[:, :, :1, :1].expand(-1, -1, 4 * patch, 4 * patch).clone(), patch)


@patchify.aspect("gradient", points=1, explain=arrives("images"))
def _(answer, draw):
    """what is learned from the patches reaches the picture"""
    images, patch, *_ = _picture(draw)
    images.requires_grad_()
    return gradients(answer(images, patch), [images], draw)


ORDERS = ("order of the patches", "order in a patch")
SCATTERED = ("patches", *ORDERS, "channels", "gradient")


@patchify.misconception("reshaped alone", fails=SCATTERED)
def _(images, patch):
    """The numbers were only counted off, in the order in which they lie in memory: that is along a whole row of the
    picture, and on to the next row. So a "patch" is a strip of pixels from one row, or from two. `reshape` and `view`
    never move a number. Cut the axes in two first, and change their order, before you join any."""
    batch, channels, height, width = images.shape
    return images.reshape(batch, height * width // patch**2, channels * patch**2)


@patchify.misconception("axes not exchanged", fails=("patches", *ORDERS, "gradient"))
def _(images, patch):
    """The shape (…, rows, columns, patch, patch) was asked for in one `reshape`, and has the right sizes. But a row of
    pixels runs through all columns of patches: in memory, the row inside the patch comes *between* rows and columns of
    patches. Cut the height in two, cut the width in two, and then exchange axes."""
    batch, channels, height, width = images.shape
    rows, columns = height // patch, width // patch
    x = images.reshape(batch, channels, rows, columns, patch, patch)
    return x.permute(0, 2, 3, 1, 4, 5).reshape(batch, rows * columns, channels * patch**2)


@patchify.misconception("patches read down the columns", fails=("patches", "order of the patches", "gradient"))
def _(images, patch):
    """Each patch is right, but they come in the wrong order: down the first column of patches, then down the next. A
    model that had learned a position for each place would find every patch in another's place. Read them as a page."""
    batch, channels, height, width = images.shape
    x = images.reshape(batch, channels, height // patch, patch, width // patch, patch)
    return x.permute(0, 4, 2, 1, 3, 5).reshape(batch, -1, channels * patch**2)


@patchify.misconception("each patch on its side", fails=("patches", "order in a patch", "gradient"))
def _(images, patch):
    """Inside a patch rows and columns have changed places: the numbers run down its columns. Of the two axes of length
    `patch`, the one that was cut from the height comes first."""
    batch, channels, height, width = images.shape
    x = images.reshape(batch, channels, height // patch, patch, width // patch, patch)
    return x.permute(0, 2, 4, 1, 5, 3).reshape(batch, -1, channels * patch**2)


@patchify.misconception("patches and insides both turned", fails=("patches", *ORDERS, "gradient"))
def _(images, patch):
    """Height and width have changed places throughout: the patches are read down the columns, and so is each of them.
    In a picture the axis of the height comes first, (batch, channels, height, width)."""
    batch, channels, height, width = images.shape
    x = images.reshape(batch, channels, height // patch, patch, width // patch, patch)
    return x.permute(0, 4, 2, 1, 5, 3).reshape(batch, -1, channels * patch**2)


@patchify.misconception("channels last", fails=("patches", "channels", "gradient"))
def _(images, patch):
    """Each pixel's channels came together, red, green, blue, and then the next pixel's. Some libraries store pictures
    that way, and a model may well be trained on it; but here each channel's pixels stand together, as in the weights of
    a torch convolution, (out, channel, row, column)."""
    batch, channels, height, width = images.shape
    x = images.reshape(batch, channels, height // patch, patch, width // patch, patch)
    return x.permute(0, 2, 4, 3, 5, 1).reshape(batch, -1, channels * patch**2)


@patchify.misconception("channels as patches of their own", fails=("patches", "channels", "gradient"))
def _(images, patch):
    """Each channel was cut by itself, so there are several times too many patches, each with one channel. A patch is a
    piece of the picture with everything that is there: join the channels to the pixels, not to the patches."""
    batch, channels, height, width = images.shape
    x = images.reshape(batch, channels, height // patch, patch, width // patch, patch)
    return x.permute(0, 1, 2, 4, 3, 5).reshape(batch, -1, patch**2)


@patchify.misconception("one channel alone", fails=("patches", "channels", "gradient"))
def _(images, patch):
    """Of several channels one is left. A patch holds all of them: its width is channels · patch²."""
    batch, _, height, width = images.shape
    x = images[:, 0].reshape(batch, height // patch, patch, width // patch, patch)
    return x.permute(0, 1, 3, 2, 4).reshape(batch, -1, patch**2)


@patchify.misconception("square pictures only", fails=("patches", "order of the patches", "gradient"))
def _(images, patch):
    """The number of patches in a column was used for those in a row as well. Pictures need not be square: height and
    width each have their own."""
    batch, channels, height, _ = images.shape
    n = height // patch
    x = images.reshape(batch, channels, n, patch, n, patch)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(batch, n * n, channels * patch**2)


@patchify.misconception("patches that overlap", fails=SCATTERED)
def _(images, patch):
    """A window was moved one pixel at a time, so neighbouring patches share most of their pixels, and there are far too
    many. A ViT's patches lie side by side: the step is a whole patch."""
    x = images.unfold(2, patch, 1).unfold(3, patch, 1)
    return x.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


@patchify.misconception("patches in the columns", fails=SCATTERED)
def _(images, patch):
    """The last two axes have changed places: each column is a patch. A sequence is (batch, n, d) throughout the course:
    one *row* for each patch, with its numbers along it."""
    batch, channels, height, width = images.shape
    x = images.reshape(batch, channels, height // patch, patch, width // patch, patch)
    return x.permute(0, 1, 3, 5, 2, 4).reshape(batch, channels * patch**2, -1)


@patchify.misconception("cut off from the gradient", fails=("gradient",))
def _(images, patch):
    """The numbers are right, but no gradient gets back to the picture: `.detach()`, `.numpy()`, `.tolist()` and
    `torch.tensor(…)` forget where numbers came from. Whoever asks which pixels a decision depends on needs it."""
    batch, channels, height, width = images.shape
    x = images.detach().reshape(batch, channels, height // patch, patch, width // patch, patch)
    return x.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * patch**2)


@patchify.alternative("a loop over patches")
def _(images, patch):
    """Cuts them out one by one."""
    patches = []
    for top in range(0, images.shape[2], patch):
        for left in range(0, images.shape[3], patch):
            patches.append(images[:, :, top : top + patch, left : left + patch].flatten(1))
    return torch.stack(patches, dim=1)


@patchify.alternative("split, then split")
def _(images, patch):
    """Rows of patches, then patches of a row."""
    bands = images.split(patch, dim=2)
    return torch.cat([torch.stack([p.flatten(1) for p in band.split(patch, dim=3)], 1) for band in bands], dim=1)


@patchify.alternative("a window that steps")
def _(images, patch):
    """Tensor.unfold, with a step of one patch."""
    x = images.unfold(2, patch, patch).unfold(3, patch, patch)
    return x.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


@patchify.alternative("a convolution that copies")
def _(images, patch):
    """With kernels of which each picks one number, at a stride of one patch."""
    width = images.shape[1] * patch * patch
    kernels = torch.eye(width).view(width, images.shape[1], patch, patch)
    return torch.nn.functional.conv2d(images, kernels, stride=patch).flatten(2).mT


@patchify.alternative("einsum, float64")
def _(images, patch):
    """Exchanges axes by name, in double precision."""
    batch, channels, height, width = images.shape
    x = images.double().view(batch, channels, height // patch, patch, width // patch, patch)
    return torch.einsum("bchpwq->bhwcpq", x).reshape(batch, -1, channels * patch**2)


# --------------------------------------------------------------------------------------------------------- vit_forward


def _vit_forward(patches, embed, class_token, positions, stack, head):
    """Dosovitskiy et al. 2021, equations 1 to 4."""
    x = embed(patches)
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1) + positions
    return head(stack(x)[:, 0])


vit_forward = Exercise(
    "vit_forward",
    reference=_vit_forward,
    returns=("logits",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    hints=(
        "Follow the shapes: (batch, n_patches, d) after `embed`, one more row in front, the same shape after `stack`. "
        "How many rows does `positions` have? So what has a position?",
        "`class_token` is one vector of width d, for all pictures. `expand` makes (batch, 1, d) of it, without a copy; "
        "`torch.cat` puts it in front, along the axis of the patches.",
        "Embed, put the class token in front, add the positions to all of them, run the stack, and give the head row 0 "
        "of each picture, (batch, d).",
    ),
)


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


@vit_forward.aspect("logits", points=2)
def _(answer, draw):
    """everything in its place"""
    return _Vision(draw).answered(answer)


@vit_forward.aspect("the class token", points=1)
def _(answer, draw):
    """what is read out stands at the class token's place, and nowhere else"""
    parts = _Vision(draw)
    return parts.answered(answer, positions=torch.zeros_like(parts.positions), stack=lambda x: x.tanh())


@vit_forward.aspect("its position", points=1)
def _(answer, draw):
    """the class token has a position of its own, the first"""
    return _Vision(draw).answered(answer, stack=lambda x: x.tanh())


@vit_forward.aspect("the patches' positions", points=1)
def _(answer, draw):
    """patch i has position i + 1"""
    parts = _Vision(draw)
    positions = torch.cat([torch.zeros_like(parts.positions[:1]), parts.positions[1:]])
    return parts.answered(answer, positions=positions)


@vit_forward.aspect("a single picture", points=1)
def _(answer, draw):
    """one picture is a batch, too"""
    return _Vision(draw, batch=1).answered(answer)


@vit_forward.aspect("gradient", points=1, explain=arrives("patches", "class_token", "positions"))
def _(answer, draw):
    """the class token and the positions can be learned, and what comes before the patches"""
    parts = _Vision(draw)
    inputs = [parts.patches, parts.class_token, parts.positions]
    for tensor in inputs:
        tensor.requires_grad_()
    return reached(parts.answered(answer), inputs, draw)


BUT_GRADIENT = ("logits", "the class token", "its position", "the patches' positions", "a single picture")


@vit_forward.misconception("no position for the class token", fails=("logits", "its position", "a single picture"))
def _(patches, embed, class_token, positions, stack, head):
    """The patches got their positions, and the class token came in without one. Count the rows of `positions`: there is
    one more than there are patches, and the first is the class token's."""
    x = embed(patches) + positions[1:]
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1)
    return head(stack(x)[:, 0])


POSITIONS = ("logits", "its position", "the patches' positions", "a single picture")


@vit_forward.misconception("positions one off", fails=POSITIONS)
def _(patches, embed, class_token, positions, stack, head):
    """The positions were handed out before the class token stood in front: patch 0 took the first, which is the class
    token's, and the last was left over. Put the class token in front first, then add all positions to all rows."""
    x = embed(patches)
    x = x + positions[: x.shape[1]]
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1)
    return head(stack(x)[:, 0])


@vit_forward.misconception("no positions", fails=(*POSITIONS, "gradient"))
def _(patches, embed, class_token, positions, stack, head):
    """Without positions the patches are a heap: shuffle them and the logits stay the same (lecture 05). Every row gets
    its position added, before the stack."""
    x = embed(patches)
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1)
    return head(stack(x)[:, 0])


@vit_forward.misconception("positions after the stack", fails=POSITIONS)
def _(patches, embed, class_token, positions, stack, head):
    """The positions were added to what came out of the stack. By then all looking is done, and it was done without
    knowing what stood where. They belong to what goes in."""
    x = embed(patches)
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1)
    return head((stack(x) + positions)[:, 0])


@vit_forward.misconception("the class token after the patches", fails=POSITIONS)
def _(patches, embed, class_token, positions, stack, head):
    """The class token was put after the patches and is read there. That could be learned as well; but positions come in
    an order, and row 0 of them is the class token's: with it at the end every patch has its neighbour's."""
    x = embed(patches)
    x = torch.cat([x, class_token.expand(len(x), 1, -1)], dim=1) + positions
    return head(stack(x)[:, -1])


@vit_forward.variant("the class token after the patches", fails=BUT_GRADIENT)
def _(patches, embed, class_token, positions, stack, head):
    """And read in front, where now a patch stands."""
    x = embed(patches)
    x = torch.cat([x, class_token.expand(len(x), 1, -1)], dim=1) + positions
    return head(stack(x)[:, 0])


@vit_forward.misconception("reads the last patch", fails=BUT_GRADIENT)
def _(patches, embed, class_token, positions, stack, head):
    """The last row went to the head, as one does with a recurrent network. There is nothing special about the last
    patch, the lower right corner. What was put in front to be read out is the class token."""
    x = embed(patches)
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1) + positions
    return head(stack(x)[:, -1])


@vit_forward.misconception("averages all rows", fails=BUT_GRADIENT)
def _(patches, embed, class_token, positions, stack, head):
    """The mean over the rows went to the head. That is another way to read a ViT out, and works about as well when it
    is trained that way; here the class token was put in to do that work, and it alone is read."""
    x = embed(patches)
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1) + positions
    return head(stack(x).mean(dim=1))


@vit_forward.variant("averages all rows", fails=BUT_GRADIENT)
def _(patches, embed, class_token, positions, stack, head):
    """Those of the patches."""
    x = embed(patches)
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1) + positions
    return head(stack(x)[:, 1:].mean(dim=1))


@vit_forward.misconception("a row of logits for every token", fails=BUT_GRADIENT)
def _(patches, embed, class_token, positions, stack, head):
    """All rows went to the head, (batch, n, d), and there is an answer for every patch. A picture has one class: hand
    the head one vector for each picture."""
    x = embed(patches)
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1) + positions
    return head(stack(x))


@vit_forward.misconception("the class token joins after the stack", fails=(*BUT_GRADIENT, "gradient"))
def _(patches, embed, class_token, positions, stack, head):
    """The class token stood in front only when the stack was done, so it has looked at no patch, and every picture gets
    the same logits. It has to go through the stack with the patches: that is where it collects."""
    x = stack(embed(patches) + positions[1:])
    x = torch.cat([(class_token + positions[0]).expand(len(x), 1, -1), x], dim=1)
    return head(x[:, 0])


@vit_forward.misconception("softmax already applied", fails=BUT_GRADIENT)
def _(patches, embed, class_token, positions, stack, head):
    """These are probabilities. Logits are what the head gives; the loss applies its own softmax, and one on top of the
    other makes every answer look uncertain."""
    x = embed(patches)
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1) + positions
    return head(stack(x)[:, 0]).softmax(dim=-1)


@vit_forward.misconception("squeezed axes", fails=("a single picture",))
def _(patches, embed, class_token, positions, stack, head):
    """`squeeze()` removes every axis of length one, and the batch's, too, when there is a single picture. Name the axis
    that you mean, or take row 0 by indexing."""
    x = embed(patches)
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1) + positions
    return head(stack(x)[:, 0]).squeeze()


@vit_forward.misconception("cut off from the gradient", fails=("gradient",))
def _(patches, embed, class_token, positions, stack, head):
    """The numbers are right, but something was copied without its history (`.detach()`, `.data`, `torch.tensor(…)`, a
    `no_grad`), and will stay for ever what it was at the start. The class token and the positions are learned."""
    x = embed(patches)
    x = torch.cat([class_token.data.expand(len(x), 1, -1), x], dim=1) + positions.data
    return head(stack(x)[:, 0])


@vit_forward.variant("cut off from the gradient", fails=("gradient",))
def _(patches, embed, class_token, positions, stack, head):
    """The class token alone."""
    x = embed(patches)
    x = torch.cat([class_token.detach().expand(len(x), 1, -1), x], dim=1) + positions
    return head(stack(x)[:, 0])


@vit_forward.variant("cut off from the gradient", fails=("gradient",))
def _(patches, embed, class_token, positions, stack, head):
    """Everything, at the end."""
    x = embed(patches)
    x = torch.cat([class_token.expand(len(x), 1, -1), x], dim=1) + positions
    return head(stack(x)[:, 0]).detach()


@vit_forward.alternative("positions added to each part")
def _(patches, embed, class_token, positions, stack, head):
    """The class token's before it is repeated, the patches' before they are joined."""
    first = (class_token + positions[0]).repeat(patches.shape[0], 1, 1)
    return head(stack(torch.cat((first, embed(patches) + positions[1:]), 1))[:, 0, :])


@vit_forward.alternative("a table to be filled")
def _(patches, embed, class_token, positions, stack, head):
    """An empty sequence, row 0 and the rest."""
    found = embed(patches)
    x = torch.empty(found.shape[0], found.shape[1] + 1, found.shape[2])
    x[:, 0] = class_token
    x[:, 1:] = found
    return head(stack(x + positions[None]).select(1, 0))


@vit_forward.alternative("one picture at a time")
def _(patches, embed, class_token, positions, stack, head):
    """A loop over the batch."""
    logits = []
    for one in patches:
        x = torch.vstack([class_token, embed(one[None])[0]]) + positions
        logits.append(head(stack(x[None])[:, 0])[0])
    return torch.stack(logits)


@vit_forward.alternative("float64 logits")
def _(patches, embed, class_token, positions, stack, head):
    """The head's answer in double precision, and all rows given to the stack before one is taken."""
    x = embed(patches)
    x = torch.cat([class_token[None, None].expand(x.size(0), -1, -1), x], dim=-2).add(positions)
    first, *_ = stack(x).unbind(dim=1)
    return head(first).double()


# ----------------------------------------------------------------------------------------------------------- span_mask


def _span_mask(lot, lengths, p, span):
    """`beyond_text.span_mask` on random numbers that were drawn already."""
    fits = torch.arange(lot.shape[1]) < (lengths - span + 1)[:, None]
    n_spans = (p * lengths).round().clamp(min=1)[:, None]
    starts = (lot.masked_fill(~fits, 2.0).argsort(dim=1).argsort(dim=1) < n_spans) & fits
    hidden = torch.zeros_like(starts)
    for later in range(span):
        hidden[:, later:] |= starts[:, : lot.shape[1] - later]
    return hidden


span_mask = Exercise(
    "span_mask",
    reference=_span_mask,
    returns=("mask",),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=30,
    hints=(
        "Three questions, one after the other: where may a span start in this sequence? How many spans does it get? "
        "At which of the possible places, given the random numbers?",
        "A span that starts at i covers i, …, i + span − 1, and the last of them must lie within the length. Numbers "
        "at places where no span fits must not win: give them a value that loses against all others.",
        "A loop over the sequences is fine: `lot[b, : length - span + 1].argsort()[:s]` are the starts; then set "
        "`mask[b, start : start + span] = True` for each. Spans may overlap; what is hidden twice is hidden.",
    ),
)


def _lots(draw, batch, n, first=(), never=()):
    """Different random numbers in 0..1 (batch, n). Of each row the lowest stand at the places `first`, in this order,
    and the highest at the places `never`; both are lists of places, one for each row.
    """
    lot = draw.uniform(batch, n)
    for row, places in zip(lot, never, strict=False):
        row[places] += 2.0
    for row, places in zip(lot, first, strict=False):
        row[places] = torch.arange(-len(places), 0.0)
    return (lot.argsort(dim=1).argsort(dim=1) + 0.5) / n


def _share(draw, count, n):
    """A p for `count` spans in n frames, to be rounded down a little."""
    return (count + 0.1 + 0.2 * draw.uniform(1).item()) / n


def _whole(draw, high):
    return int(draw.integers(high, 1))


@span_mask.aspect("several spans", points=2)
def _(answer, draw):
    """each as long as asked for, and some overlap"""
    n, span = 20 + _whole(draw, 9), 3 + _whole(draw, 3)
    start = 1 + _whole(draw, 4)
    lot = _lots(draw, 4, n, [[start, start + 2]], 4 * [list(range(n - span, n))])
    return answer(lot, torch.full((4,), n), _share(draw, 4, n), span)


@span_mask.aspect("one span", points=1)
def _(answer, draw):
    """there is always one, however small p"""
    n, span = 12 + _whole(draw, 9), 3 + _whole(draw, 4)
    lot = _lots(draw, 4, n, never=4 * [list(range(n - span, n))])
    return answer(lot, torch.full((4,), n), 0.3 / n, span)


@span_mask.aspect("within the sound", points=1)
def _(answer, draw):
    """no span starts where it does not fit; it may end where the sound ends"""
    n, span = 16 + _whole(draw, 9), 4 + _whole(draw, 3)
    too_late = list(range(n - span + 1, n))
    lot = _lots(draw, 4, n, [[*too_late, n - span, b] for b in range(4)])
    return answer(lot, torch.full((4,), n), _share(draw, 2, n), span)


@span_mask.aspect("lengths", points=1)
def _(answer, draw):
    """shorter sounds get fewer spans, and none past their end"""
    n, span = 24 + 4 * _whole(draw, 3), 3 + _whole(draw, 3)
    lengths = [n, n // 2, n // 4]
    behind = [[1, 2], *(list(range(length, n)) for length in lengths[1:])]
    lot = _lots(draw, 3, n, behind, [list(range(length - span, length)) for length in lengths])
    order = torch.randperm(3, generator=draw.generator)
    return answer(lot[order], torch.tensor(lengths)[order], _share(draw, 4, n), span)


@span_mask.aspect("how many", points=1, explain=told("sequence {place}: {got} spans, expected {expected}"))
def _(answer, draw):
    """p · length spans, rounded"""
    n = 20 + _whole(draw, 20)
    lot, lengths = _lots(draw, 2, n), torch.full((2,), n)
    counts = [4 + side * (0.2 + 0.2 * draw.uniform(1).item()) for side in (1, -1)]
    masks = [answer(lot, lengths, count / n, 1) for count in counts]
    return torch.cat([telling(mask).sum(dim=1) for mask in masks])


EVERY_SPAN = ("several spans", "one span", "within the sound", "lengths")


@span_mask.misconception("single frames for spans", fails=EVERY_SPAN)
def _(lot, lengths, p, span):
    """Single frames are hidden, where spans should start. A frame between two visible ones is guessed from its
    neighbours, without understanding anything. What makes the task worth solving is that `span` frames in a row are
    gone."""
    mask = torch.zeros(lot.shape, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        s = max(1, round(p * length))
        mask[b, lot[b, : length - span + 1].argsort()[:s]] = True
    return mask


@span_mask.misconception("one frame too many", fails=(*EVERY_SPAN, "how many"))
def _(lot, lengths, p, span):
    """Each span is one frame too long. A slice ends *before* its second number: from start to start + span there are
    `span` frames."""
    mask = torch.zeros(lot.shape, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        s = max(1, round(p * length))
        for start in lot[b, : length - span + 1].argsort()[:s].tolist():
            mask[b, start : start + span + 1] = True
    return mask


@span_mask.misconception("one frame too few", fails=(*EVERY_SPAN, "how many"))
def _(lot, lengths, p, span):
    """Each span is one frame too short: a slice already ends before its second number, so nothing more is to be taken
    off."""
    mask = torch.zeros(lot.shape, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        s = max(1, round(p * length))
        for start in lot[b, : length - span + 1].argsort()[:s].tolist():
            mask[b, start : start + span - 1] = True
    return mask


@span_mask.misconception("spans run over the end", fails=("within the sound",))
def _(lot, lengths, p, span):
    """A span may start here at any frame, and those near the end come out shorter: what would reach past the end was
    cut off. (The paper allows that. Our contract does not: every span is whole.) The last start at which a span fits is
    length − span."""
    mask = torch.zeros(lot.shape, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        s = max(1, round(p * length))
        for start in lot[b, :length].argsort()[:s].tolist():
            mask[b, start : min(start + span, length)] = True
    return mask


@span_mask.misconception("the last start forgotten", fails=("within the sound",))
def _(lot, lengths, p, span):
    """One start is missing: the last place at which a whole span fits. A span of 3 fits into 5 frames at 0, 1 and 2:
    that is 5 − 3 + 1 places."""
    mask = torch.zeros(lot.shape, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        s = max(1, round(p * length))
        for start in lot[b, : length - span].argsort()[:s].tolist():
            mask[b, start : start + span] = True
    return mask


@span_mask.misconception("lengths ignored", fails=("lengths",))
def _(lot, lengths, p, span):
    """Every sequence was taken to be as long as the batch is wide. So spans stand in the padding after a shorter sound,
    where there is nothing to guess, and it got as many spans as a long one."""
    n = lot.shape[1]
    mask = torch.zeros(lot.shape, dtype=torch.bool)
    for b in range(len(lot)):
        s = max(1, round(p * n))
        for start in lot[b, : n - span + 1].argsort()[:s].tolist():
            mask[b, start : start + span] = True
    return mask


@span_mask.variant("lengths ignored", fails=("lengths",))
def _(lot, lengths, p, span):
    """In the number of spans alone."""
    mask = torch.zeros(lot.shape, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        s = max(1, round(p * lot.shape[1]))
        for start in lot[b, : length - span + 1].argsort()[:s].tolist():
            mask[b, start : start + span] = True
    return mask


@span_mask.misconception("the highest numbers", fails=EVERY_SPAN)
def _(lot, lengths, p, span):
    """The places with the *highest* numbers won. It would be as good a lottery; the contract says that the lowest win,
    so that there is one right answer."""
    mask = torch.zeros(lot.shape, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        s = max(1, round(p * length))
        for start in lot[b, : length - span + 1].argsort(descending=True)[:s].tolist():
            mask[b, start : start + span] = True
    return mask


@span_mask.misconception("p as the share that is hidden", fails=("several spans", "within the sound", "lengths"))
def _(lot, lengths, p, span):
    """There are too few spans: p was taken for the share of *frames* to hide, and divided by the span. In the paper,
    and here, p is the share of frames at which a span *starts*. (That is why 0.065 hides nearly half.)"""
    mask = torch.zeros(lot.shape, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        s = max(1, round(p * length / span))
        for start in lot[b, : length - span + 1].argsort()[:s].tolist():
            mask[b, start : start + span] = True
    return mask


@span_mask.misconception("perhaps none", fails=("one span",))
def _(lot, lengths, p, span):
    """A short sound, or a small p, and nothing is hidden: then there is nothing to guess, and the mean over no frames
    is NaN. Every sequence gets one span at least."""
    mask = torch.zeros(lot.shape, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        s = round(p * length)
        for start in lot[b, : length - span + 1].argsort()[:s].tolist():
            mask[b, start : start + span] = True
    return mask


@span_mask.misconception("rounded down", fails=("how many",))
def _(lot, lengths, p, span):
    """p · length was cut off after the decimal point, `int(…)` or `//`, not rounded: 3.7 spans became 3."""
    mask = torch.zeros(lot.shape, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        s = max(1, int(p * length))
        for start in lot[b, : length - span + 1].argsort()[:s].tolist():
            mask[b, start : start + span] = True
    return mask


@span_mask.misconception("one lot for all", fails=EVERY_SPAN)
def _(lot, lengths, p, span):
    """All sequences were hidden at the same places, those that the first row of random numbers gives. Each row of `lot`
    is for the sequence with that number."""
    mask = torch.zeros(lot.shape, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        s = max(1, round(p * length))
        for start in lot[0, : length - span + 1].argsort()[:s].tolist():
            mask[b, start : start + span] = True
    return mask


@span_mask.misconception("upside down", fails=(*EVERY_SPAN, "how many"))
def _(lot, lengths, p, span):
    """True stands where a frame stays visible. (In attention's masks True means "may be looked at"; this one is of a
    different kind, and says which frames are *hidden*, as in the paper.)"""
    mask = torch.ones(lot.shape, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        s = max(1, round(p * length))
        for start in lot[b, : length - span + 1].argsort()[:s].tolist():
            mask[b, start : start + span] = False
    return mask


@span_mask.misconception("spans that may not overlap", fails=("several spans", "lengths"))
def _(lot, lengths, p, span):
    """A start that lay in an earlier span was passed over for the next. The starts are drawn without looking at each
    other; spans may overlap, and then fewer frames are hidden."""
    mask = torch.zeros(lot.shape, dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        left = max(1, round(p * length))
        for start in lot[b, : length - span + 1].argsort().tolist():
            if left and not mask[b, start : start + span].any():
                mask[b, start : start + span] = True
                left -= 1
    return mask


@span_mask.alternative("ranks, and sums of starts")
def _(lot, lengths, p, span):
    """No loop: the rank of each number, then how many spans have begun and not ended."""
    n = lot.shape[1]
    fits = torch.arange(n) < (lengths - span + 1).unsqueeze(1)
    rank = torch.where(fits, lot, torch.inf).argsort(dim=1).argsort(dim=1)
    starts = fits & (rank < (p * lengths.double()).round().clamp(min=1).unsqueeze(1))
    begun = starts.long().cumsum(dim=1)
    ended = torch.cat([torch.zeros(len(lot), span, dtype=torch.long), begun], dim=1)[:, :n]
    return begun > ended


@span_mask.alternative("a maximum that slides")
def _(lot, lengths, p, span):
    """Places by topk, spread over the span by max_pool1d."""
    starts = torch.zeros_like(lot)
    for b in range(lot.shape[0]):
        length = int(lengths[b])
        chosen = torch.topk(lot[b, : length - span + 1], max(1, round(length * p)), largest=False).indices
        starts[b, chosen] = 1.0
    padded = torch.nn.functional.pad(starts, (span - 1, 0))
    return torch.nn.functional.max_pool1d(padded[:, None], span, stride=1)[:, 0].bool()


@span_mask.alternative("plain Python")
def _(lot, lengths, p, span):
    """Sorts pairs, frame by frame."""
    rows = []
    for numbers, length in zip(lot.tolist(), lengths.tolist(), strict=True):
        places = sorted(range(length - span + 1), key=lambda i: numbers[i])
        row = [False] * len(numbers)
        for start in places[: max(1, round(p * length))]:
            for i in range(start, start + span):
                row[i] = True
        rows.append(row)
    return torch.tensor(rows)


# ------------------------------------------------------------------------------------------------------ draw_negatives


def _draw_negatives(lot):
    n = len(lot)
    drawn = (lot * (n - 1)).long()
    return drawn + (drawn >= torch.arange(n)[:, None])


draw_negatives = Exercise(
    "draw_negatives",
    reference=_draw_negatives,
    returns=("negatives",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=12,
    hints=(
        "Among how many others does frame i choose? A number u in 0..1, times that many, cut off after the decimal "
        "point, says which of them it is, if they are counted 0, 1, 2, …",
        "For frame 2 of 5 the others are 0, 1, 3, 4. Others number 0 and 1 are the frames 0 and 1. What are others "
        "number 2 and 3?",
        "From i on, every other frame is one place further on than its number among the others. "
        "`torch.arange(n)[:, None]` is i for all rows at once.",
    ),
)


def _lot_of(draw, n, k):
    """Numbers in 0..1 that stay clear of the steps at multiples of 1/n and of 1/(n − 1)."""
    cells = 20 * n * (n - 1)
    place = draw.integers(n * (n - 1), n, k)
    return (20 * place + 5 + draw.integers(10, n, k)).double().div(cells).float()


@draw_negatives.aspect("negatives", points=2)
def _(answer, draw):
    """number u is the ⌊u · (n − 1)⌋-th of the others"""
    n, k = draw.sizes(2, 4, 9)
    return answer(_lot_of(draw, n, k))


@draw_negatives.aspect(
    "never itself", points=1, explain=lambda got, expected: f"{int(got.sum())} frames drew themselves"
)
def _(answer, draw):
    """no frame is its own negative"""
    n, k = 5 + int(draw.integers(3, 1)), 40
    return telling(answer(_lot_of(draw, n, k))) == torch.arange(n)[:, None]


@draw_negatives.aspect(
    "everybody else equally",
    points=1,
    explain=told("(frame, other) {place} was drawn {got} times, expected {expected}"),
)
def _(answer, draw):
    """each of the others is drawn as often as any"""
    n = 5 + int(draw.integers(3, 1))
    lot = (torch.arange(4 * n * (n - 1)) + 0.5).div(4 * n * (n - 1)).expand(n, -1).clone()
    drawn = answer(lot)
    if drawn.is_floating_point():
        raise AspectFailed(
            Problem("unusable", "floating point numbers, which cannot be indices; an integer dtype is needed")
        )
    if drawn.ndim != 2 or drawn.min() < 0 or drawn.max() >= n:
        raise AspectFailed(
            Problem("unusable", f"not whole numbers from 0 to n − 1 = {n - 1}, one for each number of `lot`")
        )
    return torch.nn.functional.one_hot(drawn.long(), n).sum(dim=1)


@draw_negatives.misconception(
    "the positive among the negatives", fails=("negatives", "never itself", "everybody else equally")
)
def _(lot):
    """Frame i may draw frame i. Then the right answer stands among the wrong ones, the loss demands that a thing be
    told from itself, and no model can do better than guess between the two. Each frame chooses among the *others*."""
    n = len(lot)
    return (lot * n).long()


@draw_negatives.misconception("the neighbour twice", fails=("negatives", "everybody else equally"))
def _(lot):
    """A frame that drew itself was sent on to the next. So no frame is its own negative, but the next frame is drawn
    twice as often as any other, and it is the one that resembles it most. Choose among n − 1 from the start."""
    n = len(lot)
    own = torch.arange(n)[:, None]
    drawn = (lot * n).long()
    return torch.where(drawn == own, (drawn + 1) % n, drawn)


@draw_negatives.misconception("the last is never drawn", fails=("negatives", "never itself", "everybody else equally"))
def _(lot):
    """There are n − 1 to choose from, and the first n − 1 were taken, whoever asks: frame i is among them, the last is
    not. What is missing is to step over i."""
    n = len(lot)
    return (lot * (n - 1)).long()


@draw_negatives.misconception("steps over too late", fails=("negatives", "never itself", "everybody else equally"))
def _(lot):
    """Those *after* i were moved by one, but i itself was not: a frame that draws number i of the others still gets
    itself, and none gets the one after it. Where must the step begin?"""
    n = len(lot)
    drawn = (lot * (n - 1)).long()
    return drawn + (drawn > torch.arange(n)[:, None])


@draw_negatives.misconception("counted on from itself", fails=("negatives",))
def _(lot):
    """A fair draw: no frame gets itself, and all others are drawn equally often. But they were counted onwards from i,
    and round again from the start. The contract counts them from frame 0, so that there is one right answer."""
    n = len(lot)
    own = torch.arange(n)[:, None]
    return (own + 1 + (lot * (n - 1)).long()) % n


@draw_negatives.misconception("rounded to the nearest", fails=("negatives", "everybody else equally"))
def _(lot):
    """`round` gives the first of the others half a chance, and leads one past the last. Cut off after the decimal
    point: then all pieces of 0..1 are equally wide."""
    n = len(lot)
    drawn = (lot * (n - 1)).round().long()
    return drawn + (drawn >= torch.arange(n)[:, None])


@draw_negatives.alternative("a list of the others")
def _(lot):
    """Looks them up, frame by frame."""
    rows = []
    for i, numbers in enumerate(lot):
        others = torch.tensor([j for j in range(len(lot)) if j != i])
        rows.append(others[(numbers * len(others)).long()])
    return torch.stack(rows)


@draw_negatives.alternative("where, floor and int32")
def _(lot):
    """Two cases."""
    drawn = torch.floor(lot * (lot.shape[0] - 1))
    own = torch.arange(lot.shape[0]).view(-1, 1)
    return torch.where(drawn < own, drawn, drawn + 1).int()


@draw_negatives.alternative("a table of the others")
def _(lot):
    """All others of all frames, (n, n − 1), and gather."""
    n = lot.shape[0]
    everybody = torch.arange(n).expand(n, n)
    others = everybody[~torch.eye(n, dtype=torch.bool)].view(n, n - 1)
    return others.gather(1, (lot * (n - 1)).long())


# ---------------------------------------------------------------------------------------------------- contrastive_loss

contrastive_loss = Exercise(
    "contrastive_loss",
    reference=beyond_text.contrastive_loss,
    returns=("loss",),
    forbidden=READY_MADE,
    numbers=True,
    difficulty=2,
    minutes=20,
    hints=(
        "For each row there are 1 + n_negatives candidates and one of them is right. What do you know that turns "
        "numbers, one for each candidate, into a loss?",
        "The numbers are cosines, divided by the temperature. A cosine is a dot product of vectors that have been made "
        "one unit long, along the last axis.",
        "Put target and negatives side by side, (n, 1 + n_negatives, d); compute their cosines with the context, "
        "(n, 1 + n_negatives); divide; then −log_softmax of the column where the target stands, and the mean.",
    ),
)


def _guesses(draw, unit=False):
    """context, targets, negatives: rows that resemble their targets somewhat."""
    n, n_negatives, d = draw.sizes(3, 4, 8)
    context, negatives = draw.normal(n, d), draw.normal(n, n_negatives, d)
    targets = context + draw.normal(n, d)
    lengths = 0.5 + draw.uniform(n, 1)
    inputs = context * lengths, targets * (0.5 + draw.uniform(n, 1)), negatives * (1.5 - lengths[:, None] / 2)
    if unit:
        inputs = tuple(map(_unit, inputs))
    return inputs


def _unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def _all(losses):
    return torch.stack([loss.double().reshape(()) for loss in losses])


@contrastive_loss.aspect("loss", points=2)
def _(answer, draw):
    """the mean of −log softmax, in nats"""
    return answer(*_guesses(draw), 0.3 + draw.uniform(1).item())


@contrastive_loss.aspect(
    "directions alone",
    points=1,
    explain=told("with some vectors 3 times as long the loss is {got}, expected {expected}"),
)
def _(answer, draw):
    """a cosine: how long the vectors are does not matter"""
    context, targets, negatives = _guesses(draw)
    losses = [answer(3 * context, targets, negatives, 1.0), answer(context, 3 * targets, 3 * negatives, 1.0)]
    return _all(losses)


@contrastive_loss.aspect(
    "temperature", points=1, explain=told("at temperature number {place} the loss is {got}, expected {expected}")
)
def _(answer, draw):
    """the lower the temperature, the more the differences count"""
    inputs = _guesses(draw, unit=True)
    return _all([answer(*inputs, temperature) for temperature in (0.2, 0.5, 2.0)])


@contrastive_loss.aspect("a low temperature", points=1)
def _(answer, draw):
    """no overflow where cosines near 1 are divided by very little"""
    context, targets, negatives = _guesses(draw, unit=True)
    targets = _unit(context + 0.03 * draw.normal(*context.shape))         # cosines near 1, and not all decided
    negatives[:, 0] = _unit(targets + 0.03 * draw.normal(*context.shape))
    return answer(context, targets, negatives, 0.01)


@contrastive_loss.aspect("gradient", points=1, explain=arrives("context", "targets", "negatives"))
def _(answer, draw):
    """both guesses and codes learn"""
    inputs = [x.requires_grad_() for x in _guesses(draw)]
    return reached(answer(*inputs, 0.5).reshape(1), inputs, draw)


ALL_LOSSES = ("loss", "directions alone", "temperature", "a low temperature")


@contrastive_loss.misconception("the target missing from the denominator", fails=ALL_LOSSES)
def _(context, targets, negatives, temperature):
    """The sum in the denominator runs over the negatives alone. Then the quotient is not a share of a whole: the loss
    may fall below zero, and keeps falling when everything has long been told apart. The target is a candidate like the
    others."""
    normal = torch.nn.functional.normalize
    c, q, wrong = normal(context, dim=-1), normal(targets, dim=-1), normal(negatives, dim=-1)
    right = (c * q).sum(dim=-1) / temperature
    below = (wrong @ c[..., None])[..., 0] / temperature
    return (below.logsumexp(dim=-1) - right).mean()


@contrastive_loss.misconception("the target twice in the denominator", fails=ALL_LOSSES)
def _(context, targets, negatives, temperature):
    """The target was counted among the negatives as well, so that it competes with itself: the loss cannot fall below
    log 2. Each candidate stands in the denominator once."""
    candidates = torch.cat([targets[:, None], targets[:, None], negatives], dim=1)
    cosines = torch.nn.functional.cosine_similarity(context[:, None], candidates, dim=-1)
    return -(cosines / temperature).log_softmax(dim=-1)[:, 0].mean()


@contrastive_loss.misconception("times the temperature", fails=("loss", "temperature", "a low temperature"))
def _(context, targets, negatives, temperature):
    """The cosines were multiplied by the temperature. Divide: a low temperature is to make differences larger (lecture
    02), and cosines, which lie between −1 and 1, need that."""
    candidates = torch.cat([targets[:, None], negatives], dim=1)
    cosines = torch.nn.functional.cosine_similarity(context[:, None], candidates, dim=-1)
    return -(cosines * temperature).log_softmax(dim=-1)[:, 0].mean()


@contrastive_loss.misconception("no temperature", fails=("loss", "temperature", "a low temperature"))
def _(context, targets, negatives, temperature):
    """The temperature was not used. Cosines lie between −1 and 1, so without it even a perfect guess gets little more
    than its share, and the loss stays high whatever is learned."""
    candidates = torch.cat([targets[:, None], negatives], dim=1)
    cosines = torch.nn.functional.cosine_similarity(context[:, None], candidates, dim=-1)
    return -cosines.log_softmax(dim=-1)[:, 0].mean()


@contrastive_loss.misconception("dot products for cosines", fails=("loss", "directions alone"))
def _(context, targets, negatives, temperature):
    """Plain dot products: a model could lower the loss by making its vectors longer, without a better guess. Give every
    vector the length 1 first."""
    candidates = torch.cat([targets[:, None], negatives], dim=1)
    scores = (candidates @ context[..., None])[..., 0]
    return -(scores / temperature).log_softmax(dim=-1)[:, 0].mean()


@contrastive_loss.variant("dot products for cosines", fails=("loss", "directions alone"))
def _(context, targets, negatives, temperature):
    """The context alone made one unit long."""
    candidates = torch.cat([targets[:, None], negatives], dim=1)
    scores = (candidates @ torch.nn.functional.normalize(context, dim=-1)[..., None])[..., 0]
    return -(scores / temperature).log_softmax(dim=-1)[:, 0].mean()


@contrastive_loss.variant("dot products for cosines", fails=("loss", "directions alone"))
def _(context, targets, negatives, temperature):
    """The codes alone made one unit long."""
    candidates = torch.nn.functional.normalize(torch.cat([targets[:, None], negatives], dim=1), dim=-1)
    scores = (candidates @ context[..., None])[..., 0]
    return -(scores / temperature).log_softmax(dim=-1)[:, 0].mean()


@contrastive_loss.misconception("lengths along the wrong axis", fails=ALL_LOSSES)
def _(context, targets, negatives, temperature):
    """The vectors were normalised along the wrong axis: over the candidates, not over the d numbers of each.
    `F.normalize` takes axis 1 unless it is told otherwise, and in (n, candidates, d) that is not the vectors'."""
    candidates = torch.cat([targets[:, None], negatives], dim=1)
    candidates = torch.nn.functional.normalize(candidates)
    scores = (candidates @ torch.nn.functional.normalize(context)[..., None])[..., 0]
    return -(scores / temperature).log_softmax(dim=-1)[:, 0].mean()


@contrastive_loss.misconception("the sum for the mean", fails=ALL_LOSSES)
def _(context, targets, negatives, temperature):
    """The losses of all rows were added up. Their mean is asked for, or a longer sound would count as a worse guess."""
    candidates = torch.cat([targets[:, None], negatives], dim=1)
    cosines = torch.nn.functional.cosine_similarity(context[:, None], candidates, dim=-1)
    return -(cosines / temperature).log_softmax(dim=-1)[:, 0].sum()


@contrastive_loss.misconception("no minus", fails=ALL_LOSSES)
def _(context, targets, negatives, temperature):
    """This is log p, which grows with a better guess. A loss falls: it is −log p."""
    candidates = torch.cat([targets[:, None], negatives], dim=1)
    cosines = torch.nn.functional.cosine_similarity(context[:, None], candidates, dim=-1)
    return (cosines / temperature).log_softmax(dim=-1)[:, 0].mean()


@contrastive_loss.misconception("a negative taken for the target", fails=ALL_LOSSES)
def _(context, targets, negatives, temperature):
    """The candidates stand in a different order from the one the answer states: what was raised is a negative's share.
    If the target stands last, its column is the last; if column 0 is said to be right, it must stand first."""
    candidates = torch.cat([negatives, targets[:, None]], dim=1)
    cosines = torch.nn.functional.cosine_similarity(context[:, None], candidates, dim=-1)
    return -(cosines / temperature).log_softmax(dim=-1)[:, 0].mean()


@contrastive_loss.misconception("softmax twice", fails=ALL_LOSSES)
def _(context, targets, negatives, temperature):
    """The shares of a softmax were handed to `cross_entropy`, which takes scores and applies a softmax of its own. A
    softmax of shares, which lie between 0 and 1, is nearly even, so even the best guess still pays. Give it the cosines
    divided by the temperature."""
    candidates = torch.cat([targets[:, None], negatives], dim=1)
    cosines = torch.nn.functional.cosine_similarity(context[:, None], candidates, dim=-1)
    shares = (cosines / temperature).softmax(dim=-1)
    return torch.nn.functional.cross_entropy(shares, torch.zeros(len(context), dtype=torch.long))


@contrastive_loss.misconception("shares over the rows", fails=(*ALL_LOSSES, "gradient"))
def _(context, targets, negatives, temperature):
    """Softmax ran down the rows, over the frames, so that guesses compete with each other for column 0, and the
    negatives are never looked at (no gradient reaches them). Each row is a question of its own: its candidates stand
    along the last axis."""
    candidates = torch.cat([targets[:, None], negatives], dim=1)
    cosines = torch.nn.functional.cosine_similarity(context[:, None], candidates, dim=-1)
    return -(cosines / temperature).log_softmax(dim=0)[:, 0].mean()


@contrastive_loss.misconception("exponentials overflow", fails=("a low temperature",))
def _(context, targets, negatives, temperature):
    """Right as long as exp(1/temperature) fits into float32; at 0.01 that is e¹⁰⁰. Let `log_softmax`, `logsumexp` or
    `cross_entropy` do it, which take the largest away first (lecture 00)."""
    candidates = torch.cat([targets[:, None], negatives], dim=1)
    cosines = torch.nn.functional.cosine_similarity(context[:, None], candidates, dim=-1)
    shares = (cosines / temperature).exp()
    return -(shares[:, 0] / shares.sum(dim=-1)).log().mean()


@contrastive_loss.misconception("cut off from the gradient", fails=("gradient",))
def _(context, targets, negatives, temperature):
    """The number is right, but nothing, or not everything, can learn from it. Some methods do hold their targets still;
    here the codes are learned along with the guesses, so a gradient must reach `targets` and `negatives` as well. Look
    for `.detach()`, `.item()`, `.data` or `torch.no_grad()`."""
    candidates = torch.cat([targets[:, None], negatives], dim=1).detach()
    cosines = torch.nn.functional.cosine_similarity(context[:, None], candidates, dim=-1)
    return -(cosines / temperature).log_softmax(dim=-1)[:, 0].mean()


@contrastive_loss.variant("cut off from the gradient", fails=("gradient",))
def _(context, targets, negatives, temperature):
    """Everything."""
    candidates = torch.cat([targets[:, None], negatives], dim=1)
    cosines = torch.nn.functional.cosine_similarity(context[:, None], candidates, dim=-1)
    return -(cosines / temperature).log_softmax(dim=-1)[:, 0].mean().item()


@contrastive_loss.alternative("cross entropy")
def _(context, targets, negatives, temperature):
    """The target in column 0."""
    candidates = torch.cat([targets.unsqueeze(1), negatives], dim=1)
    cosines = torch.cosine_similarity(context.unsqueeze(1), candidates, dim=2)
    return torch.nn.functional.cross_entropy(cosines / temperature, torch.zeros(len(context), dtype=torch.long))


@contrastive_loss.alternative("einsum and logsumexp, float64")
def _(context, targets, negatives, temperature):
    """The target last."""
    def unit(x):
        return x.double() / x.double().pow(2).sum(-1, keepdim=True).sqrt()

    right = torch.einsum("nd,nd->n", unit(context), unit(targets)) / temperature
    wrong = torch.einsum("nd,nkd->nk", unit(context), unit(negatives)) / temperature
    return (torch.logsumexp(torch.cat([wrong, right[:, None]], 1), 1) - right).mean()


@contrastive_loss.alternative("row by row")
def _(context, targets, negatives, temperature):
    """A loop over the frames; differences from the target, log1p where it can."""
    losses = []
    for c, q, others in zip(context, targets, negatives, strict=True):
        right = torch.dot(c, q) / (c.norm() * q.norm())
        wrong = (others @ c) / (others.norm(dim=1) * c.norm())
        losses.append(torch.nn.functional.softplus(((wrong - right) / temperature).logsumexp(0)))
    return sum(losses) / len(losses)


# --------------------------------------------------------------------------------------------------- attention_rollout

attention_rollout = Exercise(
    "attention_rollout",
    reference=beyond_text.attention_rollout,
    returns=("shares",),
    forbidden=READY_MADE,
    difficulty=2,
    minutes=15,
    extra=True,
    hints=(
        "One layer: average its tables over the heads, and let half of each token stay where it is. What do the rows "
        "sum to?",
        "Two layers: what reaches token i through layer 2 comes from tokens j, and what those hold came through layer "
        "1 from tokens k. Summing over j is a matrix product. Which layer stands on the left?",
    ),
)


def _tables(draw, n_layers):
    batch, n_heads, n = draw.sizes(3, 2, 6)
    return (2 * draw.normal(batch, n_layers, n_heads, n, n)).softmax(dim=-1)


@attention_rollout.aspect("one layer", points=1)
def _(answer, draw):
    """the heads' mean, half and half with the residual path"""
    return answer(_tables(draw, 1))


@attention_rollout.aspect("several layers", points=1)
def _(answer, draw):
    """layer after layer, the last on the left"""
    return answer(_tables(draw, 3))


@attention_rollout.misconception("no residual path", fails=("one layer", "several layers"))
def _(weights):
    """The tables alone were multiplied. Beside every attention there is a residual path on which each token keeps what
    it was (lecture 08): mix in the identity."""
    rolled = torch.eye(weights.shape[-1])
    for layer in range(weights.shape[1]):
        rolled = weights[:, layer].mean(dim=1) @ rolled
    return rolled


@attention_rollout.misconception("not halved", fails=("one layer", "several layers"))
def _(weights):
    """A + I, and the rows sum to 2, 4, 8 from layer to layer. They are to be shares: take half of it."""
    rolled = torch.eye(weights.shape[-1])
    for layer in range(weights.shape[1]):
        rolled = (weights[:, layer].mean(dim=1) + torch.eye(weights.shape[-1])) @ rolled
    return rolled


@attention_rollout.misconception("the layers in the wrong order", fails=("several layers",))
def _(weights):
    """The first layer stands on the left. Rows are the tokens at the top, columns those of the input: what comes last
    in the network is what a row meets first. Try it with two layers, and follow one token down."""
    rolled = torch.eye(weights.shape[-1])
    for layer in range(weights.shape[1]):
        rolled = rolled @ ((weights[:, layer].mean(dim=1) + torch.eye(weights.shape[-1])) / 2)
    return rolled


@attention_rollout.misconception("the mean of the layers", fails=("several layers",))
def _(weights):
    """The layers' tables were averaged. They do not stand side by side, they follow each other: what a layer moves, the
    next one moves on. That is a product."""
    return (weights.mean(dim=(1, 2)) + torch.eye(weights.shape[-1])) / 2


@attention_rollout.misconception("multiplied cell by cell", fails=("several layers",))
def _(weights):
    """`*` multiplies cell by cell: only what goes straight from k to i in *every* layer is left. Paths may change
    tokens on the way: `@` sums over all of them."""
    rolled = (weights[:, 0].mean(dim=1) + torch.eye(weights.shape[-1])) / 2
    for layer in range(1, weights.shape[1]):
        rolled = rolled * ((weights[:, layer].mean(dim=1) + torch.eye(weights.shape[-1])) / 2)
    return rolled


@attention_rollout.misconception("the heads summed", fails=("one layer", "several layers"))
def _(weights):
    """The heads' tables were added up, so that the rows sum to the number of heads. Take their mean: shares stay
    shares."""
    rolled = torch.eye(weights.shape[-1])
    for layer in range(weights.shape[1]):
        rolled = (weights[:, layer].sum(dim=1) + torch.eye(weights.shape[-1])) / 2 @ rolled
    return rolled


@attention_rollout.misconception("the last layer alone", fails=("several layers",))
def _(weights):
    """Only the last layer was looked at. Its tokens have been mixed by all layers before it: what it says of token 5 is
    not about patch 5."""
    return (weights[:, -1].mean(dim=1) + torch.eye(weights.shape[-1])) / 2


@attention_rollout.alternative("einsum, from the top down")
def _(weights):
    """Starts with the last layer and goes down, in double precision."""
    n_layers, n = weights.shape[1], weights.shape[-1]
    steps = 0.5 * weights.double().mean(2) + 0.5 * torch.eye(n, dtype=torch.double)
    rolled = steps[:, n_layers - 1]
    for layer in range(n_layers - 2, -1, -1):
        rolled = torch.einsum("bij,bjk->bik", rolled, steps[:, layer])
    return rolled


@attention_rollout.alternative("picture by picture")
def _(weights):
    """A loop, and functools.reduce."""
    from functools import reduce

    one = torch.eye(weights.shape[-1])
    return torch.stack([
        reduce(lambda rolled, table: (table.mean(0) + one) / 2 @ rolled, layers, one) for layers in weights
    ])
