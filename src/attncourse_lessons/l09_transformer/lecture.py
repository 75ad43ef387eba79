# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @transformer · The Transformer
#
# *About 60 minutes, of which one is computing. You need the parts: attention over a memory ([lecture
# @cross_attention](@cross_attention)), positions ([lecture @order](@order)), masks and the feed-forward network
# ([lecture @masking](@masking)), heads ([lecture @many_heads](@many_heads)), residual paths and norms ([lecture
# @deep_stacks](@deep_stacks)).*
#
# When you have finished you will be able to wire an encoder, a decoder and both together from these parts, and to
# prove that the result is the one that everybody uses; to say what BERT, GPT and T5 have in common and which three or
# four decisions set them apart; to train a language model that writes recognisable docstrings; and to say of a
# proposed improvement whether it is one. In [assignment @transformer](@transformer/assignment) you wire it
# yourself.
#
# ## Three orders for one workshop
#
# You have spent eight lectures making parts, and they lie on the bench. Now three customers come in. The first has
# texts with *gaps* and wants them filled. The second has beginnings, and wants them *continued*. The third wants
# German put into English: something read, something else *written*. How many different machines will you have to build?
#
# Say which parts you would take for each of the three, before you look. There is one trap: two of the customers must
# not be given something that the first may have.

# %%
try:
    from attncourse import viz

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's folder, "
        "or choose a kernel of the environment in which you installed the course."
    ) from None

# %%
import math
import statistics
import warnings
from dataclasses import replace

import torch
from torch import nn

from attncourse.attention import causal_mask, lengths_to_mask
from attncourse.counting import count_parameters, count_training_flops, preset
from attncourse.data import BOS, EOS, PAD, Tokenizer, docstrings, encode_texts, pad_batch
from attncourse.decoding import sample
from attncourse.layers import FeedForward
from attncourse.metrics import perplexity, text_log_probabilities
from attncourse.ngram import NGram
from attncourse.training import fit_texts
from attncourse.transformer import LanguageModel, TransformerConfig
from attncourse_lessons.results import GENERATION, LEADERBOARD, MODIFICATIONS, TRANSLATION, measured

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %%
figures.encoder_decoder_stacks()

# %% [markdown]
# There are two kinds of block. In one, positions **look around**, at all others: nobody minds, because the text that
# it reads is known. In the other they **look back** only, because the text is still to be written. That is the trap: a
# gap may be filled by looking left and right of it; a word that comes next may not be looked up. And where something
# is read *and* something else written, the writing blocks have a third part, which looks **across**.
#
# Follow the orange line for a moment. It leaves the reading tower once, at its top, and goes to *every* writing block.
# It is a common mistake to join the two towers floor by floor.
#
# ## A block that looks around
#
# Every part was made before, so two cells will do. The attention is lecture @many_heads's, with who asks (`x`) and who answers
# (`memory`) kept apart; the network is lecture @masking's.

# %%
class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.value, self.output = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def heads(self, x):
        return x.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)        # (batch, h, n, d_head)

    def forward(self, x, memory, mask=None):
        Q = self.heads(self.query(x))                                     # (batch, h, n, d_head)
        K, V = self.heads(self.key(memory)), self.heads(self.value(memory))
        scores = Q @ K.mT / math.sqrt(Q.shape[-1])                        # (batch, h, n, n_memory)
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(-3), -torch.inf)  # one mask for all heads
        found = scores.softmax(dim=-1) @ V                                # (batch, h, n, d_head)
        return self.output(found.transpose(1, 2).flatten(2))              # (batch, n, d_model)

# %%
class Network(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.down(self.up(x).relu())                   # (batch, n, d_ff), and back

# %% [markdown]
# A block is two lines. Each part has a norm in front of it, and what it finds is added to what was there:
#
# $$
# \begin{aligned}
# x &\leftarrow x + \operatorname{attention}\bigl(\operatorname{norm}_1(x)\bigr) && \text{look around}\\
# x &\leftarrow x + \operatorname{network}\bigl(\operatorname{norm}_2(x)\bigr) && \text{think}
# \end{aligned}
# $$

# %%
class EncoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention, self.network = Attention(d_model, n_heads), Network(d_model, d_ff)
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x, mask=None):
        h = self.norm_1(x)
        x = x + self.attention(h, h, mask)
        return x + self.network(self.norm_2(x))


def block_of_2017(self, x, mask=None):                        # the same parts, in the old order
    x = self.norm_1(x + self.attention(x, x, mask))
    return self.norm_2(x + self.network(x))

# %% [markdown]
# The second function is the block as it was published: each norm *after* its sum, on the path itself (lecture @deep_stacks
# measured what that does to a deep stack). The parts are the same, and so are the parameters. Only the wiring differs.
#
# Is it *the* encoder block? There is a way to know. PyTorch has one; we put our numbers into it and compare what comes
# out. *Before you run it:* if we had swapped the two norms, or added to the normalised $x$ by mistake, would a
# comparison of shapes notice? Would a comparison of losses?

# %%
@torch.no_grad()
def copy(theirs, ours):
    """Our numbers into torch's: an attention, or a layer with a weight and a bias."""
    if isinstance(theirs, nn.MultiheadAttention):             # it keeps W_Q, W_K, W_V in one matrix
        inputs = ours.query, ours.key, ours.value
        theirs.in_proj_weight.copy_(torch.cat([layer.weight for layer in inputs]))
        theirs.in_proj_bias.copy_(torch.cat([layer.bias for layer in inputs]))
        theirs, ours = theirs.out_proj, ours.output
    theirs.weight.copy_(ours.weight)
    theirs.bias.copy_(ours.bias)


