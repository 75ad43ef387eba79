# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown] teaches="encoder and decoder, and the bottleneck between them"
# # Lecture @cross_attention · Cross-attention: a decoder attends to an encoder
#
# *About 50 minutes, of which about two are computing time. You need the recurrent networks and the encoder–decoder of
# [lecture @bottleneck](@bottleneck), and the queries, keys, values and soft lookup of [lecture @lookup](@lookup).*
#
# After this lecture you can
#
# * draw an **encoder–decoder** with and without attention, and name its vectors: encoder hidden states, decoder
#   states, **context vector**, **attentional vector**;
# * write **cross-attention** from memory, say along which axis its weights sum to one, and keep padding out of it;
# * say what the decoder reads in training (**teacher forcing**), what it reads at **inference**, and what it starts
#   from;
# * tell **additive** attention (Bahdanau) from **multiplicative** attention (Luong);
# * measure what attention is worth, and say what its weights do and do not explain.
#
# ## The encoder–decoder and its bottleneck
#
# A **sequence-to-sequence** model reads one sequence and writes another. The **encoder** is a recurrent network that
# reads the source and produces one **hidden state** for each token, $h_1, \dots, h_n$. The **decoder** is a second
# recurrent network that writes the target, token by token. Early neural translators ([@sutskever2014]; [@cho2014])
# connected the two by one vector, the encoder's last state:

# %% tags=["hide-input"]
try:
    from attncourse import viz

    from . import figures
    from .hiding import predicted
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import torch
from torch.nn.functional import cross_entropy

from attncourse.attention import (
    AdditiveScore,
    BilinearScore,
    attend,
    dot_score,
    lengths_to_mask,
    scaled_dot_score,
)
from attncourse.data import BOS, EOS, Pair, Tokenizer, collate, encode_pairs, number_words
from attncourse.data.number_words import say
from attncourse.decoding import translate
from attncourse.metrics import exact_match
from attncourse.recurrent import SUMMARIES, Seq2Seq
from attncourse.training import fit
from attncourse_lessons.results import FIRST_ATTENTION, measured

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [raw] slide
# ## Encoder and decoder, joined by one vector
# A **sequence-to-sequence** model reads one sequence and writes another.
#
# - **Encoder**: a recurrent network with a **hidden state** for each source token, $h_1, \dots, h_n$.
# - **Decoder**: a second recurrent network, which writes the target token by token.
# - Early systems passed on one vector, the encoder's last state.

# %%
viz.encoder_decoder(attention=False)
#| caption: An encoder–decoder without attention: one vector connects the two.

# %% [raw] slide
# ## The bottleneck
# {figure}
#
# The **context vector** $c$ is as wide for five numbers as for one.

# %% [markdown]
# The vector $c$ between them is the **context vector**. It has the same width for a list of five numbers as for a
# single number. Imagine an interpreter who hears a whole speech, notes the essentials on a postcard, and translates
# from that. A longer speech does not make the postcard larger. This is the **bottleneck** of [lecture
# @bottleneck](@bottleneck).
#
# Our task is to translate lists of one to five numbers from English to German.

# %%
pairs = number_words("en", "de", train=20_000, test=1_000, dates=0, seed=0)
for source, target in pairs.test[:3]:
    print(f"{source}\n    {target}")

# %% [raw] slide
# ## Our task: lists of numbers, English to German
# | | |
# |---|---|
# | twenty-nine, four, eleven | neunundzwanzig, vier, elf |
# | ninety-one | einundneunzig |
#
# Each list has one correct translation, and one difficulty: the unit and the ten **swap places**.

# %% [markdown] teaches="bidirectional encoders where possible"
# Each list has exactly one correct translation, and no test list occurs in the training set. The word order differs:
# English says *ninety-one*, German says *einundneunzig*, "one and ninety". The unit and the ten swap places.
#
# ## Attention: a context vector for every target token
#
# The bottleneck disappears if the decoder can use *all* hidden states of the encoder. In the model of Bahdanau, Cho and
# Bengio ([-@bahdanau2015]) the decoder computes a new context vector $c_t$ at every step $t$: an average of the
# encoder's states, whose **attention weights** depend on what the decoder needs now. We build the simpler variant of
# Luong et al. ([-@luong2015]); a later section compares the two.

# %%
viz.encoder_decoder(attention=True, bidirectional=True, weights=(0.1, 0.9), named=True)
#| caption: An encoder–decoder with attention: at every step the decoder attends to all encoder
#|   states. The first step is shown in colour, with its weights.
#| label: cross-attention

# %% [raw] slide
# ## Attention: a context vector for every target token
# {figure}

# %% [raw] slide
# ## Two things are new
# - The **encoder is bidirectional**, $h_i = [\overrightarrow{h_i}; \overleftarrow{h_i}]$: it contains information about the tokens before $i$ and after it.
# - The **decoder state** $s_t$ is the **query**. Each $h_i$ is **key** and **value**.
#
# . . .
# Query from one sequence, keys and values from another: **cross-attention**.

# %% [markdown]
# Two things in this figure are new.
#
# * The encoder is **bidirectional** ([@schuster1997]): two recurrent networks read the source, one from each end, and
#   their states are concatenated, $h_i = [\overrightarrow{h_i}; \overleftarrow{h_i}]$. So $h_i$ contains information
#   about the tokens before $i$ *and* after it. Each direction has width $d/2$, so $h_i$ is as wide as the decoder's
#   state $s_t$, which the dot product needs. The encoder can read in both directions because the whole source is known
#   in advance. The decoder cannot, because its target has not been written yet.
# * The **decoder state** $s_t$ is the **query**. It is compared with every $h_i$ as a **key**, and the same $h_i$ are
#   averaged as **values**. Attention whose query comes from one sequence and whose keys and values come from another is
#   called **cross-attention**. The [Transformer](@transformer) adds three learned matrices, for queries $s_t W_Q$, keys
#   $h_i W_K$ and values $h_i W_V$.
#
# The decoder state and the context vector are combined into the **attentional vector** $\tilde s_t$, from which the
# next token is predicted. [@fig:decoding-step] shows one step in full; read it from bottom to top. The section "One
# step of the decoder" explains the right-hand side and the initial state $s_0$.

# %%
figures.decoding_step()
#| caption: One decoding step with attention, from the old state to the next token.
#| label: decoding-step

# %% [raw] slide
# ## One decoding step, from bottom to top
# {figure}

# %% [markdown] teaches="cross-attention of a decoder, in equations"
# Each encoder state is used twice. As a key, it is compared with the query, which gives an **attention score**
# $e_{ti}$. Softmax turns the scores of one step into weights $\alpha_{ti}$, which sum to one over the source. As a
# value (the blue line), the state is multiplied by its weight. The sum of these products is the **context vector**
# $c_t$.
#
# ## Scores, weights and context vector by hand
#
# Suppose that the network has learned four features: how much a position is about *hundreds*, *tens*, *units*, and the
# *joint* between the ten and the unit. The number 91 has two tokens in English and three in German: *ein·und·neunzig*.

# %%
source, target = ["ninety-", "one"], ["ein", "und", "neunzig"]
#               hundreds tens units joint
H = torch.tensor([[0.0, 3.0, 0.0, 1.0],              # h₁  ninety-
                  [0.0, 0.0, 3.0, 1.0]])             # h₂  one                  H is (2, 4)
S = torch.tensor([[0.0, 0.0, 1.0, 0.0],              # s₁  about to write "ein"
                  [0.0, 0.0, 0.0, 1.0],              # s₂  about to write "und"
                  [0.0, 1.0, 0.0, 0.0]])             # s₃  about to write "neunzig"  S is (3, 4)

# %% [raw] slide
# ## Scores, weights and context vector by hand
# The number 91 has two tokens in English and three in German: *ein·und·neunzig*.
#
# {code}
#
# > **Guess first.** Is the largest weight of *ein* above or below 0.9? And what exactly is the *joint* entry of its context vector?

# %% [markdown]
# *Guess first:* is the largest weight of *ein* above or below 0.9? And what exactly is the *joint* entry of its context
# vector?

