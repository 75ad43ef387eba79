"""patchify: Cut images into patches of patch × patch pixels."""

import torch

from attncourse import beyond_text
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient
from lessonkit.exercises.observe import gradient_reaches

from .common import READY_MADE


def solution(images, patch):
    batch, channels, height, width = images.shape
    rows, columns = height // patch, width // patch
    x = images.reshape(batch, channels, rows, patch, columns, patch)
    x = x.permute(0, 2, 4, 1, 3, 5)    # (batch, rows, columns, channels, patch, patch)
    return x.reshape(batch, rows * columns, channels * patch**2)


exercise = Exercise(
    "patchify",
    reference=beyond_text.patchify,
    solution=solution,
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
        "A row of pixels runs through several patches, so no `reshape` alone can do it. Which numbers of the image "
        "belong to patch 0? Write down their rows and columns.",
        "A row number r is two numbers: which row of patches, r // patch, and which row inside the patch, r % patch. "
        "A reshape can cut the axis into these two, and the columns' axis likewise.",
        "Cut: (batch, channels, rows, patch, columns, patch). Then bring the axes into the order in which the result "
        "is to be read, rows and columns of patches first, and only then join axes.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _image(draw):
    """(images, patch, rows of patches, columns of patches): not square, several channels."""
    batch, channels, rows, columns, patch = draw.sizes(5, 2, 6)
    patch = min(patch, 3)
    return draw.normal(batch, channels, rows * patch, columns * patch), patch, rows, columns


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("patches", points=2, hint=2)
def patches(answer, draw):
    """every number in its place, in images that are not square"""
    images, patch, *_ = _image(draw)
    return answer(images, patch)


@aspect("order of the patches", points=1, hint=3)
def order_of_the_patches(answer, draw):
    """row by row, as one reads a page"""
    images, patch, *_ = _image(draw)
    flat = images[:, :1, ::patch, ::patch]                                # (batch, 1, rows, columns)  one grey a patch
    return answer(flat.repeat_interleave(patch, 2).repeat_interleave(patch, 3), patch)


@aspect("order in a patch", points=1, hint=3)
def order_in_a_patch(answer, draw):
    """inside a patch, too: row by row"""
    images, patch, *_ = _image(draw)
    return answer(images[:, :1, :patch, :patch].repeat(1, 1, 4, 4), patch)


@aspect("channels", points=1, hint=3)
def channels(answer, draw):
    """a patch has all channels, one after the other"""
    images, patch, *_ = _image(draw)
    return answer(images[:, :, :1, :1].expand(-1, -1, 4 * patch, 4 * patch).clone(), patch)


@aspect("gradient", points=1, hint=1, explain=explain_missing_gradient("images"))
def gradient(answer, draw):
    """what is learned from the patches reaches the image"""
    images, patch, *_ = _image(draw)
    images.requires_grad_()
    return gradient_reaches(answer(images, patch), [images], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

ORDERS = ("order of the patches", "order in a patch")
SCATTERED = ("patches", *ORDERS, "channels")
CHANNELS = ("patches", "channels")
AXES = "0, 2, 4, 1, 3, 5"

slip("reshaped alone", SCATTERED, {f".permute({AXES})": ""}, words="""
    The numbers were only counted off, in the order in which they lie in memory: that is along a whole row of the
    image, and on to the next row. So a "patch" is a strip of pixels from one row, or from two. `reshape` and `view`
    never move a number. Cut the axes in two first, and change their order, before you join any.""")

slip("axes not exchanged", ("patches", *ORDERS),
     {"rows, patch, columns, patch": "rows, columns, patch, patch", AXES: "0, 2, 3, 1, 4, 5"},
     words="""
    The shape (…, rows, columns, patch, patch) was asked for in one `reshape`, and has the right sizes. But a row of
    pixels runs through all columns of patches: in memory, the row inside the patch comes *between* rows and columns of
    patches. Cut the height in two, cut the width in two, and then exchange axes.""")

slip("patches read down the columns", ("patches", "order of the patches"),
     {AXES: "0, 4, 2, 1, 3, 5"},
     words="""
    Each patch is right, but they come in the wrong order: down the first column of patches, then down the next. A model
    that had learned a position for each place would find every patch in another's place. Read them as a page.""")

slip("each patch on its side", ("patches", "order in a patch"), {AXES: "0, 2, 4, 1, 5, 3"}, words="""
    Inside a patch rows and columns have changed places: the numbers run down its columns. Of the two axes of length
    `patch`, the one that was cut from the height comes first.""")

slip("patches and insides both turned", ("patches", *ORDERS), {AXES: "0, 4, 2, 1, 5, 3"}, words="""
    Height and width have changed places throughout: the patches are read down the columns, and so is each of them. In
    an image the axis of the height comes first, (batch, channels, height, width).""")

slip("channels last", CHANNELS, {AXES: "0, 2, 4, 3, 5, 1"}, words="""
    Each pixel's channels came together, red, green, blue, and then the next pixel's. Some libraries store images that
    way, and a model may well be trained on it; but here each channel's pixels stand together, as in the weights of a
    torch convolution, (out, channel, row, column).""")

slip("channels as patches of their own", CHANNELS,
     {AXES: "0, 1, 2, 4, 3, 5", "rows * columns, channels * patch**2": "channels * rows * columns, patch**2"},
     words="""
    Each channel was cut by itself, so there are several times too many patches, each with one channel. A patch is a
    piece of the image with everything that is there: join the channels to the pixels, not to the patches.""")

slip("one channel alone", CHANNELS,
     {"images.reshape(batch, channels": "images[:, 0].reshape(batch, 1", "channels * patch**2": "patch**2"},
     words="""
    Of several channels one is left. A patch holds all of them: its width is channels · patch².""")

slip("square images only", ("patches", "order of the patches", "gradient"),
     {"width // patch": "height // patch"},
     words="""
    The number of patches in a column was used for those in a row as well. Images need not be square: height and width
    each have their own.""")

slip("patches in the columns", SCATTERED, {"patch**2)": "patch**2).mT"}, words="""
    The last two axes have changed places: each column is a patch. A sequence is (batch, n, d) throughout the course:
    one *row* for each patch, with its numbers along it.""")

slip("cut off from the gradient", ("gradient",), {"images.reshape": "images.detach().reshape"}, words="""
    The numbers are right, but no gradient gets back to the image: `.detach()`, `.numpy()`, `.tolist()` and
    `torch.tensor(…)` forget where numbers came from. Whoever asks which pixels a decision depends on needs it.""")


# ------------------------------------------------------------------------------------------------------ further from it


@misconception("patches that overlap", fails=SCATTERED)
def patches_that_overlap(images, patch):
    """A window was moved one pixel at a time, so neighbouring patches share most of their pixels, and there are far too
    many. A ViT's patches lie side by side: the step is a whole patch."""
    x = images.unfold(2, patch, 1).unfold(3, patch, 1)
    return x.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("a loop over patches")
def a_loop_over_patches(images, patch):
    """Cuts them out one by one."""
    patches = []
    for top in range(0, images.shape[2], patch):
        for left in range(0, images.shape[3], patch):
            patches.append(images[:, :, top : top + patch, left : left + patch].flatten(1))
    return torch.stack(patches, dim=1)


@alternative("split, then split")
def split_then_split(images, patch):
    """Rows of patches, then patches of a row."""
    bands = images.split(patch, dim=2)
    return torch.cat([torch.stack([p.flatten(1) for p in band.split(patch, dim=3)], 1) for band in bands], dim=1)


@alternative("a window that steps")
def a_window_that_steps(images, patch):
    """Tensor.unfold, with a step of one patch."""
    x = images.unfold(2, patch, patch).unfold(3, patch, patch)
    return x.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)


@alternative("a convolution that copies")
def a_convolution_that_copies(images, patch):
    """With kernels of which each picks one number, at a stride of one patch."""
    width = images.shape[1] * patch * patch
    kernels = torch.eye(width).view(width, images.shape[1], patch, patch)
    return torch.nn.functional.conv2d(images, kernels, stride=patch).flatten(2).mT


@alternative("einsum, float64")
def einsum_float64(images, patch):
    """Exchanges axes by name, in double precision."""
    batch, channels, height, width = images.shape
    x = images.double().view(batch, channels, height // patch, patch, width // patch, patch)
    return torch.einsum("bchpwq->bhwcpq", x).reshape(batch, -1, channels * patch**2)
