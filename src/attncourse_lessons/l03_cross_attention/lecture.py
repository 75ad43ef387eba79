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
# *About 39 minutes to read; the computing takes a few more, depending on your machine. You need the recurrent networks
# and the encoder–decoder of [lecture @bottleneck](@bottleneck), and the queries, keys, values and soft lookup of
# [lecture @lookup](@lookup).*
#
# After this lecture you can
#
# * draw an **encoder–decoder** with and without attention, and name its vectors: encoder hidden states, decoder states,
#   **context vector**, **attentional vector**;
# * write **cross-attention** from memory, say along which axis its weights sum to one, and keep padding from getting
#   any weight;
# * say what the decoder reads in training (**teacher forcing**) and what it reads at **inference**;
# * tell **additive** attention (Bahdanau) from **multiplicative** attention (Luong);
# * say how to measure what attention is worth, and what its weights do and do not explain.
#
# One question will keep us until the end: must a model that writes *sechs* attend to the word *six*?
#
# ## The encoder–decoder and its bottleneck
#
# A **sequence-to-sequence** model reads one sequence, the source, and writes another, the target. Its **encoder** is a
# recurrent network that reads the source and computes a **hidden state** for each token, $h_1, \dots, h_n$. Its
# **decoder** is a second recurrent network, which writes the target token by token. What does the encoder hand over to
# the decoder? In early models of this kind ([@sutskever2014]; [@cho2014]) it was a single vector, the encoder's last
# state:

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
# **One vector must carry the whole source.** This **context vector** $c$ is as wide for a list of five numbers as for a
# single number. Imagine an interpreter who hears a whole speech, may take notes on one postcard only, and must
# translate from it. However long the speech, the postcard stays the same size. This is the **bottleneck** of [lecture
# @bottleneck](@bottleneck).
#
# To measure it, we need a task in which a translation is either right or wrong. So we translate lists of one to five
# numbers from English to German.

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
# In our data, each list has one correct translation, and one difficulty: the unit and the ten **swap places**.

# %% [markdown] teaches="bidirectional encoders where possible"
# Each number has one spelling here, so each list has exactly one correct translation. No test list occurs in the
# training set. The difficulty is the word order: the unit and the ten swap places. Where English says *ninety-one*,
# German says *einundneunzig*, "one and ninety".
#
# ## Attention: a context vector for every target token
#
# The decoder no longer depends on one vector if it can go back to *all* the encoder's states whenever it writes a
# token. In the model of Bahdanau, Cho and Bengio ([-@bahdanau2015]), it computes a new context vector $c_t$ at every
# step $t$. This is an average of the encoder's states, whose **attention weights** depend on what the decoder needs at
# that step. We build the simpler variant of Luong et al. ([-@luong2015]), and a later section compares the two.
#
# Follow the first step of [@fig:cross-attention], which is in colour. The state $s_1$ is the query (green). The
# encoder's states are averaged into the context vector $c_1$ (orange), with weights that the next section computes. The
# purple vector predicts *ein*.

# %%
viz.encoder_decoder(attention=True, bidirectional=True, weights=(0.05, 0.95), named=True)
#| caption: An encoder–decoder with attention, in colour for the first step; the others attend
#|   alike (grey). Not drawn: each s̃ₜ is also an input to the next step.
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

# %% [markdown] teaches="cross-attention of a decoder, in equations"
# Four things in this figure are new. Two of them matter now:
#
# * **The decoder state $s_t$ is the query.** It is compared with every $h_i$ as a **key**, and the same $h_i$ are then
#   averaged as **values**. Attention whose queries come from one sequence and whose keys and values come from another
#   is called **cross-attention**.
# * **The encoder is bidirectional** ([@schuster1997]). Two recurrent networks read the source, one from each end, and
#   their states are concatenated, $h_i = [\overrightarrow{h_i}; \overleftarrow{h_i}]$, so that $h_i$ contains
#   information about the tokens before $i$ *and* after it. Each direction has width $d/2$, which makes $h_i$ as wide as
#   $s_t$. The decoder cannot read in both directions, because the rest of its target has not been written yet.
#
# The other two come later: the **attentional vector** $\tilde s_t$, which predicts the next token, and the initial
# state $s_0$.
#
# ## Scores, weights and context vector by hand
#
# How does the decoder find the states that it needs? In three steps: score, softmax, average. It compares its state
# with every key, here by a dot product, which gives an **attention score** $e_{ti}$. Softmax turns the scores of one
# step into weights that sum to one over the source. The context vector is the sum of all states, each multiplied by its
# weight.
#
# $$e_{ti} = s_t \cdot h_i \qquad\quad \alpha_{ti} = \frac{\exp(e_{ti})}{\sum_j \exp(e_{tj})} \qquad\quad c_t = \sum_i \alpha_{ti}\, h_i$$ (eq:context)
#
# To compute one step by hand, suppose that the network has learned four features: how strongly a position stands for
# *hundreds*, *tens*, *units*, and the *joint* between the ten and the unit, which German writes as *und*. The number 91
# has two tokens in English and three in German, *ein·und·neunzig*.

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
# > **Guess first.** What exactly is the *joint* entry of the context vector of *ein*?

# %% [markdown]
# *Guess first:* what exactly is the *joint* entry of the context vector of *ein*?

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
# A hard choice of one position gives the scores no gradient; an average does.

# %% [markdown]
# ***Ein* gives 95 % of its weight to *one*,** so its context vector is nearly $h_2$. The *joint* entry is exactly 1,
# because it is 1 in both states and the weights sum to one. Why an average, and not simply the best state? A hard
# choice gives the scores no gradient ([lecture @lookup](@lookup)), whereas an average is differentiable, so the network
# can learn where to attend.
#
# ## Softmax over the source: which axis sums to one
#
# With all three queries at once, the scores form a table with a row for each query and a column for each key, and
# softmax can run along either axis. *Guess first:* which axis makes each target token distribute a total weight of one?
# And does *und*, which has no counterpart in English, attend to *ninety-*, to *one*, or to both?