# %%
s = S[0]                                             # (4,)  the query of "ein"
e = torch.stack([s @ h for h in H])                  # (2,)  a score for each source token
alpha = e.exp() / e.exp().sum()                      # (2,)  weights: they sum to one
c = alpha[0] * H[0] + alpha[1] * H[1]                # (4,)  the context vector
print("scores ", e)
print("weights", alpha)
print("context vector", c)

# %% [raw] slide
# ## “Ein” attends to “one”
# {print}
#
# *Joint* is exactly 1: it is 1 in both states, and the weights sum to one.
#
# A hard choice of one position gives no gradient; an average does.

# %% [markdown]
# *Ein* gives 95 % of its weight to *one*, so its context vector is nearly $h_2$. The *joint* entry is exactly 1,
# because it is 1 in both states and the weights sum to one. A hard choice of one position gives no gradient ([lecture
# @lookup](@lookup) tries it), but an average is differentiable, so the network can learn where to attend. The package's
# `attend` does all three steps at once. *Guess:* what does *und*, which has no counterpart, attend to?

# %%
C, A = attend(query=S, key=H, value=H, score=dot_score)          # (3, 4), (3, 2)
viz.draw_weights(dot_score(S, H), rows=target, columns=source, title="scores",
                 row_name="target (queries)", column_name="source (keys)")
same = torch.allclose(C[0], c) and torch.allclose(A[0], alpha)
print("the row of “ein” is what we computed:", same)
#| caption: Scores of each target token (rows) against each source token (columns).

# %% [raw] slide
# ## All three steps at once
# {figure}
# |||
# Every **row** is one query, every **column** one key.
#
# **A common mistake: a square table.** It is $n_\text{target} \times n_\text{source}$. Test with two different lengths.

# %% [markdown] erratum="a square table"
# Every row is one query, every column one key. *Neunzig* matches *ninety-*, so the order is reversed. *Und* matches
# both equally.
#
# > **A common mistake: a square table.** The table is $n_\text{target} \times n_\text{source}$, which is rarely square.
# > Test your code with two different lengths.
#
# ## Softmax over the source: which axis sums to one
#
# Softmax runs along one of the table's two axes. *Before you look:* which choice means "each target token distributes a
# total weight of one", and what would the other choice mean?

# %% [raw] slide
# ## Which axis sums to one?
# > **Guess first.** Softmax over the source, or over the target: which one means "each target token distributes a total weight of one"?

# %%
scores = dot_score(S, H)                                         # (3, 2)
two_ways = {"softmax over the source": scores.softmax(dim=-1),
            "softmax over the target": scores.softmax(dim=-2)}
figures.tables_with_sums(two_ways, rows=target, columns=source)
#| caption: Softmax over the source and over the target: only one of the two makes the rows sum
#|   to one.

# %% tags=["hide-input"]
assert torch.allclose(A.sum(dim=-1), torch.ones(3))
assert torch.allclose(A, scores.softmax(dim=-1))
assert tuple(scores.shape) == (len(target), len(source))
assert scores.softmax(dim=-2).sum(dim=-1).min() < 0.25, "und has less than a quarter to give"

# %% [raw] slide
# ## Softmax over the source
# {figure}
#
# $$\alpha_{ti} = \frac{\exp(e_{ti})}{\sum_j \exp(e_{tj})} \qquad\qquad c_t = \sum_i \alpha_{ti}\, h_i$$

# %% [markdown]
# The left table is correct, because each *row* sums to one. The target token that is about to be written distributes
# its attention over the source:
#
# $$\alpha_{ti} = \frac{\exp(e_{ti})}{\sum_j \exp(e_{tj})} \qquad\qquad c_t = \sum_i \alpha_{ti}\, h_i$$ (eq:context)
#
# In the right table each *column* sums to one, as if *ninety-* had to distribute itself over the target tokens. Nothing
# crashes. But at inference the target is written one token at a time, so the table has a single row, and each of its
# weights would be 1. To find this mistake, sum along the axis whose sums must be one. The other sums, in grey, may have
# any value.
#
# If all weights were equal, $c_t$ would be the plain mean of the states, the same for every target token. This is
# **mean pooling**. Below we measure how well it works.
#
# **Now you:** [a03](@cross_attention/assignment), exercise 1.

# %% [markdown] erratum="x for h; the encoder's cross-attention"
# > **A common mistake: who attends to whom.** In cross-attention the *decoder* attends to the encoder's states $h_i$.
# > So there must be one context vector for each *target* token.
#
# ## Padding: a mask before the softmax
#
# Sentences are processed in batches, and shorter sentences are filled up with **padding**. A padded position has a
# vector too, and nothing in the vector says that it is padding. Below, our source of two tokens shares a batch with a
# sentence of five, so three columns are padding, with states of zero. *Guess:* how much of its attention does *ein*
# give to padding?

# %% [raw] slide
# ## Padding: a mask before the softmax
# Shorter sentences are filled up. The vector of a padded position does not say that it is padding.
#
# **A common mistake: who attends to whom.** The *decoder* attends: one context vector for each **target** token.
#
# > **Guess first.** Our source of two tokens shares a batch with a sentence of five. How much of its attention does *ein* give to padding?

# %%
padded = torch.cat([H, torch.zeros(3, 4)])           # (5, 4)  two tokens, three times padding
mask = lengths_to_mask([2], n=5)                     # (1, 5)  True where there is a token
_, unmasked = attend(S, padded, padded, score=dot_score)     # (3, 5)
_, masked = attend(S, padded, padded, mask=mask, score=dot_score)
names = [*source, "pad", "pad", "pad"]
figures.tables_with_sums({"no mask": unmasked}, rows=target, columns=names)
#| caption: A batch with padding and no mask: padding gets weight.

# %% [raw] slide
# ## A score of 0 is not “no attention”
# {figure}
#
# $\exp(0) = 1$. Set the **score** to $-\infty$, then take the softmax: the weight is exactly 0.

# %% [markdown] erratum="weights set to 0"
# *Ein* gives an eighth of its attention to padding, and *und* more than a third. A score of 0 does not mean "no
# attention", because $\exp(0) = 1$. In another batch the same sentence would have different context vectors, and
# perhaps a different translation. A padded position must get a weight of *exactly* zero, and the other weights must sum
# to one. So its **score** is set to $-\infty$ before the softmax: $\exp(-\infty) = 0$, in the numerator and in the sum.
#
# > **A common mistake: weights set to 0.** Zeroing the padded *weights* after the softmax looks equivalent. But then
# > the rows no longer sum to one, because the removed weight goes to no other position. The figure shows this mistake
# > and, below it, the correct masking. Masked positions are hatched.

# %%
after, before = unmasked * mask, masked                      # (3, 5) each
figures.tables_with_sums({"weights set to 0, after the softmax": after,
                          "scores set to −∞, before the softmax": before},
                         rows=target, columns=names, mask=mask)
print("nothing has changed for the two tokens:", torch.allclose(before[:, :2], A))
#| caption: Weights set to zero after the softmax, and scores set to −∞ before it: only the
#|   second way makes the rows sum to one.

# %% tags=["hide-input"]
assert (unmasked * mask).sum(dim=-1).max() < 0.99
assert torch.allclose(masked[:, :2], A) and (masked[:, 2:] == 0).all()

# %% [raw] slide
# ## A common mistake: weights set to 0 after the softmax
# {figure}
#
# **Now you:** a@cross_attention, exercises 1 to 3

# %% [raw] slide
# ## One step of the decoder (Luong et al. 2015)
# $$\begin{aligned} s_t &= \operatorname{GRU}\bigl([\,E[y_{t-1}];\ \tilde s_{t-1}\,],\ s_{t-1}\bigr) && \text{the state moves on}\\ \alpha_{ti} &= \operatorname{softmax}_i\bigl(s_t \cdot h_i\bigr) && \text{attention weights}\\ c_t &= \textstyle\sum_i \alpha_{ti} h_i && \text{context vector}\\ \tilde s_t &= \tanh\bigl([\,c_t;\ s_t\,]\,W\bigr) && \text{attentional vector}\\ \text{logits}_t &= \tilde s_t\, W_o && \text{one for each token of the vocabulary} \end{aligned}$$
#
# **Input feeding**: $\tilde s_{t-1}$ goes into the next step.
#
# **Now you:** a@cross_attention, exercise 4

