# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @transformer · The Transformer
#
# In this assignment you assemble models from the parts of [lecture @transformer](@transformer). The lecture printed a
# pre-norm Transformer, but copying it does not help here. You build two blocks whose norms are in other places than
# the lecture's, prepare a real batch of sentences, and assemble a whole Transformer that compares several translations
# of one source. Then you count a GPT's parameters exactly, and build a language model with parameters of its own.
# Exercise 7 is the gated feed-forward network of newer models.
#
# In exercises 1, 2 and 4 you get the parts as functions: attention, feed-forward networks and norms. You connect them,
# and the check tests only the connections. Under each exercise there is a check. Your points come from another check,
# on other numbers and other sizes.
#
# Two rules hold throughout. Return new tensors, and do not change the tensors that come in. Let a gradient through
# wherever something is to be learned.
#
# {exercises}
#
# If you are stuck, `hint("encoder_block", 1)` prints a hint. The later hints of an exercise tell more. Answers that
# call the course's own blocks or torch's are refused.

# %% locked=true
try:
    from attncourse import check, hint, solved
except ModuleNotFoundError:
    raise ImportError(
        "This notebook needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [markdown]
# ## 1 · An encoder block with sandwich norms
#
# Gemma 2 and 3 have *four* norms in a block, which [lecture @deep_stacks](@deep_stacks) calls **sandwich norms**. Each
# sublayer, first attention and then the feed-forward network, has one norm before it and another one after it. Both
# norms are on the branch: the residual path from x to the output contains only sums. Attention has `norm_1` before it
# and `norm_2` after it. The feed-forward network has `norm_3` before it and `norm_4` after it.
#
# The attention takes three arguments, `attention(x, memory, mask)`: the sequence that makes the queries, the sequence
# that makes the keys and values, and a mask that says which positions of the memory hold a token. In self-attention
# one sequence makes queries, keys and values.

# %% exercise="encoder_block"
def encoder_block(
    x: Tensor, mask: Tensor, attention, feed_forward, norm_1, norm_2, norm_3, norm_4
) -> Tensor:
    """One block of an encoder, with a norm before each sublayer and one after it.

    x: (batch, n, d_model)   mask: (batch, 1, n), True where there is a token
    attention(x, memory, mask) -> (batch, n, d_model)
    feed_forward(x) and the four norms, norm(x) -> (batch, n, d_model)
    returns (batch, n, d_model)
    """
    ...  # solution

# %% check="encoder_block"
check("encoder_block", encoder_block)

# %% [markdown]
# **Use it.** (1) If the two norms after the sublayers do nothing, a sandwich block is a pre-norm block. With torch's
# sublayers it must then compute what torch's own block computes. (2) What are the norms after the sublayers good for?
# The cell stacks thirty-two blocks with random sublayers, and multiplies the sublayers' outputs by 1, 10
# or 100. *Guess* the size of x at the top, the root of its mean square, with these norms and without them.

# %%
if solved("encoder_block"):
    torch.manual_seed(0)
    options = {"dropout": 0.0, "batch_first": True, "norm_first": True}
    theirs = nn.TransformerEncoderLayer(16, 4, 32, **options)

    def their_attention(x, memory, mask):
        return theirs.self_attn(x, memory, memory, key_padding_mask=~mask[:, 0])[0]

    def their_network(x):
        return theirs.linear2(theirs.linear1(x).relu())

    x, mask = torch.randn(2, 5, 16), torch.tensor([[[True] * 5], [[True] * 3 + [False] * 2]])
    nothing = nn.Identity()
    with torch.no_grad():
        parts = their_attention, their_network, theirs.norm1, nothing, theirs.norm2, nothing
        yours = encoder_block(x, mask, *parts)
        expected = theirs(x, src_key_padding_mask=~mask[:, 0])
    worst = (yours - expected)[mask[:, 0]].abs().max().item()
    print(f"with nothing after them, you and nn.TransformerEncoderLayer differ by {worst:.0e}")

    def size_at_the_top(scale, after, depth=32, d=64):
        torch.manual_seed(0)
        x, everybody, norm = torch.randn(4, 10, d), torch.ones(4, 1, 10) > 0, nn.LayerNorm(d)
        back = norm if after else nn.Identity()
        for _ in range(depth):
            W, U = torch.randn(2, d, d) / math.sqrt(d)

            def attend(x, memory, mask, W=W):
                scores = x @ memory.mT / math.sqrt(d)
                return scale * scores.softmax(dim=-1) @ memory @ W

            def network(x, U=U):
                return scale * (x @ U).relu()

            x = encoder_block(x, everybody, attend, network, norm, back, norm, back)
        return x.square().mean().sqrt().item()

    for scale in (1, 10, 100):
        without, after = (size_at_the_top(scale, after) for after in (False, True))
        print(f"outputs times {scale:>3}: size {without:7.1f} without norms after "
              f"the sublayers, {after:.1f} with them")
    print(f"a random walk of 64 steps of size one: {math.sqrt(1 + 64):.1f}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# (1) The difference is only rounding: without the norms after the sublayers your block equals torch's. (2) Without
# these norms x grows in proportion to the sublayers' outputs, to 14, 142 and 1,418. With a norm after it, every
# sublayer adds a step of the same size, whatever its own scale. So x ends at 7.8 each time, close to the 8.1 of a
# random walk, and no sublayer can drown out the others.</details>

# %% [markdown]
# ## 2 · The decoder block of 2017
#
# The lecture's code is pre-norm. Now build the decoder block as figure 1 of the paper draws it. It has three
# sublayers, causal self-attention, cross-attention and the feed-forward network, and each is followed by a box "Add &
# Norm". In cross-attention the queries come from the decoder, and the keys and values from the memory.
#
# There are two masks. `mask` says which of the decoder's own positions may attend to which, and `memory_mask` says
# which positions of the memory hold a token.

# %% exercise="decoder_block"
def decoder_block(
    x: Tensor, memory: Tensor, mask: Tensor, memory_mask: Tensor,
    attention, cross_attention, feed_forward, norm_1, norm_2, norm_3,
) -> Tensor:
    """One block of the decoder of 2017, with cross-attention to a memory.

    x: (batch, n, d_model)   memory: (batch, n_memory, d_model)
    mask: (n, n), True where a position may attend to another
    memory_mask: (batch, 1, n_memory), True where there is a token
    attention(x, memory, mask), cross_attention(x, memory, mask) -> (batch, n, d_model)
    feed_forward(x), norm_1(x), norm_2(x), norm_3(x) -> (batch, n, d_model)
    returns (batch, n, d_model)
    """
    ...  # solution

# %% check="decoder_block"
check("decoder_block", decoder_block)

# %% [markdown]
# **Use it.** Is your block *the* decoder block of the paper? By default torch's `nn.TransformerDecoderLayer` has the
# order of 2017. Your function gets the sublayers and the weights of such a layer. Then one token of the second text's
# memory changes, at place 1 or at place 5. That text has four tokens, and the rest is padding. *Guess* how many of the
# five rows of the block's output change.

# %%
if solved("decoder_block"):
    torch.manual_seed(0)
    theirs = nn.TransformerDecoderLayer(16, 4, 32, dropout=0.0, batch_first=True).eval()

    def by_torch(layer):
        def attend(x, memory, mask):
            if mask.dim() == 2:
                return layer(x, memory, memory, attn_mask=~mask)[0]
            return layer(x, memory, memory, key_padding_mask=~mask[:, 0])[0]
        return attend

    def their_network(x):
        return theirs.linear2(theirs.linear1(x).relu())

    x, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    causal, real = torch.ones(5, 5).tril() > 0, torch.arange(7) < torch.tensor([[7], [4]])
    parts = by_torch(theirs.self_attn), by_torch(theirs.multihead_attn), their_network
    norms = theirs.norm1, theirs.norm2, theirs.norm3
    with torch.no_grad():
        yours = decoder_block(x, memory, causal, real[:, None], *parts, *norms)
        expected = theirs(x, memory, tgt_mask=~causal, memory_key_padding_mask=~real)
    worst = (yours - expected).abs().max().item()
    print(f"your block and nn.TransformerDecoderLayer differ by at most {worst:.0e}")
    for place in (1, 5):
        other = memory.clone()
        other[1, place] += torch.randn(16)
        with torch.no_grad():
            change = decoder_block(x, other, causal, real[:, None], *parts, *norms) - yours
        moved = (change[1].abs().amax(dim=-1) > 1e-6).sum()
        print(f"token {place} of the second memory changes: so do {moved} of the 5 rows")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Your block and torch's differ only by rounding. All five rows depend on each real token of the memory:
# cross-attention is not causal, because the whole source is known before the first token is written. No row depends on
# padding. A block without `memory_mask` would show 5 in both lines.</details>

# %% [markdown]
# ## 3 · A batch for teacher forcing
#
# The lecture shifted one sentence. A batch has sentences of different lengths, and here none of them ends with `eos`
# yet. At position $t$ the decoder reads what has been written before, and must predict what comes next. The row that
# it reads begins with `bos`, which is never predicted. The row that it predicts ends with `eos`, which is never read.
# After the end of a sentence both rows hold `pad`. A sentence may be empty. What `target` holds after the end of a
# sentence is not defined.

# %% exercise="shift_right"
def shift_right(
    target: Tensor, lengths: Tensor, bos: int, eos: int, pad: int
) -> tuple[Tensor, Tensor]:
    """What the decoder reads, and what it must predict, for sentences of different lengths.

    target: (batch, n), whole numbers, n at least 1: sentence b is its first lengths[b] tokens
    lengths: (batch,), from 0 to n
    returns target_in and target_out, (batch, n + 1) each, whole numbers, in this order
    """
    ...  # solution

# %% check="shift_right"
check("shift_right", shift_right)

# %% [markdown]
# **Use it.** The package makes its training batches with its own function, `collate`. Does your function return the
# same rows as the package for three pairs of sentences? (They are given as token ids; padding is 0, `bos` 1 and `eos`
# 2.) *Guess* how many of the twelve places of `target_out` count for the loss.

# %%
if solved("shift_right"):
    from attncourse.data import EncodedPair, collate

    pairs = ([5, 6], [7, 8, 9]), ([5], [9]), ([6], [4, 4])
    batch = collate([EncodedPair(source, target) for source, target in pairs])
    print("the package reads   ", batch.target_in.tolist())
    print("the package predicts", batch.target_out.tolist())
    target = torch.tensor([[7, 8, 9], [9, 0, 0], [4, 4, 0]])
    mine = shift_right(target, torch.tensor([3, 1, 2]), bos=1, eos=2, pad=0)
    for name, row in zip(("reads", "predicts"), mine, strict=True):
        print(f"yours {name:>8}:", row.tolist())
    counted = int((mine[1] != 0).sum())
    print(f"the loss is computed at {counted} of {mine[1].numel()} places: padding is left out")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Your rows are the same as the package's. The loss is computed at 9 of the 12 places: at six tokens, and at an `eos`
# for each of the three sentences. From `eos` the model also learns where to stop.</details>

# %% [markdown]
# ## 4 · The whole Transformer, for several candidates
#
# A model often has to judge several texts for one source: in beam search, and in **reranking**, where candidates come
# from elsewhere and the most probable one is chosen. Then each source has k candidate targets. Predict every token of
# every candidate from the tokens before it, all in one pass. No candidate may influence another, and the encoder must
# read each source *once*, not k times.
#
# The embedding functions add the positions themselves. The embeddings and the blocks take at most three axes: rows of
# tokens (rows, n), and vectors (rows, n, d_model). Each list has one entry per block, and the two lists need not have
# the same length. Each of the two stacks ends with its own norm. `output` turns each state into a row of logits.
#
# You do *not* get what keeps the decoder from reading its answers, so make it yourself. All candidates have the same
# length.

# %% exercise="transformer"
def transformer(
    source: Tensor, target: Tensor, source_mask: Tensor, bos: int,
    embed_source, embed_target, encoder_blocks: list, decoder_blocks: list,
    encoder_norm, decoder_norm, output,
) -> Tensor:
    """Logits of every token of k candidate targets for each source; each source is read once.

    source: (batch, n_source)   target: (batch, k, n_target)
    source_mask: (batch, 1, n_source), True where there is a token
    embed_source(tokens), embed_target(tokens): (rows, n) -> (rows, n, d_model), with positions
    each encoder block: block(x, mask) -> x
    each decoder block: block(x, memory, mask, memory_mask) -> x, with masks as in exercise 2
    encoder_norm(x), decoder_norm(x) -> x   output(x) -> (rows, n_target, vocab_size)
    returns (batch, k, n_target, vocab_size): at [b, c, t] the logits of target[b, c, t]
    """
    ...  # solution

# %% check="transformer"
check("transformer", transformer)

# %% [markdown]
# **Use it.** If the checks of exercises 1, 2 and 4 are green, you have written a Transformer. The cell gives your
# functions layers with parameters: a sandwich encoder and a decoder of 2017. Your model learns in a few seconds to
# write a row of letters backwards. Then it becomes a judge, and gets each source with five candidates. *Guess* how
# often the right candidate is the most probable one. Two wrong candidates are nearly right: in one of them the last
# letter is wrong; in the other, two neighbouring letters are swapped. Which is less probable, and by how much?

# %%
if solved("encoder_block") and solved("decoder_block") and solved("transformer"):
    from attncourse.attention import MultiHeadAttention
    from attncourse.layers import FeedForward

    class Backwards(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.letters, self.positions = nn.Embedding(27, d), nn.Embedding(16, d)
            self.attentions = nn.ModuleList(MultiHeadAttention(d, 4) for _ in range(3))
            self.networks = nn.ModuleList(FeedForward(d, 64) for _ in range(2))
            self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(9))
            self.output = nn.Linear(d, 27)

        def embed(self, tokens):
            return self.letters(tokens) + self.positions.weight[: tokens.shape[1]]

        def read(self, x, mask):
            return encoder_block(x, mask, self.attentions[0], self.networks[0], *self.norms[:4])

        def write(self, x, memory, mask, memory_mask):
            parts = *self.attentions[1:], self.networks[1], *self.norms[4:7]
            return decoder_block(x, memory, mask, memory_mask, *parts)

        def forward(self, source, target):
            real = torch.ones(len(source), 1, source.shape[1], dtype=torch.bool)
            stacks = self.embed, self.embed, [self.read], [self.write]
            return transformer(source, target, real, 0, *stacks, *self.norms[7:], self.output)

    torch.manual_seed(0)
    model = Backwards()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(1, 151):
        source = torch.randint(1, 27, (32, 8))
        target = source.flip(1)[:, None]                                  # one candidate each
        loss = F.cross_entropy(model(source, target).flatten(0, 2), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"after {step} steps: loss {loss.item():.2f} nats per letter")

    source = torch.randint(1, 27, (500, 8))
    right = source.flip(1)
    neighbours = right.clone()
    neighbours[:, [3, 4]] = right[:, [4, 3]]
    ending = right.clone()
    ending[:, -1] = right[:, -1] % 26 + 1                                 # the next letter
    candidates = {"right": right, "last letter wrong": ending,
                  "two letters exchanged": neighbours, "not reversed": source,
                  "of another source": right.roll(1, dims=0)}
    target = torch.stack(list(candidates.values()), dim=1)                # (500, k, 8)
    with torch.no_grad():
        log_p = model(source, target).log_softmax(dim=-1)                 # (500, k, 8, 27)
    score = log_p.gather(3, target[..., None])[..., 0].sum(dim=2)         # (500, k)
    behind = (score[:, :1] - score).mean(dim=0)                           # (k,)
    for c, name in enumerate(candidates):
        chosen = (score.argmax(dim=1) == c).float().mean()
        print(f"{name:>22}: chosen {chosen:4.0%}, less probable by {behind[c]:5.1f} nats")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The right candidate wins every time. One wrong letter costs 9.5 nats, and two cost 18.4, about twice as much: the model
# is sure of each letter, and a sum of logarithms punishes each wrong letter by itself.</details>

# %% [markdown]
# ## 5 · The parameters of a GPT, exactly
#
# The lecture's rule $12\,L\,d^2$ leaves out biases, norms and embeddings, and it assumes that $h\,d_k = d$. Now count
# exactly. You need no tensor, only arithmetic. The model consists of
#
# * a table of `vocab_size` token vectors and a table of `max_length` position vectors, both `d_model` wide (the
#   output, which turns vectors back into logits of tokens, uses the tokens' table again, so it is *tied*, and it has
#   no bias);
# * `n_layers` blocks, each with a multi-head attention of `n_heads` query heads and `n_kv_heads` heads of keys and
#   values, all `d_head` wide, and a feed-forward network of two linear layers, `d_model → d_ff → d_model` (all six
#   linear layers have biases);
# * LayerNorms of width `d_model`, each with a gain and a bias: one before each attention, one before each feed-forward
#   network, and one after the last block.
#
# In most models `n_heads * d_head` equals `d_model`. In this function it need not.

# %% exercise="count_parameters"
def count_parameters(
    vocab_size: int, max_length: int, n_layers: int, d_model: int,
    n_heads: int, n_kv_heads: int, d_head: int, d_ff: int,
) -> tuple[int, int, int, int]:
    """How many numbers a GPT learns, by what they are for.

    returns embeddings (tokens and positions), attention, feed_forward, norms, in this order,
    each for the whole model
    """
    ...  # solution

# %% check="count_parameters"
check("count_parameters", count_parameters)

# %% [markdown]
# **Use it.** Your function counts published models. GPT-2 small, as released, has 124,439,808 parameters. *Guess*
# which part of GPT-2 has the most parameters, and which part of GPT-3. GPT-3 read 300 billion tokens. *Guess* how many
# days this would take on 1,000 GPUs, at 4 · 10¹⁴ FLOPs per second each, and how many tokens the rule of 20 would give
# it.

# %%
if solved("count_parameters"):
    published = {"GPT-2": (1024, 12, 768, 12), "GPT-2 XL": (1024, 48, 1600, 25),
                 "GPT-3": (2048, 96, 12288, 96)}
    for name, (length, layers, width, heads) in published.items():
        d_head = width // heads
        parts = count_parameters(50257, length, layers, width, heads, heads, d_head, 4 * width)
        named = zip(("embeddings", "attention", "feed-forward", "norms"), parts, strict=True)
        shares = ", ".join(f"{part} {n / sum(parts):.1%}" for part, n in named)
        print(f"{name:>8}: {sum(parts):>15,}   {shares}")
    N, D = sum(parts), 300e9                                              # of GPT-3
    days = 6 * N * D / (1000 * 4e14) / (24 * 3600)
    print(f"   GPT-3: 6 N D = {6 * N * D:.2e} FLOPs, {days:.1f} days on 1,000 GPUs; "
          f"the rule of 20: {20 * N / 1e12:.1f} trillion tokens")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The feed-forward networks have the most parameters: 45.5% in GPT-2 and 66.4% in GPT-3, twice as many as attention.
# The embeddings have nearly a third of GPT-2's parameters, so a second table for the output would cost much there. In
# GPT-3 they have 0.4%, so tying saves next to nothing. The norms are never a visible share. GPT-3's training would take
# about nine days. The rule of 20 asks for more than ten times as many tokens as GPT-3 read.</details>

# %% [markdown]
# ## 6 · A language model of your own
#
# Now build a whole model as a module, with all its parameters: a decoder-only model of GPT-2's shape. The block is
# given, and you write both methods. The parts that `__init__` makes have fixed names, as in a checkpoint:
#
# * `tokens` and `positions`: one `nn.Embedding` each, for vocab_size tokens and for max_length places. Both begin as
#   normally distributed random numbers with standard deviation 0.02.
# * `blocks`: `n_layers` blocks, each with its own parameters, in a container that registers them.
# * `norm`: an `nn.LayerNorm` after the last block.
#
# Nothing else is learned, because the output is **tied**. The logit of a token is the dot product of the state, after
# the norm, with that token's row of `tokens`. The logits at place $t$ are for the token at $t + 1$, so no place may
# see what comes after it. Texts have any length up to max_length, and no text is padded.

# %% locked=true
class Block(nn.Module):
    """A pre-norm block, as in GPT-2."""

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.norm_1 = nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model)        # queries, keys, values of all heads
        self.output = nn.Linear(d_model, d_model)
        self.norm_2 = nn.LayerNorm(d_model)
        self.feed_forward = nn.Sequential(
            nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x: (batch, n, d_model)   mask: (n, n), True where a row may attend to a column"""
        heads = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.n_heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)      # (batch, n_heads, n, d_head) each
        scores = query @ key.mT / math.sqrt(key.shape[-1])
        weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
        x = x + self.output((weights @ value).transpose(1, 2).flatten(2))
        return x + self.feed_forward(self.norm_2(x))

# %% exercise="DecoderLM"
class DecoderLM(nn.Module):
    """A decoder-only language model."""

    def __init__(
        self, vocab_size: int, max_length: int, d_model: int, n_heads: int, n_layers: int
    ):
        ...  # solution

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (batch, n), whole numbers, n at most max_length

        returns logits, (batch, n, vocab_size)
        """
        ...  # solution

# %% check="DecoderLM"
check("DecoderLM", DecoderLM)

# %% [markdown]
# **Use it.** How many parameters does your model have at the size of GPT-2 small? The released model has 124,439,808.
# (On torch's device "meta", tensors have shapes but take no memory.) Then the cell trains a small model on English
# number words, letter by letter, and lets it write. *Guess* the loss at the start, before the model has learned
# anything.

# %%
if solved("DecoderLM"):
    from attncourse.data import number_words

    with torch.device("meta"):
        gpt2 = DecoderLM(50_257, max_length=1024, d_model=768, n_heads=12, n_layers=12)
    print(f"GPT-2 small: {sum(p.numel() for p in gpt2.parameters()):,} parameters")

    words = [pair.source for pair in number_words("en", "de", train=2000, test=1).train]
    text = "\n".join(words)
    letters = sorted(set(text))
    ids = torch.tensor([letters.index(letter) for letter in text])
    torch.manual_seed(0)
    model = DecoderLM(len(letters), max_length=48, d_model=48, n_heads=4, n_layers=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    even = math.log(len(letters))
    print(f"{len(letters)} letters: knowing nothing costs {even:.2f} nats per letter")
    for step in range(301):
        starts = torch.randint(len(ids) - 49, (16, 1))
        batch = ids[starts + torch.arange(49)]                   # (16, 49)
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step:>3}: {loss.item():.2f} nats per letter")
    written = torch.tensor([[letters.index("\n")]])
    with torch.no_grad():
        for _ in range(160):
            probabilities = model(written[:, -48:])[:, -1].softmax(dim=-1)
            written = torch.cat([written, torch.multinomial(probabilities, 1)], dim=1)
    print("it writes:", "".join(letters[i] for i in written[0].tolist()))

# %% [markdown]
# <details><summary>What to see</summary>
#
# The loss starts near 3.61, the loss of an even guess among 37 letters. It falls to 0.54. The model writes mostly
# number words. A few are mixtures of two words, because it writes one letter at a time.</details>

# %% [markdown]
# **Load a checkpoint into it.** The cell saves a model of the package, in GPT-2's shape and with random weights, in
# GPT-2's format. Each of its tensors has a place in your model. The same lines load the published weights. The
# published model has 12 blocks of width 768, and your model from above has room for all its 124,439,808 numbers. (Its
# GELU is the tanh form, `nn.GELU("tanh")`. Its file also holds a causal mask for each block, `attn.bias`, which the
# loop leaves out.)

# %%
if solved("DecoderLM"):
    import tempfile

    from safetensors.torch import load_file

    from attncourse import pretrained
    from attncourse.transformer import LanguageModel, TransformerConfig

    config = TransformerConfig(
        vocab_size=64, d_model=32, n_layers=2, positions="learned", activation="gelu",
        max_length=16,
    )
    theirs = LanguageModel(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        pretrained.save(theirs, folder, "gpt2")
        tensors = load_file(f"{folder}/model.safetensors")
    print(len(tensors), "tensors, as", *list(tensors)[:3], "…")

    def place_of(name):
        """Where your model keeps what GPT-2's checkpoint calls by this name."""
        for gpt2, yours in {
            "transformer.": "", "wte": "tokens", "wpe": "positions", "h.": "blocks.",
            "ln_1": "norm_1", "ln_2": "norm_2", "ln_f": "norm",
            "attn.c_attn": "qkv", "attn.c_proj": "output",
            "mlp.c_fc": "feed_forward.0", "mlp.c_proj": "feed_forward.2",
        }.items():
            name = name.replace(gpt2, yours)
        return name

    yours = DecoderLM(vocab_size=64, max_length=16, d_model=32, n_heads=4, n_layers=2)
    state = {}
    for name, tensor in tensors.items():
        if name.endswith(".attn.bias"):                               # a mask, no parameter
            continue
        is_table = "wte" in name or "wpe" in name
        state[place_of(name)] = tensor if is_table else tensor.t()        # theirs: (in, out)
    yours.load_state_dict(state)
    tokens = torch.randint(64, (2, 9))
    with torch.no_grad():
        worst = (yours(tokens) - theirs(tokens)).abs().max().item()
    print(f"your logits and theirs differ by at most {worst:.0e}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The logits agree up to rounding, so every tensor is in its place. `load_state_dict` compares only names and shapes.
# `attn.c_proj.weight` is square, so if you forget to transpose it, no error is raised, and only this comparison of
# logits shows it.</details>

# %% [markdown]
# ## 7 · A gated feed-forward network: SwiGLU
#
# Today's language models have this network instead of the feed-forward network with ReLU. Two products lead from
# `d_model` to `d_ff`. The product with `W_gate` goes through $\operatorname{silu}(z) = z \cdot \sigma(z)$, where σ is
# the logistic sigmoid, and becomes the *gate*, which multiplies the product with `W_up` element by element. A product
# with `W_down` leads back to `d_model`. There are no biases. (`F.silu` and
# `torch.sigmoid` are allowed.) Before you code, write the network on paper as one formula, with the shape of each part.
#
# $x$ may have any number of axes before the last one. Its numbers may be large, but the output and the gradient must
# stay finite.

# %% exercise="swiglu"
def swiglu(x: Tensor, W_gate: Tensor, W_up: Tensor, W_down: Tensor) -> Tensor:
    """A gated feed-forward network, without biases.

    x: (..., d_model)   W_gate, W_up: (d_model, d_ff)   W_down: (d_ff, d_model)
    returns (..., d_model)
    """
    ...  # solution

# %% check="swiglu"
check("swiglu", swiglu)

# %% [markdown]
# **Use it.** The lecture's kept checkpoint has a gated network in each block. The cell replaces it with yours, keeps
# the checkpoint's matrices, and measures the loss on the docstrings of Python's module `math`. Then it gives your
# function `W_up` and `W_gate` in the wrong order. *Guess:* would the wrong order matter to a model that is trained
# with it from the start? Does it matter to this checkpoint?

# %%
if solved("swiglu"):
    from attncourse import pretrained
    from attncourse.data import BOS, Tokenizer, encode_texts
    from attncourse.decoding import sample
    from attncourse.metrics import text_log_probabilities
    from attncourse_lessons.results import kept_checkpoint

    class Yours(nn.Module):
        def __init__(self, theirs, swapped):
            super().__init__()
            layers = theirs.gate, theirs.up, theirs.down
            gate, up, down = (layer.weight.detach().T for layer in layers)
            self.W = (up, gate, down) if swapped else (gate, up, down)

        def forward(self, x):
            return swiglu(x, *self.W)

    folder = kept_checkpoint("writer")
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    texts = [function.__doc__ for function in vars(math).values() if callable(function)]
    texts = [text[:200] for text in encode_texts(texts, tokenizer)]
    prompt = torch.tensor([[BOS, *tokenizer.encode("Return the number of")]])
    length = torch.tensor([prompt.shape[1]])
    for name in ("its own networks", "yours", "yours, swapped"):
        model = pretrained.load(folder).model
        for block in model.decoder.stack.blocks:
            if name != "its own networks":
                block.ff.sublayer = Yours(block.ff.sublayer, name == "yours, swapped")
        loss = -torch.cat(text_log_probabilities(model, texts)).mean()
        draws = torch.Generator().manual_seed(0)
        ids = sample(model, prompt, length, 25, 0.8, top_p=0.9, generator=draws).tokens[0]
        print(f"{name}: {loss:.2f} nats per token. It writes:")
        print("    Return the number of", tokenizer.decode(ids.tolist()))

# %% [markdown]
# <details><summary>What to see</summary>
#
# With your network the loss is the checkpoint's own, 4.46. With the two matrices exchanged it is 6.21, and the text
# falls apart. The two matrices have the same shape and begin as random numbers of the same kind, so before training
# their roles are only names. After training their roles differ, and no error tells you that a loader has exchanged
# them.</details>

# %% [markdown]
# ## 8 · Fingerprints of a leak
#
# A decoder predicts a target $y_1, \dots, y_6$. Its logits at position $t$ are for $y_t$. You change one token of the
# target, run the decoder again, and note at which positions the logits *can* change. Here are four decoders:
#
# | | at position $t$ it reads | mask of its self-attention |
# |---|---|---|
# | A | $y_{t-1}$ (`bos` at 1) | causal |
# | B | $y_t$ | causal |
# | C | $y_{t-1}$ (`bos` at 1) | none |
# | D | $y_{t-2}$ (`bos` at 1 and 2) | causal |
#
# **(a)** You change $y_3$. At which of the positions 1 to 6 can the logits change, in A, B, C and D? **(b)** In A, you
# can change one of the six tokens without changing any logits. Which token is it, and why is this no fault? **(c)**
# All four decoders are trained. A fellow student compares their *validation* losses, for which the decoders get the
# true targets, as in training. For each of B, C and D, say whether the loss will be lower or higher than A's, and why.
# Which measurement, in which the decoder *never reads* the true target, shows all three faults?
#
# Answer in six to ten lines. (3 points)

# %% [markdown] written="shift-and-mask" points=3 minutes=12 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) A: 4, 5, 6. B: 3, 4, 5, 6. C: all six. D: 5, 6. (Half a point for three of four. The logits can change at a
#    position that reads $y_3$, and at each position that may attend to it.)
# 2. (b) $y_6$. It is predicted at position 6 and never read, because nothing is predicted after it.
# 3. (c) B and C have a lower loss. The answer is in the input, in B at the same position and in C one position to the
#    right, and validation feeds it in, too. D has a higher loss: nothing leaks, but the last token, which tells most,
#    is missing. To show all three faults, let the decoders *write by themselves*, where no target exists, and compare
#    what they write. Half a point if only the losses or only the measurement is right.
# ### END SOLUTION

# %% [markdown]
# ## 9 · One text, three objectives
#
# The text is *Close the file if it is open*. Each word is a token. Under **span corruption** the spans *Close* and *it
# is* are hidden.
#
# **(a)** Write three rows: what the encoder reads, what the decoder reads, and what the decoder predicts. The
# sentinels are `<1>`, `<2>` and `<3>`, and the row that the decoder reads begins with `<bos>`. **(b)** A text has
# 1,000 tokens. How many predictions does one pass give under causal LM (`<eos>` not counted), under masked LM with
# 15 %, and under span corruption with 15 % in spans of three tokens (sentinels counted)? How many tokens does the T5
# encoder read? **(c)** BERT replaces 80 % of the chosen tokens by `[MASK]` and 10 % by a random token. It leaves 10 %
# as they are, and predicts these, too. "This is a target leak", says a fellow student, "because a visible token can
# simply be copied." The loss counts only the chosen tokens. Why does copying fail? What would these 10 % teach if
# there were no random tokens?
#
# Answer in five to nine lines. (2 points)

# %% [markdown] written="spans-and-predictions" points=2 minutes=8 difficulty=1
# ### BEGIN SOLUTION
# **Mark scheme.** One point for (a), half a point each for (b) and (c).
#
# 1. (a) The encoder reads `<1> the file if <2> open`. The decoder reads `<bos> <1> Close <2> it is` and predicts
#    `<1> Close <2> it is <3>`. Half a point if one row is wrong (often the last sentinel is missing, or the decoder's input
#    is not shifted).
# 2. (b) 1,000; 150; 150 tokens are hidden in 50 spans, so the decoder predicts 150 + 50 + 1 = 201 tokens. The encoder
#    reads 850 + 50 = 900.
# 3. (c) Where the loss counts and a token is visible, this token is the true one about half the time and a random one
#    otherwise, and nothing marks which. So the model must judge by the context whether the token fits. Without random
#    tokens every visible token would be the true one. Then copying would be perfect, and these places would teach
#    nothing else.
# ### END SOLUTION

# %% [markdown]
# ## 10 · Overlapping intervals, and the best of twelve
#
# In the lecture's figure of twelve changes, GELU gains 0.015 ± 0.010 nats over the baseline and ReGLU 0.043 ± 0.021.
# The two 95 % intervals overlap. "So we cannot say which of the two is better", says a
# fellow student. These are the test losses of the individual runs, from the course's `measured/modifications.json`:
#
# | seed | 0 | 1 | 2 | 3 | 4 |
# |---|---|---|---|---|---|
# | GELU | 4.012 | 3.987 | 4.017 | 3.995 | 4.004 |
# | ReGLU | 3.977 | 3.956 | 3.995 | 3.988 | 3.959 |
#
# **(a)** Is the fellow student right? Compute what decides the question. (For five differences with standard deviation
# $s$, half the 95 % interval is $2.78\, s/\sqrt 5$.) **(b)** Suppose that *none* of twelve changes had any effect. How
# many of twelve such intervals would miss zero, on average? Suppose that the best of the twelve is then reported, with
# its measured gain. Is this gain, on average, too large, too small or right? What would give an honest number?
#
# Answer in four to eight lines. (2 points)

# %% [markdown] written="better-by-a-hundredth" points=2 minutes=8 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) No. The runs are paired by seed, so the *differences* decide. GELU − ReGLU is 0.035, 0.031, 0.022, 0.007 and
#    0.045, with mean 0.028, $s$ = 0.014 and half an interval of 0.018. The interval does not contain zero, so ReGLU is
#    better, in this model and with this budget. Half a point for "take the differences by seed" without the numbers.
#    (Both intervals share the baseline's noise, and what differs from seed to seed in the same way for all models
#    cancels.)
# 2. (b) 12 · 0.05 = 0.6. The best of twelve is best partly by luck, so its gain is too large on average. For an honest
#    number, choose on some seeds (or on the validation set), and measure the chosen change with *new* seeds, or on the
#    test set once. Half a point for the first or the second half alone.
# ### END SOLUTION

# %% [markdown]
# ## Extension: a prefix
#
# This exercise is worth extra credit, and you lose nothing by leaving it out.
#
# There is a mask between the encoder's and the decoder's. A text begins with a *prefix*, such as a question, that the
# model need not predict. The model may read the prefix in both directions, as an encoder does. It writes the rest from
# left to right, and each position of the rest may attend to the whole prefix. So one stack of blocks does the work of
# two.

# %% exercise="prefix_mask"
def prefix_mask(lengths: Tensor, n: int) -> Tensor:
    """Which position may attend to which, if text b begins with `lengths[b]` tokens of prefix.

    lengths: (batch,), from 0 to n
    returns (batch, n, n), booleans: [b, i, j] is True where position i may attend to j
    """
    ...  # solution

# %% check="prefix_mask"
check("prefix_mask", prefix_mask)

# %% [markdown]
# **Use it.** The cell draws your masks for three texts of eight tokens, with a prefix of no tokens, of three and of all
# eight: a decoder-only model, a prefix model and an encoder-only model. Then it tests the prefix model. One token
# changes, in the prefix (token 1, counted from 0) or after it (token 5). *Guess* which outputs of an attention layer
# change.

# %%
if solved("prefix_mask"):
    from attncourse import viz
    from attncourse.attention import MultiHeadAttention

    drawn = prefix_mask(torch.tensor([0, 3, 8]), 8)
    viz.draw_masks({f"prefix of {k}": mask for k, mask in zip((0, 3, 8), drawn, strict=True)})
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(16, 2), torch.randn(1, 8, 16)
    for place in (1, 5):
        other = x.clone()
        other[0, place] += 1.0
        with torch.no_grad():
            change = layer(other, mask=drawn[1:2]) - layer(x, mask=drawn[1:2])      # (1, 8, 16)
        moved = (change[0].abs().amax(dim=-1) > 1e-6).nonzero().flatten().tolist()
        print(f"prefix of 3, token {place} changes: so do the outputs at {moved}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The prefix is read in both directions: if token 1 changes, all eight outputs change. After the prefix the mask is
# causal: if token 5 changes, the outputs from 5 on change, and no output in the prefix changes.</details>