# %% [raw] slide
# ## Which axis sums to one?
# > **Guess first.** Softmax over the source, or over the target: which one means "each target token distributes a total weight of one"?

# %%
scores = dot_score(S, H)                                         # (3, 2)
two_ways = {"softmax over the source": scores.softmax(dim=-1),
            "softmax over the target": scores.softmax(dim=-2)}
figures.tables_with_sums(two_ways, rows=target, columns=source, column_sums=True)
#| caption: Softmax over the source makes each row sum to one; softmax over the target makes
#|   each column sum to one.

# %% tags=["hide-input"]
C, A = attend(query=S, key=H, value=H, score=dot_score)          # (3, 4), (3, 2)
assert torch.allclose(C[0], c) and torch.allclose(A[0], alpha), "the row of “ein”, as computed"
assert torch.allclose(A, scores.softmax(dim=-1))
assert tuple(scores.shape) == (len(target), len(source))
assert scores.softmax(dim=-2).sum(dim=-1).min() < 0.25, "und has less than a quarter to give"

# %% [raw] slide
# ## Softmax over the source
# {figure}
#
# $$\alpha_{ti} = \frac{\exp(e_{ti})}{\sum_j \exp(e_{tj})} \qquad\qquad c_t = \sum_i \alpha_{ti}\, h_i$$
#
# **A common mistake: a square table.** It is $n_\text{target} \times n_\text{source}$. Test with two different lengths.

# %% [markdown] erratum="a square table; x for h; the encoder's cross-attention"
# **Softmax must run over the source, so that each row sums to one,** as on the left. *Ein* attends to the second source
# token and *neunzig* to the first, so the order is reversed. *Und* matches both equally.
#
# On the right, each column sums to one, as if *ninety-* had to distribute itself over the target tokens. In a real
# decoder, which works one token at a time, the table has a single row, so each weight would be 1. Nothing crashes, and
# you find the mistake only if you sum along the axis whose sums must be one.
#
# > **A common mistake: a square table.** The table is $n_\text{target} \times n_\text{source}$, which is rarely square.
# > Test your code with two different lengths, because a square table hides swapped axes. The *decoder* attends to the
# > states $h_i$, so there is one context vector for each *target* token.
#
# **Now you:** [a03](@cross_attention/assignment), exercise 1.
#
# ## Padding: a mask before the softmax
#
# So far we had a single sentence. In a batch, the shorter sentences are filled up with **padding**. A padded position
# has a vector like any other, and nothing in it says that it is padding. Below, our source of two tokens shares a batch
# with a sentence of four, so it ends in two padded states of zero, whose scores are 0. *Guess first:* how much of its
# attention does *und* give to the two of them: none, about a tenth, or about a quarter?

# %% [raw] slide
# ## Padding: a mask before the softmax
# Shorter sentences are filled up. The vector of a padded position does not say that it is padding.
#
# The *decoder* attends: one context vector for each **target** token.
#
# > **Guess first.** Our source of two tokens shares a batch with a sentence of four. How much of its attention does *und* give to padding?

# %%
padded = torch.cat([H, torch.zeros(2, 4)])           # (4, 4)  two tokens, twice padding
mask = lengths_to_mask([2], n=4)                     # (1, 4)  True where there is a token
_, unmasked = attend(S, padded, padded, score=dot_score)     # (3, 4)
_, masked = attend(S, padded, padded, mask=mask, score=dot_score)
three = {"no mask": unmasked, "weights set to 0\nafter the softmax": unmasked * mask,
         "scores set to −∞\nbefore the softmax": masked}
figures.tables_with_sums(three, rows=target, columns=[*source, "pad", "pad"], mask=mask)
#| caption: Three ways to treat padding. Masked positions are hatched. Only the last gives
#|   padding nothing and makes the rows sum to one.

# %% tags=["hide-input"]
assert 0.2 < unmasked[1, 2:].sum() < 0.3, "about a quarter"
assert (unmasked * mask).sum(dim=-1).max() < 0.99
assert torch.allclose(masked[:, :2], A) and (masked[:, 2:] == 0).all()

# %% [raw] slide
# ## A score of 0 is not “no attention”
# {figure}
#
# $\exp(0) = 1$. Set the **score** to $-\infty$, then take the softmax: the weight is exactly 0.
#
# **A common mistake: weights set to 0 after the softmax.** · **Now you:** a@cross_attention, exercises 1 to 3

# %% [raw] slide
# ## One step of the decoder (Luong et al. 2015)
# $$\begin{aligned} s_t &= \operatorname{GRU}\bigl([\,E[y_{t-1}];\ \tilde s_{t-1}\,],\ s_{t-1}\bigr) && \text{the state moves on}\\ \alpha_{ti} &= \operatorname{softmax}_i\bigl(s_t \cdot h_i\bigr) && \text{attention weights}\\ c_t &= \textstyle\sum_i \alpha_{ti} h_i && \text{context vector}\\ \tilde s_t &= \tanh\bigl([\,c_t;\ s_t\,]\,W\bigr) && \text{attentional vector}\\ \text{logits}_t &= \tilde s_t\, W_o && \text{one for each token of the vocabulary} \end{aligned}$$
#
# **Input feeding**: $\tilde s_{t-1}$ goes into the next step.
#
# **Now you:** a@cross_attention, exercise 4

# %% [markdown] erratum="weights set to 0" teaches="the attentional vector feeds the next step @ One step of the decoder"
# **Without a mask, padding gets weight:** on the left, about a quarter of what *und* has to give. A score of 0 does not
# mean "no attention", because $\exp(0) = 1$. In another batch, with more padding, the same sentence would have
# different context vectors, and perhaps a different translation.
#
# **The padded *scores* must be set to $-\infty$ before the softmax,** as on the right. Since $\exp(-\infty) = 0$, the
# padding gets exactly zero, and the two tokens have the weights that they had alone.
#
# > **A common mistake: weights set to 0.** Zeroing the padded *weights* after the softmax, as in the middle, looks
# > equivalent. But then the rows no longer sum to one, because nothing takes over the removed weight.
#
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
# We have the context vector, but how does it become a token? [@fig:decoding-step] shows a whole step, with invented
# scores for a source of four tokens; read it from bottom to top. The left half is the computation of the preceding
# sections. The right half is new: how the state moves on, and how context vector and state together predict the token.