# %% [markdown] teaches="the attentional vector feeds the next step @ One step of the decoder"
# > **Check yourself.** A row of the mask is entirely False if the source is empty. What does softmax return for a row
# > of nothing but −∞, and what would you want instead?
# > <details><summary>Answer</summary>Every exponential is 0, their sum is 0, and 0/0 is NaN, which spreads to the loss
# > and to every gradient. There is nothing to average, so zeros are the sensible answer. The package's
# > <code>masked_softmax</code> returns them, and so must yours in the assignment.</details>
#
# **Now you:** [a03](@cross_attention/assignment), exercises 2 and 3.
#
# ## One step of the decoder
#
# Here is the complete step of Luong et al. ([-@luong2015]), with a GRU in place of their LSTM. $E[y_{t-1}]$ is the
# embedding of the previous token, a row of the target language's table. The concatenation $[c_t; s_t]$ is $(2d,)$, $W$
# is $(2d, d)$ and $W_o$ is $(d, \lvert V \rvert)$; biases are left out. Vectors are rows, as everywhere in this course;
# papers use columns, $W[c_t; s_t]$.
#
# $$
# \begin{aligned}
# s_t &= \operatorname{GRU}\bigl([\,E[y_{t-1}];\ \tilde s_{t-1}\,],\ s_{t-1}\bigr) && \text{the state moves on}\\
# \alpha_{ti} &= \operatorname{softmax}_i\bigl(s_t \cdot h_i\bigr) && \text{attention weights, without padding}\\
# c_t &= \textstyle\sum_i \alpha_{ti} h_i && \text{context vector}\\
# \tilde s_t &= \tanh\bigl([\,c_t;\ s_t\,]\,W\bigr) && \text{attentional vector}\\
# \text{logits}_t &= \tilde s_t\, W_o && \text{one for each token of the vocabulary}
# \end{aligned}
# $$
#
# The attentional vector $\tilde s_t$ has two uses. It predicts the next token, and it is an input to the cell at the
# next step ($\tilde s_0 = 0$). The second use is called **input feeding**: it tells the next step what this step
# attended to. ([@fig:cross-attention] leaves this arrow out.) Luong et al. ([-@luong2015, table 1]) report a gain of
# 1.3 BLEU from it, with location-based attention (scores from $s_t$ alone, without the keys). You write this step in
# the assignment; the package's `Seq2Seq` combines it with a bidirectional encoder.
#
# The initial state $s_0$ concatenates the final states of the encoder's two directions, $s_0 = [\overrightarrow{h_n};
# \overleftarrow{h_1}]$: the forward state at the last token and the backward state at the first. Bahdanau et al.
# ([-@bahdanau2015]) use $s_0 = \tanh(W_s \overleftarrow{h_1})$ instead. So one vector is still handed
# over, but the decoder no longer has to rely on it.
#
# **Now you:** [a03](@cross_attention/assignment), exercise 4.
#
# ## Teacher forcing: what the decoder reads
#
# Which token is $y_{t-1}$, the previous token? In training we know the correct translation. At every position the
# decoder reads the previous token of the *correct translation*, whatever the model would have written, and must predict
# the next token. This is called **teacher forcing**.
#
# We now train such a model on **subword tokens** ([lecture @bottleneck](@bottleneck); [lecture @training](@training)
# builds them by byte-pair encoding). To keep the figures readable, the tokenizer keeps *hundert* and *und* as separate
# tokens. The cell takes about a minute on an idle machine and several on a busy one. Read on in the meantime.

# %% [raw] slide
# ## Teacher forcing: what the decoder reads
# | | $y_{t-1}$, the previous token, is |
# |---|---|
# | **training** | the correct token, whatever the model would have written: **teacher forcing** |
# | **inference** | the token that the model has just written: **autoregressive** |

# %%
english = Tokenizer.train((pair.source for pair in pairs.train), size=112)
german = Tokenizer.train((pair.target for pair in pairs.train), size=112,
                         keep_apart="hundert|und")
encoded = encode_pairs(pairs.train, english, german)
models = {}
for seed in (0, 1, 2):
    torch.manual_seed(seed)
    models[seed] = Seq2Seq(len(english), len(german), d_embedding=32, d_hidden=128)
    fit(models[seed], encoded, steps=450, batch_size=32, lr=6e-3, seed=seed,
        name=f"seed {seed}")

# %% [markdown]
# We train three models, because a single seed might just be lucky. Here is one target sentence, as the decoder's input
# and its expected output:

# %%
batch = collate(encode_pairs([Pair("ninety-one", "einundneunzig")], english, german))
print("the decoder reads:  ", german.pieces(batch.target_in[0].tolist()))
print("it must predict:    ", german.pieces(batch.target_out[0].tolist()))
logits = models[0](batch.source, batch.lengths, batch.target_in)     # (1, 4, vocab_size)
loss = cross_entropy(logits[0], batch.target_out[0])
print(f"cross-entropy: {loss.item():.4f} nats per token")
print("a longer number:    ", english.pieces(say(436, "en")), german.pieces(say(436, "de")))

# %% [raw] slide
# ## The target is shifted by one
# {print}
# . . .
# The gap between training and inference is called **exposure bias**: lecture @writing measures it.

# %% [markdown]
# The target is shifted by one: after `<bos>` comes *ein*, and after *ein* comes *und*. The loss is close to 0, so the
# correct token gets nearly all the probability at each position. In a batch, short targets are padded as well. Their
# padded rows need no mask in cross-attention, because nothing uses them, but the loss leaves them out, as your
# `shifted_loss` of assignment @bottleneck does. **Now you:** [a03](@cross_attention/assignment), exercise 5.
#
# At **inference** the correct translation is unknown. The model is **autoregressive**: it reads the token that it has
# just written, until it writes `<eos>`. Taking the most likely token at each step is **greedy decoding**. *Write the
# loop before you look:* `start` returns the state, and `step(token, state)` returns the logits, the new state and the
# attention weights. Which token goes in first, and when does the loop stop?

# %%
state = models[0].start(batch.source, batch.lengths)             # reads the source; s₀
token, written = torch.tensor([BOS]), []
while token.item() != EOS and len(written) < 20:
    logits, state, _ = models[0].step(token, state)
    token = logits.argmax(dim=-1)                            # (1,)  greedy: the likeliest token
    written.append(token.item())
print(german.pieces(written))

# %% [markdown]
# In training the model never reads one of its own mistakes, but at inference it may. This gap is called **exposure
# bias**, and [lecture @writing](@writing) measures it. So we let the models write their own translations, and count a
# list as correct only if every letter is correct. *Guess:* how many of the 1,000 test lists are correct, and how far
# apart are the three seeds?

# %%
sources, truths = zip(*pairs.test, strict=True)
exact = {}
for seed, model in models.items():
    written = [translation.text for translation in translate(model, sources, english, german)]
    right = exact_match(written, truths)
    exact[seed] = sum(right) / len(right)
    print(f"seed {seed}: {sum(right)} of {len(right)} lists of the test set are exactly right")
longest = collate(encode_pairs(pairs.test, english, german)).lengths.max()
print("longest source in the test set:", longest.item(), "tokens")

# %% [raw] slide
# ## Greedy decoding: count a list only if every letter is right
# {print}

# %% tags=["hide-input"]
assert loss.item() < 0.1 and min(exact.values()) > 0.9, "as the text says, with a margin"

# %% [markdown]
# With each seed, more than nine in ten lists are correct. Differences of half a point between seeds may be chance: for
# 1,000 lists, a share near 98 % has a standard error of about 0.4 points.
#
# ## Bahdanau and Luong: additive and multiplicative attention
#
# Our decoder is Luong's; Bahdanau's came a year earlier, in 2014. The decoders differ in three ways: the score, the
# state that serves as the query, and the place where the context vector enters. (The encoders differ too: Bahdanau's is
# bidirectional, and Luong's is a stack of unidirectional LSTMs.)

# %%
figures.two_decoders()
#| caption: The decoders of Bahdanau et al. and of Luong et al.
#| label: two-decoders

# %% [raw] slide
# ## Bahdanau and Luong
# {figure}

