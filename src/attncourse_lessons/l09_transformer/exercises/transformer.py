"""transformer: Logits of every token of several candidate targets for each source; each source is read once."""

import torch
from torch import nn

from attncourse import attention
from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_missing_gradient, explain_worst
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import apart, gradient_reaches, require_variation

from .common import READY_MADE, _attends, everybody, norms, with_padding


def reference(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """Read once, then write every candidate, shifted by one. Vaswani et al. 2017, figure 1."""
    memory = embed_source(source)
    for block in encoder_blocks:
        memory = block(memory, source_mask)
    memory = encoder_norm(memory)
    k = target.shape[1]
    rows = nn.functional.pad(target, (1, 0), value=bos)[..., :-1].flatten(0, 1)
    mask = attention.causal_mask(target.shape[2])
    x = embed_target(rows)
    for block in decoder_blocks:
        x = block(x, memory.repeat_interleave(k, dim=0), mask, source_mask.repeat_interleave(k, dim=0))
    return output(decoder_norm(x)).unflatten(0, (-1, k))


def solution(
    source, target, source_mask, bos, embed_source, embed_target, encoder_blocks, decoder_blocks,
    encoder_norm, decoder_norm, output
):
    memory = embed_source(source)                          # (batch, n_source, d_model)
    for block in encoder_blocks:
        memory = block(memory, source_mask)
    memory = encoder_norm(memory)

    batch, k, n = target.shape
    begin = torch.full_like(target[..., :1], bos)          # (batch, k, 1)
    shifted = torch.cat([begin, target[..., :-1]], dim=-1)
    x = embed_target(shifted.flatten(0, 1))                # (batch · k, n, d_model)
    memory = memory.repeat_interleave(k, dim=0)            # (batch · k, n_source, d_model)
    memory_mask = source_mask.repeat_interleave(k, dim=0)
    causal = torch.ones(n, n, dtype=torch.bool).tril()     # (n, n)
    for block in decoder_blocks:
        x = block(x, memory, causal, memory_mask)
    logits = output(decoder_norm(x))                       # (batch · k, n, vocab_size)
    return logits.unflatten(0, (batch, k))


exercise = Exercise(
    "transformer",
    reference=reference,
    solution=solution,
    returns=("logits",),
    forbidden=READY_MADE,
    difficulty=3,
    minutes=25,
    hints=(
        "Two loops. The first runs through the encoder's blocks and makes the memory of each source; the second runs "
        "through the decoder's. The blocks take three axes and the candidates have one more: take a loop over the "
        "candidates, or one batch of batch · k rows. Which source belongs to row r of that batch?",
        "The decoder's side. What does it read at position 0 of each candidate? And which mask, (n_target, n_target), "
        "keeps a position from attending to later ones? You are given neither. Then: blocks, norm, output.",
        "The encoder's side: embed, blocks, `encoder_norm`, once for each source, and nothing detached. `source_mask` "
        "hides the source's padding in two places. In the second, every candidate needs the mask of its own source.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _machine(draw, reads=True, looks=True, deeper="encoder"):
    """[source, target, source_mask, bos], and the parts: two, three or four blocks, more in the `deeper` tower.

    Without `looks` the decoder's blocks look at no memory, and with "first" only the first of them does. Tokens that
    ask for a gradient get one: their vectors move, along some direction, with the token's number.
    """
    low, high = sorted(draw.sizes(2, 2, 4))
    n_encoder, n_decoder = (high, low) if deeper == "encoder" else (low, high)
    batch, n_source, n_target, d, k = draw.sizes(5, 3, 8)
    words, bos = 30, 30 + int(draw.integers(3, 1))
    source, target = draw.integers(words, batch, n_source), draw.integers(words, batch, k, n_target)
    tables = [draw.normal(words + 3, d) for _ in range(2)]
    places = draw.normal(64, d)
    attends = [[_attends(draw, d) for _ in range(depth)] for depth in (n_encoder, n_decoder)]
    crosses = [_attends(draw, d) for _ in range(n_decoder)]

    def embed(table):
        def look_up(tokens):
            x = table[tokens.long()] + places[: tokens.shape[-1]]
            return x + (tokens - tokens.detach())[..., None] * table[0] if tokens.is_floating_point() else x

        return look_up

    def encoder_block(attend):
        return lambda x, mask=None: x + attend(x, x, mask)

    def decoder_block(attend, cross, looks):
        def block(x, memory, mask=None, memory_mask=None):
            x = x + attend(x, x, mask) if reads else x
            return x + cross(x, memory, memory_mask) if looks else x

        return block

    rows = draw.normal(d, words)
    parts = [
        *map(embed, tables),
        [encoder_block(attend) for attend in attends[0]],
        [
            decoder_block(attend, cross, looks is True or (looks == "first" and floor == 0))
            for floor, (attend, cross) in enumerate(zip(attends[1], crosses, strict=True))
        ],
        norms(draw, d),
        norms(draw, d),
        lambda x: x @ rows,
    ]
    return [source, target, everybody(batch, 1, n_source), bos], parts


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("logits", points=2, hint=1)
def logits(answer, draw):
    """all logits are right, with an encoder that is deeper than the decoder"""
    inputs, parts = _machine(draw)
    return answer(*inputs, *parts)


@aspect("the decoder alone", points=1, hint=2)
def the_decoder_alone(answer, draw):
    """without a memory, the decoder predicts each token from those before it, through all its blocks"""
    inputs, parts = _machine(draw, looks=False, deeper="decoder")
    return answer(*inputs, *parts)


@aspect("the encoder's memory", points=1, hint=3)
def the_encoders_memory(answer, draw):
    """every block of the decoder attends to the memory, the output of the whole encoder"""
    inputs, parts = _machine(draw, reads=False)
    return answer(*inputs, *parts)[:, :, :1]                              # where only `bos` has been read


@aspect(
    "no target leak",
    points=1,
    hint=2,
    explain=explain_worst("logits {place} change by {size} when only that token, or a later one, does"),
)
def no_target_leak(answer, draw):
    """the logits at a position do not depend on the target's token there, nor on later ones"""
    (source, target, mask, bos), parts = _machine(draw)
    cut = int(draw.integers(target.shape[2] - 1, 1))
    other = torch.cat([target[..., :cut], (target[..., cut:] + 7) % 30], dim=2)
    logits, changed = (answer(source, each, mask, bos, *parts) for each in (target, other))
    if torch.equal(logits, changed):
        raise AspectFailed(Problem("unusable", "changing the target makes no difference"))
    return apart(require_variation(logits[:, :, : cut + 1]), changed[:, :, : cut + 1])


@aspect(
    "source's padding",
    points=1,
    hint=3,
    explain=explain_worst("logits {place} change by {size} when only the source's padding does"),
)
def sources_padding(answer, draw):
    """the padding of the source does not change the logits"""
    (source, target, _, bos), parts = _machine(draw)
    real = with_padding(draw, *source.shape)                              # (batch, n_source)
    other = torch.where(real, source, (source + 11) % 30)
    logits, changed = (answer(each, target, real[:, None], bos, *parts) for each in (source, other))
    if torch.equal(logits, answer((source + 7) % 30, target, real[:, None], bos, *parts)):
        raise AspectFailed(Problem("unusable", "changing the source makes no difference"))
    return apart(require_variation(logits), changed)


@aspect("candidates apart", points=1, hint=1, 
        explain=explain_worst("logits {place} change by {size} when only another candidate does"))
def candidates_apart(answer, draw):
    """the logits of one candidate do not depend on the other candidates"""
    (source, target, mask, bos), parts = _machine(draw)
    logits, differences = answer(source, target, mask, bos, *parts), {}
    for kept in (0, target.shape[1] - 1):                                  # in one row, the first reads no other
        other = (target + 7) % 30
        other[:, kept] = target[:, kept]
        changed = answer(source, other, mask, bos, *parts)
        if torch.equal(logits, changed):
            raise AspectFailed(Problem("unusable", "changing the target makes no difference"))
        differences[kept] = require_variation(logits[:, kept]) - changed[:, kept]
    same = torch.zeros_like(logits[:, 0])
    return torch.stack([differences.get(i, same) for i in range(target.shape[1])], dim=1)


@aspect("each source once", points=2, hint=3, explain=lambda got, expected: f"the encoder was given {int(got)} "
        f"sources, expected {int(expected)}")
def each_source_once(answer, draw):
    """the encoder's blocks read each source once, however many candidates there are"""
    inputs, parts = _machine(draw)
    rows, first = [], parts[2][0]

    def counted(x, mask=None):
        rows.append(x.numel() // (x.shape[-1] * x.shape[-2]))
        return first(x, mask)

    require_variation(answer(*inputs, *parts[:2], [counted, *parts[2][1:]], *parts[3:]))
    return torch.tensor(sum(rows))


@aspect("gradient", points=1, hint=3, explain=explain_missing_gradient("source's tokens"))
def gradient(answer, draw):
    """the gradient reaches the tokens of the source, through the whole decoder and the whole encoder"""
    (source, *inputs), parts = _machine(draw, looks="first")
    source = source.float().requires_grad_()
    logits = answer(source, *inputs, *parts)
    reached = gradient_reaches(logits, [source], draw)
    return reached | torch.equal(logits, answer((source.detach() + 7) % 30, *inputs, *parts))  # unheard: not this fault


# -------------------------------------------------------------------------------------- one slip away from the solution

WRITES, READS = ("logits", "the decoder alone"), ("logits", "the encoder's memory")
EVERY = tuple(aspect.name for aspect in exercise.aspects)
PEEKS, BOTH = (*WRITES, "no target leak"), (*WRITES, "the encoder's memory")
SHIFTED, HEARS = "shifted = torch.cat([begin, target[..., :-1]], dim=-1)", "block(memory, source_mask)"
ENCODES = f"for block in encoder_blocks:\n    memory = {HEARS}\n"
MEMORY, MASK = "memory.repeat_interleave(k, dim=0)", "source_mask.repeat_interleave(k, dim=0)"

slip("no shift", (*BOTH, "no target leak"), {SHIFTED: "shifted = target"}, words="""
    The decoder read the target as it is: at each place the very token that it is to predict there. A causal mask
    does not help against that, because it lets every position see itself.""")
slip("rolled, not shifted", (*BOTH, "no target leak"), {SHIFTED: "shifted = target.roll(1, dims=-1)"}, words="""
    The target was rolled round: what fell off its end came in again at the front, where <bos> belongs. So the first
    position reads the last token of the sentence that it is to predict.""")
slip("another source's memory", READS,
     {MEMORY: "memory.repeat(k, 1, 1)", MASK: "source_mask.repeat(k, 1, 1)"},
     words="""
    The candidates attended to the sources in turn: row 0 to source 0, row 1 to source 1, and so on. But all k
    candidates of source 0 stand first. (`repeat` gives 0 1 2 0 1 2, `repeat_interleave` gives 0 0 1 1 2 2.) Nothing
    crashes.""")
slip("the mask of another source", ("source's padding",), {MASK: "source_mask.repeat(k, 1, 1)"}, words="""
    The memory went to its own candidates, and its mask to others: `repeat` gives 0 1 2 0 1 2, `repeat_interleave`
    gives 0 0 1 1 2 2. What is done to the memory must be done to its mask.""")
slip("the source read for every candidate", ("each source once",),
     {"memory = embed_source(source)": "k = target.shape[1]\nsource_mask = source_mask.repeat_interleave(k, dim=0)\n"
                                       "memory = embed_source(source.repeat_interleave(k, dim=0))",
      MEMORY: "memory", MASK: "source_mask"},
     words="""
    The logits are right, and the encoder did k times the work: it read the same source once for each candidate. The
    memory does not depend on the candidate. Read each source once, and repeat what came out.""")
slip("the candidates in one row", (*PEEKS, "the encoder's memory", "candidates apart"),
     {"shifted.flatten(0, 1)": "shifted.flatten(1)", MEMORY: "memory", MASK: "source_mask",
      "torch.ones(n, n,": "torch.ones(k * n, k * n,", "logits.unflatten(0, (batch, k))": "logits.unflatten(1, (k, n))"},
     words="""
    The candidates of a source stood one behind the other, as one long text, so the second one read the first. Each
    candidate is a text of its own, which begins with `bos` at position 0: it belongs to the batch.""")
slip("no causal mask", PEEKS,
     {", causal,": ", None,"},
     {".tril()": ""},  # a mask of True
     words="""
    The input was shifted, and then every position was free to attend to its right, where the answer stands one place
    further on. The shift and the mask need each other.""")
slip("the mask's other half", PEEKS, {"tril": "triu"}, words="""
    The mask allows the future and forbids the past. True means "may attend": query i is a row, key j a column.
    Which triangle is j ≤ i?""")
slip("a position that may attend to nothing", (*PEEKS, "source's padding", "candidates apart", "gradient"),
     {"tril()": "tril(diagonal=-1)"},
     {"tril()": "triu(diagonal=1)"},  # True where it is forbidden
     words="""
    One position may attend to nothing: the first, if the diagonal is forbidden; the last, if True stands for
    "forbidden". Softmax over nothing is NaN. True means "may attend"; and the input has been shifted, so that what
    stands at a position has been written already, and may be read.""")
slip("one <bos> for the whole batch", (*BOTH, "no target leak", "candidates apart"),
     {SHIFTED: "shifted = torch.cat([begin.flatten()[:1], target.flatten()[:-1]]).view_as(target)"}, words="""
    All candidates were shifted as one long text, so each but the first begins with the last token of its neighbour.
    Every candidate begins with a `bos` of its own: shift along the last axis.""")
slip("un-normed memory", READS, {"memory = encoder_norm(memory)\n": ""}, words="""
    The memory left the encoder without its norm. The stack ends in one, and no block of the decoder does its work.""")
slip("un-normed logits", BOTH, {"decoder_norm(x)": "x"}, words="""
    The decoder's states went into the output without the last norm. The encoder ends in a norm, and so does the
    decoder.""")
slip("a memory for each block", READS,
     {f"{ENCODES}memory = encoder_norm(memory)\n": "",
      f"memory = {MEMORY}": "", f"memory_mask = {MASK}": "",
      "for block in decoder_blocks:\n": "for floor, block in enumerate(decoder_blocks):\n"
                                        "    for read in encoder_blocks[floor : floor + 1]:\n"
                                        "        memory = read(memory, source_mask)\n",
      "memory, causal, memory_mask": "encoder_norm(memory).repeat_interleave(k, dim=0), causal, " + MASK},
     words="""
    Each block of the decoder attended to the encoder's block with the same number. In the picture the two stacks
    stand side by side, and it may look that way; but one arrow leaves the encoder, at its top, and goes to all the
    decoder's blocks.""")
slip("stacks of one height", BOTH,
     {"block in encoder_blocks": "block, _ in zip(encoder_blocks, decoder_blocks)",
      "block in decoder_blocks": "_, block in zip(encoder_blocks, decoder_blocks)"},
     {"in encoder_blocks": "in encoder_blocks[:2]", "in decoder_blocks": "in decoder_blocks[:2]"},
     words="""
    Not all blocks were used: their number was written into the code, or taken from the other stack. Encoder and decoder
    each have as many blocks as their own list is long.""")
slip("the encoder left out", (*READS, "each source once"), {ENCODES: ""}, words="""
    The decoder attended to the source's embeddings: tokens that have not read each other. The memory is what comes
    out of the encoder's last block, and its norm.""")
slip("blocks that start over", BOTH,
     {HEARS: "block(embed_source(source), source_mask)", "block(x,": "block(embed_target(shifted.flatten(0, 1)),"},
     words="""
    Every block was given the embeddings, and only what the last one made was kept. A stack is a chain: each block
    starts from what the one below has made.""")
slip("masks exchanged", EVERY, {"causal, memory_mask": "memory_mask, causal"}, words="""
    The two masks that a decoder's block takes have changed places. First comes the one about the target's own
    positions, (n_target, n_target), then the one about the memory, (…, 1, n_source). If source and target were
    equally long, nothing would crash.""")
slip("the source's table for the target", BOTH, {"embed_target(": "embed_source("}, words="""
    The target's tokens were looked up in the *source's* table. The two languages have tables of their own:
    `embed_target` is the target's.""")
slip("cut off from the gradient", ("gradient",),
     {"= encoder_norm(memory)": "= encoder_norm(memory).detach()"},
     {"block(x, memory": "block(x.detach(), memory"},  # in the decoder
     {HEARS: "block(memory.detach(), source_mask)"},  # in the encoder
     words="""
    The logits are right, but no gradient gets from them to the source: `.detach()`, `.data` and `torch.no_grad()`
    forget where numbers came from. The encoder has no loss of its own: it learns through the decoder, or not at all.
    """)
slip("the source's padding attended to", ("source's padding",),
     {"causal, memory_mask": "causal, None"},
     {HEARS: "block(memory, None)"},  # by the encoder
     {"causal, memory_mask": "causal, None", HEARS: "block(memory, None)"},  # by both
     words="""
    The padding was attended to. The source's mask is needed twice: by the encoder, whose tokens attend to each other,
    and by the decoder, which looks at the memory.""")
slip("probabilities for logits", BOTH,
     {"output(decoder_norm(x))": "output(decoder_norm(x)).softmax(dim=-1)"},
     words="""
    A softmax was put after the output. The contract wants the scores from before it: the cross entropy takes the
    logarithm of the softmax itself, in one stable step, and a second softmax would flatten the first.""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("functions for the two sides, one candidate at a time")
def functions_for_the_two_sides(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """No memory is repeated."""

    def encode(x):
        for block in encoder_blocks:
            x = block(x, source_mask)
        return encoder_norm(x)

    def decode(x, memory):
        position = torch.arange(x.shape[1])
        mask = position <= position[:, None]
        for block in decoder_blocks:
            x = block(x, memory, mask, source_mask)
        return decoder_norm(x)

    memory = encode(embed_source(source))
    target_in = target.roll(1, dims=2)
    target_in[..., 0] = bos
    return torch.stack([output(decode(embed_target(row), memory)) for row in target_in.unbind(1)], dim=1)


@alternative("by index, and a mask for each sentence")
def by_index_and_a_mask_for_each_sentence(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """The causal mask is (batch · k, n, n), and rows are gathered by the number of their source."""
    batch, k, n = target.shape
    memory = embed_source(source)
    for i in range(len(encoder_blocks)):
        memory = encoder_blocks[i](memory, source_mask)
    of_source = torch.arange(batch * k) // k
    memory = encoder_norm(memory)[of_source]
    mask = ~torch.triu(torch.ones(batch * k, n, n, dtype=torch.bool), diagonal=1)
    x = embed_target(nn.functional.pad(target, (1, 0), value=bos)[..., :-1].reshape(batch * k, n))
    for i in range(len(decoder_blocks)):
        x = decoder_blocks[i](x, memory, mask, source_mask[of_source])
    return output(decoder_norm(x)).double().view(batch, k, n, -1)


@alternative("word by word")
def word_by_word(
    source, target, source_mask, bos, embed_source, embed_target,
    encoder_blocks, decoder_blocks, encoder_norm, decoder_norm, output,
):  # fmt: skip
    """As in writing: one pass for each place, over what came before it; the memory expanded, and nothing copied."""
    batch, k, length = target.shape
    memory = embed_source(source)
    for block in encoder_blocks:
        memory = block(memory, source_mask)
    memory = encoder_norm(memory)[:, None].expand(-1, k, -1, -1).flatten(0, 1)
    memory_mask = source_mask[:, None].expand(-1, k, -1, -1).flatten(0, 1)
    rows = target.flatten(0, 1)
    target_in = torch.cat([torch.full((len(rows), 1), bos), rows[:, :-1]], dim=1)
    columns = []
    for n in range(1, length + 1):
        x = embed_target(target_in[:, :n])
        for block in decoder_blocks:
            x = block(x, memory, torch.ones(n, n).tril() == 1, memory_mask)
        columns.append(output(decoder_norm(x))[:, -1])
    return torch.stack(columns, dim=1).view(batch, k, length, -1)