# %%
figures.decoding_step()
#| caption: One decoding step with attention, from the old state to the next token.
#| label: decoding-step

# %% [raw] slide
# ## One decoding step, from bottom to top
# {figure}

# %% [markdown]
# Here is the same step in equations. It is the decoder of Luong et al. ([-@luong2015]), with a GRU in place of their
# LSTM and with Bahdanau's bidirectional encoder.
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
# $E[y_{t-1}]$ is the embedding of the previous token. The concatenation $[c_t; s_t]$ is $(2d,)$, so $W$ is $(2d, d)$,
# and $W_o$ is $(d, \lvert V \rvert)$ for a vocabulary $V$; biases are left out.
#
# **The attentional vector $\tilde s_t$ has two uses.** It predicts the next token, and at the next step it is an input
# to the cell (at the first step, $\tilde s_0 = 0$). The second use is called **input feeding**, and it tells the next
# step what this step attended to.
#
# The first step needs an initial state. For it we concatenate the final states of the encoder's two directions, $s_0 =
# [\overrightarrow{h_n}; \overleftarrow{h_1}]$, where $n$ is the length of the sentence without its padding. So one
# vector is still handed over, but the decoder no longer has to rely on it.
#
# **Now you:** [a03](@cross_attention/assignment), exercise 4.
#
# ## Teacher forcing: what the decoder reads
#
# Each step reads the previous token $y_{t-1}$. But which one, if the model has just written a wrong token? **In
# training the decoder reads the correct translation.** At every position it is given the previous token of the
# *correct* translation and must predict the next one. This is **teacher forcing**. The steps must still run one after
# the other, because each needs the state before it; the [Transformer](@transformer) removes this.
#
# We now train the model on **subword tokens** ([lecture @bottleneck](@bottleneck)), with *hundert* and *und* kept as
# separate tokens so that the figures stay readable. We train three models, because a single seed might just be lucky.
# *Guess first:* after 450 steps, with 14,400 pairs read, how many of 1,000 new lists will a model translate correctly
# to the last letter: about 500, about 800, or more than 950? Training takes one to a few minutes, so read on.

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
# Here is one target sentence, as the decoder's input and as its expected output, with the first model's loss:

# %%
batch = collate(encode_pairs([Pair("ninety-one", "einundneunzig")], english, german))
print("the decoder reads:  ", german.pieces(batch.target_in[0].tolist()))
print("it must predict:    ", german.pieces(batch.target_out[0].tolist()))
logits = models[0](batch.source, batch.lengths, batch.target_in)     # (1, 4, vocab_size)
loss = cross_entropy(logits[0], batch.target_out[0])
print(f"cross-entropy: {loss.item():.4f} nats per token")

# %% [raw] slide
# ## The target is shifted by one
# {print}
# . . .
# The gap between training and inference is called **exposure bias**: lecture @writing measures it.

# %% [markdown]
# **Input and output are the same sentence, shifted by one:** after `<bos>` comes *ein*, and after *ein* comes *und*.
# The loss is close to 0, so at each position the trained model gives the correct token nearly all the probability. In a
# batch, short targets are padded as well, and the loss leaves their padding out.
#
# **Now you:** [a03](@cross_attention/assignment), exercise 5.
#
# **At inference the decoder reads its own output.** It is **autoregressive**: it starts with `<bos>`, and then reads
# the token that it has just written, until it writes `<eos>`. Taking the most likely token at each step is **greedy
# decoding**. In the loop, `start` returns the initial state, and `step` returns the logits and the new state.

# %%
state = models[0].start(batch.source, batch.lengths)             # reads the source; s₀
token, written = torch.tensor([BOS]), []
while token.item() != EOS and len(written) < 20:
    logits, state, _ = models[0].step(token, state)
    token = logits.argmax(dim=-1)                            # (1,)  greedy: the likeliest token
    written.append(token.item())
print(german.pieces(written))

# %% [markdown]
# In training the model never reads its own mistakes; at inference it can. This gap is called **exposure bias**, and
# [lecture @writing](@writing) measures it. We therefore test the models on what they write themselves, and count a list
# as correct only if every letter is.

# %%
sources, truths = zip(*pairs.test, strict=True)
exact = {}
for seed, model in models.items():
    written = [translation.text for translation in translate(model, sources, english, german)]
    right = exact_match(written, truths)
    exact[seed] = sum(right) / len(right)
    print(f"seed {seed}: {sum(right)} of {len(right)} lists of the test set are exactly right")

# %% [raw] slide
# ## Greedy decoding: count a list only if every letter is right
# {print}

# %% tags=["hide-input"]
assert loss.item() < 0.1 and min(exact.values()) > 0.9, "as the text says, with a margin"

# %% [markdown]
# **With each seed, nearly all lists are correct,** on our machine about 98 %, although a list may hold five numbers.
#
# ## Bahdanau and Luong: additive and multiplicative attention
#
# The decoder that we have trained is Luong's. Bahdanau's came a year earlier, and differs in the order of operations
# and in the score. In the figure, compare where the green query comes from and where the orange context vector goes:

# %%
figures.two_decoders()
#| caption: The decoders of Bahdanau et al. and of Luong et al.
#| label: two-decoders

# %% [raw] slide
# ## Bahdanau and Luong
# {figure}

# %% [raw] slide
# ## Additive and multiplicative attention
# | | Bahdanau et al. 2015 | Luong et al. 2015 |
# |---|---|---|
# | score | **additive**: $\tanh(s_{t-1} W_a + h_i U_a) \cdot v_a$ | **multiplicative**: $s_t \cdot h_i$ ("dot"), or $s_t W_g \cdot h_i$ ("general"); also "concat", which is additive |
# | query | the old state $s_{t-1}$ | the new state $s_t$ |
# | $c_t$ goes | into the cell and the output | into the output, then input feeding |
#
# > **Guess first.** Which parameters does each score need?
#
# . . .
# Additive: two matrices and a vector. "General": one matrix. "Dot": none, but the widths must be equal.