# %% [markdown]
# | | [@bahdanau2015] | [@luong2015] |
# |---|---|---|
# | score | **additive**: $\tanh(s_{t-1} W_a + h_i U_a) \cdot v_a$ | **multiplicative**: $s_t \cdot h_i$ ("dot"), $s_t W_a \cdot h_i$ ("general"); also "concat", an additive score |
# | query | the old state, $s_{t-1}$ | the new state, $s_t$ |
# | context vector | goes into the cell that computes $s_t$ and, with $s_t$ and $y_{t-1}$, into the output | goes into the output, and into the next cell by input feeding |
# | order of a step | attend with $s_{t-1}$ → cell → output | cell → attend with $s_t$ → combine to $\tilde s_t$ → output |

# %% [raw] slide
# ## Additive and multiplicative attention
# | | Bahdanau et al. 2015 | Luong et al. 2015 |
# |---|---|---|
# | score | **additive**: $\tanh(s_{t-1} W_a + h_i U_a) \cdot v_a$ | **multiplicative**: $s_t \cdot h_i$, or $s_t W_a \cdot h_i$ |
# | query | the old state $s_{t-1}$ | the new state $s_t$ |
# | $c_t$ goes | into the cell and the output | into the output, then input feeding |
#
# > **Guess first.** Which parameters does each score need?
#
# . . .
# Additive: two matrices and a vector. "General": one matrix. "Dot": none, but the widths must be equal.

# %% [markdown]
# The additive score is a small network ([lecture @lookup](@lookup) wrote it), evaluated for every pair of a query and a
# key. It has two matrices and a vector, "general" has one matrix, and "dot" has no parameters but needs equal widths.
# For the three queries and two keys from above:

# %%
W_a, U_a, v_a = torch.randn(4, 8), torch.randn(4, 8), torch.randn(8)
general = BilinearScore(4, 4)                        # the package's "general" score
hidden_units = torch.tanh((S @ W_a)[:, None] + (H @ U_a)[None])
print("additive:", tuple(hidden_units.shape), "→", tuple((hidden_units @ v_a).shape))
print("general: ", tuple(general(S, H).shape))

# %% [markdown]
# The additive score computes a vector for every pair before it turns this vector into a number. Multiplicative scores
# are matrix products, which take less time and memory. For this reason Vaswani et al. ([-@vaswani2017, section 3.2.1])
# chose the dot product for the Transformer. (The two also differ in scale: see the first "Going further".)
#
# ## What attention is worth on real sentences
#
# Bahdanau et al. ([-@bahdanau2015]) trained models with and without attention on 348 million words, English to French,
# with sentences of up to 30 or 50 words. RNNencdec hands over one vector, RNNsearch has attention, and Moses was the
# phrase-based system of the time. Here is their table 1, in **BLEU** (higher is better; [lecture @writing](@writing)
# defines it). *Guess:* which is larger, the gain from longer training sentences or the gain from attention?

# %% [raw] slide
# ## What attention is worth on real sentences
# Bahdanau et al. (2015), English to French, 348 million words; sentences of up to 30 or 50 words.
#
# > **Guess first.** Which is larger, the gain from longer training sentences or the gain from attention?

# %%
figures.with_and_without(FIRST_ATTENTION)
#| caption: BLEU with and without attention, as published ([@bahdanau2015, table 1]). The
#|   asterisk marks a longer training run.

# %% [raw] slide
# ## RNNsearch is ahead by 7.6 and 8.9 BLEU
# {figure}

# %% [markdown]
# RNNsearch is ahead of RNNencdec by 7.6 and 8.9 BLEU. Longer training sentences add 3.9 without attention and a little
# over 5 with it. Not all of the lead comes from attention: RNNsearch also reads the source in both directions,
# RNNencdec in only one. On all sentences Moses, which had 418 million additional words of French, is still ahead. On
# sentences without unknown words the best RNNsearch passes Moses, 36.15 against 35.63.
#
# The paper also shows how BLEU depends on sentence length ([@bahdanau2015, figure 2]). Without attention BLEU
# "dramatically drops" on long sentences, as [@cho2014properties] had found. RNNsearch-50, trained on sentences of up to
# 50 words, "shows no performance deterioration even with sentences of length 50 or more". This does not hold at every
# length: Koehn and Knowles ([-@koehn2017, section 3.4]) found that a recurrent system *with attention* falls behind a
# phrase-based one on sentences of about 60 words or more.
#
# ## What attention is worth on our lists: the ladder
#
# Our lists have no unknown words and no ambiguity. Three models translate them, with the same encoder, decoder step,
# number of parameters, batches and steps. They differ in what the encoder hands over:
#
# | | the decoder attends to |
# |---|---|
# | **last state** | one vector: the final states of the two directions |
# | **mean pool** | one vector: the average of all encoder states |
# | **attention** | all encoder states |
#
# In the two one-vector models, the vector is also the initial state $s_0$. Attention over a single vector gives it a
# weight of 1, so the decoder reads the vector again at every step, as in [@cho2014]. *Sketch three curves before you go
# on:* the share of lists translated exactly right, against list length. Where do the curves diverge?
#
# Training takes more than ten minutes, so the figure is drawn from a record of three seeds and two budgets.

# %% [raw] slide
# ## The ladder: three models that differ in one thing
# | | the decoder attends to |
# |---|---|
# | **last state** | one vector: the final states of the two directions |
# | **mean pool** | one vector: the average of all encoder states |
# | **attention** | all encoder states |
#
# > **Guess first.** Sketch three curves: lists exactly right, against the length of the list. Where do the curves diverge?

# %% tags=["hide-input"]
record = measured("ladder")
print(record["command"], "on", record["date"])
panels = {}
for steps, by_model in record["steps"].items():
    panels[f"{int(steps):,} steps"] = {
        model: [run["right"] for run in by_model[model]] for model in SUMMARIES
    }

# %%
figures.right_by_length(panels)
ladder = {name: Seq2Seq(len(english), len(german), 32, 128, summary=name) for name in SUMMARIES}
print("parameters:", {name: sum(p.numel() for p in model.parameters())
                      for name, model in ladder.items()})
#| caption: Lists translated exactly right, of 37 lists with one number and 229 to 250 of each
#|   other length. Bands: worst to best of three seeds.

# %% [raw] slide
# ## One vector learns long lists far more slowly
# {figure}
#
# At least a third of the gap at 450 steps is **training speed**, not **capacity**.

# %% [markdown]
# After 450 steps, all three models translate most single numbers correctly. On lists of five, both one-vector models
# get about 1 % or less right, while attention gets 95 %. The two one-vector models differ little.
#
# Some decline is expected, because a list counts only if every number in it is correct. If numbers went wrong
# independently, the lists of five would lie on the dotted lines (the share at two, to the power 5/2). The one-vector
# models fall far below their lines: the longer the list, the worse they translate *each* of its numbers. A bottleneck
# predicts this. But slow learning predicts the same, and after 450 steps attention also falls a little below its line.
#
# Is one vector too narrow, or does the model only learn more slowly? With four times the steps, both one-vector models
# get four in ten of the longest lists right, and the gap to attention shrinks from 94 points to 59. (These are separate
# runs: the learning rate rises and falls to zero within each budget.) So at least a third of the gap was due to
# **training speed**, not **capacity**. [Lecture @bottleneck](@bottleneck) measures capacity by the width of the vector.
#
# > **Check yourself.** The three models have the same number of parameters. Do they also do the same amount of
# > arithmetic?
# > <details><summary>Answer</summary>No. At every decoder step, attention compares the decoder's state with all n
# > encoder states and averages them; the others have one vector. For m target tokens that is m × n dot products instead
# > of m. The parameters do not change, because a dot product has none.</details>

# %% tags=["hide-input"]
few, many = (record["steps"][steps] for steps in ("450", "1800"))
last, pool = ([run["right"]["5"] for run in few[name]] for name in ("last state", "mean pool"))
assert max(last + pool) < 0.02 and min(run["right"]["5"] for run in few["attention"]) > 0.9
assert all(0.35 < run["right"]["5"] < 0.5 for name in SUMMARIES[:2] for run in many[name])
assert f"{sum(run['right']['5'] for run in many['mean pool']) / 3:.0%}" == "41%"
assert min(run["right"]["5"] for run in many["attention"]) > 0.99, "practically all"
assert longest == 27, "the longest source of the test set"