def shaken(module):
    """All parameters drawn anew: norms that are still 1 and 0 would hide a swap."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module.eval()

# %%
OUR_NAMES = {
    "self_attn": "attention", "multihead_attn": "cross", "linear1": "network.up",
    "linear2": "network.down", "norm1": "norm_1", "norm2": "norm_2", "norm3": "norm_3",
}


def copy_block(theirs, ours):
    for name, layer in theirs.named_children():
        if name in OUR_NAMES:                                 # the others have no parameters
            copy(layer, ours.get_submodule(OUR_NAMES[name]))

# %%
d_model, n_heads, d_ff = 16, 4, 32
torch.manual_seed(0)
ours = shaken(EncoderBlock(d_model, n_heads, d_ff))
x, lengths = torch.randn(3, 7, d_model), torch.tensor([7, 5, 2])          # (batch, n, d_model)
mask = lengths_to_mask(lengths, 7)                            # (batch, n)  True: here is a word
like_ours = {"dropout": 0.0, "batch_first": True}
for norm_first, forward in ((True, EncoderBlock.forward), (False, block_of_2017)):
    theirs = nn.TransformerEncoderLayer(d_model, n_heads, d_ff, norm_first=norm_first, **like_ours)
    copy_block(theirs, ours)
    expected = theirs(x, src_key_padding_mask=~mask)          # torch's mask is True where forbidden
    worst = (forward(ours, x, mask[:, None]) - expected)[mask].abs().max().item()
    print(f"norm_first={norm_first!s:>5}: we differ by at most {worst:.0e}")
    assert worst < 1e-4

# %% [markdown]
# To the last digits, in both orders. Such a comparison, with weights copied over, is called a *parity test*, and is
# worth more than any amount of looking at code. The shapes would not have noticed a wrong wire, and [lecture
# @deep_stacks](@deep_stacks) has shown that the loss may not either.

# %% [markdown]
# ## A block that looks back, and across
#
# The writing block has three lines. The first is the same as before, but under a causal mask. The new one stands in the
# middle:
#
# $$x \leftarrow x + \operatorname{cross}\bigl(\operatorname{norm}_2(x),\ \text{memory}\bigr)$$

# %%
class DecoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = Attention(d_model, n_heads)
        self.cross = Attention(d_model, n_heads)
        self.network = Network(d_model, d_ff)
        self.norm_1, self.norm_2, self.norm_3 = (nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x, memory, mask, memory_mask=None):
        h = self.norm_1(x)
        x = x + self.attention(h, h, mask)                    # (batch, n, d_model)  n looks at n
        x = x + self.cross(self.norm_2(x), memory, memory_mask)           # n looks at n_memory
        return x + self.network(self.norm_3(x))

# %% [markdown]
# Queries come from the text that is being written, keys and values from the memory. (Two decks slip here; the box is
# in lecture @cross_attention.) Two things are easily got wrong, and neither crashes if source and target have the same length: which
# of the two masks goes where, and whether the memory is normalised. It is, but not here. The encoder ends in a norm,
# *once*, and all blocks read the same memory.
#
# Is this torch's decoder block? Three texts of up to 7 words are read, and 9 words written for each:

# %%
ours = shaken(DecoderBlock(d_model, n_heads, d_ff))
theirs = nn.TransformerDecoderLayer(d_model, n_heads, d_ff, norm_first=True, **like_ours)
copy_block(theirs, ours)
y = torch.randn(3, 9, d_model)                                # (batch, n_target, d_model)
expected = theirs(y, x, tgt_mask=~causal_mask(9), memory_key_padding_mask=~mask)
got = ours(y, x, causal_mask(9), mask[:, None])               # (batch, n_target, d_model)
print(f"decoder block: we differ by at most {(got - expected).abs().max():.0e}")
assert torch.allclose(got, expected, atol=1e-4)

# %% [markdown]
# Now put it together with your own hands. Choose a kind of block and go through its lines. At each, say the shape
# *before* you look: who is 7 long, who is 5, and where do the 8 heads appear?

# %%
viz.explore(
    figures.block_frame,
    kind=["encoder", "decoder", "decoder-only", "encoder of 2017"], line=range(1, 7),
    names={"kind": "block", "line": "line of code"}, start={"kind": "decoder", "line": 4},
)

# %% [markdown] erratum="the word decoder"
# In the first three kinds, follow the thick line from bottom to top: nothing stands on it but sums. In the last the
# norms do, too. And note what never changes: $x$ enters as (4, 7, 64) and leaves as (4, 7, 64), whatever happens in
# between. That is why blocks can be stacked.
#
# "Decoder-only" is a block that looks back and not across. So it is an *encoder's* block with another mask, and the
# names are an accident of history.
#
# > **On the slide.** Two decks call a stack without cross-attention "the Transformer Decoder", and make it an encoder
# > by removing the mask; a third means by "decoder" the one with cross-attention. Neither is wrong, and papers do
# > both. In this course a *decoder* looks across, unless we say *decoder-only*.

# %% [markdown]
# ## Assembly
#
# What is left is little. Tokens become vectors, positions are added, blocks follow, a norm at the end of each tower.
# At the top of the writing tower a matrix turns each state into one number for each word of the vocabulary, the
# logits, and softmax turns them into probabilities.
#
# One thing remains to be decided: what does the writing tower *read*? While it is learning, the whole target is known.
# At position $t$ it has to say $y_t$, so it may read $y_1, \dots, y_{t-1}$, and at position 1 nothing at all. We give
# it the target moved one place to the right, with a token for "begin" in front:

# %%
def shift_right(target, bos):
    begin = torch.full_like(target[:, :1], bos)                           # (batch, 1)
    return torch.cat([begin, target[:, :-1]], dim=1)                      # (batch, n)


print("is to say ", [7, 8, 9, 2])
print("reads     ", shift_right(torch.tensor([[7, 8, 9, 2]]), bos=1)[0].tolist())

# %%
class Transformer(nn.Module):
    def __init__(self, words, d_model, n_heads, d_ff, n_layers, max_length=32):
        super().__init__()
        self.table, self.places = nn.Embedding(words, d_model), nn.Embedding(max_length, d_model)
        self.reading = nn.ModuleList(EncoderBlock(d_model, n_heads, d_ff) for _ in range(n_layers))
        self.writing = nn.ModuleList(DecoderBlock(d_model, n_heads, d_ff) for _ in range(n_layers))
        self.norm_read, self.norm_write = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.output = nn.Linear(d_model, words)

    def embed(self, tokens):
        return self.table(tokens) + self.places.weight[: tokens.shape[1]]      # (batch, n, d_model)

# %%
def encode(self, x, mask=None):
    for block in self.reading:
        x = block(x, mask)
    return self.norm_read(x)                                  # (batch, n_source, d_model)


def decode(self, x, memory, mask, memory_mask=None):
    for block in self.writing:
        x = block(x, memory, mask, memory_mask)               # the same memory for every block
    return self.norm_write(x)                                 # (batch, n_target, d_model)


def forward(self, source, target_in, mask=None, memory_mask=None):
    memory = self.encode(self.embed(source), memory_mask)
    x = self.decode(self.embed(target_in), memory, mask, memory_mask)
    return self.output(x)                                     # (batch, n_target, words)


Transformer.encode, Transformer.decode, Transformer.forward = encode, decode, forward

# %% [markdown]
# (The methods are written in a cell of their own to be read more easily.) PyTorch has this machine as well, as
# `nn.Transformer`, without the embeddings and the output. Two blocks on each side, our numbers copied into it, a
# source with padding, a causal mask over the target:

# %%
ours = shaken(Transformer(20, d_model, n_heads, d_ff, n_layers=2))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")                           # of a fast path that it cannot take
    theirs = nn.Transformer(d_model, n_heads, 2, 2, d_ff, norm_first=True, **like_ours)
for i in range(2):
    copy_block(theirs.encoder.layers[i], ours.reading[i])
    copy_block(theirs.decoder.layers[i], ours.writing[i])
copy(theirs.encoder.norm, ours.norm_read)
copy(theirs.decoder.norm, ours.norm_write)

# %%
expected = theirs(
    x, y, tgt_mask=~causal_mask(9), src_key_padding_mask=~mask, memory_key_padding_mask=~mask
)                                                             # (batch, n_target, d_model)
got = ours.decode(y, ours.encode(x, mask[:, None]), causal_mask(9), mask[:, None])
print(f"two towers of two blocks: we differ by at most {(got - expected).abs().max():.0e}")
assert torch.allclose(got, expected, atol=1e-3)
unread = ours.decode(y, x, causal_mask(9), mask[:, None])     # the source itself for a memory
assert not torch.allclose(unread, expected, atol=0.1)

# %% [markdown]
# This is the Transformer. (Two remarks for those who copy weights for a living. `nn.Transformer` puts a norm at the end
# of each tower even when the norms stand after the sums, where the paper has none. And its masks are True where one may
# *not* look. One thing in the paper is missing here, because it acts in training alone: *dropout*, which sets a random
# tenth of what each part has found to zero before it is added. Lecture @training needs it.)
#
# > **Check yourself.** Source of 5 tokens, target of 7, batch 4, width 64, 8 heads, two blocks on each side. How many
# > tables of weights does one pass compute, and of which shapes?
# > <details><summary>Answer</summary>Six: two (4, 8, 5, 5) in the encoder; in the decoder two (4, 8, 7, 7) that look
# > back and two (4, 8, 7, 5) that look across.</details>

# %% [markdown]
# ## What if one forgets to shift?
#
# Three machines read six letters and learn to write them in alphabetical order: one is right; one reads the target
# unshifted, under its causal mask; one is shifted and has no mask. Then each writes by itself, letter by letter,
# reading what it has written.
#
# *Sketch the three losses and guess the three results.* Which of the machines has the lowest loss, and which can
# write?

# %%
LETTERS, BOS_LETTER, LENGTH = 26, 0, 6


def learn_to_sort(shift, causal, steps=250, seed=0):
    torch.manual_seed(seed)
    model, losses = Transformer(LETTERS + 1, 32, 4, 64, n_layers=1), []
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        source = torch.randint(1, LETTERS + 1, (32, LENGTH))              # (batch, n)
        target = source.sort(dim=1).values                                # (batch, n)
        reads = shift_right(target, BOS_LETTER) if shift else target
        mask = causal_mask(LENGTH) if causal else None
        logits = model(source, reads, mask)                               # (batch, n, words)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return model, losses

# %%
@torch.no_grad()
def write(model, source):
    written = torch.full((len(source), 1), BOS_LETTER)                    # (batch, 1)
    for _ in range(LENGTH):
        logits = model(source, written, causal_mask(written.shape[1]))    # (batch, so far, words)
        written = torch.cat([written, logits[:, -1:].argmax(dim=-1)], dim=1)
    return written[:, 1:]


machines, losses, right = {}, {}, {}
ways = {"right": (True, True), "no shift": (False, True), "no mask": (True, False)}
fresh = torch.randint(1, LETTERS + 1, (500, LENGTH), generator=torch.Generator().manual_seed(9))
for name, (shift, causal) in ways.items():
    machines[name], losses[name] = learn_to_sort(shift, causal)
    right[name] = (write(machines[name], fresh) == fresh.sort(dim=1).values).float().mean().item()
viz.curves(losses, log_y=True, y_name="loss (nats a letter)")

# %%
final = {name: statistics.mean(line[-20:]) for name, line in losses.items()}
source = torch.tensor([[20, 18, 1, 14, 3, 5]])                            # t r a n c e
print(f"{'':>9}   loss    letters right by itself")
for name, model in machines.items():
    wrote = "".join(chr(96 + i) if i else "·" for i in write(model, source)[0].tolist())
    print(f"{name:>9}   {final[name]:.3f}   {right[name]:>4.0%}   trance → {wrote}")
assert max(final["no shift"], final["no mask"]) < 0.3 * final["right"], "both look better"
assert right["right"] > 0.8 and max(right["no shift"], right["no mask"]) < 0.6

# %% [markdown]
# The honest machine has by far the *worst* loss, and is the only one that can write. The unshifted one has learned to
# copy its input, and when it writes there is no input to copy. The one without a mask cheats as well, once it has
# found out that the answer stands one place to its right. (It gets some letters right: its last place has nothing to
# the right, and there it had to learn.) A loss that falls too well is the first sign of both. The proof is the test of
# [lecture @masking](@masking): change a token of the target, and no output at its place or before may change.
#
# ## The last matrix is the first one
#
# Look at the two ends of the machine. At the bottom a table of (words, d) turns a word into a vector. At the top a
# matrix of (d, words) turns a vector into words: logit $i$ is the dot product of the state with column $i$. Both say
# of each word where it lies. Press and Wolf (2017) and Inan et al. (2017) made them one:
#
# $$\text{logits} = h\, E^\top, \qquad E \in \mathbb{R}^{\text{words} \times d}$$
#
# So the softmax at the end is a lookup once more: the state asks, and every word's vector is a key. What does it save?

# %%
for name in ("vaswani base", "gpt-2 small", "gpt-3 175b"):
    config, model, *_ = preset(name)
    tied = count_parameters(replace(config, tie_output=True), model).total
    untied = count_parameters(replace(config, tie_output=False), model).total
    millions = f"{tied / 1e6:>10,.1f} M tied, {untied / 1e6:>10,.1f} M untied"
    print(f"{name:>13}: {millions}: {untied / tied - 1:.1%} more")

# %% [markdown]
# Untied, a small model is nearly a third larger, and a very large one hardly at all; so small models are often tied and
# large ones often not. Is there a price? Before any training, ask a tied model what comes next. *Guess what it says.*

# %%
untrained = TransformerConfig(vocab_size=500, d_model=64, n_layers=2, dropout=0.0)
tokens = torch.randint(4, 500, (8, 32), generator=torch.Generator().manual_seed(0))     # (batch, n)
echo = {}
for tie_output in (True, False):
    torch.manual_seed(0)
    model = LanguageModel(replace(untrained, tie_output=tie_output))
    assert (model.output.weight is model.decoder.embedding.tokens.weight) == tie_output
    with torch.no_grad():
        echo[tie_output] = (model(tokens).argmax(dim=-1) == tokens).float().mean().item()
    print(f"tied: {tie_output!s:>5}  repeats the word it reads in {echo[tie_output]:.0%} of places")
assert echo[True] > 0.5 > 0.1 > echo[False]

# %% [markdown]
# It says what it has just heard. The residual path carries a word's own vector from the bottom to the top nearly
# unchanged, and there it is compared with all words' vectors: it is most like itself. In real text a word hardly ever
# follows itself, so this has to be unlearned first. (The decks' equation for the residual path, $x + f(x)$, has this
# consequence, and no deck mentions it. A recurrent network has no such path.) How much it costs in a short training we
# shall see below.
#
# ## Three customers, three masks
#
# Back to the workshop. Here is who may look at whom, in each of the machines, for a text of eight; the third picture
# is a variant that we have not met.

# %%
everybody, past = torch.ones(8, 8, dtype=torch.bool), causal_mask(8)      # (n, n)
prefix = past | (torch.arange(8) < 3)                                   # the first three are given
viz.draw_masks({
    "encoder: all": everybody, "decoder-only: the past": past, "prefix, then the past": prefix,
    "across: n × n_memory": torch.ones(8, 5, dtype=torch.bool),
})
assert prefix[:3, :3].all() and not prefix[:3, 3:].any() and torch.equal(prefix[3:], past[3:])

# %% [markdown]
# **BERT** (Devlin et al. 2019) is the first customer's: an encoder alone. Since everybody sees everybody, "predict the
# next word" would be no task. So some words are replaced by a token for "gap", and those are to be found.
#
# **GPT** (Radford et al. 2018, 2019) is the second's: blocks that look back. Every position has a question of its own,
# what comes next, so one pass over a text of $n$ words is $n$ lessons; BERT's is only as many as there are gaps.
#
# **T5** (Raffel et al. 2020) is the third's, like the machine of 2017: it reads with one tower and writes with the
# other, and puts every task into that form, translation, summary, question and answer.
#
# In the **prefix** mask the first three words are given and may be read in both directions, and what follows is
# written, so one tower does the work of two (Raffel et al. 2020 compare them). Liu et al. (2018) had gone further
# still: they put the source in front of the target, kept the plain mask of the past for all of it, and called what was
# left a *decoder-only* Transformer.
#
# The package's configurations say the rest. All of these are built of the same block, by the fields that differ:

# %%
widths = {"norm": 6, "norm_place": 11, "activation": 11, "positions": 11, "kv_heads": 9}
print(" " * 27 + "".join(f"{field:>{width}}" for field, width in widths.items()))
for name in ("vaswani base", "bert base", "gpt-2 small", "t5 base", "llama 3 8b"):
    config, model, *_ = preset(name)
    values = "".join(f"{getattr(config, field)!s:>{width}}" for field, width in widths.items())
    millions = count_parameters(config, model).total / 1e6
    print(f"{name:<12} {model.__name__:<14}{values}  {millions:>6,.0f} M")

# %% [markdown]
# > **Check yourself.** (1) Somebody takes the mask off a trained GPT and hopes for a BERT. What has it never learned?
# > (2) Can an encoder alone translate?
# > <details><summary>Answers</summary>(1) To use what stands to the right: its weights have never met a key from
# > there. And its outputs mean "the next word", not "this word". (2) Not word by word, since it has nothing that
# > writes. It could label each source word, which is too little: the translation has a different length and a
# > different order.</details>

# %% [markdown]
# ## What Llama changed
#
# Read the last row of the table against the first. Seven years lie between them, and the block has the same two lines.
# Besides the norm's place (lecture @deep_stacks), there are four changes:
#
# | | 2017 | Llama | where |
# |---|---|---|---|
# | norm | LayerNorm | RMSNorm: no mean is subtracted | [lecture @deep_stacks](@deep_stacks) |
# | network | ReLU | SwiGLU: a gate | here |
# | order | sinusoids, added once | RoPE, in every attention | [lecture @order](@order) |
# | heads | keys for every head | groups share them (Llama 2's largest, and Llama 3) | [lecture @many_heads](@many_heads) |
#
# Three of them you know. The new one is the *gate* (Dauphin et al. 2017; Shazeer 2020): the hidden layer is computed
# twice, by two matrices, and one of the two decides, number by number, how much of the other is let through.
#
# $$\operatorname{SwiGLU}(x) = \bigl(\operatorname{silu}(x W_\text{gate}) \circ x W_\text{up}\bigr) W_\text{down},
# \qquad \operatorname{silu}(z) = z\,\sigma(z)$$

# %%
def silu(z):
    return z * torch.sigmoid(z)


def swiglu(x, W_gate, W_up, W_down):
    return (silu(x @ W_gate) * (x @ W_up)) @ W_down           # (…, d_ff), and back


gated = FeedForward(d_model, 40, "swiglu", bias=False)                    # the package's
W_gate, W_up, W_down = (layer.weight.mT for layer in (gated.gate, gated.up, gated.down))
assert torch.allclose(gated(x), swiglu(x, W_gate, W_up, W_down), atol=1e-5)

z = torch.linspace(-5, 5, 41)                                             # (41,)
bends = {"ReLU": z.relu(), "GELU": nn.functional.gelu(z), "silu": silu(z)}
viz.function_curves(bends, z, x_name="z", y_name="f(z)")

# %% [markdown]
# A third matrix is not free. To compare fairly, the hidden layer is made narrower by a third, so that three matrices
# of $\tfrac23 d_\text{ff}$ hold as many numbers as two of $d_\text{ff}$. Published widths give it away: Llama 2's
# 11,008 is $\tfrac23 \cdot 4 \cdot 4096 \approx 10{,}923$, rounded up to a multiple of 256.

# %%
plain = FeedForward(768, 3072, "relu", bias=False)
narrow = FeedForward(768, 2048, "swiglu", bias=False)
assert sum(p.numel() for p in plain.parameters()) == sum(p.numel() for p in narrow.parameters())
d = preset("llama 2 7b").config.d_model
assert preset("llama 2 7b").config.d_ff == 256 * math.ceil(2 / 3 * 4 * d / 256)

# %% [markdown]
# ## A writer of docstrings
#
# Now let it learn something. [Lecture @bottleneck](@bottleneck) played a guessing game on the docstrings of Python's
# standard library, cut into 2,048 pieces. On the machine that made these pages a bigram had a perplexity of about 108
# on modules that nobody had read, the best counter of five pieces about 70, and a GRU with 128 numbers of memory about
# 82.
#
# Our candidate is small: decoder-only, two blocks of width 128, four heads, RoPE, its output untied. It gets as many
# batches of as many tokens as the GRU did. *Where will it come in?*
#
# To train it we take the package's `LanguageModel`, which can do what a writer needs besides (it remembers keys and
# values, for one). Is it the machine of this page, an encoder's block under a causal mask?

# %%
block = shaken(EncoderBlock(d_model, n_heads, d_ff))
packaged = LanguageModel(TransformerConfig(
    vocab_size=50, d_model=d_model, n_heads=n_heads, d_ff=d_ff, n_layers=1, dropout=0.0,
)).eval()
inside = packaged.decoder.stack.blocks[0]
for name in ("query", "key", "value", "output"):
    copy(getattr(inside.attention.sublayer, name), getattr(block.attention, name))
copy(inside.attention.norm, block.norm_1)
copy(inside.ff.norm, block.norm_2)
copy(inside.ff.sublayer.up, block.network.up)
copy(inside.ff.sublayer.down, block.network.down)
tokens = torch.randint(4, 50, (3, 7))                                     # (batch, n)
x = block(packaged.decoder.embedding(tokens), causal_mask(7))             # (batch, n, d_model)
assert torch.allclose(packaged(tokens), packaged.output(packaged.decoder.stack.norm(x)), atol=1e-4)

# %% [markdown]
# It is. Now the real one:

# %%
corpus = docstrings()
tokenizer = Tokenizer.train(corpus.train, size=2048)
train, test = encode_texts(corpus.train, tokenizer), encode_texts(corpus.test, tokenizer)
torch.manual_seed(0)
writer = LanguageModel(TransformerConfig(
    vocab_size=len(tokenizer), d_model=128, n_layers=2, n_heads=4, d_ff=128, positions="rope",
    scale_embedding=True, tie_output=False, dropout=0.0, max_length=1024,
))
history = fit_texts(
    writer, train, steps=900, batch_tokens=448, max_length=64, lr=1e-2, seed=0, name="Transformer"
)
print(f"{sum(p.numel() for p in writer.parameters()):,} parameters")

# %%
def scores(model):
    return torch.cat([model.log_probabilities(text) for text in test])    # (n_test,)  ln p


table = {f"{n}-gram": scores(NGram(train, n, len(tokenizer))) for n in (2, 5)}
table["Transformer"] = torch.cat(text_log_probabilities(writer, test)).double()
both = (table["5-gram"].exp() + table["Transformer"].exp()) / 2           # (n_test,)
table["5-gram and Transformer"] = both.log()
for name, log_p in table.items():
    print(f"{name:>22}: perplexity {perplexity(log_p):.1f}")
assert perplexity(table["Transformer"]) < 0.85 * perplexity(table["2-gram"])
assert perplexity(table["5-gram and Transformer"]) < 0.9 * perplexity(table["5-gram"])

# %% [markdown]
# It plays in the GRU's league, and the counter is still hard to beat: with less than half a million tokens, read about
# once, memory is worth more than understanding. Half a bet on each is better than either, so they know different
# things. Do not conclude that a Transformer is not better than a GRU. Conclude that this is a short training. (On a
# GPU one would make it ten times as wide, read a thousand times as much, and the counter would be forgotten.)
#
# What does it write? Each text below is drawn token by token, from a beginning, with the less likely tokens left out
# (`top_p=0.9`) and the rest a little sharpened.

# %%
beginnings = ["Return the", "Return True if", "Convert", "This class", "If the"]
prompts = [[BOS, *tokenizer.encode(beginning)] for beginning in beginnings]
padded, real = pad_batch(prompts)                             # (5, n), and where there is a token


def continued(seed, length=40):
    drawn = sample(writer, padded, real.sum(dim=1), length, temperature=0.8, top_p=0.9,
                   generator=torch.Generator().manual_seed(seed)).tokens   # (5, at most length)
    rows = [[int(i) for i in row if i != PAD] for row in drawn]
    return [start + row for start, row in zip(prompts, rows, strict=True)]


for text in continued(seed=0):
    print(tokenizer.decode(text), "" if text[-1] == EOS else "…")

# %% [markdown]
# Nobody would take these for anything but docstrings. The beginnings are those of the trade, brackets and quotes are
# often closed, a text comes to an end, and a sentence knows for a clause or two what it is about. Then look for what
# it *says*. It invents words (a text is made of pieces, and any two may be joined), forgets after ten tokens what the
# sentence was for, and no docstring here describes a function that anybody could write. It has learned how docstrings
# sound. (Another machine may draw other texts.)
#
# Is it reciting? Count how many of its runs of six tokens occur somewhere in the training text; and to have something
# to compare with, how many of the runs in real docstrings of the test set do.

# %%
def runs(texts, n=6):
    return [tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1)]


known = set(runs(train))
written = [text for seed in range(12) for text in continued(seed)]
recited = {name: statistics.mean(run in known for run in runs(texts)) for name, texts in
           {"the writer's": written, "the test set's": test}.items()}
print({name: f"{share:.0%} of the runs of six" for name, share in recited.items()})
assert recited["the writer's"] < 0.3, "it does not recite"

# %% [markdown]
# Hardly anything is recited. People who write docstrings use set phrases; it has picked up phrases of two or three
# words, and glues them together in ways that nobody has yet. A larger model, trained for longer, recites far more:
# memory grows with size, and with every reading of the same text (Carlini et al. 2023).
#
# > **Check yourself.** Why do its first tokens sound better than its last ones?
# > <details><summary>Answer</summary>It was trained on beginnings that people had written, and goes on from beginnings
# > that it has written itself. Each small oddity is now part of what it reads, and takes it a little further from all
# > that it has seen. (Teacher forcing has this price; lecture @writing comes back to it.)</details>

# %% [markdown]
# ## Is it better?
#
# Since 2017 hundreds of papers have changed the block and reported a gain. Narang et al. (2021) built more than forty
# of the changes into one code base, trained all of them alike, and found that "most modifications do not meaningfully
# improve performance". The decks print their large table.
#
# How would *you* find out? The first trap opens at once. One change, and one run of each model; and then both runs once
# more, with another seed:

# %%
small = TransformerConfig(vocab_size=len(tokenizer), d_model=64, n_layers=2, d_ff=256, dropout=0.0)
gated = replace(small, activation="swiglu", d_ff=171)         # as many parameters: 2/3 of 256
last = {}
for seed in (0, 1):
    for name, config in {"ReLU": small, "SwiGLU": gated}.items():
        torch.manual_seed(seed)
        model = LanguageModel(config)
        history = fit_texts(model, train, 50, 256, max_length=128, lr=1e-2, seed=seed, progress=False)
        last[name, seed] = statistics.mean(history.losses[-10:])
        print(f"{name:>7}, seed {seed}: loss {last[name, seed]:.3f}")

# %%
change = [last["SwiGLU", seed] - last["ReLU", seed] for seed in (0, 1)]
luck = [last[name, 1] - last[name, 0] for name in ("ReLU", "SwiGLU")]
print("what the change did: ", [f"{x:+.3f}" for x in change])
print("what the seed did:   ", [f"{x:+.3f}" for x in luck])
assert max(map(abs, luck)) > 0.3 * min(map(abs, change)), "a seed does as much as an activation"

# %% [markdown]
# A new seed moves the loss as much as a new activation does, and with one run of each nobody can tell the two apart.
# So: several seeds; the *same* seeds for every variant, so that the same texts come in the same order and only the
# change is different; and error bars on the differences. And equal budgets: as many steps, and as many parameters
# where a change would add some.
#
# That takes more computing than a lecture has, so it was done beforehand. `benchmarks/modifications.py` trains a small
# language model on the docstrings in fourteen versions, each with several seeds, and this is what it wrote down
# (`measured` reads the file that comes with the package; run the script with `--save` to replace it by your own).
#
# *Before you run the cell,* put these in the order in which you expect them to help, from the best: GELU, SwiGLU,
# RMSNorm, an output that is not tied, RoPE, two heads of keys for four of queries (GQA). And which, do you think, can
# be told from nothing at all?

# %%
run = measured("modifications")
print(run["command"])
print(f"{run['date']}, torch {run['torch']}, {run['device']}")
print(f"{run['steps']} steps of {run['batch_tokens']} tokens each\n")
print(f"{'':>18}  test loss   difference ± s.e.   parameters")
for name, row in run["variants"].items():
    shown = "" if name == "baseline" else f"{row['difference']:+.3f} ± {row['standard_error']:.3f}"
    print(f"{name:>18}  {row['mean']:>9.3f}   {shown:>17}   {row['parameters']:>10,}")

# %% [markdown]
# (s.e. is the standard error of the difference, over the seeds.) A column of numbers hides what matters: how large is
# each difference beside its own uncertainty, and was it the same for those who did it at a thousand times the size? So
# we set beside our rows those of the published table that try the same. It prints a mean and a deviation over five runs
# for what it calls the early loss.

# %%
def bars(run):
    """Each variant's difference, and half of its 95 % interval: Student's t for so many seeds."""
    t = {2: 12.7, 3: 4.30, 4: 3.18, 5: 2.78}.get(len(run["seeds"]), 2.5)
    rows = run["variants"].items()
    return {name: (row["difference"], t * row["standard_error"]) for name, row in rows}


here, published, vanilla = bars(run), {}, MODIFICATIONS[0]
same = {
    "GeLU": "GELU", "ReGLU": "ReGLU", "GeGLU": "GEGLU", "SwiGLU": "SwiGLU", "RMS Norm": "RMSNorm",
    "Tied encoder/decoder input embeddings": "untied output",
    "24 layers, d_ff = 1536, H = 6": "twice the layers",
}
for row in MODIFICATIONS:
    if row.name in same:                                      # of each model five runs
        spread = 2.31 * math.sqrt((row.early_deviation**2 + vanilla.early_deviation**2) / 5)
        published[same[row.name]] = row.early_loss - vanilla.early_loss, spread

# %%
drawn = {name: bar for name, bar in here.items() if name not in ("baseline", "post-norm")}
viz.differences_from_baseline({"here: the docstrings": drawn, "Narang et al. 2021: early loss": published})

# %% [markdown]
# Each bar is the 95 % interval over the seeds. A triangle marks a difference whose bar does not reach zero; a ring
# marks one that may be luck. (The two axes have different scales. Post-norm is not drawn: it is worse by one and a
# half nats, and would push everybody else into one corner. We come back to it.)

# %%
clear = [name for name in here if name != "baseline" and abs(here[name][0]) > here[name][1]]
print("further from the baseline than luck:", ", ".join(clear))
print("not to be told from luck:", ", ".join(name for name in drawn if name not in clear))
gates = ("ReGLU", "GEGLU", "SwiGLU")
assert {*gates, "RoPE", "untied output", "post-norm"} <= set(clear)
for gate in gates:
    assert -0.1 < here[gate][0] < -0.02 and sum(published[gate]) < 0, "here and there"
assert max(abs(here["RMSNorm"][0]), abs(here["GQA"][0])) < 0.03
assert abs(published["GELU"][0]) < published["GELU"][1]
assert here["untied output"][0] < -0.05 and published["untied output"][0] > 0
assert here["RoPE"][0] < here["Llama's four"][0] < 0 and here["no positions"][0] < 0
by_seed = run["variants"]["baseline"]["losses"]
assert max(by_seed) - min(by_seed) > abs(here["GELU"][0]), "seeds differ by more than GELU"

# %% [markdown]
# Three kinds of results, and each teaches something.
#
# **The gates transfer.** All three gain about a twentieth of a nat, here with less than 200 thousand parameters and
# there with 223 million. They are also what today's models use. (GELU by itself gains a third of that here, less than
# lies between two seeds of the baseline: it can be seen only because each seed is compared with itself. There it gains
# nothing that could not be luck.) Nobody knows quite why: Shazeer (2020) attributes their success, "as all else, to
# divine benevolence".
#
# **Some do nothing, and are used all the same.** RMSNorm and shared keys change the loss here by nothing that can be
# told from luck (there RMSNorm gains 0.015). They are chosen for what they cost: a cheaper norm, a smaller
# cache.
#
# **Some may be about the setting.** The three most striking differences here are RoPE, the untied output and
# post-norm; and to leave positions out altogether is better than the sinusoids of 2017. Three guesses, one for each.
# *Post-norm* needs another learning rate (lecture @deep_stacks). *The untied output* gains because a tied model begins by
# echoing, and three hundred steps are few to unlearn it in; in the published runs, which were far longer, untying
# gains nothing. *RoPE* gains for a similar reason: the sinusoids are numbers of size one, added to every embedding,
# and lie in the way until the embeddings have grown around them. So with more steps the last two gains should shrink.
#
# All three sound well. Which of them do you believe? Two more runs of the same script, with fewer variants and three
# seeds: one with four times as many steps, one with a third of the learning rate.

# %%
longer, slower = measured("modifications_longer"), measured("modifications_slower")
for other in (longer, slower):
    print(f"{other['steps']} steps, learning rate {other['lr']:g}")
    for name, (difference, half) in bars(other).items():
        if name != "baseline":
            now, before = f"{difference:+.3f} ± {half:.3f}", f"{here[name][0]:+.3f}"
            print(f"{name:>18}  {now}   (before: {before})")
slow, long = bars(slower), bars(longer)
assert here["untied output"][0] < 1.4 * long["untied output"][0] < 0, "gains less than before"
assert long["RoPE"][0] < 1.5 * here["RoPE"][0] < 0, "gains more than before"
assert 0 < slow["post-norm"][0] < 0.3 < 1 < here["post-norm"][0]
assert slower["variants"]["baseline"]["mean"] > run["variants"]["baseline"]["mean"] + 0.1

# %% [markdown] erratum="ReLU twice; Rezero renamed"
# Two guesses out of three. Post-norm does train at the lower rate, and is then a tenth of a nat behind, not one and a
# half. (The baseline is worse at that rate, too. With so few steps a high rate is worth having, and post-norm is the
# one that cannot take it.) Untying gains about half as much as before: a head start, it seems, that the others make
# up for. But RoPE's gain has *grown*, to more than twice what it was. The explanation sounded as well as the other
# two, and it was wrong; if the sinusoids were no more than a bad start, the gap would close. (What RoPE does give,
# this script cannot say. That it makes a distance look the same everywhere in a text, see lecture @order, is a guess of
# the same kind as the one that has just failed.)
#
# So the answer to *is it better?* has a budget in it, and a learning rate; and an explanation that comes after the
# result is a guess until a run could have refuted it.
#
# And gains do not add up. Llama's four changes together are worse than RoPE alone, here: a sum over four rows of the
# table would have promised more. Whether that is so elsewhere, you know by now how to find out.
#
# > **On the slide.** Three decks print the published table. In two of them the second row is called *ReLU*, which
# > would make the first two rows the same model; it is *GeLU*. And *Rezero*, a residual path that starts at zero, has
# > become *Resnet* in one and *Resero* in another. (Two wrong widths further down were found in lecture @many_heads, with a
# > pencil.)

# %%
row = {row.name: row for row in MODIFICATIONS}
for name in ("Vanilla Transformer", "GeLU"):                  # the first has the ReLU
    print(f"{name:>19}: early loss {row[name].early_loss}, SuperGLUE {row[name].superglue}")
assert row["GeLU"].superglue - row["Vanilla Transformer"].superglue > 4, "not the same model"

# %% [markdown]
# ## The results that made it matter
#
# Why did all this replace the networks of lecture @bottleneck within two years? The decks give three tables. The first is that
# of the paper itself: quality of translation against what the training cost. *Where would you expect the new
# model: above the others, left of them, or both?*

# %%
panels = {}
for pair, title in {"en-de": "English to German", "en-fr": "English to French"}.items():
    panels[title] = {
        row.model + " ensemble" * row.ensemble: (row.flops[pair], row.bleu[pair])
        for row in TRANSLATION if pair in row.flops
    }
viz.labelled_points(
    panels, x_name="training cost (FLOPs)", y_name="BLEU, newstest2014",
    sides={
        "ConvS2S": "left", "MoE": "upper",
        "ConvS2S ensemble": "upper", "GNMT + RL ensemble": "lower",
    },
)

# %% [markdown] erratum="no row of the Transformer"
# Both. For German even the base model is better than every ensemble, at a third of the cost of the cheapest rival; for
# French the big one is, at a fiftieth of the cost of the best ensemble, but the base model is not. It was the *cost*
# that made people look up. (BLEU is the subject of [lecture @writing](@writing).)
#
# > **On the slide.** Two decks show this table under the heading *great results with Transformers* without the rows of
# > the Transformer. Here is what is then the best:

# %%
without = [row for row in TRANSLATION if not row.model.startswith("Transformer")]
base, big = (row for row in TRANSLATION if row.model.startswith("Transformer"))
for pair in ("en-de", "en-fr"):
    best = max((row for row in without if pair in row.bleu), key=lambda row: row.bleu[pair])
    print(f"{pair}: best row printed {best.model} ensemble, {best.bleu[pair]}", end=";  ")
    print(f"left out: {base.bleu[pair]} and {big.bleu[pair]}")
    assert best.ensemble and big.bleu[pair] > best.bleu[pair] and big.flops[pair] < best.flops[pair]
assert base.bleu["en-de"] > max(row.bleu["en-de"] for row in without if "en-de" in row.bleu)

# %% [markdown]
# With your pencil out, one more question: how does one count the FLOPs of a training? The paper says how. It did not
# count arithmetic, it multiplied hours, GPUs and what a GPU can sustain: 12 hours for the base model and 3.5 days for
# the big one, on 8 GPUs of 9.5 TFLOPS. We can count arithmetic: 100,000 steps of about 25,000 source and 25,000 target
# tokens.

# %%
hours = {"base": 12, "big": 3.5 * 24}
for name, row in {"base": base, "big": big}.items():
    product = hours[name] * 3600 * 8 * 9.5e12
    printed = row.flops["en-de"]
    print(f"{name:>4}: hours × GPUs × 9.5 TFLOPS = {product:.1e}, printed {printed:.1e}")
    assert 0.95 < product / printed < 1.05
config, model, *_ = preset("vaswani base")
counted = 100_000 * count_training_flops(config, model, batch=1000, n=25, n_target=25)
share = counted / base.flops["en-de"]
print(f"base, multiplications and additions: {counted:.1e}, {share:.0%} of that")
assert 0.2 < share < 0.33

# %% [markdown]
# So the axis of the figure is time at full speed, of which less than a third was arithmetic. It is fair among rows
# that were estimated in the same way, and no more than an order of magnitude beside a number that was counted.
#
# The second table is about writing Wikipedia articles from their sources (Liu et al. 2018), which is where
# decoder-only models come from. ROUGE-L measures how much of the true article's wording comes back in the same order.

# %%
viz.ranking([(f"{row.model} (read {row.length:,})", row.rouge_l) for row in GENERATION], "ROUGE-L")
recurrent, both_towers, alone, *_ = GENERATION
assert both_towers.length == recurrent.length and both_towers.rouge_l > 2.5 * recurrent.rouge_l
assert alone.rouge_l < both_towers.rouge_l < max(row.rouge_l for row in GENERATION)
assert alone.perplexity < both_towers.perplexity

# %% [markdown]
# Read the numbers in brackets before you compare. The first two rows read the same 500 tokens, and there the
# Transformer scores nearly three times as high. Further down the models read more and more, and the last two are much
# larger; the decoder-only one with 4,000 tokens has no better ROUGE-L than the two towers with 500 (its perplexity, in
# the same table, is lower). What it bought was length: nearly half of the parameters saved, one sequence, and attention
# that could then be made cheaper (lecture @cheap_attention).
#
# The third is a leaderboard, GLUE, an average over nine tasks of understanding English, as it stood in early 2021:

# %%
leaders = [(f"{row.model} ({row.team})", row.score) for row in LEADERBOARD]
viz.ranking(leaders, "GLUE score", low=80, high=100)
assert max(row.score for row in LEADERBOARD) - min(row.score for row in LEADERBOARD) <= 0.5

# %% [markdown]
# "All top models are Transformer (and pretraining)-based", says the slide, and that is the news: six teams, one
# machine. The half point between first and sixth is not. From six numbers without error bars you would, by now,
# conclude nothing about whose change was the good one.
#
# > **Check yourself.** (1) A friend reports that RoPE lowers the loss by 0.02, with one seed. What do you ask? (2) In
# > the benchmark all variants have one learning rate. Whom does that favour? (3) You copy a Llama checkpoint into your
# > own code and the outputs differ a little in every layer. Name three lines to look at.
# > <details><summary>Answers</summary>(1) How far two seeds of the same model differ; whether the seeds were the same
# > in both; at which budget. (2) Those that like this rate. A variant that wants another is judged at the wrong one, as
# > post-norm is. To be fair one would look for the best rate of each, which costs several times as much. (3) The norm's
# > ε and whether it subtracts the mean; RoPE's pairing of columns, halves or neighbours (lecture @order); which of the two
# > matrices is the gate; or which query heads share a head of keys (lecture @many_heads).</details>
#
# ## What you have
#
# One block, two lines of it or three, and it is everywhere. You have wired it, held it against torch's to the last
# digit, and seen it cheat when a wire was missing. With a mask chosen for the task it reads, or writes, or does both.
# Seven years of changes have left its wiring as it was, and whether one of them helps is a question that has a budget
# in it, and error bars.
#
# What it has not had yet is a proper training. Ours lasted half a minute. [Lecture @training](@training) is about the
# rest: pieces, batches, schedules, and finding the best translation when there are too many to try.
#
# **In the package.** `attncourse.transformer` has `Block`, `Encoder`, `Decoder`, `EncoderDecoder` and `LanguageModel`,
# every choice of this lecture a field of `TransformerConfig`; `attncourse.counting.preset` the published configurations;
# `attncourse.layers` the gated networks; `attncourse.decoding` has `sample` and `greedy`. `attncourse_lessons.results`
# has the tables of this page.
#
# **Read next.** Vaswani et al., *Attention is all you need* (2017): by now all of it, and figure 1 with the question
# which arrow goes where. Press and Wolf, *Using the output embedding to improve language models* (2017). Shazeer, *GLU
# variants improve Transformer* (2020), a few pages that end in "divine benevolence". Narang et al., *Do Transformer
# modifications transfer across implementations and applications?* (2021): table 1 and the discussion. Raffel et al.,
# *Exploring the limits of transfer learning* (2020), section 3.2, for the three masks. Touvron et al., *LLaMA* (2023),
# section 2.2, for three of the four changes in half a page (the heads came with Llama 2).
