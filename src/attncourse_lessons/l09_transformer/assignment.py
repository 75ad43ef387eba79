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
# In this assignment you put together the machine of [lecture @transformer](@transformer): the block of an
# encoder, the block of a decoder, the shift by one, and with them the whole Transformer. Then you build the network
# that newer models have in place of the old one, and at the end a language model with parameters of its own.
#
# You have built every part before, so up to exercise 4 the parts are handed to you as functions: attentions, networks,
# norms. What is asked for is the wiring, and the check looks at nothing else. Call the parts by position, as in
# `attention(x, memory, mask)`. Under each exercise stands a check. A check on other numbers and other sizes decides your
# points.
#
# Two rules hold throughout. Return new tensors, and leave those that come in as they are; and let a
# gradient through wherever something is to be learned.
#
# {exercises}
#
# If you are stuck, `hint("encoder_block", 1)` prints a hint; the later ones of an exercise tell more. Your answers are
# refused if they call the course's own blocks or torch's.

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

# %% [markdown]
# ## 1 · One place later
#
# A decoder learns all words of a sentence at once. At position $t$ it is to say `target[t]`, and may have read the
# words before it. So what it reads is the target, shifted: first the token `bos`, "begin", then each token one place
# later. The last token is never read. The target stays as it is; make a new tensor.

# %% exercise="shift_right"
def shift_right(target: Tensor, bos: int) -> Tensor:
    """What the decoder reads, when it is to say `target`.

    target: (batch, n), whole numbers   bos: the token that stands for "begin"
    returns (batch, n), whole numbers
    """
    ...  # solution

# %% check="shift_right"
check("shift_right", shift_right)

# %% [markdown]
# ## 2 · The encoder's block
#
# Look around, then think. Each of the two parts has a norm in *front* of it, and what the part finds is *added* to
# $x$:
#
# $$
# \begin{aligned}
# x &\leftarrow x + \operatorname{attention}\bigl(\operatorname{norm}_1(x)\bigr) \\
# x &\leftarrow x + \operatorname{network}\bigl(\operatorname{norm}_2(x)\bigr)
# \end{aligned}
# $$
#
# The attention takes three arguments, `attention(x, memory, mask)`: who asks, who answers, and which positions of the
# memory hold a word. In self-attention one sequence does both.

# %% exercise="encoder_block"
def encoder_block(x: Tensor, mask: Tensor, attention, feed_forward, norm_1, norm_2) -> Tensor:
    """One block of an encoder, with its norms in front.

    x: (batch, n, d_model)   mask: (batch, 1, n), True where there is a word
    attention(x, memory, mask) -> (batch, n, d_model)
    feed_forward(x), norm_1(x), norm_2(x) -> (batch, n, d_model)
    returns (batch, n, d_model)
    """
    ...  # solution

# %% check="encoder_block"
check("encoder_block", encoder_block)

# %% [markdown]
# ## 3 · The decoder's block
#
# Look back, look at the memory, think. Between the two parts of the encoder's block comes a third, in which the decoder
# asks and the encoder's states answer. The memory comes from the encoder already normalised.
#
# There are two masks. `mask` is about the decoder's own positions, and `memory_mask` says which positions of the
# memory hold a word.

# %% exercise="decoder_block"
def decoder_block(
    x: Tensor, memory: Tensor, mask: Tensor, memory_mask: Tensor,
    attention, cross_attention, feed_forward, norm_1, norm_2, norm_3,
) -> Tensor:
    """One block of a decoder that looks at a memory, with its norms in front.

    x: (batch, n, d_model)   memory: (batch, n_memory, d_model)
    mask: (n, n), True where a position may look at another   memory_mask: (batch, 1, n_memory)
    attention(x, memory, mask), cross_attention(x, memory, mask) -> (batch, n, d_model)
    feed_forward(x), norm_1(x), norm_2(x), norm_3(x) -> (batch, n, d_model)
    returns (batch, n, d_model)
    """
    ...  # solution

