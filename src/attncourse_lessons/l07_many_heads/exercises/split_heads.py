"""split_heads: Cut every token's vector into one piece for each head."""

import torch

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient
from lessonkit.exercises.observe import gradient_reaches

from .common import READY_MADE


def reference(x, n_heads):
    """(batch, n, n_heads · d_head) -> (batch, n_heads, n, d_head)."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def solution(x, n_heads):
    batch, n, d_model = x.shape
    pieces = x.view(batch, n, n_heads, d_model // n_heads)
    return pieces.transpose(1, 2)


exercise = Exercise(
    "split_heads",
    reference=reference,
    solution=solution,
    returns=("heads",),
    forbidden=READY_MADE,
    difficulty=1,
    minutes=10,
    hints=(
        "Write down d_head first. Then two moves: cut the last axis in two, and after that exchange two axes.",
        "`x.view(batch, n, n_heads, d_head)` cuts each token's vector into pieces, in order. Which two axes must "
        "change places, so that the heads come before the tokens?",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _wide(draw, n=None):
    """(x, n_heads) for n tokens, no two sizes alike."""
    batch, length, n_heads, d_head = draw.sizes(4, 3, 7)
    return draw.normal(batch, n or length, n_heads * d_head), n_heads


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("heads", points=2, hint=1)
def heads(answer, draw):
    """head 0 has the first d_head columns of every token, head 1 the next"""
    return answer(*_wide(draw))


@aspect("one token", points=1, hint=2)
def one_token(answer, draw):
    """works while a model writes, one token at a time"""
    return answer(*_wide(draw, n=1))


@aspect("gradient", points=1, hint=2, explain=explain_missing_gradient("x"))
def gradient(answer, draw):
    """the gradient finds its way back"""
    x, n_heads = _wide(draw)
    return gradient_reaches(answer(x.requires_grad_(), n_heads), [x], draw)


# -------------------------------------------------------------------------------------- one slip away from the solution

HEADS = ("heads", "one token")
PIECES, SWAP = "n, n_heads, d_model // n_heads", ".transpose(1, 2)"

slip("view without transpose", ("heads",), {PIECES: "n_heads, n, d_model // n_heads", SWAP: ""}, words="""
    The shape is right and the numbers are not. `view` and `reshape` never move a number: they read them in the order in
    which they lie, token after token, and only break the rows in different places. So head 0 got all columns of the
    first tokens, and no head saw the whole sentence. Cut the *last* axis in two, and then exchange axes.""")
slip("every h-th column", HEADS, {PIECES: "n, d_model // n_heads, n_heads", SWAP: ".permute(0, 3, 1, 2)"}, words="""
    Head 0 got columns 0, h, 2h, … A network trained from scratch would not mind, but a checkpoint would: the contract
    gives each head a block of neighbouring columns, as published models do. Which of the two new axes comes first when
    the last one is cut?""")
slip("heads after the tokens", HEADS, {SWAP: ""}, words="""
    The last axis was cut, and nothing more was done: (batch, n, n_heads, d_head). A matrix product works on the last
    two axes, so it would compare a token's heads with each other. The tokens must be the last axis but one.""")
slip("n_heads for the width", HEADS, {PIECES: "n, d_model // n_heads, n_heads"}, words="""
    The pieces are n_heads wide, and there are d_head of them: the two numbers have been swapped. `n_heads` says how
    many heads there are; how wide each is follows from it.""")
slip("transposed before the cut", ("heads",),
    {"x.view": "x.mT.reshape", PIECES: "n_heads, n, d_model // n_heads", SWAP: ""}, words="""
    Tokens and columns were exchanged first, and then the numbers were broken into rows of another length. `reshape`
    reads them in the order in which they lie, so each piece has numbers of several tokens. Cut the *last* axis in two,
    and then exchange axes.""")
slip("heads that overlap", HEADS,
    {"x.view(batch, n, n_heads, d_model // n_heads)": "x.unfold(2, d_model // n_heads, 1)[:, :, :n_heads]"}, words="""
    Each head begins one column after the head before it, so that they share most of their columns. A head begins where
    the one before it ends, d_head columns further on.""")
