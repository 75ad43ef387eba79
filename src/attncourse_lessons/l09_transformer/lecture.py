# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @transformer · The Transformer: encoder, decoder, language model
#
# *About 55 minutes, of which one is computing time. You need attention over a memory ([lecture
# @cross_attention](@cross_attention)), positions ([lecture @order](@order)), masks and the feed-forward network
# ([lecture @masking](@masking)), heads ([lecture @many_heads](@many_heads)), residual connections and norms ([lecture
# @deep_stacks](@deep_stacks)).*
#
# Read it in three sittings; two good places to stop are marked.
#
# After this lecture you can
#
# * draw the **Transformer** of "Attention is all you need" from memory, and name every box;
# * assemble **encoder-only**, **decoder-only** and **encoder–decoder** models from one block, and prove by a **parity
#   test** that your model computes what PyTorch's does;
# * explain **pre-training** with **masked**, **causal** and **span-corruption** objectives, and **fine-tuning**;
# * count **parameters** and **FLOPs**, and use the rule $C \approx 6ND$;
# * sample text with **temperature**, **top-k** and **top-p**, and load weights that others have trained;
# * judge a claim such as "this change makes the Transformer better".
#
# ## Three tasks and one architecture
#
# You have built all the parts. There are three tasks: filling the gaps in a text, continuing a text, and translating
# German into English. How many different models must you build?
#
# *Guess first:* which parts does each model need? Which tokens may the first model see that the second must not?

# %% tags=["hide-input"]
try:
    from attncourse import viz

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math
import statistics
import warnings
from dataclasses import replace

import torch
from torch import nn

from attncourse import pretrained
from attncourse.attention import MultiHeadAttention, causal_mask, lengths_to_mask
from attncourse.counting import count_parameters, count_training_flops, preset
from attncourse.data import (
    BOS,
    EOS,
    PAD,
    UNK,
    Tokenizer,
    docstrings,
    encode_texts,
    number_words,
    pad_batch,
    text_batches,
)
from attncourse.data.batches import cut
from attncourse.decoding import sample, warp_logits
from attncourse.layers import FeedForward
from attncourse.metrics import perplexity, text_log_probabilities
from attncourse.ngram import NGram
from attncourse.parity import copy_into_torch, randomise
from attncourse.training import descend, fit_texts
from attncourse.transformer import Encoder, LanguageModel, TransformerConfig
from attncourse_lessons.results import MODIFICATIONS, TRANSLATION, kept_checkpoint, measured

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [raw] slide
# ## Three customers
# 1. Texts with *gaps*: fill them.
# 2. Beginnings of texts: *continue* them.
# 3. German: *read* it, and *write* English.
#
# > **Guess first.** How many different models must you build? Which tokens may the first model see that the second must not?

# %%
figures.encoder_decoder_stacks()
#| caption: Encoder-only, decoder-only and encoder–decoder stacks.
#| label: three-stacks

# %% [raw] slide
# ## One kind of block serves all three
# {figure}

# %% [markdown] teaches="figure 1 of the paper"
# One kind of block serves all three tasks. The models differ in the mask, and the third model's decoder has one more
# part in each block.
#
# * **Bidirectional self-attention** lets every position see all others. This is allowed when the whole text is known.
# * **Causal self-attention** lets a position see itself and what comes before it. This is necessary when the model must
#   predict the next token.
# * **Cross-attention** is the additional part. It attends to the **memory**, the encoder's output for the other text. The
#   memory leaves the encoder once, at its top, and goes to every block of the decoder.
#
# ## Figure 1 of "Attention is all you need"
#
# Vaswani et al. ([-@vaswani2017]) drew the third model. Click on a box to open its lecture.

# %%
figures.figure_1()
#| caption: The Transformer of 2017, redrawn. The paper writes *Add & Norm* for add, then
#|   LayerNorm, and *Masked Multi-Head Attention* for causal self-attention.
#| label: transformer

# %% [raw] slide
# ## Figure 1 of “Attention is all you need”
# {figure}
# |||
# - **Embedding**, positions, then $N = 6$ blocks (our $L$)
# - Encoder block: two **sublayers**
# - Decoder block: three; cross-attention reads the memory
# - As drawn, **post-norm**. Later models: **pre-norm**

# %% [markdown]
# Read the figure from the bottom up.
#
# * The **embedding** turns tokens into vectors, and the **positional encodings** are added. Then come $N$ blocks, 6 in
#   the paper. (Below we write $L$, because $N$ will be the number of parameters.)
# * An encoder block has two **sublayers**. Multi-head self-attention moves information between positions. The
#   **position-wise feed-forward network** works on each position separately.
# * A decoder block has a third sublayer between these two, cross-attention. Its queries come from the decoder, and its
#   keys and values from the memory.
# * Every sublayer has a **residual connection** around it, and the sum is normalised: *add, then LayerNorm*.
# * At the top, a linear layer computes one **logit** for each token of the vocabulary, and softmax turns the logits
#   into probabilities.
#
# A norm after the sum is called **post-norm**. Most language models since GPT-2 use **pre-norm**: the norm comes
# before the sublayer, the residual path contains only additions, and one more norm ends each stack. [Lecture
# @deep_stacks](@deep_stacks) measured the difference. We build the pre-norm form:

# %%
figures.figure_1("pre")
#| caption: The Transformer with pre-norm blocks. Not drawn: dropout, which sets a random tenth
#|   of each sublayer's output to zero during training.
#| label: transformer-pre-norm

# %% [markdown] teaches="encoder, decoder and encoder–decoder, assembled"
# > **Check yourself.** Cover the figure. Which arrows enter the decoder block, and where does each come from?
# > <details><summary>Answer</summary>Two. (1) x comes from the block below, or from the embedding and the positions.
# > It provides the queries, keys and values of the self-attention, and the result provides the queries of the
# > cross-attention. (2) The memory comes from the encoder's last norm. It provides the keys and values of the
# > cross-attention.</details>
#
# ## The encoder block in two lines, and the decoder block in three
#
# We write $\operatorname{MHA}(x, m)$ for multi-head attention with queries from $x$, and keys and values from $m$. Then
#
# $$
# \begin{aligned}
# \text{encoder:}\quad & x \leftarrow x + \operatorname{MHA}\bigl(\tilde x, \tilde x\bigr), & & & x \leftarrow x +
# \operatorname{FFN}\bigl(\tilde x\bigr)\\
# \text{decoder:}\quad & x \leftarrow x + \operatorname{MHA}_\text{causal}\bigl(\tilde x, \tilde x\bigr), & x
# &\leftarrow x + \operatorname{MHA}\bigl(\tilde x, \text{memory}\bigr), & x \leftarrow x +
# \operatorname{FFN}\bigl(\tilde x\bigr)
# \end{aligned}
# $$
#
# where $\tilde x$ is $x$ after the norm of that sublayer. Attention and the feed-forward network come from the
# package.

# %% [raw] slide
# ## Two lines, and three
# $$\begin{aligned} \text{encoder:}\quad & x \leftarrow x + \operatorname{MHA}(\tilde x, \tilde x) & & x \leftarrow x + \operatorname{FFN}(\tilde x)\\[4pt] \text{decoder:}\quad & x \leftarrow x + \operatorname{MHA}_\text{causal}(\tilde x, \tilde x) & & x \leftarrow x + \operatorname{MHA}(\tilde x, \text{memory})\\ & & & x \leftarrow x + \operatorname{FFN}(\tilde x) \end{aligned}$$
#
# $\tilde x$ is $x$ after the norm of that sublayer.
#
# > **Guess first.** 7 target tokens, 5 source tokens, 8 heads, batch 4: what is the shape at each line?

# %%
class EncoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, mask=None):                          # (batch, n, d_model)
        x = x + self.attention(self.norm_1(x), mask=mask)
        return x + self.feed_forward(self.norm_2(x))

# %%
class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.cross = MultiHeadAttention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.norm_3 = nn.LayerNorm(d_model)

    def forward(self, x, memory, source_mask=None, causal=True):
        x = x + self.attention(self.norm_1(x), causal=causal)       # (batch, n_target, d_model)
        x = x + self.cross(self.norm_2(x), memory, source_mask)     # keys: n_source states
        return x + self.feed_forward(self.norm_3(x))

# %% [markdown]
# The `source_mask` is True at the source's real tokens and False at its padding. The target's padding needs no such
# mask: it comes last, where the causal mask hides it from all real tokens, and the loss ignores it. Choose a block and
# step through its lines. *At each line, say the shape before you look.* Where do the 7 target tokens, the 5 source
# tokens and the 8 heads appear?

# %%
viz.explore(
    figures.block_frame,
    kind=["encoder", "decoder", "encoder of 2017"], line=range(1, 7),
    names={"kind": "block", "line": "line of code"}, start={"kind": "decoder", "line": 4},
)
#| caption: The block, line by line. Sizes: 4 pairs in the batch, 8 heads, 7 target tokens,
#|   5 source tokens, d_model = 64, d_ff = 256.

# %% [raw] slide
# ## Step through a block
# {figure}
#
# **Now you:** a@transformer, exercises 1 and 2

# %% [markdown] erratum="the word decoder"
# A block's output has the shape of its input, so blocks can be stacked.
#
# > **A common mistake: "decoder" for two things.** Some texts and slides call a stack without cross-attention "the
# > Transformer decoder". Others call only a stack with cross-attention a decoder. A decoder-only block is an *encoder*
# > block with a causal mask. In this course a *decoder* has cross-attention unless we say *decoder-only*.
#
# *Guess first:* token 2 of five (counted from 0) changes. Which outputs of an encoder block change without a mask, and
# which under a causal mask?

# %%
block, x = EncoderBlock(16, 2, 32), torch.randn(1, 5, 16)                 # (batch, n, d_model)
other = x.clone()
other[0, 2] = torch.randn(16)
for name, mask in {"bidirectional": None, "causal": causal_mask(5)[None]}.items():
    moved = (block(other, mask) - block(x, mask)).abs().amax(dim=-1)[0] > 1e-6        # (n,)
    print(f"{name:>13}: outputs {moved.nonzero().flatten().tolist()}")

# %% [markdown]
# **Now you:** [a09](@transformer/assignment), exercise 1 (a block with norms on both sides of a sublayer) and exercise
# 2 (the decoder block of 2017).
#
# ## Teacher forcing: the decoder reads the target shifted right
#
# During training the whole target is known. What does the decoder *read*? At position $t$ it must predict $y_t$, and
# it may read $y_1, \dots, y_{t-1}$. So we put the beginning-of-sequence token in front of the target. The decoder
# reads this longer row without its last token, and predicts the row without its first token.

# %% [raw] slide
# ## Teacher forcing: the target shifted right
# > **Guess first.** At position $t$ the decoder predicts $y_t$. What may it read?
#
# . . .
# $y_1, \dots, y_{t-1}$: put "begin" in front, and cut two windows out of the longer row.