# %% check="decoder_block"
check("decoder_block", decoder_block)

# %% [markdown]
# ## 4 · The whole
#
# Read the source, then predict every token of the target from those before it, all in one pass. The embeddings add the
# positions themselves. There are as many blocks as the lists are long, and the two lists need not be equally long. With
# norms in front of the parts, each of the two stacks ends in a norm of its own. `output` makes a row of logits of each
# state.
#
# What is *not* handed to you is what keeps the decoder from peeking. You may call your functions from above; if one of
# them has a mistake, it will then cost you points here as well.

# %% exercise="transformer"
def transformer(
    source: Tensor, target: Tensor, source_mask: Tensor, bos: int,
    embed_source, embed_target, encoder_blocks: list, decoder_blocks: list,
    encoder_norm, decoder_norm, output,
) -> Tensor:
    """Logits of every token of the target, given the source and the tokens of the target before it.

    source: (batch, n_source)   target: (batch, n_target)
    source_mask: (batch, 1, n_source), True where there is a word
    embed_source(tokens), embed_target(tokens) -> (batch, n, d_model), positions and all
    each encoder block: block(x, mask) -> x
    each decoder block: block(x, memory, mask, memory_mask) -> x, with masks as in exercise 3
    encoder_norm(x), decoder_norm(x) -> x   output(x) -> (batch, n_target, vocab_size)
    returns (batch, n_target, vocab_size): at position t the logits of target[t]
    """
    ...  # solution

# %% check="transformer"
check("transformer", transformer)

# %% [markdown]
# If the checks are green, you have written a Transformer. Below stands all that is missing to train it: layers with
# parameters to hand to your four functions. Read it, run it, and see it learn to write a row of letters backwards. (It
# takes a few seconds. Nothing here is graded, and until your functions are written the cell only says so.)

# %% locked=true
class Assembled(nn.Module):
    """Your functions, with layers of torch's as their parts."""

    def __init__(self, words: int, d: int = 32, longest: int = 16):
        super().__init__()
        self.table, self.places = nn.Embedding(words, d), nn.Embedding(longest, d)
        attentions = (nn.MultiheadAttention(d, 4, batch_first=True) for _ in range(3))
        self.attentions = nn.ModuleList(attentions)
        networks = (nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, d)) for _ in range(2))
        self.networks = nn.ModuleList(networks)
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(7))
        self.output = nn.Linear(d, words)

    def ask(self, i):
        def attention(x, memory, mask):
            # torch has two masks, and they are True where forbidden
            padding, causal = (None, ~mask) if mask.ndim == 2 else (~mask[:, 0], None)
            ask = self.attentions[i]
            return ask(x, memory, memory, padding, need_weights=False, attn_mask=causal)[0]

        return attention

    def forward(self, source, target):
        def embed(tokens):
            return self.table(tokens) + self.places.weight[: tokens.shape[1]]

        def read(x, mask):
            return encoder_block(x, mask, self.ask(0), self.networks[0], *self.norms[:2])

        def write(x, memory, mask, memory_mask):
            parts = self.ask(1), self.ask(2), self.networks[1], *self.norms[2:5]
            return decoder_block(x, memory, mask, memory_mask, *parts)

        everybody = torch.ones(len(source), 1, source.shape[1], dtype=torch.bool)
        parts = embed, embed, [read], [write], *self.norms[5:], self.output
        return transformer(source, target, everybody, 0, *parts)