# %% [markdown]
# **Bahdanau's decoder attends before its cell runs, Luong's after it.** In Bahdanau's model the query is the old state
# $s_{t-1}$, so the context vector is ready as an input to the cell that computes $s_t$. The token is then predicted
# from $s_t$, $c_t$ and the previous token. In Luong's model the query is the new state $s_t$, so the context vector
# comes too late for this step's cell. It reaches the next step's cell, through input feeding. The token is predicted
# from the attentional vector.
#
# They also differ in the score. Bahdanau's is **additive**: a network with one hidden layer, $d_a$ wide, scores every
# pair of a query and a key.
#
# $$e_{ti} = \tanh(s_{t-1} W_a + h_i U_a) \cdot v_a$$
#
# $W_a$ and $U_a$ are $(d, d_a)$, and $v_a$ is $(d_a,)$. The product $h_i U_a$ does not depend on the decoder, so it is
# computed once for the whole source.
#
# Luong et al. compare three scores. Two of them are **multiplicative**. "Dot", $s_t \cdot h_i$, has no parameters but
# needs equal widths. "General", $s_t W_g \cdot h_i$, has one matrix. The third, "concat", is additive again:
# $\tanh([s_t; h_i] W_c) \cdot v_c$, where one half of $W_c$ multiplies $s_t$ and the other half $h_i$.
#
# The dot product is the cheapest. The scores of one step are a single matrix–vector product, whereas the additive
# score computes a vector for every pair. For this reason, Vaswani et al. ([-@vaswani2017, section 3.2.1]) chose the dot
# product for the Transformer.
#
# <details><summary><b>Going further</b>: why has Luong's dot product no factor 1/√d?</summary>
#
# For random states and freshly initialised layers, these are the standard deviations of the scores:
#
# | width $d$ | 16 | 64 | 256 | 1024 |
# |---|---|---|---|---|
# | dot product | 3.95 | 7.92 | 16.18 | 31.85 |
# | dot product with the factor | 0.99 | 0.99 | 1.01 | 1.00 |
# | additive score | 0.25 | 0.29 | 0.34 | 0.32 |
#
# A spread of 32 is nearly a hard lookup before anything is learned. An additive score stays small, because tanh is
# bounded and the initial $v_a$ shrinks with the width. In Luong's model the states come out of a recurrent network's
# tanh, which keeps them small. That may be why the model worked without a scale; the paper does not discuss it.
# Which score translates better? Vaswani et al. (section 3.2.1) report that the two are similar at small widths, whereas
# at larger ones the additive score is better than a dot product without the factor.
# </details>
#
# ## What attention is worth on real sentences
#
# How much does attention help? Bahdanau et al. ([-@bahdanau2015]) trained models with and without it, English to
# French, on sentences of up to 30 or 50 words. RNNencdec hands over one vector, and RNNsearch has attention. Moses was
# the standard phrase-based system, without a neural network. The measure is **BLEU**, where higher is better; [lecture
# @writing](@writing) defines it. *Guess first:* with attention, is the network worse than Moses, level with it, or
# better?

# %% [raw] slide
# ## What attention is worth on real sentences
# Bahdanau et al. (2015), English to French, 348 million words; sentences of up to 30 or 50 words.
#
# > **Guess first.** With attention, is the network worse than Moses, level with it, or better?

# %%
figures.with_and_without([row for row in FIRST_ATTENTION if not row.model.endswith("*")])
#| caption: BLEU with and without attention, as published ([@bahdanau2015, table 1]).

# %% tags=["hide-input"]
bleu = {row.model: row.bleu for row in FIRST_ATTENTION}
gain_30, gain_50 = (bleu[f"RNNsearch-{n}"] - bleu[f"RNNencdec-{n}"] for n in (30, 50))
assert f"{gain_30:.1f}" == "7.6" and f"{gain_50:.1f}" == "8.9"
known = {row.model: row.without_unknown for row in FIRST_ATTENTION}
assert max(bleu, key=bleu.get) == "Moses" and known["RNNsearch-50*"] > known["Moses"]
for d, told in {16: (3.95, 0.99, 0.25), 64: (7.92, 0.99, 0.29), 256: (16.18, 1.01, 0.34),
                1024: (31.85, 1.00, 0.32)}.items():                  # the box's table
    torch.manual_seed(0)
    states = torch.randn(500, 1, d), torch.randn(500, 8, d)          # queries, keys
    fresh = AdditiveScore(d, d, d)                                   # torch's initial weights
    spread = dot_score(*states), scaled_dot_score(*states), fresh(*states)     # (500, 1, 8)
    assert all(abs(e.std() - found) < 0.02 for e, found in zip(spread, told, strict=True))

# %% [raw] slide
# ## RNNsearch is ahead by 7.6 and 8.9 BLEU
# {figure}

# %% [markdown]
# **RNNsearch leads RNNencdec by 7.6 and 8.9 BLEU, but Moses is still ahead.** Not all of the lead need come from
# attention, because RNNsearch also reads the source in both directions. Attention helps most where the bottleneck hurts
# most: without it, BLEU drops on long sentences. The RNNsearch trained on up to 50 words shows no drop
# ([@bahdanau2015, figure 2]).
#
# <details><summary>How fair is the comparison with Moses?</summary>
#
# Moses had 418 million additional words of French, beside the 348 million words on which all were trained. It can also
# handle rare words, which the networks read and write only as one "unknown" token. On sentences without unknown words,
# an RNNsearch that was trained for longer passes it. But Koehn and Knowles ([-@koehn2017, section 3.4]) found that a
# recurrent system *with* attention falls behind a phrase-based one on sentences of more than about 60 subword tokens.
# </details>
#
# ## What attention is worth on our lists: the ladder
#
# In the paper, several things differ at once. On our lists, we train three models, the rungs of a **ladder**. They have
# the same decoder step, number of parameters, batches and steps, and differ only in what the encoder hands over:
#
# | | the decoder attends to | initial state $s_0$ |
# |---|---|---|
# | **last state** | one vector: the final states of the two directions | the same vector |
# | **mean pool** | one vector: the average of all encoder states, or **mean pooling** | the same vector |
# | **attention** | all encoder states | the final states |
#
# Attention over a single vector gives it a weight of 1, so in each of the first two models the decoder reads one and
# the same vector at every step. (In our first figure, the vector was handed over only once.) *Guess first, and sketch
# three curves:* the share of lists translated exactly right, against the length of the list. Where do the curves
# diverge?
#
# Training takes more than ten minutes, so this figure and the next comparison are drawn from records, which are listed
# at the end of the page.

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
panels = {}
for steps, by_model in record["steps"].items():
    panels[f"{int(steps):,} steps"] = {
        model: [run["right"] for run in by_model[model]] for model in SUMMARIES
    }