# %%
target = torch.tensor([[7, 8, 9, 2]])                          # (batch, n); 2 ends the sentence
longer = torch.cat([torch.tensor([[BOS]]), target], dim=1)                # (batch, n + 1)
print("reads   ", longer[0, :-1].tolist(), "\npredicts", longer[0, 1:].tolist())

# %% [raw] slide
# ## Two windows of one row
# {print}
#
# One pass trains all positions, each with the *true* tokens before it.

# %% [markdown]
# This is **teacher forcing**: one pass trains all positions, and each position gets the *true* tokens before it.
# [Lecture @writing](@writing) measures what this costs when the model writes by itself. Now the whole model:

# %%
class Transformer(nn.Module):
    def __init__(self, vocab_size, d_model, n_heads, d_ff, n_layers, max_length=32):
        super().__init__()
        size = d_model, n_heads, d_ff
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)                # learned
        self.encoder_blocks = nn.ModuleList(EncoderBlock(*size) for _ in range(n_layers))
        self.decoder_blocks = nn.ModuleList(DecoderBlock(*size) for _ in range(n_layers))
        self.encoder_norm, self.decoder_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.output = nn.Linear(d_model, vocab_size)

    def embed(self, tokens):                                              # (batch, n)
        return self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]

    def encode(self, x, source_mask=None):
        for block in self.encoder_blocks:
            x = block(x, source_mask)
        return self.encoder_norm(x)                                       # the memory

    def decode(self, x, memory, source_mask=None, causal=True):
        for block in self.decoder_blocks:
            x = block(x, memory, source_mask, causal)                     # one memory for all
        return self.decoder_norm(x)

    def forward(self, source, target_in, source_mask=None, causal=True):
        memory = self.encode(self.embed(source), source_mask)       # (batch, n_source, d_model)
        x = self.decode(self.embed(target_in), memory, source_mask, causal)
        return self.output(x)                                    # (batch, n_target, vocab_size)

# %% [markdown]
# Is it *the* Transformer? We copy our parameters into PyTorch's `nn.Transformer`:

# %%
torch.manual_seed(0)
ours = randomise(Transformer(20, d_model=16, n_heads=4, d_ff=32, n_layers=2))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")                         # of a fast path that it cannot take
    theirs = nn.Transformer(16, 4, 2, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
copy_into_torch(ours, theirs)                                 # the same numbers in both
size = sum(parameter.numel() for parameter in theirs.parameters())
print(f"{size:,} numbers copied into PyTorch's encoder and decoder")

# %% [raw] slide
# ## A parity test: is it *the* Transformer?
# Copy our parameters into `nn.Transformer`, and compare outputs.
#
# > **Guess first.** Leave out the encoder, and use the embedded source as the memory. Would the shapes show it? Would the loss?

# %% [markdown]
# Both models get the same embedded source (with padding) and target. *Guess first:* suppose that we left out the
# encoder and used the embedded source as the memory. Would the shapes show it? Would the loss?

# %%
x, y = torch.randn(3, 7, 16), torch.randn(3, 9, 16)           # embedded source and target
real = lengths_to_mask(torch.tensor([7, 5, 2]), 7)            # (batch, n_source)  True: a token
expected = theirs(                                      # torch's masks are True where forbidden
    x, y, tgt_mask=~causal_mask(9), src_key_padding_mask=~real, memory_key_padding_mask=~real
)
source_mask = real[:, None]                                   # (batch, 1, n_source)
got = ours.decode(y, ours.encode(x, source_mask), source_mask)  # (batch, n_target, d_model)
wrong = ours.decode(y, x, source_mask)                             # the source for the memory
print(f"we differ by at most {(got - expected).abs().max():.0e}")
print(f"with the wrong memory by {(wrong - expected).abs().max():.0e}, in the same shape")

# %% tags=["hide-input"]
assert torch.allclose(got, expected, atol=1e-3)
assert not torch.allclose(wrong, expected, atol=0.1)

# %% [raw] slide
# ## Shapes do not reveal a wrong connection
# {print}
#
# Draw all parameters anew before the test, because norms that are still 1 and 0 hide a swap.

# %% [markdown]
# Here the two models agree to the last bit; on other machines they may differ by rounding. Such a comparison with
# copied weights is a **parity test**. It finds errors that other checks miss: shapes do not reveal a wrong connection,
# and [lecture @deep_stacks](@deep_stacks) showed that the loss may not either. This test covers the two stacks, but
# not the embeddings, the shift and the output layer.
#
# <details><summary>Why `randomise`?</summary>It draws all parameters anew, because norms whose gains are still 1 and
# whose biases are still 0 would hide a swap.</details>

# %% [markdown]
# > **Check yourself.** The source has 5 tokens and the target 7. There are 4 pairs in the batch, 8 heads, and two
# > blocks on each side. How many arrays of attention weights does one pass compute, and what are their shapes?
# > <details><summary>Answer</summary>Six. The encoder has two of shape (4, 8, 5, 5). The decoder has two of shape (4,
# > 8, 7, 7) for causal self-attention and two of shape (4, 8, 7, 5) for cross-attention.</details>
#
# ## Target leaks: a decoder without the shift, or without the mask
#
# Here is a small version of the third task: a model reads six letters and writes them in alphabetical order. We train
# three models. The first is right. The second reads its target unshifted, under the causal mask. The third reads its
# target shifted, but has no mask.

# %%
LETTERS, LENGTH = 26, 6                                       # 0 stands for "begin"


def learn_to_sort(shifted, causal, seed, steps=95):
    torch.manual_seed(seed)
    model = Transformer(LETTERS + 1, 32, 4, 64, n_layers=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, fused=True)
    losses = []
    for _ in range(steps):
        source = torch.randint(1, LETTERS + 1, (32, LENGTH))              # (batch, n)
        target = source.sort(dim=1).values                                # (batch, n)
        longer = torch.cat([torch.zeros(32, 1, dtype=torch.long), target], dim=1)
        logits = model(source, longer[:, :-1] if shifted else target, causal=causal)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, statistics.mean(losses[-20:])


machines = {"right": (True, True), "no shift": (False, True), "no mask": (True, False)}
learned = {name: [learn_to_sort(*how, seed) for seed in range(3)]
           for name, how in machines.items()}

# %% [raw] slide
# ## Target leaks: three models sort six letters
# | | shift | causal mask |
# |---|---|---|
# | **right** | yes | yes |
# | **no shift** | no | yes |
# | **no mask** | yes | no |
#
# > **Guess first.** Which model has the lowest loss, and which can write?

# %% [markdown]
# During training, each model gets the target. Afterwards it writes by itself, letter by letter. *Guess first:* which
# model has the lowest loss, and which can write?

# %%
@torch.no_grad()
def write(model, source):
    written = torch.zeros(len(source), 1, dtype=torch.long)               # "begin"
    for _ in range(LENGTH):
        logits = model(source, written)                               # (batch, so far, letters)
        written = torch.cat([written, logits[:, -1:].argmax(dim=-1)], dim=1)
    return written[:, 1:]


def spell(row):
    return "".join(chr(96 + letter) if letter else "·" for letter in row.tolist())


fresh = torch.randint(1, LETTERS + 1, (500, LENGTH), generator=torch.Generator().manual_seed(9))
final, right, last = {}, {}, {}
for name, runs in learned.items():
    written = torch.stack([write(model, fresh) for model, _ in runs])     # (seeds, 500, LENGTH)
    same = (written == fresh.sort(dim=1).values).float()
    final[name] = [loss for _, loss in runs]
    right[name], last[name] = same.mean(dim=(1, 2)).tolist(), same[:, :, -1].mean().item()
    print(f"{name:>9}: loss", *(f"{loss:.2f}" for loss in final[name]),
          "  letters right when it writes", *(f"{share:4.0%}" for share in right[name]),
          f"  last letter {last[name]:4.0%}")
    pairs = zip(fresh[:4], written[0], strict=False)
    print("    writes", ", ".join(f"{spell(row)} → {spell(out)}" for row, out in pairs))

# %% tags=["hide-input"]
faulty = *final["no shift"], *final["no mask"]
assert max(faulty) < 0.5 * min(final["right"]), "both look better"
assert min(right["right"]) > max(*right["no shift"], *right["no mask"]), "and cannot write"

# %% [raw] slide
# ## The worst loss writes by far the best
# {print}

# %% [markdown]
# With each of the three seeds, the right model has by far the *worst* loss and writes by far the best.
#
# <details><summary>What does the loop waste?</summary>It recomputes all keys and values for each letter. A **KV
# cache** ([lecture @writing](@writing)) stores them.</details>
#
# The unshifted model has learned to copy its input. When it writes, its first input is "begin", which it never saw
# during training. It writes some letter and repeats it to the end.
#
# What does the model without a mask do? The figure shows its self-attention weights and the right model's, averaged
# over all heads, three seeds and 500 texts with their true targets. *Guess first:* where does each query attend
# without a mask?

# %% tags=["hide-input"]
shifted = torch.cat([torch.zeros(500, 1, dtype=torch.long), fresh.sort(dim=1).values], dim=1)
read = ["begin", "y₁", "y₂", "y₃", "y₄", "y₅"]
tables = {}
for name in ("no mask", "right"):
    looks = []                                                # (500, heads, 6, 6) of each model
    for model, _ in learned[name]:
        block, x = model.decoder_blocks[0], model.embed(shifted[:, :-1])
        block.attention(block.norm_1(x), causal=(name == "right"), weights=looks)
    tables[name] = read, torch.cat(looks, dim=1).detach().mean(dim=(0, 1))    # (n_query, n_key)
viz.weight_tables(tables, numbers=True, digits=2, allowed={"right": causal_mask(6)})
#| caption: Self-attention weights of the decoder without a mask and of the right decoder.
#|   Hatched: forbidden by the causal mask.

# %% tags=["hide-input"]
leak = tables["no mask"][1]
assert leak[:5].argmax(dim=1).tolist() == [1, 2, 3, 4, 5], "one place to the right"
assert last["no mask"] > 0.8 > 0.5 > max(right["no mask"]), "the last letter alone"

# %% [raw] slide
# ## “begin” attends to y₁
# {figure}
# |||
# It should *predict* $y_1$.
#
# A loss that is too good is the first sign of a **target leak**. The proof: change $y_t$. No output at $t$ or before may change.
#
# **Now you:** a@transformer, exercises 3 and 4

# %% [markdown]
# Without a mask, each query except the last attends to the next position, which holds its answer: *begin* should
# predict $y_1$, and it attends to $y_1$. When the model writes, this answer does not exist yet. Only the last position
# has no answer to its right. There the model had to use the source, and it gets 90 % of the last letters right. A loss
# that is too good is the first sign of such a **target leak**.
#
# To prove a leak, use the test of [lecture @masking](@masking). Change the target token $y_t$. The decoder reads $y_t$
# only from position $t + 1$ on, so no output at position $t$ or earlier may change.
#
# **Now you:** [a09](@transformer/assignment), exercise 3 (a batch of sentences of different lengths) and exercise 4 (a
# Transformer that judges several translations of one source).
#
# **A good place to stop.**
#
# ## Counting parameters and FLOPs: $12\,L\,d^2$ and $6ND$
#
# Let $h \cdot d_k = d$ and $d_\text{ff} = 4d$, and ignore the biases. Then an encoder block (or a decoder-only block)
# has
#
# | part | matrices | parameters |
# |---|---|---|
# | multi-head attention | $W_Q, W_K, W_V, W_O$, each $d \times d$ | $4d^2$ |
# | feed-forward network | $d \times 4d$ and $4d \times d$ | $8d^2$ |
# | all $L$ blocks | | $12\,L\,d^2$ |
# | embedding, and learned positions | | $\lvert V \rvert\, d + n_\text{max}\, d$ |
#
# The number of heads does not matter, and two thirds of a block's parameters are *not* attention. (A decoder block
# with cross-attention has $16\,d^2$.) *Guess first:* GPT-3 has $L = 96$ and $d = 12{,}288$. How many parameters? The
# package counts all of them, including biases, without building the model:

# %% [raw] slide
# ## Counting parameters: 12 L d²
# | part | matrices | parameters |
# |---|---|---|
# | attention | $W_Q, W_K, W_V, W_O$: $d \times d$ | $4d^2$ |
# | feed-forward network | $d \times 4d$ and $4d \times d$ | $8d^2$ |
# | all $L$ blocks | | $12\,L\,d^2$ |
# | embedding | | $\lvert V \rvert\, d$ |
#
# > **Guess first.** GPT-3: $L = 96$, $d = 12{,}288$. How many parameters?

# %%
print(f"{'':>12} {'12 L d²':>10} {'blocks':>10} {'embeddings':>10} {'total':>10}")
for name in ("gpt-2 small", "gpt-3 xl", "llama 3 8b", "gpt-3 175b"):
    config, model, *_ = preset(name)
    count = count_parameters(config, model)
    rule = 12 * config.n_layers * config.d_model**2
    blocks, tables = count.attention + count.feed_forward, count.embedding + count.positions
    tables += count.output                                    # nothing, if the output is tied
    sizes = rule, blocks, tables, count.total
    print(f"{name:>12}", *(f"{size / 1e6:8,.0f} M" for size in sizes))

# %% tags=["hide-input"]
assert count_parameters(*preset("gpt-2 small")[:2]).total == 124_439_808
assert abs(count.attention + count.feed_forward - 12 * 96 * 12_288**2) < 1e-3 * count.total

# %% [raw] slide
# ## The rule and the count
# {print}
# . . .
# **FLOPs** per parameter and token: 2 forward and 4 backward.
#
# $$C \approx 6\,N\,D$$
#
# > **Guess first.** GPT-3 was trained on 300 billion tokens. What does the rule say?

# %% [markdown]
# For the GPT models the rule gives the blocks' parameters almost exactly, and nearly all of GPT-3's parameters are in
# the blocks. For Llama the rule is only close, because the feed-forward network has three matrices and the heads share
# keys and values.
#
# For each token, each entry of a matrix takes part in one multiplication and one addition, **2 FLOPs**. The backward
# pass needs two products of the same size, one for the gradient of the input and one for the gradient of the matrix: 4
# FLOPs more. So training a model of $N$ parameters on $D$ tokens costs
#
# $$C \approx 6\,N\,D \quad\text{FLOPs}.$$ (eq:training-flops)
#
# The rule leaves out the scores $QK^\top$ and the average $AV$, which have no parameters. Their cost grows with $n^2$.
# Including the scores that a causal mask discards, this cost is about $n / (6d)$ of the cost of the blocks' matrices.
#
# <details><summary>What about the embedding, and models with two stacks?</summary>The embedding is a look-up, without
# multiplications. A tied table costs its FLOPs once, as the output layer. In an encoder–decoder each token passes
# through one stack, so count each stack with its own tokens.</details>
#
# *Guess first:* GPT-3's paper reports 300 billion tokens and 3.14 · 10²³ FLOPs. What does the rule say?

# %%
config, model, *_ = preset("gpt-3 175b")
N = count_parameters(config, model).total
print(f"6 N D = {6 * N * 300e9:.2e}")
for name in ("gpt-2 small", "gpt-3 175b"):
    config, model, *_ = preset(name)
    for n in (128, 1024):
        counted = count_training_flops(config, model, batch=1, n=n)
        rule = 6 * count_parameters(config, model).total * n
        print(f"{name:>12}, texts of {n:>4}: counted / 6 N n = {counted / rule:.2f}")

# %% tags=["hide-input"]
assert abs(6 * N * 300e9 / 3.14e23 - 1) < 0.02

# %% [raw] slide
# ## 3.14 · 10²³
# {print}
#
# **Scaling laws**, as refitted by Besiroglu et al. (2024):
#
# $$\text{loss}(N, D) \approx 1.8172 + \frac{482.01}{N^{0.3478}} + \frac{2085.43}{D^{0.3658}}$$
#
# > **Guess first.** Which has the lowest predicted loss: GPT-3, Gopher or Chinchilla?

# %% [markdown]
# The rule has to give the paper's number, because the paper computed it in this way (appendix D), without the scores.
# The package's count is a better test, because it adds up every matrix product, including the scores. The scores
# matter when the text is long and the model narrow: at 1,024 tokens the count is 14 % above the rule for GPT-2 small,
# but only 1 % for GPT-3.
#
# ## Scaling laws: a larger model, or more text?
#
# Can we predict the loss from $N$ and $D$? Kaplan et al. ([-@kaplan2020]) found that the loss falls as a power of $N$
# (without the embeddings), of $D$ and of $C$, as long as the other two are not too small. They concluded that most of
# a larger budget should go into $N$, and GPT-3 was built that way ([@brown2020], figure 2.2). Hoffmann et al.
# ([-@hoffmann2022]) wrote the loss as a sum of three terms. With the constants re-estimated by Besiroglu et al.
# ([-@besiroglu2024]), it is
#
# $$\text{loss}(N, D) \approx 1.8172 + \frac{482.01}{N^{0.3478}} + \frac{2085.43}{D^{0.3658}}$$ (eq:scaling-law)
#
# In this formula no model can avoid the first term, the **irreducible loss**. More parameters reduce the second term,
# and more text the third. *Guess first:* which model has the lowest loss: GPT-3 (175 billion parameters, 300 billion
# tokens), DeepMind's Gopher (280 and 300) or its Chinchilla (70 and 1,400)? How many parameters would the formula give
# Chinchilla's budget?

# %%
def predicted_loss(n_parameters, n_tokens):
    return 1.8172 + 482.01 / n_parameters**0.3478 + 2085.43 / n_tokens**0.3658


giants = {"GPT-3": (175e9, 300e9), "Gopher": (280e9, 300e9), "Chinchilla": (70e9, 1.4e12)}
print(f"{'':>10}  FLOPs    D / N  loss    best split of these FLOPs")
for name, (N, D) in giants.items():
    budget = 6 * N * D
    splits = {size: predicted_loss(size, budget / (6 * size))
              for size in range(10**10, 10**12, 10**9)}
    best = min(splits, key=splits.get)
    ratio = budget / (6 * best**2)
    print(f"{name:>10}  {budget:.1e}  {D / N:5.1f}  {predicted_loss(N, D):.3f}   "
          f"N = {best / 1e9:.0f} billion, D / N = {ratio:.0f}: {splits[best]:.3f}")
figures.budget_curves(predicted_loss, giants)
#| caption: Predicted loss for three training budgets (isoFLOP curves). Mark: as published;
#|   vertical stroke: the lowest loss. The axis does not begin at 0.
#| label: budget-curves

# %% tags=["hide-input"]
assert 60e9 < best < 85e9 and 15 < budget / (6 * best**2) < 25

# %% [raw] slide
# ## How to split a budget
# {print}
#
# Hoffmann et al. (2022): about 20 tokens per parameter.
#
# **Now you:** a@transformer, exercise 5

# %% [markdown]
# The formula gives Chinchilla the lowest loss, and in fact Chinchilla was better than Gopher, which is four times as
# large. By $6ND$ Gopher's budget is 14 % smaller than Chinchilla's, but the split matters more. GPT-3 and Gopher have
# fewer than 2 tokens per parameter, and their marks in [@fig:budget-curves] lie far to the right of the
# **compute-optimal** size, the vertical stroke. So both models were too large for their training.
#
# <details><summary>Does the formula predict GPT-3's own loss?</summary>No. It says what a model of that size would
# reach on DeepMind's text. GPT-3's own loss is measured in other tokens and cannot be compared.</details>
#
# Hoffmann et al. found that $N$ and $D$ should grow in equal proportion, at about 20 tokens per parameter. Today's
# models read many more tokens per parameter. A model is trained once and then *used*, at $2N$ FLOPs per token, so a
# small $N$ saves FLOPs. Llama 3 8B read about 15 trillion tokens, nearly 1,900 per parameter ([@grattafiori2024]).
#
# > *Guess first:* why did Kaplan et al. find a different law?
# > <details><summary>Answer</summary>Porian et al. ([-@porian2024]) reproduced Kaplan's law and found three causes:
# > the last layer's FLOPs were not counted, the warm-up was too long for small models, and the optimizer was not tuned
# > for each size. After correcting these, they got Hoffmann's law. So the setting decided the result. You will meet
# > this again under *Comparing architectures*.</details>
#
# > **Check yourself.** You may spend 10¹⁸ FLOPs. By the rule of 20, how large is the model, and how many tokens does
# > it read?
# > <details><summary>Answer</summary>6 · N · 20 N = 10¹⁸, so N² = 8.3 · 10¹⁵. The model has N ≈ 91 million parameters
# > and reads 1.8 billion tokens.</details>
#
# **Now you:** [a09](@transformer/assignment), exercise 5: every parameter of a GPT.
#
# ## Weight tying: the output matrix is the embedding
#
# The model has two matrices of the size of the vocabulary. At the bottom, a table of shape $(\lvert V \rvert, d)$
# turns a token into a vector. At the top, a matrix of shape $(d, \lvert V \rvert)$ turns a vector into logits. Press
# and Wolf ([-@press2017]) and Inan et al. ([-@inan2017]) made them one matrix, which is called **weight tying**:
#
# $$\text{logits} = x\, E^\top, \qquad E \in \mathbb{R}^{\lvert V \rvert \times d}$$ (eq:weight-tying)
#
# where $x$ is the output of the last norm. So the output layer is a lookup, too: $x$ is the query, and every token's
# vector is a key. Tying saves 39 of 163 million parameters in GPT-2 small. In large models it saves hardly anything,
# and they are often untied.
#
# *Guess first:* what does a tied model predict before any training? Does it matter whether the embeddings are
# multiplied by $\sqrt d$, as in the paper?

# %% [raw] slide
# ## Weight tying: the output matrix is the embedding
# $$\text{logits} = x\, E^\top, \qquad E \in \mathbb{R}^{\lvert V \rvert \times d}$$
#
# The output is a lookup: $x$ is the query, and every token's vector is a key.
#
# > **Guess first.** What does a tied model predict before any training? Does the paper's factor $\sqrt d$ on the embeddings matter?

# %% tags=["hide-input"]
untrained = TransformerConfig(vocab_size=500, d_model=64, n_layers=2, dropout=0.0)
draws = torch.Generator().manual_seed(0)
tokens = torch.randint(4, 500, (8, 32), generator=draws)                  # (batch, n)
echo = {}
for tied, scaled in ((True, True), (True, False), (False, True), (False, False)):
    shape = replace(untrained, tie_output=tied, scale_embedding=scaled)
    echo[tied, scaled] = []
    for seed in range(3):
        torch.manual_seed(seed)
        model = LanguageModel(shape)
        with torch.no_grad():
            same = model(tokens).argmax(dim=-1) == tokens                 # (batch, n)
        echo[tied, scaled].append(same.float().mean().item())
    shares = "  ".join(f"{share:4.0%}" for share in echo[tied, scaled])
    print(f"tied: {tied!s:>5}   embeddings × √d: {scaled!s:>5}   "
          f"predicts the token that it reads in {shares} of places")

# %% tags=["hide-input"]
others = [share for how, shares in echo.items() if how != (True, True) for share in shares]
assert min(echo[True, True]) > 0.5 > 0.1 > max(others)

# %% [raw] slide
# ## The token that it has just read
# {print}
#
# With the factor, the token's vector reaches the top among the sublayers' outputs, and is most similar to itself.

# %% [markdown]
# Tying has a price. With the factor $\sqrt d$, the tied model predicts the token that it has just read. We call this
# the **echo**. The residual path carries the token's vector to the top, where the output layer compares it with all
# vectors of the table, and it is most similar to itself. A token hardly ever follows itself, so training must first
# undo the echo.
#
# <details><summary><b>Scaled embeddings</b>: why have the factor at all?</summary>
#
# A tied table needs small entries, about $1/\sqrt d$, so that the logits begin at a size of about one. But then an
# embedding has length one, while the sinusoids and the sublayers' outputs have a length of about $\sqrt d$. The token
# is nearly lost among them, and so is its echo. So the paper multiplies the embeddings by $\sqrt{d_\text{model}}$
# (`scale_embedding` in the package). The paper gives no reason; this is the usual one.</details>

# %% [markdown] teaches="leaderboards and pre-training; encoder–decoder, decoder-only: T5, mBART, GPT, Llama; Liu et al.: articles from long inputs"
# ## Pre-training: masked, causal and span-corruption objectives
#
# Parallel text is rare, but plain text is plentiful. **Pre-training** makes a task from plain text: hide a part and
# predict it. The architecture's mask decides which part can be hidden. The figure shows four objectives on one
# sentence (LM: language modelling), and their masks. *Guess first:* in which of the four does every token of the text
# teach the model something?

# %% [raw] slide
# ## Pre-training: hide a part of plain text, and predict it
# > **Guess first.** Causal, masked, span corruption, prefix: in which does every token of the text teach the model something?

# %%
figures.pretraining_objectives()
#| caption: Pre-training objectives on one sentence, and their masks. Hatched: a hidden token,
#|   or a forbidden pair. Grey, not hatched: a sentinel of the decoder.
#| label: objectives

# %% [raw] slide
# ## Four objectives and their masks
# {figure}

# %% [markdown]
# Only the causal objective predicts every token.
#
# * **Causal language modelling** (GPT; [@radford2018]; [@radford2019]): decoder-only. Every position predicts the next
#   token, so a text of $n$ tokens gives $n$ predictions in one pass. One of the first decoder-only Transformers wrote
#   Wikipedia articles from their sources ([@liu2018]).
# * **Masked language modelling** (BERT; [@devlin2019]): encoder-only. If every position sees all tokens, the model can
#   copy the next token. So 15 % of the tokens are chosen, and the model predicts them from both sides.
# * **Span corruption** (T5; [@raffel2020]): encoder–decoder. One **sentinel** token replaces each chosen span. The
#   decoder predicts each sentinel followed by the tokens of its span, and a last sentinel ends the target. In mBART
#   ([@liu2020mbart]), the decoder reconstructs the whole text.
# * **Prefix language modelling** (a variant that Raffel et al. ([-@raffel2020]) compare): one stack. Its mask is
#   bidirectional within a given prefix, here *Return the number*, and causal after it.
#
# <details><summary>What does BERT read in the chosen places?</summary>In 80 % of them it reads the token `[MASK]`, in
# 10 % a random token, and in 10 % the token itself, because later tasks have no `[MASK]`.</details>
#
# ## A masked language model fills gaps
#
# Now the first task. The texts are numbers and dates in English words, a language that a model can learn in a few
# seconds. An encoder fills the gaps, 15 % of the tokens. (Each gap holds the token `<unk>`, which does not occur in
# these texts.) *Guess first:* what does the encoder put into *two ____ and five*? How sure of it can a causal model be
# that has read only *two*?

# %%
numbers = [pair.source for pair in number_words("en", "de", train=4000, test=1).train]
words = Tokenizer.train(numbers, size=130)                    # enough for whole words
spoken = encode_texts(numbers, words)                         # lists of token ids


class GapFiller(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.encoder = Encoder(config)                                    # bidirectional

    def forward(self, tokens):                                            # (batch, n)
        states = self.encoder(tokens, (tokens != PAD).sum(dim=1))         # (batch, n, d_model)
        return states @ self.encoder.embedding.tokens.weight.mT           # tied: logits


def gap_losses(model, draws):
    for epoch in range(100):
        for tokens, _ in text_batches(spoken, 512, 64, seed=epoch):
            gaps = (torch.rand(tokens.shape, generator=draws) < 0.15) & (tokens > UNK)
            logits = model(tokens.masked_fill(gaps, UNK))             # (batch, n, vocab_size)
            yield nn.functional.cross_entropy(logits[gaps], tokens[gaps])     # the gaps alone

# %% tags=["hide-input"]
torch.manual_seed(0)
filler = GapFiller(TransformerConfig(
    vocab_size=len(words), d_model=64, n_layers=2, positions="rope", scale_embedding=True,
    dropout=0.0, max_length=64,
))
descend(filler, gap_losses(filler, torch.Generator().manual_seed(1)), steps=140, lr=5e-3)
sentences = {
    "two hundred and five": "hundred", "three hundred and six, nine": "and",
    "sixty-four, seven hundred and twenty-one": "twenty-",
}
fills = {}
for text, hidden in sentences.items():
    tokens = torch.tensor([[BOS, *words.encode(text)]])                   # (1, n)
    at = words.pieces(tokens[0].tolist()).index(hidden)
    tokens[0, at] = UNK
    with torch.no_grad():
        p = filler(tokens)[0, at].softmax(dim=-1)                         # (vocab_size,)
    best = fills[hidden] = [words.pieces([i])[0] for i in p.topk(5).indices.tolist()]
    gapped = text.replace(hidden.strip("-"), "____")
    print(f"{gapped} → {', '.join(best)}   ({p.max():.2f} for the first)")
pieces = enumerate(words.pieces(range(len(words))))
tens = [i for i, piece in pieces if len(piece) > 4 and piece.endswith("ty-")]
print(f"____-one: the {len(tens)} tens together {p[tens].sum():.2f}")
begun = [words.pieces(text[2:3])[0] for text in spoken if words.pieces(text[1:2]) == ["two"]]
share = begun.count("hundred") / len(begun)
print(f"training texts that begin with two: {share:.0%} go on with hundred")

# %% tags=["hide-input"]
assert 0.4 < share < 0.6
assert fills["hundred"][0] == "hundred" and fills["and"][0] == "and"
assert all(fill.endswith("ty-") for fill in fills["twenty-"][:4]) and len(tens) == 8
assert 0.35 < p[tens].sum() < 0.7, "about half"

# %% [raw] slide
# ## A masked language model uses both sides
# {print}
#
# After *two* alone, *hundred* follows in half of the training texts.

# %% [raw] slide
# ## Three architectures
# | | self-attention | objective | good at | examples |
# |---|---|---|---|---|
# | encoder-only | bidirectional | masked LM | reading | BERT |
# | decoder-only | causal | causal LM | writing, prompts | GPT, Llama |
# | encoder–decoder | both, cross | span corruption | read one, write another | T5, BART |
#
# Then **fine-tuning**, instruction tuning, preference training (RLHF, DPO).

# %% [markdown]
# The context to the right helps. A causal model that has read *two* knows only that *hundred* follows in 52 % of the
# training texts that begin with *two*. The encoder also reads *and five*, and gives *hundred* a probability above 0.9.
# For *____-one* the likeliest tokens all fit, but all eight tens together get only half of the probability, because
# 140 steps are few. Reading both sides has a price: only 15 % of the tokens are predicted, and the encoder cannot
# write.
#
# This gives three architectures:
#
# | | self-attention | objective | good at | examples |
# |---|---|---|---|---|
# | encoder-only | bidirectional | masked LM | reading: classify, tag, search | BERT, RoBERTa |
# | decoder-only | causal | causal LM | writing and, with prompts, nearly every task | GPT, Llama |
# | encoder–decoder | both, and cross-attention | denoising: spans, or the whole text again | reading one text, writing another | T5, BART, mBART |
#
# > **Check yourself.** (1) You take the mask off a trained GPT and hope for a BERT. What has the model never learned?
# > (2) Why does BERT hide only 15 %?
# > <details><summary>Answers</summary>
# >
# > (1) It has never learned to use the context to the right: its queries have never met a key from there. And its
# > outputs mean "the next token", not "this token". (2) The reasoning was that with more gaps, too little context is
# > left to predict them from, and with fewer gaps, each pass teaches less. But this is no law: Wettig et al.
# > ([-@wettig2023]) found that 40 % is better for a large model.
# >
# > </details>
#
# **Now you:** [a09](@transformer/assignment), the extension: a mask for a prefix.
#
# ## Fine-tuning, instruction tuning, preference training
#
# **Fine-tuning** takes the trained weights, adds a small new output layer if the task needs one, and continues
# training on the task's own labelled examples, at a small learning rate. It needs far fewer examples than training
# from random weights. Radford et al. ([-@radford2018]) fine-tuned a decoder, Devlin et al. ([-@devlin2019]) an
# encoder. Often the weights stay fixed, and only a small low-rank update $AB$ of some or all matrices is trained:
# **LoRA** ([@hu2022]).
#
# Large causal models often need no fine-tuning, because they follow examples in the prompt. This **in-context
# learning** ([@brown2020]) is one reason why most large models are decoder-only.
#
# A chat model is trained further, with the same architecture and mask.
#
# * **Instruction tuning**, or **supervised fine-tuning** (SFT), is fine-tuning on requests with good answers.
# * **Preference training** uses pairs of answers of which people prefer one. Ouyang et al. ([-@ouyang2022]) train a
#   reward model on such pairs, and then raise its reward by reinforcement learning (**RLHF**). Rafailov et al.
#   ([-@rafailov2023]) train on the pairs directly (**DPO**).
# * **Reinforcement learning with verifiable rewards** ([@lambert2024]) needs answers that can be checked, as in
#   mathematics or code. The check is the reward.
#
# **A good place to stop.**
#
# ## A language model of docstrings: a short training and a long one
#
# In [lecture @bottleneck](@bottleneck), n-gram counts competed with networks on the docstrings of Python's standard
# library. Our candidate now is a small Llama: decoder-only, pre-norm, with rotary embeddings and a gate (explained
# below). We train it here for a few seconds. A **kept checkpoint** of the same shape was trained for longer and on
# more text: the same docstrings, and those of torch, numpy and matplotlib.

# %%
corpus, folder = docstrings(), kept_checkpoint("writer")
tokenizer = Tokenizer.load(folder / "tokenizer.json")                     # 2,048 subword tokens
train, test = encode_texts(corpus.train, tokenizer), encode_texts(corpus.test, tokenizer)
record = measured("writer")
kept = pretrained.load(folder)                  # config.json, model.safetensors, tokenizer.json
print(record["command"])                                  # an hour at the most
print(f"{record['parameters']:,} parameters, {record['steps']:,} steps, "
      f"{record['processor_minutes']:.0f} minutes of one processor core")

# %%
torch.manual_seed(0)
# the checkpoint learned with the factor √d, too; its file has it in the table
same_shape = replace(kept.model.config, dropout=0.0, scale_embedding=True)
quick = LanguageModel(same_shape)
history = fit_texts(quick, train, steps=100, batch_tokens=256, lr=5e-3, seed=0, name="short")
total = sum(map(len, train))
print(f"at most {100 * 256:,} of {total:,} training tokens ({100 * 256 / total:.0%})")

# %% [raw] slide
# ## A language model of docstrings
# A 5-gram counter; our model after a few seconds; a **kept checkpoint** of the same shape, trained for longer on more text.
#
# > **Guess first.** Which has the lowest loss on modules that none of them has read?

# %% [markdown]
# The third candidate is a 5-gram model, the best of the counters. *Guess first:* which has the lowest loss on modules
# that none of the three has read?
#
# <details><summary>Why may your numbers differ?</summary>The docstrings are those of the running Python; versions
# other than 3.11 give other numbers.</details>

# %%
counter = NGram(train, 5, len(tokenizer))
log_p = {"5-gram": torch.cat([counter.log_probabilities(text) for text in test])}
pieces = cut(test, kept.model.max_positions)              # long texts in parts of 256 tokens
for name, model in {"short training": quick, "kept checkpoint": kept.model}.items():
    scores = text_log_probabilities(model, pieces, batch_size=8)
    log_p[name] = torch.cat(scores).double()                                  # (n_test,)
n_bytes = sum(len(text.encode()) + 1 for text in corpus.test)             # <eos> counts as one


for name, values in log_p.items():
    bits = -values.sum() / math.log(2) / n_bytes
    print(f"{name:>15}: {-values.mean():.3f} nats per token, "
          f"perplexity {perplexity(values):5.1f}, {bits:.3f} bits per byte")

# %% [raw] slide
# ## The checkpoint, then the counter
# {print}
#
# Is this fair? The checkpoint has read more text. So a second counter counts all of that text.

# %% [markdown]
# The checkpoint has the lowest loss, the counter comes second, and the short training is far behind. Neither
# comparison with the counter is fair: the short training has read 6 % of what the counter has counted, and the
# checkpoint has read *more*. So a second counter has counted everything that the checkpoint has read. *Guess first:*
# does this counter overtake the checkpoint?

# %% tags=["hide-input"]
gain = record["gain"]                                     # of the checkpoint over the 5-gram
nats = record["nats_per_token"]
print(f"5-gram of the same {record['tokens']['training']:,} tokens: "
      f"{nats['5-gram']:.3f} nats per token, checkpoint {nats['kept']:.3f}")
print(f"gain {gain['mean']:+.3f} nats per token, 95 % interval "
      f"{gain['low']:+.3f} to {gain['high']:+.3f}, over {gain['texts']} texts")

# %% tags=["hide-input"]
at = {name: perplexity(values) for name, values in log_p.items()}
assert at["short training"] > 1.5 * at["5-gram"] and at["kept checkpoint"] < 0.9 * at["5-gram"]
assert gain["low"] > 0

# %% [raw] slide
# ## A counter of the same text
# {print}
#
# The whole 95 % interval of the gain lies above zero: the checkpoint is better.

# %% [markdown]
# More text helps the counter, but the checkpoint stays ahead: the whole interval lies above zero. The interval is
# probably too narrow, because there is only one training seed, and docstrings of one module resemble each other. A
# "Going further" at the end asks whether the checkpoint overfits.
#
# What do the two networks write when we sample token by token?

# %% tags=["hide-input"]
def continued(model, beginnings, seed, length=30, **how):
    prompts = [[BOS, *tokenizer.encode(beginning)] for beginning in beginnings]
    padded, real = pad_batch(prompts)                         # (batch, n), and where a token is
    drawn = sample(model, padded, real.sum(dim=1), length, special=kept.special,
                   generator=torch.Generator().manual_seed(seed), **how).tokens
    rows = [[int(i) for i in row if i not in (PAD, EOS)] for row in drawn]
    return [start + row for start, row in zip(prompts, rows, strict=True)]


beginnings = ["Return the", "Return True if", "Convert", "This class", "If the"]
for name, model in {"short training": quick, "kept checkpoint": kept.model}.items():
    print(f"— {name}")
    for text in continued(model, beginnings, seed=0, temperature=0.8, top_p=0.9):
        print("  ", tokenizer.decode(text))

# %% [markdown]
# The checkpoint's texts sound like docstrings, but make little sense. The short training has learned which tokens are
# frequent, and a few pairs of tokens.
#
# ## Sampling: temperature, top-k, top-p
#
# A language model gives a distribution over the next token, from which we *sample*. Three settings change the logits
# before the softmax. (You write all three in [a11](@writing/assignment).)
#
# * **Temperature** divides the logits by $T$. Below 1 the likely tokens become likelier. Above 1 the probabilities
#   become more alike.
# * **Top-k** ([@fan2018]) keeps the $k$ likeliest tokens.
# * **Top-p**, or nucleus sampling ([@holtzman2020]), keeps the fewest tokens whose probabilities add up to at least
#   $p$: few where the model is sure, many where it is not.
#
# The figure shows the kept model's distribution after *Return True if*. A curve gives the **cumulative probability**
# of the first $k$ tokens, likeliest first. *Guess first:* how many tokens does top-p 0.9 keep at $T = 0.3$, and how
# many at $T = 1.5$?

# %% [raw] slide
# ## Sampling: temperature, top-k, top-p
# | setting | |
# |---|---|
# | **temperature** | divides the logits by $T$ |
# | **top-k** | keeps the $k$ likeliest tokens |
# | **top-p** | keeps the fewest tokens with mass $p$ |
#
# > **Guess first.** How many tokens does top-p 0.9 leave at $T = 0.3$, and at $T = 1.5$?

# %%
with torch.no_grad():
    prompt = torch.tensor([[BOS, *tokenizer.encode("Return True if")]])       # (1, n)
    logits = kept.model(prompt)[0, -1]                                        # (vocab_size,)
likeliest = [tokenizer.pieces([i])[0] for i in logits.topk(14).indices.tolist()]


def knobs(temperature, cut):
    return figures.sampling_frame(logits, likeliest, temperature, cut)


viz.explore(knobs, cut=["everything", "top-k 5", "top-k 50", "top-p 0.9"],
            temperature=[0.3, 0.7, 1.0, 1.5],
            start={"temperature": 1.0, "cut": "top-p 0.9"}, names={"cut": "what is kept"})
#| caption: Cumulative probability of the first k tokens, likeliest first, before and after the
#|   cut. Perplexity: the exponential of the distribution's entropy.

# %% [raw] slide
# ## After “Return True if”
# {figure}

# %%
for T in (0.3, 1.0, 1.5):
    left = int((warp_logits(logits[None], T, top_p=0.9) > -torch.inf).sum())
    print(f"T = {T}: top-p 0.9 keeps {left} of {len(logits):,} tokens")

# %% [markdown]
# The same top-p keeps one token or hundreds, because the temperature is applied *before* the cut.
#
# How do the settings change whole texts? With each setting and each of three seeds we sample 20 texts and measure
# **distinct-1**, the share of *different* tokens among all tokens (also called the type–token ratio). *Guess first:*
# which setting gives the smallest share?

# %% tags=["hide-input"]
ways = {
    "T = 0.2": {"temperature": 0.2}, "T = 0.8, top-p 0.9": {"temperature": 0.8, "top_p": 0.9},
    "T = 1, top-k 50": {"top_k": 50}, "T = 1": {}, "T = 1.5": {"temperature": 1.5},
}
print("distinct-1, three seeds: four texts for each of five beginnings, which count, too")
examples = {}
for name, how in ways.items():
    different = []
    for seed in range(3):
        written = continued(kept.model, beginnings * 4, seed, **how)
        different.append(len({i for text in written for i in text}) / sum(map(len, written)))
        examples.setdefault(name, tokenizer.decode(written[2]))               # "Convert"
    print(f"{name:>20} ", *(f"{share:4.0%}" for share in different))
for name in ("T = 0.2", "T = 1.5"):
    print(f"\n{name}: {examples[name]}")

# %% [markdown]
# At a low temperature the model repeats the same likely phrases, within a text and from text to text. At a high
# temperature it often chooses unlikely tokens, and the text is hardly English. [Lecture @writing](@writing) continues
# with beam search and the problems of the *likeliest* text.
#
# > **Check yourself.** (1) At which temperature is sampling greedy, and at which are all tokens equally likely? (2)
# > Why can top-k keep too few tokens in one place and too many in another?
# > <details><summary>Answers</summary>(1) As the temperature approaches 0, and as it grows without limit. (2) After
# > *Return True* there may be three sensible tokens, and after *This class* hundreds. Five are too many in the first
# > place and too few in the second. Top-p asks the model.</details>
#
# ## Loading a checkpoint: weights that others have trained
#
# The kept checkpoint is a folder in the format in which models are published: `config.json` has the sizes,
# `model.safetensors` the named tensors, and `tokenizer.json` the vocabulary. A loader copies each tensor to its place,
# and raises an error if one is missing or left over.
#
# The cell writes a small checkpoint with GPT-2's names and random numbers, and reads it back. *Guess first:* GPT-2 has
# a tied output and learned positions. Which tensors does its file have besides those of the blocks? (The list shows
# the first block.)

# %%
import tempfile

from safetensors.torch import load_file

torch.manual_seed(0)
shape = TransformerConfig(vocab_size=64, d_model=32, n_layers=2, positions="learned",
                          activation="gelu tanh", max_length=16)
mine = LanguageModel(shape).eval()
with tempfile.TemporaryDirectory() as place:
    pretrained.save(mine, place, "gpt2")
    for name, size in figures.names_of(load_file(f"{place}/model.safetensors")):
        print(f"{name:<36} {size}")
    theirs = pretrained.load(place).model
tokens = torch.randint(4, 64, (2, 9))
print("the same logits:", torch.equal(mine(tokens), theirs(tokens)))

# %% [raw] slide
# ## What Llama changed
# | | 2017 | Llama |
# |---|---|---|
# | norm | LayerNorm, post | RMSNorm, pre |
# | feed-forward | ReLU | **SwiGLU**: a gate |
# | positions | sinusoids, added once | RoPE, in every attention |
# | heads | keys for every head | groups share them |
# | biases, dropout | yes | none |
# | output; embeddings | tied; times $\sqrt d$ | separate; not scaled |
#
# A **gate**: of two products, one decides, element by element, how much of the other passes.

# %% [markdown] teaches="Llama against the original Transformer @ What Llama"
# `wte` and `wpe` are the tables of tokens and positions. `c_attn` is $W_Q, W_K, W_V$ side by side, stored as (in,
# out), the transpose of `nn.Linear`. `ln_1`, `ln_2` and `ln_f` are the norms. The output has no matrix of its own,
# because it is tied.
#
# <details><summary>How the published file differs</summary>`pretrained.load("gpt2")` downloads the published GPT-2.
# The names in its file lack the prefix `transformer.`. The model has 12 blocks, width 768, 1,024 positions and 50,257
# tokens. Each block also has a mask, `attn.bias`, which is not a parameter. The download needs a network and the
# package `huggingface_hub`.</details>
#
# **Now you:** [a09](@transformer/assignment), exercise 6: build a model of GPT-2's shape, and load a checkpoint into
# it.
#
# ## What Llama changed
#
# Llama's block still has the two lines of the 2017 encoder block. Besides the norm's place there are seven changes:
#
# | | 2017 | Llama | lecture |
# |---|---|---|---|
# | norm | LayerNorm | RMSNorm: no mean is subtracted | [@deep_stacks](@deep_stacks) |
# | feed-forward network | ReLU | SwiGLU: a gate | here |
# | positions | sinusoids, added once | rotary embedding, in every attention | [@order](@order) |
# | heads | own keys and values | groups share them (larger Llama 2, Llama 3) | [@many_heads](@many_heads) |
# | biases, dropout | yes | none | here |
# | output matrix | tied to the embedding | separate (tied in some small models) | here |
# | embeddings | times $\sqrt d$ | not scaled | here |
#
# <details><summary>What is a <b>mixture of experts</b>?</summary>In many of today's largest models each block has many
# feed-forward networks, and a router sends each token to a few of them. See [lecture
# @errata_lab](@errata_lab).</details>
#
# In a **gated** feed-forward network ([@dauphin2017]; [@shazeer2020]) two matrix products lead from $d$ to
# $d_\text{ff}$. One goes through an activation function and becomes the **gate**, which multiplies the other product
# **element by element**. The activation function gives the network its name: σ in GLU, ReLU in ReGLU, GELU in GEGLU,
# and $\operatorname{silu}(z) = z\,\sigma(z)$ in **SwiGLU**. *Guess first:* a gate of silu(−3), silu(0) or silu(3)
# multiplies a 2. What is the result?

# %%
for z in (-3.0, 0.0, 3.0):
    gate = nn.functional.silu(torch.tensor(z)).item()
    print(f"silu({z:g}) = {gate:.2f}: a 2 passes as {2 * gate:.2f}")

# %% [markdown] teaches="Transformer++: ten times more efficient; do modifications transfer: which help"
# In a ReLU network the sign of a number decides whether it passes. In a gated network a second number decides how much of
# it passes.
#
# > *Guess first:* a gated network has three matrices instead of two. What must $d_\text{ff}$ become to keep the number
# > of parameters?
# > <details><summary>Answer</summary>It must shrink to two thirds. Two thirds of 4 · 4096 is about 10,923. Llama 2
# > rounds this up to a multiple of 256 and has 11,008.</details>
#
# **Now you:** [a09](@transformer/assignment), exercise 7.
#
# ## Comparing architectures: "ten times more efficient", or no difference?
#
# The deck of CS11-711 compares the "Transformer" with "Transformer++", "basically" Llama 2, and concludes: "Stronger
# architecture is ≈ 10× more efficient!" The name comes from a figure of Gu and Dao ([-@gu2023]). Their baseline is
# GPT-3's recipe. Their Transformer++ has rotary embeddings, SwiGLU, RMSNorm, no biases, *and higher learning rates*.
#
# Narang et al. ([-@narang2021]) trained more than forty published modifications in one code base and concluded that
# "most modifications do not meaningfully improve performance". Can both be right? *Before you go on, say how you would
# find out.*
#
# `benchmarks/modifications.py` trained a language model of 0.18 million parameters in fourteen versions with five
# seeds each. The **baseline** is decoder-only, with pre-norm, LayerNorm, ReLU, sinusoids, a tied output, embeddings
# times $\sqrt d$, three layers, $d = 64$, and learning rate 0.01. Every other version changes one thing (*Llama's
# four* changes four), and reads the same texts in the same order. The vocabulary has 512 tokens, not the checkpoint's
# 2,048, so the two models' nats per token cannot be compared. Here are the losses of two versions that differ only in
# the norm:

# %% [raw] slide
# ## “Ten times more efficient”, or no difference?
# - A deck: "Stronger architecture is ≈ 10× more efficient!"
# - Narang et al. (2021): "most modifications do not meaningfully improve performance"
#
# > **Before you go on:** how would you find out?

# %% tags=["hide-input"]
run = measured("modifications")
print(run["command"])
layer, rms = (run["variants"][name]["losses"] for name in ("baseline", "RMSNorm"))
print("     seed", *(f"{seed:>7}" for seed in run["seeds"]))
print("LayerNorm", *(f"{loss:7.3f}" for loss in layer))
print("  RMSNorm", *(f"{loss:7.3f}" for loss in rms))
gains = [before - after for before, after in zip(layer, rms, strict=True)]
print("     gain", *(f"{gain:+7.3f}" for gain in gains))

# %% tags=["hide-input"]
assert max(layer) - min(layer) > 3 * abs(statistics.mean(layer) - statistics.mean(rms))
assert min(rms) < statistics.mean(layer) < max(rms), "one run of each can be in either order"

# %% [raw] slide
# ## A new seed changes more than a new norm
# {print}
#
# Several seeds, the *same* for every variant, equal steps and parameters, error bars on the **differences**.
#
# > **Guess first.** Which helps most: SwiGLU, RMSNorm, untied output, RoPE or shared keys?

# %% [markdown]
# A new seed changes the loss more than the new norm does, so one run of each can suggest that RMSNorm helps, or that
# it harms. But the two runs in a column share their seed, so much of the noise cancels in their difference. A fair
# comparison has several seeds, the *same* for every variant, equal steps, equal parameters, and error bars on the
# **differences**. It also chooses each variant's learning rate on the validation set. Ours uses 0.01 for all, which
# may suit some better than others.
#
# The next figure shows twelve of the changes. *Llama's four* has RMSNorm, SwiGLU, RoPE and GQA together. *Twice the
# layers* has 6 layers, each with half the heads and half of $d_\text{ff}$, and nearly as many parameters as the
# baseline. The orange squares are results of Narang et al. for seven of these changes. Their encoder–decoder is a
# thousand times larger, with another objective and other texts, so compare only signs and rough sizes. *Guess first:*
# which helps most, and which makes no measurable difference: SwiGLU, RMSNorm, untied output, rotary embeddings (RoPE)
# or grouped-query attention (GQA)?

# %% tags=["hide-input"]
STUDENT = {3: 4.30, 5: 2.78, 10: 2.26}                        # Student's t for so many seeds


def bars(run):
    """Each variant's difference, and half of its 95 % interval, by Student's t."""
    t = STUDENT[len(run["seeds"])]
    rows = run["variants"].items()
    return {name: (row["difference"], t * row["standard_error"]) for name, row in rows}


here, published, vanilla = bars(run), {}, MODIFICATIONS[0]
same = {
    "GeLU": "GELU", "ReGLU": "ReGLU", "GeGLU": "GEGLU", "SwiGLU": "SwiGLU",
    "RMS Norm": "RMSNorm",
    "Tied encoder/decoder input embeddings": "untied output",
    "24 layers, d_ff = 1536, H = 6": "twice the layers",
}
for row in MODIFICATIONS:
    if row.name in same:                                      # of each model five runs
        spread = 2.31 * math.sqrt((row.early_deviation**2 + vanilla.early_deviation**2) / 5)
        published[same[row.name]] = row.early_loss - vanilla.early_loss, spread

# %% tags=["hide-input"]
drawn = {name: bar for name, bar in here.items() if name not in ("baseline", "post-norm")}
groups = {
    "feed-forward network": ("GELU", "ReGLU", "GEGLU", "SwiGLU"),
    "positions": ("learned positions", "no positions", "RoPE"),
    "norm, heads, depth, output": ("RMSNorm", "GQA", "twice the layers", "untied output"),
    "four together": ("Llama's four",),
}
assert sorted(drawn) == sorted(name for names in groups.values() for name in names)
figures.changes_to_the_block({
    "here: the docstrings, after 300 steps": drawn, "Narang et al. 2021: early loss": published,
}, groups)
print(f"not drawn: post-norm {here['post-norm'][0]:+.2f}")
def paired(losses, others):
    """The mean difference of runs with one seed, and half of its 95 % interval."""
    gaps = [loss - other for loss, other in zip(losses, others, strict=True)]
    t = STUDENT[len(gaps)]
    return statistics.mean(gaps), t * statistics.stdev(gaps) / math.sqrt(len(gaps))


losses = {name: row["losses"] for name, row in run["variants"].items()}
compared = {names: paired(*(losses[name] for name in names)) for names in (
    ("RoPE", "untied output"), ("Llama's four", "RoPE"), ("RoPE", "no positions"))}
for names, (middle, half) in compared.items():
    print(f"{' − '.join(names):>22}, paired: {middle:+.3f} ± {half:.3f}")
sizes = {name: row["parameters"] for name, row in run["variants"].items()}
more = {name: sizes[name] / sizes["baseline"] - 1 for name in ("untied output", "GQA")}
print(f"parameters: baseline {sizes['baseline']:,},",
      ", ".join(f"{name} {share:+.0%}" for name, share in more.items()))
#| caption: Twelve changes to the block, here and as published ([@narang2021]), with 95 %
#|   intervals. Hollow: the interval contains zero.
#| label: twelve-changes

# %% tags=["hide-input"]
for gate in ("ReGLU", "GEGLU", "SwiGLU"):
    assert -0.1 < here[gate][0] < -0.02 and sum(published[gate]) < 0, "here and there"
assert max(abs(here["RMSNorm"][0]), abs(here["GQA"][0])) < 0.03
assert here["RoPE"][0] < here["Llama's four"][0] < 0 and here["no positions"][0] < 0
assert here["untied output"][0] < -0.05 and published["untied output"][0] > 0
worse, half = compared["Llama's four", "RoPE"]
assert worse > half, "the four are worse than one of them"
ahead, half = compared["RoPE", "untied output"]
assert abs(ahead) < half, "not decided"
rest = [size / sizes["baseline"] - 1 for name, size in sizes.items() if name not in more]
assert max(map(abs, [*rest, more["GQA"]])) < 0.08, "the others have as many parameters"
assert more["untied output"] > 0.15, "one has more"

# %% [raw] slide
# ## Twelve changes, here and in a model a thousand times as large
# {figure}

# %% [markdown]
# Rotary embeddings and the untied output help most here, by 0.15 and 0.14 nats. Their difference, paired by seed, is
# −0.012 ± 0.018, so these runs do not show which of the two helps more. RMSNorm and GQA make no measurable difference.
#
# * **The gates transfer.** They lower the loss by about a twentieth of a nat, here with 0.2 million parameters and
#   there with 223 million. Shazeer ([-@shazeer2020]) attributes their success, "as all else, to divine benevolence".
# * **RMSNorm and GQA are used anyway**, because they save time and memory.
# * **After 300 steps a model without positions is better than one with sinusoids; after 1200 steps it is worse.** A
#   causal mask alone shows a decoder some order ([lecture @order](@order)).
# * **The untied output has 18 % more parameters**, so this comparison is not fair. In Narang et al. it harms, while
#   RMSNorm helps a little: signs need not transfer.
# * **Post-norm is far behind**, mostly because of the learning rate (a "Going further" at the end).
#
# ## Testing explanations: rotary embeddings, untied output
#
# Here are two guesses about the two largest gains:
#
# 1. *Rotary embeddings* gain because sinusoids disturb the baseline early in training.
# 2. *The untied output* gains because a tied model with scaled embeddings begins with the echo, and 300 steps are too few
#    to unlearn it.
#
# *Which of these guesses do you believe?* More steps test both guesses: each gain should shrink. The first guess has a
# more direct test: a model without positions has no sinusoids to disturb it, so it should gain about as much as RoPE.
# For the second guess, an untied output should gain less without the factor $\sqrt d$, because then there is no echo.
# We test this in models with RoPE, because beside sinusoids an unscaled embedding is nearly lost.

# %% tags=["hide-input"]
tests = {
    "1200 steps": "longer", "learning rate 0.003": "slower", "without √d": "unscaled",
    "with rotary embeddings": "rope", "with rotary embeddings, without √d": "rope_unscaled",
    "1200 steps, no positions": "no_positions",
}
found = {title: measured(f"modifications_{name}") for title, name in tests.items()}
longer, slower, unscaled, rotary, neither, bare = map(bars, found.values())
output = "untied output"
pairs_of_bars = {
    "RoPE: 300 → 1200 steps": (here["RoPE"], longer["RoPE"]),
    "no positions: 300 → 1200 steps": (here["no positions"], bare["no positions"]),
    "untied output: 300 → 1200 steps": (here[output], longer[output]),
    "untied output: with → without √d": (rotary[output], neither[output]),
}
print(f"{'difference from the baseline':>38}  {'before':>15}  {'after':>15}")
for name, (before, after) in pairs_of_bars.items():
    print(f"{name:>38}", *(f" {middle:+.3f} ± {half:.3f}" for middle, half in (before, after)))
with_factor, without = (
    [untied - tied for tied, untied in zip(
        *(found[title]["variants"][name]["losses"] for name in ("baseline", "untied output")),
        strict=True)]
    for title in ("with rotary embeddings", "with rotary embeddings, without √d")
)
smaller, half = paired(without, with_factor)
print("RoPE, gain of the untied output with √d less its gain without: "
      f"{smaller:.3f} ± {half:.3f}")
sides = {"RoPE": "1200 steps", "no positions": "1200 steps, no positions"}
late = paired(*(found[title]["variants"][name]["losses"] for name, title in sides.items()))
for steps, (middle, spread) in {300: compared["RoPE", "no positions"], 1200: late}.items():
    print(f"RoPE − no positions after {steps} steps, paired: {middle:+.3f} ± {spread:.3f}")
for title in ("with rotary embeddings", "with rotary embeddings, without √d"):
    means = {name: row["mean"] for name, row in found[title]["variants"].items()}
    print(f"{title}: loss {means['baseline']:.3f} tied, {means[output]:.3f} untied")
figures.gains_before_and_after({
    name: tuple((-middle, half) for middle, half in both)
    for name, both in pairs_of_bars.items()
})
#| caption: Gain over the baseline in two settings, with 95 % intervals. Orange: the gain grows;
#|   blue: it shrinks. Last row: both models have RoPE.

# %% tags=["hide-input"]
assert here["untied output"][0] < 1.4 * longer["untied output"][0] < 0, "gains less than before"
assert longer["RoPE"][0] < 1.5 * here["RoPE"][0] < 0, "gains more than before"
assert 0.4 < neither["untied output"][0] / rotary["untied output"][0] < 0.6, "it shrinks"
assert smaller > half > 0
assert here["no positions"][0] < 0 < bare["no positions"][0] - bare["no positions"][1]

# %% [raw] slide
# ## Two explanations, tested
# {print}
#
# RoPE's gain *grows* with more steps. A model without positions loses its gain. The untied output's gains shrink.

# %% [markdown]
# How many steps is a gain worth? Four times the steps lower the baseline's loss by 0.475 nats. If the loss falls
# linearly in the logarithm of the steps, a gain of $g$ nats is worth $4^{\,g / 0.475}$ times the steps.

# %% tags=["hide-input"]
early, later = (study["variants"]["baseline"]["mean"] for study in (run, found["1200 steps"]))
fall = early - later
print(f"four times the steps lower the baseline's loss by {fall:.3f}:")
rows = ("RoPE", 300, here), ("Llama's four", 300, here), ("RoPE", 1200, longer)
for name, steps, study in rows:
    gain = -study[name][0]
    print(f"  {name:>12}, {gain:.3f} at {steps:>4} steps: "
          f"worth {4 ** (gain / fall):.1f} times the steps"
          + " (an extrapolation: no run is longer)" * (steps == 1200))

# %% [markdown] teaches="translation results and training cost"
# | guess | it predicts | result | verdict |
# |---|---|---|---|
# | RoPE gains because sinusoids disturb early training | the gain shrinks with more steps | 0.15 → 0.38 | refuted as the main reason |
# | the same | a model without positions gains about as much as RoPE | 0.05 → −0.04 | explains a part at first: a third of RoPE's gain after 300 steps, none after 1200 |
# | the untied output gains because it has no echo to unlearn | the gain shrinks with more steps | 0.14 → 0.06 | passed; but a gain of 0.06 is left, perhaps from the 18 % more parameters |
# | the same | the gain shrinks without $\sqrt d$, with RoPE | 0.10 → 0.05 | passed; but without $\sqrt d$ both models are worse by 0.3 nats or more, so this does not measure the echo alone |
#
# <details><summary>Is the test without positions fair?</summary>A model without positions also knows less about the
# order. But learned positions, which begin small and show the order, gain about as much as a model without positions
# after 300 steps.</details>
#
# An explanation that comes after the result is a guess until it passes a test that could have refuted it.
#
# What about the factor of ten? It is the *horizontal* distance between two loss curves: how many times as much compute
# the weaker model needs for the same loss. Gu and Dao's section on their figure states no such factor.
#
# * **Here the factor is 1.4.** "Llama's four" gain 0.117 nats, worth $4^{0.117 / 0.475} = 1.4$ times the baseline's
#   steps.
# * **The factor is not constant.** For RoPE it is 1.6 after 300 steps and 3.0 (extrapolated) after 1200. So our 1.4
#   does not refute the factor of ten, but such a factor must name its budget and its recipe.
# * **Gains do not add up.** In [@fig:twelve-changes] "Llama's four" together are worse than RoPE alone. (They also
#   have 7 % fewer parameters, through GQA.)
#
# So both papers can be right. Narang et al. change one thing at a time in a fixed recipe. Gu and Dao change everything
# at once, including the learning rate, and compare whole *recipes*.
#
# > **Check yourself.** (1) A friend reports that RoPE lowers the loss by 0.02, with one seed. What do you ask? (2) All
# > variants have the same learning rate. Which variants does that favour?
# > <details><summary>Answers</summary>(1) How much do two seeds of the same model differ? Were the seeds the same in
# > both runs? What were the budget and the learning rate? (2) It favours the variants that this rate suits. A fair
# > comparison looks for each variant's best rate on validation data, which costs several times as much.</details>
#
# **Now you:** [a09](@transformer/assignment), the questions in words.
#
# ## Results of 2017: quality of translation against cost of training
#
# Why did the Transformer replace recurrent networks within two years? The paper (section 4) compares layers. A
# recurrent layer needs $n$ steps, one after the other. Self-attention computes all positions at once, in a few large
# matrix products that suit GPUs, and any two positions are one step apart. The next figure shows the paper's table.
# *Guess first:* is the new model above the others, left of them, or both?

# %% tags=["hide-input"]
panels = {}
for pair, title in {"en-de": "English to German", "en-fr": "English to French"}.items():
    panels[title] = {
        row.model + " ensemble" * row.ensemble: (row.flops[pair], row.bleu[pair])
        for row in TRANSLATION if pair in row.flops
    }
viz.labelled_points(
    panels, x_name="training cost (FLOPs)", y_name="BLEU, newstest2014",
    sides={
        "ConvS2S": "upper", "MoE": "left", "GNMT + RL": "lower",
        "ConvS2S ensemble": "above", "GNMT + RL ensemble": "below",
        "Deep-Att + PosUnk ensemble": "below",
    },
    hollow=[f"{row.model} ensemble" for row in TRANSLATION], room=6,
)
cost = {row.model: row.flops["en-de"] for row in TRANSLATION if row.model.startswith("Transf")}
for name, steps in {"base": 100_000, "big": 300_000}.items():           # the paper's
    config, model, *_ = preset(f"vaswani {name}")
    # about 25,000 tokens of source and of target a step, here as sentences of 25
    counted = steps * count_training_flops(config, model, batch=1000, n=25, n_target=25)
    share = counted / cost[f"Transformer ({name})"]
    print(f"{name:>4}: counted {counted:.1e} FLOPs, {share:.0%} of the published cost")
#| caption: BLEU against training cost, as published in 2017. Squares: the Transformer; hollow:
#|   ensembles of several models.

# %% [raw] slide
# ## Results of 2017: quality against cost of training
# {figure}

# %% [markdown]
# The answer depends on the language. For German even the base model is better than every ensemble, at a third of the
# cheapest rival's cost. For French the base model is the cheapest and the worst. The big model is the best, at less
# than a quarter of the cheapest rival's cost.
#
# <details><summary>Why is our count lower than the published cost?</summary>The published FLOPs are hours × GPUs × 9.5
# TFLOPS. By our count the models needed only 29 % and 42 % of these FLOPs. The rest is time in which the GPUs did not
# work at full speed. [Lecture @training](@training) measures such shares.</details>

# %% [markdown] erratum="no row of the Transformer; ReLU twice; Rezero renamed"
# <details><summary><b>Going further</b>: tables that were copied with a slip</summary>
#
# **A common mistake: a table copied without its point.** Two of our decks show the translation table under the heading
# "great results with Transformers", but without the Transformer's rows: base 27.3 and 38.1, big 28.4 and 41.8 BLEU.
# The best remaining row is an ensemble of ConvS2S, with 26.36 and 41.29.
#
# **A common mistake: a row with the wrong name.** In two decks the second row of Narang et al.'s table
# ([-@narang2021]) is called <i>ReLU</i>, like the baseline's activation function. The row is in fact <i>GeLU</i>, with
# numbers other than the baseline's. And <i>Rezero</i>, a residual path that starts at zero, has become <i>Resnet</i>
# in one deck and <i>Resero</i> in the other.
# </details>

# %% [markdown]
# <details><summary><b>Going further</b>: has the checkpoint trained for too long?</summary>
#
# In **overfitting** the validation loss rises while the training loss still falls. The checkpoint's validation loss
# still falls at the end (the folded cell prints it), so the checkpoint does not overfit. But at 4.74 it is far above
# the test loss, 3.88. Are the validation modules harder? If so, a 5-gram that has counted neither part must find them
# harder, too. It does: its loss is higher there by 0.8 nats, and the checkpoint's by 0.9.
#
# By the rule of 20 tokens per parameter, 2.3 million training tokens suit a model a tenth as large as the checkpoint.
# If each token counts as often as it was read (2.6 times), the tokens suit a model about a quarter as large.
# </details>

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# has the checkpoint trained for too long?
rows = record["validation"]
print("validation loss after", *(f"{row['step']:,}: {row['loss']:.3f} " for row in rows[2::3]))
reads = record["steps"] * 512 / record["tokens"]["training"]              # 512 tokens a step
print(f"each training token is read about {reads:.1f} times")
size = record["tokens"]["validation"]                         # of the first modules of train
apart = next(i for i in range(len(train)) if sum(len(text) - 1 for text in train[:i]) >= size)
other = NGram(train[apart:], 5, len(tokenizer))               # has counted neither part
harder, easier = (-torch.cat([other.log_probabilities(text) for text in texts]).mean().item()
                  for texts in (train[:apart], test))
print(f"5-gram: validation {harder:.2f}, test {easier:.2f}: {harder - easier:+.2f}; "
      f"checkpoint: {rows[-1]['loss'] - nats['kept']:+.2f}")
assert rows[-1]["loss"] == min(row["loss"] for row in rows) and 0.6 < harder - easier < 1

# %% [markdown]
# <details><summary><b>Going further</b>: post-norm and the learning rate</summary>
#
# Is post-norm far behind because it needs a lower learning rate? Then it should catch up at a rate of 0.003. It is
# behind by 1.52 nats at 0.01 and by 0.11 at 0.003, but at 0.003 the baseline is worse, too. With each model at the
# better of the two rates, post-norm is behind by 0.46. So the rate explains two thirds of the gap, perhaps more,
# because other rates may suit post-norm better.
# </details>

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# post-norm and the learning rate
rates = run["variants"], found["learning rate 0.003"]["variants"]
best = [min(rows[name]["mean"] for rows in rates) for name in ("baseline", "post-norm")]
behind = best[1] - best[0]
share = 1 - behind / here["post-norm"][0]
print(f"post-norm behind by {here['post-norm'][0]:.2f} at 0.01, {slower['post-norm'][0]:.2f} "
      f"at 0.003, {behind:.2f} at the better of the two: {share:.0%} explained")
assert 0.6 < share < 0.75 and 0 < slower["post-norm"][0] < 0.3 < 1 < here["post-norm"][0]

# %% [markdown]
# <details><summary><b>Going further</b>: a test that changed two things</summary>
#
# The echo can also be tested with sinusoids. There the untied output gains 0.14 nats with √d, so it should gain less
# without √d. It gains 0.59. This does not refute the guess. Both models are worse by a nat or more, because without
# the factor an embedding is nearly lost beside sinusoids. Two things changed, so the test decides nothing. Rotary
# embeddings add nothing to the embedding, so with them the damage is smaller, but not zero.
# </details>

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# a test that changed two things
for title, study, gain in ("with", run, here), ("without", found["without √d"], unscaled):
    losses = (f"{name} {study['variants'][name]['mean']:.2f}" for name in ("baseline", output))
    print(f"sinusoids, {title} √d: losses", *losses, f"gain {-gain[output][0]:.2f}")
assert unscaled[output][0] < 3 * here[output][0] < 0

# %% [markdown]
# <details><summary><b>Going further</b>: which slips of a loader show in the loss?</summary>
#
# The folded cell loads the kept checkpoint with three slips, one at a time. A wrong ε makes no visible difference. A
# norm that subtracts the mean changes the loss by about a hundredth of a nat, and here it even lowers the loss. A
# wrong pairing of RoPE's columns raises the loss by 0.43 nats. So a loss that looks right does not prove that a loader
# is right. Compare the logits with the original model's.
# </details>

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
# slips of a loader
documents = [text[:200] for text in encode_texts(
    [function.__doc__ for function in vars(math).values() if callable(function)], tokenizer)]
slips = {}
for slip in ("none", "another ε", "the mean subtracted", "RoPE's other pairing"):
    model = pretrained.load(folder).model
    if slip == "RoPE's other pairing":
        other = LanguageModel(replace(model.config, rope_style="interleaved")).eval()
        other.load_state_dict(model.state_dict())
        model = other
    for part in model.modules():
        if type(part).__name__ == "RMSNorm" and slip == "another ε":
            part.eps = 1e-6
        if type(part).__name__ == "RMSNorm" and slip == "the mean subtracted":
            part.register_forward_pre_hook(
                lambda norm, args: (args[0] - args[0].mean(dim=-1, keepdim=True),))
    slips[slip] = -torch.cat(text_log_probabilities(model, documents)).mean().item()
    print(f"slip: {slip:>20}  {slips[slip]:.3f} nats per token on the docstrings of math")
moved = [abs(loss - slips["none"]) for loss in slips.values()]
assert moved[1] < 0.001 < moved[2] < 0.02 < 0.3 < moved[3] < 0.5

# %% [raw] slide
# ## In short
# | | |
# |---|---|
# | encoder block | $x \leftarrow x + \operatorname{MHA}(\tilde x, \tilde x),\quad x \leftarrow x + \operatorname{FFN}(\tilde x)$ |
# | decoder block | causal $\operatorname{MHA}(\tilde x, \tilde x)$, $\operatorname{MHA}(\tilde x, \text{memory})$, $\operatorname{FFN}$ |
# | output, tied | $\text{logits} = x E^\top$ |
# | size | $N \approx 12\,L\,d^2 + \lvert V \rvert d$ |
# | cost of training | $C \approx 6\,N\,D$ FLOPs |
#
# **Now do** assignment a@transformer. **Next:** lecture @training.

# %% [markdown]
# ## In short
#
# | | | shape |
# |---|---|---|
# | encoder block | $x \leftarrow x + \operatorname{MHA}(\tilde x, \tilde x),\quad x \leftarrow x + \operatorname{FFN}(\tilde x)$ | $(n_\text{source}, d)$ |
# | decoder block | causal $\operatorname{MHA}(\tilde x, \tilde x)$, then $\operatorname{MHA}(\tilde x, \text{memory})$, then $\operatorname{FFN}$ | $(n_\text{target}, d)$ |
# | output, tied | $\text{logits} = x E^\top$ | $(n_\text{target}, \lvert V \rvert)$ |
# | size | $N \approx 12\,L\,d^2 + \lvert V \rvert d$ | |
# | cost of training | $C \approx 6\,N\,D$ FLOPs | |
# | compute-optimal | $D \approx 20\,N$, so $C \approx 120\,N^2$ | |
#
# Encoder-only, decoder-only and encoder–decoder models have one kind of block. They differ in the mask and in
# cross-attention. A decoder needs the shift and the causal mask, and a loss that is too good suggests that one of them
# is missing. Pre-training hides a part of plain text and predicts it, and the mask decides which part can be hidden.
# The claim that a change is better needs a budget, a learning rate and error bars.
#
# > **Check yourself.**
# > 1. You copy a Llama checkpoint into your own code. No error is raised, but the outputs differ. Name three lines to
# >    check. Which slips show in the loss, and which only in a parity test?
# > 2. Why does a decoder-only model need no cross-attention to translate?
# > 3. You double $d$ and keep $L$, $n$ and $D$. By how much do $N$ and $C$ grow?
# > <details><summary>Answers</summary>
# >
# > 1. Check the norm's ε and whether the norm subtracts the mean, RoPE's pairing of columns (halves or neighbours),
# >    which of the two matrices is the gate, and which query heads share a key head. The first two hardly change the
# >    loss of our kept checkpoint. A wrong pairing changes it clearly (see the last "Going further"), and so does a
# >    swapped gate (a09, exercise 7).
# > 2. Source and target are in one text, and causal self-attention lets the target's positions attend to the source.
# > 3. Both grow about fourfold where the blocks, $12 L d^2$, dominate. The embeddings only double.</details>
#
# **Now do** [assignment @transformer](@transformer/assignment) (about two and a half hours): seven exercises, three
# questions in words and an extension.
# **Next:** [lecture @training](@training), on training an encoder–decoder.
#
# **In the package.** `attncourse.transformer` has the models, `parity` the parity test, `counting` the published sizes;
# `pretrained` loads GPT-2, Llama, BERT, T5 and others.
#
# **Further reading.** [+@vaswani2017]: by now all of it. [+@press2017]. [+@radford2018]. [+@devlin2019], section 3.1.
# [+@wettig2023]. [+@raffel2020], section 3, for objectives and masks. [+@ouyang2022]; [+@rafailov2023]. [+@liu2018].
# [+@brown2020], section 2. [+@kaplan2020], section 2.1 for the 6; [+@hoffmann2022]; [+@besiroglu2024].
# [+@holtzman2020]. [+@shazeer2020].
# [+@narang2021], table 1; [+@gu2023], figure 4. [+@touvron2023llama], section 2.2.