def learn_backwards(steps=150):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Assembled(words=27)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for step in range(steps):
        source = torch.randint(1, 27, (32, 8))
        target = source.flip(1)
        loss = nn.functional.cross_entropy(model(source, target).flatten(0, 1), target.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 50 == 49:
            print(f"after {step + 1} steps: loss {loss.item():.2f} nats a letter")


try:
    learn_backwards()
except NotImplementedError:
    print("Not yet: one of the four functions is not written.")
except Exception as error:
    print("It does not run yet:", str(error).splitlines()[0])

# %% [markdown]
# ## 5 · A newer network
#
# Today's language models have this in place of the two-layer network with its ReLU:
#
# $$\operatorname{SwiGLU}(x) = \bigl(\operatorname{silu}(x W_\text{gate}) \circ x W_\text{up}\bigr)\, W_\text{down},
# \qquad \operatorname{silu}(z) = z \cdot \sigma(z)$$
#
# Two products lead up. One is bent and becomes a *gate*: it multiplies the other, number by number ($\circ$). One
# product leads down. $x$ may have any axes in front of the last. Numbers may be large: what
# comes out stays finite, and so does the gradient on the way back.

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
# ## 6 · A language model of your own
#
# Now build a whole model as a module, with all that it can learn: a decoder alone, of GPT-2's shape. The block is given.
# You write both methods. What `__init__` makes has fixed names, as in a checkpoint:
#
# * `tokens` and `positions`: an `nn.Embedding` each, for vocab_size tokens and for max_length places. Both begin as
#   normal random numbers of standard deviation 0.02.
# * `blocks`: `n_layers` blocks, each with numbers of its own, in a container that registers them.
# * `norm`: an `nn.LayerNorm` after the last block.
#
# Nothing else is learned: the output is **tied**. The logit of a token is the dot product of the state, after the norm,
# with that token's row of `tokens`. The logits at place $t$ are for the token at $t + 1$, so no place may see what comes
# after it. Texts are of any length up to max_length, and none is padded.

# %% locked=true
class Block(nn.Module):
    """A pre-norm block, as in GPT-2."""

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads
        self.norm_1 = nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model)               # queries, keys and values of all heads
        self.output = nn.Linear(d_model, d_model)
        self.norm_2 = nn.LayerNorm(d_model)
        self.feed_forward = nn.Sequential(
            nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """x: (batch, n, d_model)   mask: (n, n), True where a query (row) may attend to a key (column)"""
        heads = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.n_heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)         # (batch, n_heads, n, d_head) each
        scores = query @ key.mT / math.sqrt(key.shape[-1])
        weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
        x = x + self.output((weights @ value).transpose(1, 2).flatten(2))
        return x + self.feed_forward(self.norm_2(x))