figures.right_by_length(panels)
#| caption: Lists translated exactly right, after two training budgets. Lines: means of three
#|   seeds; bands: worst to best.

# %% [raw] slide
# ## One vector learns long lists far more slowly
# {figure}
#
# One vector *can* carry most of these lists: mean pooling reaches 70 % after 5,400 steps. **Training speed** or **capacity** for the rest?

# %% [markdown]
# **With one vector, the model learns long lists far more slowly.** After 450 steps, all three models translate most
# single numbers correctly. The curves part already at two: last state gets 66 % right, mean pool 60 %, and attention
# practically all. On lists of five, attention gets 95 % right, and the two models with one vector about 1 % or less.
#
# Is one vector too narrow, then, or only slow to train? With four times the steps, both one-vector models get four in
# ten of the lists of five right, and with twelve times the steps mean pooling gets 70 % ([@fig:lists-of-five]). So one
# vector *can* carry most of these lists, but learning to use it takes far longer. Whether the last 30 points are a
# matter of **training speed** or of **capacity**, which [lecture @bottleneck](@bottleneck) measures, these figures
# cannot say.
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
assert f"{sum(run['right']['5'] for run in few['attention']) / 3:.0%}" == "95%"
at_two = [f"{sum(run['right']['2'] for run in few[name]) / 3:.0%}" for name in SUMMARIES]
assert at_two == ["66%", "60%", "100%"], "lists of two"
trained = [run["right"]["5"] for run in measured("ladder_longer")["steps"]["5400"]["mean pool"]]
assert min(trained) > 0.65 and f"{sum(trained) / 3:.0%}" == "70%"
ladder = [Seq2Seq(len(english), len(german), 32, 128, summary=name) for name in SUMMARIES]
assert len({sum(p.numel() for p in model.parameters()) for model in ladder}) == 1

# %% [markdown]
# ## Why one vector learns slowly: distance, width, selection or total width?
#
# Why does a model with one vector need so many more steps? There are four suspects:
#
# * **Distance**: to reach a German token's English partner, the gradient must pass through every encoder state between
#   this partner and an end of the source.
# * **Width**: one vector may be too narrow for the whole list.
# * **Selection**: even if everything arrives, it arrives blended, and no step can pick out what it needs.
# * **Total width**: a decoder that chooses anew at every step receives several different vectors, and so more
#   numbers in total.
#
# **Distance is not what limits mean pooling.** Through the average, the gradient reaches every encoder state directly.
# Yet mean pooling does only about as well as the last state.
#
# <details><summary><b>Going further</b>: how far must the gradient travel?</summary>
#
# In untrained models, we measured the gradient of one output, the log-probability of an arbitrary first token, at the
# embedding of the *middle* source token. From sources of 5 tokens to sources of 80, it shrinks to less than a millionth
# in the last-state model: it vanishes exponentially. With mean pooling and attention it takes a shortcut through one
# average, and shrinks roughly as $1/n$. These two behave alike because before training the attention weights are spread
# over all tokens.
# </details>
#
# **To test selection, we build two models that differ in when they choose.** In both, eight learned queries read the
# source once. They hand over **eight averages** of the encoder states, an idea of Britz et al. ([-@britz2017]). On the
# left of [@fig:handed-over], the initial state $s_0$ attends to the eight once, and every step reads the vector that
# this **one choice** gives. On the right, every decoder state attends to them anew. The two models have the same
# parameters and compute the initial state alike. Their total width differs, too; we come back to it.

# %%
figures.handed_over()
#| caption: Eight averages of the encoder states. On the left s₀ chooses among them once; on the
#|   right every decoder state chooses anew. A thick line is a large weight.
#| label: handed-over

# %% [raw] slide
# ## One choice for all steps, or a choice at every step
# {figure}
#
# > **Guess first.** How many lists of five does each model get right after 1,800 steps?

# %% [markdown]
# A third new model tests width: mean pooling with a vector of 256 numbers instead of 128. *Guess first:* after 1,800
# steps, mean pooling has 41 % of the lists of five right, and attention 100 %. To which of the two is each new model
# closer: one choice, a choice at every step, and the double width?

# %% tags=["hide-input"]
every = {}
for name in ("", "_longer", "_wider", "_eight_one_choice", "_eight_averages"):
    for steps, by_model in measured(f"ladder{name}")["steps"].items():
        for model, runs in by_model.items():
            found = every.setdefault(model, {})
            found[f"{int(steps):,} steps"] = [run["right"] for run in runs]
named = {"mean pool": "mean pool",
         "mean pool, twice as wide": "mean pool, twice as wide",
         "eight averages, one choice": "eight averages, one choice",
         "eight averages, a choice at every step": "attention, eight averages",
         "attention": "attention"}
figures.lists_of_five({name: every[model] for name, model in named.items()}, same=3)
#| caption: Lists of five translated exactly right, one mark for each of three seeds. Not every
#|   model was trained for every number of steps.
#| label: lists-of-five

# %% tags=["hide-input"]
five = {name: {steps: sum(right["5"] for right in seeds) / len(seeds) for steps, seeds in
               every[model].items()} for name, model in named.items()}