slip("heads in the batch", HEADS, {SWAP: ".transpose(1, 2).flatten(0, 1)"}, words="""
    Batch and heads were joined into one axis. `bmm` asks for that; the contract keeps the two apart: (batch, n_heads,
    n, d_head).""")
slip("tokens last", HEADS, {"(1, 2)": "(1, 2).mT"}, words="""
    Each head's matrix is transposed: (d_head, n). That is how keys stand in the product QKᵀ; here the tokens are the
    last axis but one.""")
slip("heads before the batch", HEADS, {SWAP: ".permute(2, 0, 1, 3)"}, words="""
    The heads are right, and they stand in front of the batch. The contract is (batch, n_heads, n, d_head).""")
slip("cut off from the gradient", ("gradient",), {"x.view": "x.detach().view"}, words="""
    The numbers are right, but the gradient does not get through: `.detach()`, `.data`, numpy and `torch.tensor(...)`
    forget where numbers came from.""")


# ------------------------------------------------------------------------------------------------------ further from it


@variant("view without transpose", "tokens last", fails=HEADS)
def viewed_and_turned(x, n_heads):
    """Both at once."""
    return x.reshape(x.shape[0], n_heads, x.shape[1], -1).mT


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("view and transpose")
def view_and_transpose(x, n_heads):
    """The usual two lines."""
    batch, n, d_model = x.shape
    return x.view(batch, n, n_heads, d_model // n_heads).transpose(1, 2)


@alternative("slices, stacked")
def slices_stacked(x, n_heads):
    """A loop over the heads."""
    d_head = x.shape[-1] // n_heads
    return torch.stack([x[..., h * d_head : (h + 1) * d_head] for h in range(n_heads)], dim=1)


@alternative("chunks, in float64 and contiguous")
def chunks_in_float64_and_contiguous(x, n_heads):
    """Copies."""
    return torch.stack(x.double().chunk(n_heads, dim=-1), dim=1).contiguous()


@alternative("tokens last, then a view")
def words_last_then_a_view(x, n_heads):
    """Here a view may stand at the head of the line: the columns come first."""
    return x.mT.unflatten(1, (n_heads, -1)).mT

# ------------------------------------------------------------------------------------------------ one thing changed

@exercise.variation(
    "every h-th column",
    asks="Head 0 has the columns 0, h, 2h, … of every token's vector, head 1 the columns 1, h + 1, …, for h heads.",
    fails=HEADS,
    reference=lambda x, n_heads: torch.stack([x[..., h::n_heads] for h in range(n_heads)], dim=1),
    contract={"Cut every token's vector into one piece for each head.":
              "Deal every token's vector out to the heads, number by number."},
    meanings={"heads": "head 0 has every n_heads-th column of every token, from column 0 on"},
    hints=("Write down d_head first. Then two moves: cut the last axis in two, and after that move one of the two.",
           "Which of the two new axes runs fastest when the last one is cut? It is the head here."),
    without=("every h-th column", "n_heads for the width"),
)
def every_hth_column(x, n_heads):
    batch, n, d_model = x.shape
    pieces = x.view(batch, n, d_model // n_heads, n_heads)
    return pieces.permute(0, 3, 1, 2)


@exercise.variation(
    "heads in front",
    asks="The heads are the first axis: (n_heads, batch, n, d_head).",
    fails=HEADS,
    reference=lambda x, n_heads: torch.stack(x.chunk(n_heads, dim=-1)),
    contract={"returns (batch, n_heads, n, d_head)": "returns (n_heads, batch, n, d_head)"},
    back=lambda heads: heads.transpose(0, 1),
    hints=("Write down d_head first. Then two moves: cut the last axis in two, and after that move the heads.",
           "`x.view(batch, n, n_heads, d_head)` cuts each token's vector into pieces. Where do the heads go?"),
    without=("heads before the batch",),
)
def heads_in_front(x, n_heads):
    batch, n, d_model = x.shape
    pieces = x.view(batch, n, n_heads, d_model // n_heads)
    return pieces.permute(2, 0, 1, 3)