# %% [markdown]
# ## Why one vector falls short: distance, selection or width?
#
# Why does a model with one vector learn so much more slowly? Here are three possible reasons:
#
# * **Distance**: a gradient that links a German token to an English one in the middle of the list must pass through
#   every state in between.
# * **Selection**: even if all the information reaches the decoder, it arrives blended into one vector.
# * **Width**: one vector may be too narrow for the whole list.
#
# The effect of distance can be measured before any training. We take untrained models and sources of $n$ tokens, and
# compute the gradient of one output, the log-probability of an arbitrary first token, at the *middle* source token.
# *Guess:* in which of the three models does it arrive when $n$ is 80?

# %% [raw] slide
# ## Why does a model with one vector learn so slowly? Three possible reasons
# - **Distance**: the gradient must pass through every state in between.
# - **Selection**: even if all the information reaches the decoder, it arrives blended into one vector.
# - **Width**: one vector may be too narrow for the whole list.
#
# > **Guess first.** Untrained models, $n = 80$: in which of the three models does the gradient reach the middle token?

# %%
def gradient_at_the_middle(summary, n, seed):
    torch.manual_seed(seed)
    model = Seq2Seq(112, 112, d_embedding=32, d_hidden=128, summary=summary)
    tokens = 4 + torch.randperm(108)[:n]                             # (n,)  none of them twice
    logits = model(tokens[None], torch.tensor([n]), torch.tensor([[BOS]]))     # (1, 1, 112)
    logits.log_softmax(dim=-1)[0, 0, 5].backward()                   # of some first token
    gradients = model.embedding.weight.grad                          # (112, 32)
    return gradients[tokens[n // 2]].norm().item()


gradients = {}
for summary in SUMMARIES:
    gradients[summary] = {n: [gradient_at_the_middle(summary, n, seed) for seed in range(3)]
                          for n in (5, 10, 16, 27, 40, 80)}
figures.gradients_by_length(gradients)
#| caption: Norm of the gradient of one first-token log-probability at the middle source token.
#|   Untrained models, three seeds; lines join the means.

# %% tags=["hide-input"]
assert max(gradients["last state"][80]) < 1e-6 * min(gradients["last state"][5])
for summary in ("mean pool", "attention"):
    assert sum(gradients[summary][80]) / sum(gradients[summary][5]) > 0.03
below = sum(gradients["mean pool"][27]) / sum(gradients["last state"][27])
assert 80 < below < 130, "about 100 times"

# %% [raw] slide
# ## The gradient's path
# {figure}
#
# Mean pooling has the same shortcut as attention and does no better than the last state: distance is not what limits it here.
#
# > **Guess first.** Which helps mean pooling more: a vector twice as wide, or three times the steps?

# %% [markdown]
# In the last-state model the gradient vanishes exponentially (a straight line on the left). With mean pooling and
# attention the gradient takes a shortcut through one average, and it shrinks roughly as $1/n$ (on the right): $1/n$
# alone would be a factor of 16 from 5 tokens to 80. (Before training, the attention weights are spread over all tokens,
# so attention's curve resembles that of mean pooling.) At 27 tokens, the longest source of the test set, the last state's
# gradient is about 100 times smaller than mean pooling's.
#
# But mean pooling has the same shortcut as attention, and in the ladder it does no better than the last state. So
# distance is not what limits mean pooling here. (It may still play a part for the last state.) If width is the limit, a
# wider vector should help. *Guess:* which helps mean pooling more, a vector of 256 numbers instead of 128, or 5,400
# steps instead of 1,800?

# %% tags=["hide-input"]
wider, longer = measured("ladder_wider"), measured("ladder_longer")
WIDE = "mean pool, twice as wide"
for steps, by_model in ((1800, record["steps"]["1800"] | wider["steps"]["1800"]),
                        (5400, longer["steps"]["5400"])):
    for name, runs in by_model.items():
        if name in ("mean pool", "attention", WIDE):
            shares = [f"{run['right']['5']:.0%}" for run in runs]
            print(f"{steps:,} steps, {name:>24}: lists of five, by seed:", shares)

# %% tags=["hide-input"]
at_five = [run["right"]["5"] for run in wider["steps"]["1800"][WIDE]]
assert min(at_five) > 0.45 and max(at_five) < 0.55
trained = [run["right"]["5"] for run in longer["steps"]["5400"]["mean pool"]]
assert min(trained) > 0.65 and f"{sum(trained) / 3:.0%}" == "70%"
sizes = [sum(p.numel() for p in Seq2Seq(len(english), len(german), 32, d).parameters())
         for d in (128, 256)]
assert 3.4 < sizes[1] / sizes[0] < 3.6, "three and a half times the parameters"

# %% [raw] slide
# ## Is it the width? A little; longer training helps more
# {print}
#
# At least two thirds of the gap at 450 steps is slow learning. *Why* is mean pooling slow?

# %% [markdown]
# For mean pooling, the printout shows:
#
# * **Twice the width helps little.** It gains about 8 points at 1,800 steps, and not all of that comes from the wider
#   vector: the encoder and decoder grow with it, to three and a half times as many parameters.
# * **Most of the gap is slow learning.** Three times the steps gain about 28 points. If attention keeps its 100 %, the
#   gap after 5,400 steps is 30 points, so at least two thirds of the 94 points at 450 steps were a matter of training
#   time. This tells us *that* mean pooling learns slowly, not *why*.
#
# Selection could be the reason: without it, the network may need more steps to learn to untangle one blended vector. We
# test this with four variants that read the source only once, before the first step:
#
# * **one query**: the query is always $s_0$, so all steps share one learned average.
# * **eight averages**, after Britz et al. ([-@britz2017]): eight learned queries give eight averages, and at every step
#   the decoder attends to these instead of the source.
# * **eight averages, one choice**, the control: this model has exactly the same parameters, but it computes the weights
#   over its eight averages once, with $s_0$, and keeps them for all steps.
# * **eight averages, one vector**: a learned matrix turns the 1,024 numbers of the eight averages into one vector of
#   128, so that no average is left out.
#
# In all four variants $s_0$ is the last state, as with attention. All models have the same learning rate; we did not
# search for each one's best.

# %%
figures.handed_over()
#| caption: What the variants hand over (orange). A green arrow from a state s is a choice made
#|   anew at that step.
#| label: handed-over

# %% [raw] slide
# ## Four variants that read the source only once
# {figure}
#
# > **Guess first.** How many lists of five does each variant get right after 1,800 steps?

# %% [markdown]
# *Guess:* how many lists of five does each variant of [@fig:handed-over] get right after 1,800 steps, where mean
# pooling had 41 % and attention 100 %?

# %% tags=["hide-input"]
variants = [measured(f"ladder_{name}") for name in ("one_query", "eight_averages",
                                                    "eight_one_choice", "eight_in_one_vector")]
every = {}
for each in (record, *variants):
    for steps, by_model in each["steps"].items():
        for name, runs in by_model.items():
            every.setdefault(name, {})[f"{int(steps):,} steps"] = [run["right"] for run in runs]
named = {"last state": "last state", "mean pool": "mean pool",
         "one query": "attention, one query",
         "eight averages, one vector": "eight averages, one vector",
         "eight averages, one choice": "eight averages, one choice",
         "eight averages": "attention, eight averages", "attention": "attention"}
figures.lists_of_five({name: every[model] for name, model in named.items()}, same=5)
#| caption: Lists of five translated exactly right: three seeds of each model, after 450 and
#|   after 1,800 steps.

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
print(f"{'means of three seeds':>26}   450 steps, lists of 1 to 5      1,800 steps")
for name, model in named.items():
    rows = ["".join(f"{sum(right[n] for right in seeds) / 3:>6.0%}" for n in "12345")
            for seeds in every[model].values()]
    print(f"{name:>26}: {'  '.join(rows)}")
for each in (wider, longer, *variants):
    print(each["command"], "on", each["date"])

# %% [raw] slide
# ## One choice for all steps, or a new choice at each step
# {figure}
#
# Same parameters, one thing changed: 44 % with one choice, 91 % with a new choice at each step.

# %% [markdown] teaches="soft alignment for free, and what it explains"
# * **One choice for all steps loses the advantage.** *Eight averages* and *eight averages, one choice* differ in one
#   thing: whether the weights over the eight are computed anew at each step. With a new choice at each step, 42 % of the
#   lists of five are right after 450 steps and 91 % after 1,800. With one choice, 1 % and 44 % are right, which is the
#   level of the one-vector models.
# * **One learned average is hardly better than the plain mean.** With one query, 44 % are right after 1,800 steps, although
#   the gradient's path is as short as before.
# * **A choice among eight is nearly enough.** The decoder does well without going back to the source itself. On real
#   sentences Britz et al. report quality on a par with attention.
# * **Joined into one vector, the same number of averages loses the whole advantage**: 21 % after 1,800 steps. But this
#   model has 131,200 more parameters and does worse than mean pooling, so it may also be harder to train at this
#   learning rate. The model with one choice is the better control.
#
# So on our lists the model learns fast if every step can choose anew: selection explains most of the difference. One
# limit remains. A model with one choice also receives a single vector for the whole list, while a new choice at each
# step lets more of the eight averages through. The choice and the amount of information come together, and our
# experiment cannot separate them.
#
# ## Attention weights as a soft alignment
#
# An **alignment** says which source token corresponds to which target token. Our models were never given one; they were
# only trained to predict the next token. Their attention weights are a **soft alignment** that comes for free. In
# Bahdanau et al. ([-@bahdanau2015, figure 3]), *European Economic Area* becomes *zone économique européenne*, and the
# weights run through the three words in reverse order. Here is a longer number with a swap of our own, for the three
# seeds. (The decoder reads the correct German, by teacher forcing.) *Guess:* what does *sechs* attend to?
#
# Processors round differently, so your three models may differ from those of this page; if so, a line is printed.

# %% [raw] slide
# ## Attention weights as a soft alignment
# **Alignment**: which source token corresponds to which target token. Our models were never given an alignment.
#
# > **Guess first.** *four hundred and thirty-six → vierhundertsechsunddreißig*. What does *sechs* attend to?

# %%
number = "four hundred and thirty-six"
one = collate(encode_pairs([Pair(number, say(436, "de"))], english, german))
alignments = {}
for seed, model in models.items():
    _, weights = model(one.source, one.lengths, one.target_in, with_weights=True)
    alignments[f"seed {seed}"] = weights[0]                          # (n_target, n_source)
partners = {"vier": "four", "hundert": "hundred", "sechs": "six", "dreißig": "thirty-"}
figures.alignments(alignments, rows=german.pieces(one.target_out[0].tolist()),
                   columns=english.pieces(one.source[0].tolist()), partners=partners)
#| caption: Alignments that three trained models found. A frame marks a token's true partner;
#|   weights below 0.05 have no number.
#| label: alignments

# %% [raw] slide
# ## Three seeds, two alignments
# {figure}

# %% [markdown]
# With seeds 1 and 2, *sechs* attends most to *six*; with seed 0, most to *and*. In [@fig:steps] you can step through one
# list, as the model with seed 1 translates it. *Guess before you look:* what does the comma attend to? And the first
# *und*, in *siebenundzwanzig*: does it attend to the same kind of position as the *und* in [@fig:alignments]? (The
# English *and* follows the hundred, the German *und* joins the unit and the ten.)

# %%
[example] = translate(models[1], ["twenty-seven, four hundred and thirty-six"], english, german)
figures.steps(example.weights, example.source_pieces, example.target_pieces)
#| caption: The decoder's attention, step by step. In the still picture a line's width shows its
#|   weight, and weights below 0.05 have no line.
#| label: steps

# %% [raw] slide
# ## Step through a list
# {figure}

# %% [markdown]
# The comma attends most to the comma, and every other token with a counterpart attends most to that counterpart. *Und*
# has none: the first *und* attends most to the comma, and the *und* of [@fig:alignments] to the ten. `<eos>` has no
# counterpart either, and in [@fig:alignments] its weights differ from model to model. The next section asks which
# position `<eos>` needs.
#
# One example proves little. In our task we can count, because we know the true alignment. We use two sets: all numbers
# from 21 to 99 with a unit, and all from 121 to 999 with a ten and a unit. The models again read the correct German. (A
# model that predicts every token correctly this way also writes the number correctly by itself.) "Unit on unit" counts
# numbers whose German unit attends most to the English unit. *Guess* the four counts for seed 0 in the last two
# columns. (There are 72 numbers in the first set and 648 in the second. All numbers of a set have the same number of
# tokens, so nothing is padded, and `[:, -4]` is the unit in every row.)

# %%
populations = {"21 to 99": range(21, 100), "121 to 999": range(121, 1000)}
batches = {}
for name, numbers in populations.items():
    chosen = [n for n in numbers if n % 100 > 20 and n % 10]         # with a ten and a unit
    spoken = [Pair(say(n, "en"), say(n, "de")) for n in chosen]
    batches[name] = collate(encode_pairs(spoken, english, german))

print("                        predicted right   unit on unit   ten on ten")
on_unit, all_right = {}, {}
for seed, model in models.items():
    for name, batch in batches.items():
        logits, weights = model(batch.source, batch.lengths, batch.target_in, with_weights=True)
        right_count = (logits.argmax(dim=-1) == batch.target_out).all(dim=-1).sum()
        largest = weights.argmax(dim=-1)                             # (batch, n_target)
        n_source = batch.source.shape[1]                             # English: … ten, unit
        of_unit, of_ten = largest[:, -4], largest[:, -2]         # German: unit, und, ten, <eos>
        unit_count = (of_unit == n_source - 1).sum()                 # on the last source token
        ten_count = (of_ten == n_source - 2).sum()                   # on the one before
        size = len(largest)                                          # of the population
        on_unit[seed, name], all_right[seed, name] = unit_count / size, right_count / size
        print(f"seed {seed}, {name:>10} ({size}): {right_count:>11} {unit_count:>14}",
              f"{ten_count:>11}")

# %% tags=["hide-input"]
kept_runs = record["steps"]["450"]["attention"]            # the record holds on every machine
recorded = [run["aligned"]["121 to 999"]["units"][0] / 648 for run in kept_runs]
assert recorded[0] < 0.5 < 0.9 < min(recorded[1:]), "three seeds, two alignments"
assert all(run["aligned"]["121 to 999"]["right"] == 648 for run in kept_runs)
assert all(run["aligned"]["21 to 99"]["units"][0] > 70 for run in kept_runs)
shares = [on_unit[seed, "121 to 999"] for seed in models]
of_sechs = [int(weights[2].argmax()) for weights in alignments.values()]
partner = {0: 1, 1: 2, 2: 0, 3: 2, 4: 3, 5: 4, 6: 7, 8: 6}       # in the list with seed 1
if not (shares[0] < 0.5 < 0.9 < min(shares[1:]) and of_sechs == [2, 4, 4]
        and min(on_unit[seed, "21 to 99"] for seed in models) > 0.9
        and min(all_right.values()) > 0.95 and int(alignments["seed 1"][3].argmax()) == 3
        and all(int(example.weights[t].argmax()) == i for t, i in partner.items())):
    print("Your three models differ from those described below. The text is about the models "
          "of the published page.")

# %% [raw] slide
# ## Count, do not look: the same accuracy, different alignments
# {print}
#
# Seed 0 predicts nearly every number above 100 correctly, but in most of these numbers the unit attends most to another position.

# %% [markdown]
# If we had counted only the numbers below 100, we would have reported a nearly perfect alignment for all three seeds.
# Above 100, the German unit attends most to the English unit in all or nearly all numbers for seeds 1 and 2, but only
# in a minority for seed 0. Yet that model also predicts all or nearly all of them correctly. (These numbers also occur
# in the training lists. That does no harm here: we ask where the models attend, not whether they generalise.)
#
# How common is this? We trained ten seeds for 450 steps and recorded where the largest weight of each of the 648 units
# lies. This was a separate run, so its seeds 0, 1 and 2 may differ from the three models above.

# %%
ten_seeds = measured("ladder_seeds")
print(ten_seeds["command"], "on", ten_seeds["date"])
ten_runs = ten_seeds["steps"]["450"]["attention"]
positions = ["four", "hundred", "and", "thirty-", "six"]
figures.largest_weights({f"seed {run['seed']}": run["units"]["largest"] for run in ten_runs},
                        positions, "unit")
print("predicted right:", [run["units"]["right"] for run in ten_runs])
longer_runs = record["steps"]["1800"]["attention"]
print("1,800 steps, seeds 0 to 2, largest weight on the unit:",
      [run["aligned"]["121 to 999"]["units"][0] for run in longer_runs])
#| caption: Ten seeds: the source position to which the unit attends most, in the 648 numbers
#|   from 121 to 999 with a ten and a unit.

# %% [raw] slide
# ## Ten seeds: all predict every unit right, four attend elsewhere
# {figure}

# %% [markdown] teaches="soft alignment for free, and what it explains"
# All ten models predict all 648 units correctly. In four of the ten models, most of the largest weights lie on *and* or
# *thirty-* instead of *six*, and in three of these four models none lies on *six*. So a model can translate perfectly
# while its largest weight is not on the token's partner. After 1,800 steps, the largest weights of the ladder's three
# seeds lie on *six*. We did not test whether those models need that position.
#
# ## Attention weights are not explanations
#
# Does seed 0 ignore *six*, then? The weights say which *states* were averaged, but a state contains more than its own
# token. The encoder is bidirectional, so the state at *and* may contain the six as well. A cheap experiment tests this:
# hide one source position from the decoder by setting `mask[:, i] = False` before the first step (`predicted` does this
# with the correct German as input). Is the unit still predicted correctly? *Guess:* what happens in each model when
# *six* is hidden?

# %% [raw] slide
# ## Attention weights are not explanations
# Does seed 0 ignore *six*? The weights say which **states** were averaged, but a state contains more than its own token.
#
# To test it, **intervene**: hide one source position from the decoder.
#
# > **Guess first.** What happens in each model when *six* is hidden?

# %%
above_100 = batches["121 to 999"]
unit_ids, eos_ids = above_100.target_out[:, -4], above_100.target_out[:, -1]


def units_right(model, hidden, start_of=None):
    """The share of numbers whose unit is predicted right without the `hidden` positions."""
    found = predicted(model, above_100, hidden, start_of)            # (648, n_target)
    return (found[:, -4] == unit_ids).float().mean().item()


seeds = [f"seed {seed}" for seed in models]
one_hidden = {(i,): [units_right(model, [i]) for model in models.values()] for i in range(5)}
figures.hidden_positions(one_hidden, positions, seeds, chance=1 / 9)
still = [(predicted(model, above_100, [i])[:, -1] == eos_ids).float().mean().item()
         for model in models.values() for i in range(5)]
print("<eos> predicted right, lowest share over all models and hidden positions:",
      f"{min(still):.1%}")
#| caption: One source position (hatched) is hidden at every step. The words stand for all 648
#|   numbers; the model reads the correct German; chance is one in nine.

# %% tags=["hide-input"]
(at_and, *_), (at_six, *at_six_others) = one_hidden[2,], one_hidden[4,]
if not (at_six > 0.9 and at_and > 0.5 and max(at_six_others) < 0.5 and min(still) > 0.95):
    print("Your three models differ from those described below. The text is about the models "
          "of the published page.")

# %% [raw] slide
# ## Hide a position: how many units are still right?
# {figure}
#
# Seed 0 does not need *six*: the bidirectional encoder has copied the unit into other states.
# . . .
# *Attention is not explanation* (Jain and Wallace 2019); *… is not not explanation* (Wiegreffe and Pinter 2019). An alignment is a **hypothesis** about what a model uses.

# %% [markdown]
# * Without *six*, seeds 1 and 2 get most units wrong. Seed 0 does not need that position: it is hardly affected, if at
#   all.
# * Without *and*, which had most of seed 0's weight, seed 0 still gets most units right.
# * No single position is needed for `<eos>`, whose weights differ from model to model.
#
# Now only one position stays visible. *Guess:* which single state is enough for the unit?

# %%
all_but_one = [[j for j in range(5) if j != i] for i in range(5)]
one_left = {tuple(hidden): [units_right(model, hidden) for model in models.values()]
            for hidden in all_but_one}
figures.hidden_positions(one_left, positions, seeds, chance=1 / 9)
#| caption: A single source position is visible; the others (hatched) are hidden at every step.
#|   The words stand for all 648 numbers; chance is one in nine.

# %% tags=["hide-input"]
alone = dict(zip(positions, one_left.values(), strict=True))
if not (alone["and"][0] > 0.9 and alone["hundred"][0] > 0.3 and alone["six"][0] > 0.3
        and min(alone["six"][1:]) > 0.9 and max(alone["four"]) < 0.2
        and all(0.13 < alone[name][1] < alone[name][2] for name in ("and", "thirty-"))):
    print("Your three models differ from those described below. The text is about the models "
          "of the published page.")

# %% [markdown]
# With *and* alone, seed 0 gets all or nearly all units right. So the state at *and* contains the unit, although the
# token *and* does not: the bidirectional encoder has copied the unit there. Seed 0 can also read the unit at *six*
# itself, and there is even a copy at *hundred*: with either of them alone, seed 0 is well above chance. For seeds 1 and
# 2, *six* alone is enough. But *and* alone or *thirty-* alone also gives more than chance, especially for seed 2.
#
# The unit could also reach the decoder through the initial state $s_0$. The first row shows that $s_0$ alone is not
# enough: with *four* alone, $s_0$ is still available, but all three models only guess. (The last "Going further" gives
# the models a foreign $s_0$: with nothing hidden hardly a unit is lost, but with *and* hidden seed 0 loses about ten
# points.)
#
# One caution: a mask forces weights that never occurred in training. So a model that still succeeds tells us more than
# one that fails, because the information was there and was used.
#
# Back to the ten seeds: we hide *six*, *thirty-* or *and*, one at a time. *Guess:* if having the largest weight meant
# that a position is needed, where would the points lie?

# %%
found = {positions[i]: [(run["units"]["largest"][i] / 648,
                         run["units"]["right_without"][i] / 648) for run in ten_runs]
         for i in (4, 3, 2)}
figures.attended_and_needed(found, [run["seed"] for run in ten_runs], chance=1 / 9)
#| caption: Ten seeds: units whose largest weight is on a position, and units right while it is
#|   hidden. Points with most of a seed's largest weights are numbered by seed.

# %% [raw] slide
# ## Having the largest weight does not mean that a position is needed
# {figure}

# %% [markdown]
# The points do not lie on the dotted line. A position that never has the largest weight can be hidden at practically no
# cost. But a position that has most of the largest weights is not always needed. Accuracy collapses only when *six* is
# hidden, and only in the four models whose largest weight is almost always on *six*.
#
# So in these briefly trained models, having the largest weight does not mean that a position is needed. Nor does a
# small weight on a token mean that the token plays no part: its information may be in another state. An alignment is a
# hypothesis about what a model uses. To test it, intervene.
#
# Published studies support the caution, and disagree about how far it goes:
#
# * Koehn and Knowles ([-@koehn2017, section 3.5]) compared attention with word alignments in translation. The two often
#   agree, but in one model the attention is off by one position, although the model translates well.
# * Jain and Wallace ([-@jain2019]) studied text classification and question answering. They found other weights that
#   give nearly the same predictions, and called their paper *Attention is not explanation*.
# * Wiegreffe and Pinter ([-@wiegreffe2019]) answered with *Attention is not not explanation*: whether weights are
#   explanations depends on what is meant by an explanation.
#
# ## In short
#
# | | | shape |
# |---|---|---|
# | scores | $e_{ti} = s_t \cdot h_i$ (multiplicative) or $\tanh(s_{t-1} W_a + h_i U_a) \cdot v_a$ (additive) | $(n_\text{target}, n_\text{source})$ |
# | attention weights | $\alpha_{ti} = \operatorname{softmax}_i(e_{ti})$, padding at $-\infty$ | rows sum to one |
# | context vector | $c_t = \sum_i \alpha_{ti} h_i$ | $(n_\text{target}, d)$ |
# | attentional vector | $\tilde s_t = \tanh([c_t; s_t] W)$, $W$ is $(2d, d)$; fed to the next step | $(n_\text{target}, d)$ |
# | cost | $n_\text{target} \cdot n_\text{source}$ scores | |
#
# A single context vector for a whole sentence is a bottleneck; attention computes a new one for every target token. In
# cross-attention, queries come from the decoder, keys and values from the encoder. In training the decoder reads the
# correct tokens (teacher forcing), and at inference its own. A model with attention learns long lists in far fewer
# steps than a model with one vector. On our lists and budgets, what makes it learn fast is a choice at every step: eight
# averages to choose from at each step give most of the advantage, but a single choice for all steps, with the same
# parameters, gives hardly any. A weight says how much of a *state* was read, not which token the information came from.
#
# > **Check yourself.** (1) With 7 source and 9 target tokens, batch size 4 and width 128, what are the shapes of
# > scores, weights and context vectors? (2) All keys are multiplied by 10; the values stay the same. What happens to
# > the weights? (3) Two source positions swap places, together with their states. What happens to $c_t$? (4) What must
# > change in the greedy loop so that it writes a whole batch?
# > <details><summary>Answers</summary>(1) Scores and weights are (4, 9, 7), context vectors (4, 9, 128). (2) All scores
# > grow tenfold, so the largest gets nearly all of the weight, unless another is close: nearly a hard lookup. (3)
# > Nothing: the weights swap along with the values, and a sum does not depend on order. The model knows the order of
# > the source only through its encoder; lecture @order is about models without such an encoder. (4) <code>token</code>
# > has one entry for each sentence, and the loop may stop only when every sentence has written
# > <code>&lt;eos&gt;</code>. Whatever a sentence writes after its own <code>&lt;eos&gt;</code> is thrown
# > away.</details>
#
# **Now do** [assignment @cross_attention](@cross_attention/assignment) (about 80 minutes, plus an extension): you write
# the decoder step and the loss that it is trained on, and your decoder translates. **Next:** [lecture
# @self_attention](@self_attention), in which a sequence attends to itself and the recurrent network is no longer
# needed.
#
# **Further reading.** [+@bahdanau2015]: sections 3 and 5, and figure 3 for real alignments. [+@luong2015]: section 3 is
# this lecture's decoder, and the paper's local attention is the assignment's extension. [+@sutskever2014].
# [+@cho2014properties]: quality against length. [+@schuster1997]. [+@koehn2017], sections 3.4 and 3.5: long sentences,
# and attention against word alignment. [+@jain2019]. [+@wiegreffe2019].
#
# ## Going further: the scale of additive and multiplicative scores
#
# The spread of a dot product of $d$ components grows with $\sqrt d$ ([lecture @lookup](@lookup) derives it). An
# additive score is bounded, however large the states are: tanh lies between −1 and 1, so $|e_{ti}| \le \sum_k
# |v_{a,k}|$. The bound itself grows with the number of hidden units. But the initial weights of $v_a$ have a size of
# about one over the square root of that number, so a sum of that many independent terms keeps its spread.
#
# Vaswani et al. ([-@vaswani2017, section 3.2.1]) report that with wide queries additive attention works better than the
# *unscaled* dot product, and divide by $\sqrt{d_k}$. The next cell measures the standard deviation of the three scores
# for random states, with freshly initialised layers. The plain dot product reaches 32 at width 1024, which is a hard
# lookup before anything is learned. In Luong's model the states come out of a recurrent network's tanh, which keeps
# them small. That may be why the model worked without a scale; the paper does not discuss it.

# %% [raw] slide
# ## In short
# | | | shape |
# |---|---|---|
# | scores | $e_{ti} = s_t \cdot h_i$ or $\tanh(s_{t-1} W_a + h_i U_a) \cdot v_a$ | $(n_\text{target}, n_\text{source})$ |
# | attention weights | $\alpha_{ti} = \operatorname{softmax}_i(e_{ti})$, padding at $-\infty$ | rows sum to one |
# | context vector | $c_t = \sum_i \alpha_{ti} h_i$ | $(n_\text{target}, d)$ |
# | attentional vector | $\tilde s_t = \tanh([c_t; s_t] W)$, $W$ is $(2d, d)$; fed to the next step | $(n_\text{target}, d)$ |
#
# **Now do** assignment a@cross_attention. **Next:** lecture @self_attention.

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
for d in (16, 64, 256, 1024):
    torch.manual_seed(0)
    states = torch.randn(500, 1, d), torch.randn(500, 8, d)          # queries, keys
    fresh = AdditiveScore(d, d, d)                                   # torch's first weights
    spread = {"dot": dot_score(*states), "scaled dot": scaled_dot_score(*states),
              "additive": fresh(*states)}                            # (500, 1, 8) each
    print(f"d = {d:>4}:", ", ".join(f"{name} {e.std():5.2f}" for name, e in spread.items()))
assert spread["dot"].std() > 25 and 0.9 < spread["scaled dot"].std() < 1.1
assert spread["additive"].std() < 1, "it does not grow with the width"

# %% [markdown]
# ## Going further: does input feeding help here?
#
# The record has a fourth model, attention without input feeding. After 450 steps the model with input feeding is ahead
# on the lists of five for each seed, but only slightly. A share of a few hundred lists has a standard error of one or
# two points, so three seeds do not settle the question. After 1,800 steps nothing is left of the gain. The model
# without input feeding also has fewer parameters, because its cell reads a narrower input.

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
for steps in ("450", "1800"):
    for name in ("attention", "attention, no input feeding"):
        shares = [f"{run['right']['5']:.1%}" for run in record["steps"][steps][name]]
        print(f"{int(steps):>5,} steps, {name:>27}: lists of five:", shares)

# %% [markdown]
# ## Going further: does a wrong translation have a wrong alignment?
#
# The record counts alignments in whole lists, separately for correctly and wrongly translated lists. Most numbers in a
# wrong list are aligned like those in a correct list. But the rare misalignments of the tens are concentrated in the
# wrong lists. The last two lines add up seeds 1 and 2, because seed 0 aligns elsewhere. There are few wrong lists, and
# the counts cannot tell cause from effect.

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
print("on its true partner:        lists right         lists wrong")
for run in record["steps"]["450"]["attention"]:
    right, wrong = (run["aligned"][f"lists written {how}"] for how in ("right", "wrong"))
    for what in ("units", "tens"):
        (a, b), (x, y) = right[what], wrong[what]
        print(f"seed {run['seed']}, {what:>5}: {a:>7} of {b} {a / b:>4.0%}",
              f"{x:>8} of {y:>2} {x / y:>4.0%}")
for how in ("right", "wrong"):
    tens = [run["aligned"][f"lists written {how}"]["tens"]
            for run in record["steps"]["450"]["attention"][1:]]
    misaligned, n = sum(n - there for there, n in tens), sum(n for _, n in tens)
    print(f"lists {how}, seeds 1 and 2: {misaligned} of {n} tens are not on their partner")

# %% [markdown]
# ## Going further: does the initial state carry the unit?
#
# Here each of the 648 numbers starts from the $s_0$ of a number with a *different unit*, drawn five times. With nothing
# hidden, hardly a unit is lost, so the number's own $s_0$ is not needed. With *and* hidden, seed 0 loses about ten
# points in each draw. Either its own $s_0$ helped, or the foreign one misleads; this test cannot tell. The few points
# that seeds 1 and 2 lose without *six* say little, because a share of 648 has a standard error of one or two points.

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
drawn = torch.Generator().manual_seed(0)
another_unit = (unit_ids[:, None] != unit_ids).float()               # (648, 648)
other_rows = [torch.multinomial(another_unit, 1, generator=drawn)[:, 0] for _ in range(5)]
cases = {"nothing hidden": [], "without and": [2], "without six": [4]}
print("units right: with its own s₀ → with another number's, lowest and highest of five draws")
lost = {}
for name, model in zip(seeds, models.values(), strict=True):
    for case, hidden in cases.items():
        own = units_right(model, hidden)
        swapped = [units_right(model, hidden, rows) for rows in other_rows]
        lost[name, case] = own - max(swapped), own - min(swapped)    # least, most
        print(f"{name}, {case:>14}: {own:>4.0%} → {min(swapped):.0%} to {max(swapped):.0%}")
if not (max(lost[name, "nothing hidden"][1] for name in seeds) < 0.05
        and 0.06 < lost["seed 0", "without and"][0] < lost["seed 0", "without and"][1] < 0.14
        and max(lost[name, "without six"][1] for name in seeds[1:]) < 0.08):
    print("Your three models differ from those described above. The text is about the models "
          "of the published page.")