assert f"{five['mean pool, twice as wide']['1,800 steps']:.0%}" == "49%"
assert f"{five['eight averages, one choice']['1,800 steps']:.0%}" == "44%"
anew = five["eight averages, a choice at every step"]
assert [f"{anew[steps]:.0%}" for steps in ("450 steps", "1,800 steps")] == ["42%", "91%"]
sizes = [sum(p.numel() for p in Seq2Seq(len(english), len(german), 32, d).parameters())
         for d in (128, 256)]
assert 3.4 < sizes[1] / sizes[0] < 3.6, "three and a half times the parameters"
assert (models[0].decoder.d_hidden, 8 * models[0].decoder.d_hidden) == (128, 1_024), "numbers"

# %% [raw] slide
# ## With a choice at every step, the model learns far faster
# {figure}
#
# Same parameters: 44 % with one choice, 91 % with a new choice at each step. But the **total width** differs, too: 128 numbers, or up to 1,024.

# %% [markdown] teaches="soft alignment for free, and what it explains"
# **With a new choice at every step, the model learns far faster.** After 1,800 steps, one choice gets 44 % of the lists
# of five right, about as many as mean pooling. A new choice at every step gets 91 %, with the same parameters.
# Attention to all states is better still, with 95 % against 42 % after 450 steps.
#
# **Doubling the width helps little:** 49 % against 41 %, although the wider model has three and a half times as many
# parameters. (We tried one width and one learning rate.)
#
# So neither distance nor this doubling of the width accounts for the lead of the models that choose anew.
#
# **Selection and total width remain.** With one choice, the decoder receives one vector of 128 numbers for the whole
# list. With a new choice at every step, it can receive up to eight such vectors, 1,024 numbers in all. It may gain from
# selecting, or simply from receiving more. Our experiments do not separate the two.
#
# ## Attention weights as a soft alignment
#
# What does a model with attention choose at each step? An **alignment** says which source token corresponds to which
# target token. Our models were never given one. Yet their attention weights can be read as a **soft alignment**, which
# comes for free. [@fig:steps] lets you step through one list as the seed-1 model translates it. *Guess first:* what
# does the comma attend to, and which lines will cross?

# %% [raw] slide
# ## Attention weights as a soft alignment
# **Alignment**: which source token corresponds to which target token. Our models were never given an alignment.
#
# > **Guess first.** *four hundred and thirty-six → vierhundertsechsunddreißig*. What does *sechs* attend to?

# %%
[example] = translate(models[1], ["twenty-seven, four hundred and thirty-six"], english, german)
figures.steps(example.weights[:-1], example.source_pieces, example.target_pieces[:-1])
#| caption: The decoder's attention, step by step, up to the last token before the end. In the
#|   still picture a line's width shows its weight.
#| label: steps

# %% [raw] slide
# ## Step through a list
# {figure}

# %% [markdown]
# **In this list, every token that has a counterpart attends most to it.** The comma attends to the comma, and the lines
# of unit and ten cross, as *European Economic Area* and *zone économique européenne* do in Bahdanau et al.
# ([-@bahdanau2015, figure 3]). Only *und* has no counterpart, because the English *and* stands after *hundred*, where
# our German numbers have no word. Each *und* attends mostly to one of the two tokens that it joins. Our
# hand-made one matched both equally.
#
# Does every model find this alignment? [@fig:alignments] shows 436 for all three seeds, while the decoder reads the
# correct German. *Guess first:* does *sechs* attend most to *six* in all three?

# %%
number = "four hundred and thirty-six"
one = collate(encode_pairs([Pair(number, say(436, "de"))], english, german))
alignments = {}
for seed, model in models.items():
    _, weights = model(one.source, one.lengths, one.target_in, with_weights=True)
    alignments[f"seed {seed}"] = weights[0, :-1]             # (n_target, n_source), no <eos>
partners = {"vier": "four", "hundert": "hundred", "sechs": "six", "dreißig": "thirty-"}
figures.alignments(alignments, rows=german.pieces(one.target_out[0, :-1].tolist()),
                   columns=english.pieces(one.source[0].tolist()), partners=partners)
#| caption: Attention weights of three trained models that read the correct German. A frame
#|   marks a token's true partner; weights below 0.05 have no number.
#| label: alignments

# %% [raw] slide
# ## Three seeds, two alignments
# {figure}

# %% tags=["hide-input"]
kept_runs = record["steps"]["450"]["attention"]            # the record holds on every machine
recorded = [run["aligned"]["121 to 999"]["units"][0] / 648 for run in kept_runs]
assert recorded[0] < 0.5 < 0.9 < min(recorded[1:]), "three seeds, two alignments"
of_sechs = [int(weights[2].argmax()) for weights in alignments.values()]
partner = {0: 1, 2: 0, 3: 2, 4: 3, 5: 4, 6: 7, 8: 6}             # in the list with seed 1
met = sum(int(example.weights[t].argmax()) == i for t, i in partner.items())
joined = example.weights[1][:2].max(), example.weights[7][6:].max()  # by und: unit or ten
if not (of_sechs == [2, 4, 4] and met == len(partner) and min(joined) > 0.5):
    print("Your three models differ from those described below. The text is about the models "
          "of the published page.")

# %% [markdown]
# **No: with seed 0, *sechs* attends most to *and*,** not to *six*.
#
# Is seed 0 an accident? In a separate run we trained ten models, from seeds 0 to 9. We took all 648 numbers from 121 to
# 999 that have a ten and a unit. While the model read the correct German (teacher forcing), we recorded to which source
# position the German unit attends most. In the figure, *six* stands for all units and *thirty-* for all tens. *Guess
# first:* how many of the ten attend to the unit for nearly all numbers, and how many predict all 648 units correctly?