# %% exercise="DecoderLM"
class DecoderLM(nn.Module):
    """A decoder-only language model."""

    def __init__(self, vocab_size: int, max_length: int, d_model: int, n_heads: int, n_layers: int):
        ...  # solution

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (batch, n), whole numbers, n at most max_length   returns logits, (batch, n, vocab_size)"""
        ...  # solution

# %% check="DecoderLM"
check("DecoderLM", DecoderLM)

# %% [markdown]
# **Use it.** First: how many parameters has your model in the size of GPT-2 small? The released model has 124,439,808.
# (On torch's device "meta" tensors have shapes and no memory.) Then train a small one on English number words, letter by
# letter, and let it write. Which loss does it begin with, before it has learned anything?

# %%
if solved("DecoderLM"):
    from attncourse.data import number_words

    with torch.device("meta"):
        gpt2 = DecoderLM(vocab_size=50_257, max_length=1024, d_model=768, n_heads=12, n_layers=12)
    print(f"GPT-2 small: {sum(p.numel() for p in gpt2.parameters()):,} parameters")

    words = [pair.source for pair in number_words("en", "de", train=2000, test=1).train]
    text = "\n".join(words)
    letters = sorted(set(text))
    ids = torch.tensor([letters.index(letter) for letter in text])
    torch.manual_seed(0)
    model = DecoderLM(len(letters), max_length=48, d_model=48, n_heads=4, n_layers=2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    print(f"{len(letters)} letters: knowing nothing costs {math.log(len(letters)):.2f} nats a letter")
    for step in range(301):
        starts = torch.randint(len(ids) - 49, (16, 1))
        batch = ids[starts + torch.arange(49)]                   # (16, 49)
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step:>3}: {loss.item():.2f} nats a letter")
    written = torch.tensor([[letters.index("\n")]])
    with torch.no_grad():
        for _ in range(160):
            probabilities = model(written[:, -48:])[:, -1].softmax(dim=-1)
            written = torch.cat([written, torch.multinomial(probabilities, 1)], dim=1)
    print("it writes:", "".join(letters[i] for i in written[0].tolist()))

# %% [markdown]
# ## 7 · The shift and the mask
#
# Two things keep a decoder from peeking: its input is shifted by one, and its self-attention has a causal mask.
#
# **(a)** Leave out the shift, and keep the mask. What does the decoder at position $t$ read, what will the loss do in
# training, and what happens when the model has to write a sentence by itself? **(b)** Keep the shift and leave out the
# mask. The same three questions. **(c)** Why can an encoder do without both?
#
# Answer in four to eight sentences. (3 points)

# %% [markdown] written="shift-and-mask" points=3 minutes=12 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) At position $t$ it reads the very token that it has to say (a causal mask lets a position see itself). The
#    loss falls to nearly nothing, because copying is enough. In writing, the token to be copied does not exist yet: it
#    repeats what it was given (`bos`, or the last token), or writes nonsense. Half a point if only the loss is
#    mentioned.
# 2. (b) It reads tokens up to $t - 1$ at its own and earlier places, but may look to the right, where at place $t + 1$
#    the token to be said stands. One attention step fetches it: the loss falls to nearly nothing as well (a little
#    later, since where to look has to be learned). In writing there is nothing to the right of the last position.
# 3. (c) An encoder predicts none of the tokens that it reads: its source is known as a whole before the first word is
#    written, so there is nothing to peek at. (Good: an encoder that *is* to predict its own tokens, as BERT, has them
#    hidden in its input instead.)
# ### END SOLUTION

# %% [markdown]
# ## 8 · Better by 0.01
#
# A course-mate trains a small language model once with ReLU and once with GELU. The test loss is 4.312 nats with ReLU
# and 4.301 with GELU. "GELU is better by 0.011, so I shall use it."
#
# **(a)** What is missing before one can say so, and how would you go about it? **(b)** The course-mate then tries
# SwiGLU, keeping `d_ff` as it is, and finds a gain of 0.05. What is wrong with this comparison?
#
# Answer in two to five sentences. (2 points)

# %% [markdown] written="better-by-a-hundredth" points=2 minutes=8 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) How much the loss differs between two runs of the *same* model with other seeds: train both with several
#    seeds, best the same seeds for both, and compare the mean of the differences with their spread (error bars).
#    Saying only "use more data" or "train longer" earns nothing. (Also good: that the learning rate should be looked
#    for in both cases.)
# 2. (b) SwiGLU has three matrices where the plain network has two, so at the same `d_ff` it has half as many
#    parameters (and operations) again in the network. At equal size `d_ff` shrinks to two thirds. Without that one
#    compares a small model with a large one.
# ### END SOLUTION

# %% [markdown]
# ## Extension: a prefix
#
# This one is worth extra credit, and nothing is lost by leaving it out.
#
# There is a mask between the encoder's and the decoder's. A text begins with a *prefix*, a question say, that nobody
# has to predict: it may be read in both directions, as an encoder does. What comes after it is written from left to
# right, and may look at all of the prefix. One stack of blocks then does the work of two.

# %% exercise="prefix_mask"
def prefix_mask(lengths: Tensor, n: int) -> Tensor:
    """Who may look at whom, if the first `lengths[b]` positions of text b are a prefix.

    lengths: (batch,), from 0 to n
    returns (batch, n, n) of booleans: [b, i, j] is True where position i may look at position j
    """
    ...  # solution

# %% check="prefix_mask"
check("prefix_mask", prefix_mask)