# %%
ten_runs = measured("ladder_seeds")["steps"]["450"]["attention"]
positions = ["four", "hundred", "and", "thirty-", "six"]
names = [f"model {run['seed']}" for run in ten_runs]
largest = {name: run["units"]["largest"] for name, run in zip(names, ten_runs, strict=True)}
figures.largest_weights(largest, positions, "unit")
print("units predicted right:", [run["units"]["right"] for run in ten_runs])
#| caption: Ten models: the position to which the German unit attends most, over 648 numbers.
#|   Rounding can make model 0 differ a little from our seed 0.

# %% tags=["hide-input"]
on_six = [run["units"]["largest"][4] for run in ten_runs]
assert sum(count > 640 for count in on_six) == 4 and sum(count < 324 for count in on_six) == 4
most = [run["units"]["largest"].index(max(run["units"]["largest"])) for run in ten_runs]
assert [i for i, count in enumerate(on_six) if count < 324] == [0, 5, 8, 9]
assert all(most[i] == 2 for i in (0, 5, 8, 9)), "mostly to and"
later = {name: [run["aligned"]["121 to 999"] for run in record["steps"]["1800"][name]]
         for name in ("attention", "attention, no input feeding")}
assert all(run["right"] == 648 for runs in later.values() for run in runs)
attending = {name: [run["units"][0] for run in runs] for name, runs in later.items()}
assert attending == {"attention": [648] * 3, "attention, no input feeding": [0, 648, 648]}

# %% [raw] slide
# ## Ten models: all predict every unit right, four attend elsewhere
# {figure}

# %% [markdown] teaches="soft alignment for free, and what it explains"
# **All ten models predict every unit correctly, but only four attend most to *six* nearly every time.** Two more do so
# for most numbers. The other four attend mostly to *and*. So a model can be right every time although its largest
# weight is not on the token's partner.
#
# <details><summary><b>Going further</b>: does longer training cure this?</summary>
#
# Nearly. After 1,800 steps, the ladder's three attention models all attend most to *six*, for every number. But of
# three trained without input feeding, one never does, and still predicts every unit correctly.
# </details>
#
# ## Attention weights are not explanations
#
# How can our seed 0 write *sechs* when it attends mostly to *and*? The weights say which *states* were averaged, and a
# state of a bidirectional encoder may contain more than its own token. So the unit may be in the state at *and*. Or
# perhaps the initial state $s_0$ carries it.
#
# An intervention tests this. We hide source positions from the decoder, by setting `mask[:, i] = False` before the
# first step, and count how many of the 648 units it still predicts correctly. *Guess first:* which of the three models
# fail when *six* is hidden? And if seed 0 may attend only to *and*, how many units does it get right: one in nine
# (chance), about half, or nearly all?

# %% [raw] slide
# ## Attention weights are not explanations
# How does seed 0 write *sechs* without attending to *six*? The weights say which **states** were averaged, but a state contains more than its own token.
#
# To test it, **intervene**: hide source positions from the decoder.
#
# > **Guess first.** Which of the three models fail when *six* is hidden? If seed 0 may attend only to *and*, how many units are right: one in nine, half, or nearly all?

# %%
chosen = [n for n in range(121, 1000) if n % 100 > 20 and n % 10]    # with a ten and a unit
spoken = [Pair(say(n, "en"), say(n, "de")) for n in chosen]
above_100 = collate(encode_pairs(spoken, english, german))
unit_ids = above_100.target_out[:, -4]                       # German: unit, und, ten, <eos>


def units_right(model, hidden):
    """The share of numbers whose unit is predicted right without the `hidden` positions."""
    found = predicted(model, above_100, hidden)                      # (648, n_target)
    return (found[:, -4] == unit_ids).float().mean().item()


cases = {"without six": (4,), "only and": (0, 1, 3, 4), "without and": (2,),
         "only six": (0, 1, 2, 3), "only four": (1, 2, 3, 4)}
still = {hidden: [units_right(model, hidden) for model in models.values()]
         for hidden in cases.values()}
figures.hidden_positions(still, positions, [f"seed {seed}" for seed in models], chance=1 / 9)
#| caption: Source positions (hatched) are hidden at every step, while the model reads the
#|   correct German. The words stand for all 648 numbers; chance is one in nine.

# %% tags=["hide-input"]
left = {name: still[hidden] for name, hidden in cases.items()}
_, weights = models[0](above_100.source, above_100.lengths, above_100.target_in,
                       with_weights=True)
on_and = (weights[:, -4].argmax(dim=-1) == 2).float().mean()
if not (on_and > 0.5 and left["without six"][0] > 0.9 and left["without and"][0] > 0.5
        and max(left["without six"][1:]) < 0.6 and left["only and"][0] > 0.95
        and max(left["only and"][1:]) < 0.6
        and min(left["without six"][1:] + left["only and"][1:]) > 0.13
        and min(left["only six"]) > 0.7 and max(left["only four"]) < 0.15):
    print("Your three models differ from those described below. The text is about the models "
          "of the published page.")
shares = []              # of the units that attend there, the fewest that can still be right
for run, place in zip(ten_runs, most, strict=True):
    units, wrong = run["units"]["largest"][place], 648 - run["units"]["right_without"][place]
    shares.append((units - wrong) / units)       # at worst, every wrong unit is one of these
assert [i for i, share in enumerate(shares) if share < 0.5] == [1, 2, 6, 7]
assert [i for i, count in enumerate(on_six) if count > 640] == [1, 2, 6, 7]
assert f"{min(shares[i] for i in (0, 3, 4, 5, 8, 9)):.0%}" == "74%"
told = ["89%", "27%", "45%", "74%", "94%", "96%", "24%", "34%", "80%", "93%"]   # in the box
assert [f"{share:.0%}" for share in shares] == told

# %% [raw] slide
# ## Hide positions: how many units are still right?
# {figure}
#
# Seed 0 does not need *six*: the bidirectional encoder has copied the unit into other states.
# . . .
# *Attention is not explanation* (Jain and Wallace 2019); *… is not not explanation* (Wiegreffe and Pinter 2019). An alignment is a **hypothesis** about what a model uses.

# %% [markdown]
# **With seed 0, the state at *and* appears to contain the unit, although the token does not.** In the row *only and*,
# this model gets practically all units right, so its encoder has written the unit into that state. Seeds 1 and 2 have a
# partial copy at best. With *only and*, or *without six*, they beat chance, but get at most about half of the units
# right.
#
# Could the initial state $s_0$ have carried the unit? It is still available in the row *only four*, and there no model
# does better than chance. So $s_0$ alone does not give this decoder the unit. This evidence is weaker, because it is a
# failure: a decoder that never saw such a mask may simply be confused. The success with *only and* is stronger. It
# shows that the state at *and* suffices, together with $s_0$.
#
# **The largest weight does not always show what is needed.** Seed 0 attends mostly to *and*, yet gets most units right
# without it, because it can also read the unit at *six* (row *only six*). The other run shows the same: when we hide
# the position to which most of a model's units attend, six of the ten models still get at least 74 % of those units
# right. The other four lose more than half, so they do need it. A large weight is evidence, but not proof.
#
# <details><summary>The ten models one by one</summary>
#
# Of the units that attend to the hidden position, at least so many are still right:
#
# | model | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 |
# |---|---|---|---|---|---|---|---|---|---|---|
# | still right | 89 % | 27 % | 45 % | 74 % | 94 % | 96 % | 24 % | 34 % | 80 % | 93 % |
#
# The record counts only how many of all 648 units become wrong, so each number is a lower bound. For models 1, 2, 6
# and 7 it is all but exact, because practically all their units attend to *six*.
# </details>
#
# An alignment is thus a *hypothesis* about what a model uses, and an intervention tests it. In real translation, too,
# weights can differ from the word alignment: for one language pair, they were off by one word
# ([@koehn2017, section 3.5]). How far this caution should go is disputed. Jain and Wallace ([-@jain2019]) found other
# weights that give nearly the same predictions, and called their paper *Attention is not explanation*. Wiegreffe and
# Pinter ([-@wiegreffe2019]) answered with *Attention is not not explanation*: it depends on what one calls an
# explanation.
#
# ## In short
#
# | | | shape |
# |---|---|---|
# | scores | $e_{ti} = s_t \cdot h_i$ (multiplicative) or $\tanh(s_{t-1} W_a + h_i U_a) \cdot v_a$ (additive) | $(n_\text{target}, n_\text{source})$ |
# | attention weights | $\alpha_{ti} = \operatorname{softmax}_i(e_{ti})$, padding at $-\infty$ | rows sum to one |
# | context vector | $c_t = \sum_i \alpha_{ti} h_i$ | $(n_\text{target}, d)$ |
# | attentional vector | $\tilde s_t = \tanh([c_t; s_t] W)$, $W$ is $(2d, d)$; fed to the next step | $(n_\text{target}, d)$ |
#
# A single context vector for a whole sentence is a bottleneck, and attention computes a new one for every target token.
# In cross-attention, queries come from the decoder, keys and values from the encoder. In training the decoder reads the
# correct tokens (teacher forcing), and at inference it reads its own. On our lists, a decoder that chooses anew at
# every step learns far faster than one that is handed one vector. Must a model that writes *sechs* attend to *six*? No:
# four of our ten models attend mostly to *and*, and predict every unit correctly. A weight says how much of a *state*
# was read, but not which token the information came from.
#
# > **Check yourself.** (1) With 7 source and 9 target tokens, batch size 4 and width 128, what are the shapes of
# > scores, weights and context vectors? (2) All keys are multiplied by 10; the values stay the same. What happens to
# > the weights? (3) Two source positions swap places, together with their states. What happens to $c_t$?
# > <details><summary>Answers</summary>(1) Scores and weights are (4, 9, 7), context vectors (4, 9, 128). (2) All
# > differences between scores grow tenfold, so the largest score gets nearly all of the weight, unless another is
# > close: nearly a hard lookup. (3) Nothing: the weights swap along with the values, and a sum does not depend on
# > order. The model knows the order of the source only through its encoder; lecture @order is about models without such
# > an encoder.</details>
#
# **Now do** [assignment @cross_attention](@cross_attention/assignment) (about 80 minutes, plus an extension): you write
# the decoder step and the loss that it is trained on, and your decoder translates. **Next:** [lecture
# @self_attention](@self_attention), in which a sequence attends to itself and the recurrent network is no longer
# needed.
#
# **Further reading.** [+@bahdanau2015]: sections 3 and 5, and figure 3 for real alignments. [+@luong2015]: section 3 is
# this lecture's decoder, and the paper's local attention is the assignment's extension. [+@koehn2017], section 3.4:
# very long sentences. [+@britz2017]: on real sentences, a few dozen averages come close to full attention.
# [+@jain2019]. [+@wiegreffe2019].

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

# %% tags=["hide-input"]
def gradient_at_the_middle(summary, n, seed):
    torch.manual_seed(seed)
    model = Seq2Seq(112, 112, d_embedding=32, d_hidden=128, summary=summary)
    tokens = 4 + torch.randperm(108)[:n]                             # (n,)  all distinct
    logits = model(tokens[None], torch.tensor([n]), torch.tensor([[BOS]]))     # (1, 1, 112)
    logits.log_softmax(dim=-1)[0, 0, 5].backward()                   # of some first token
    gradients = model.embedding.weight.grad                          # (112, 32)
    return gradients[tokens[n // 2]].norm().item()


gradients = {summary: {n: [gradient_at_the_middle(summary, n, seed) for seed in range(3)]
                       for n in (5, 80)} for summary in SUMMARIES}   # for the folded box
assert max(gradients["last state"][80]) < 1e-6 * min(gradients["last state"][5])
for summary in ("mean pool", "attention"):
    assert 0.03 < sum(gradients[summary][80]) / sum(gradients[summary][5]) < 0.12

# %% tags=["hide-cell"] jupyter={"source_hidden": true, "outputs_hidden": true}
print("The records behind the figures from the ladder on:")
for name in ("", "_longer", "_wider", "_eight_one_choice", "_eight_averages", "_seeds"):
    kept = measured(f"ladder{name}")
    print(kept["command"], "on", kept["date"])
