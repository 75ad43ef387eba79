# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Lecture @cross_attention · Cross-attention: the decoder looks back
#
# *About 60 minutes, of which one is computing. You need Python, tensors in PyTorch, and to have met a recurrent
# network: something that reads a sequence one item at a time and carries a state along. That attention is a soft
# lookup is the subject of lecture @lookup; what is needed of it is explained again here.*
#
# When you have finished you will be able to write the attention of a decoder over an encoder from memory, to say what
# each axis of its table of weights means and which of them sums to one, to keep padding out of it, and to show by
# measuring what it is good for. In [assignment @cross_attention](@cross_attention/assignment) you build it.
#
# ## An interpreter with a postcard
#
# Imagine an interpreter who hears a speech to its end, writes what matters on one postcard, throws the speech away,
# and then translates from the postcard. For "good morning" the postcard is plenty. For a list of telephone numbers it
# is not, however clever the interpreter: the list grows and the postcard does not.
#
# The first neural translators worked like that (Sutskever et al. 2014, Cho et al. 2014). An *encoder* read the source
# sentence and handed one vector to a *decoder*, which wrote the translation. How much does it hurt? We shall train
# models and count.

# %%
try:
    from attncourse import viz

    from . import figures
except ModuleNotFoundError:
    raise ImportError(
        "This page needs the attncourse package: open it with `make lab` in the course's folder, "
        "or choose a kernel of the environment in which you installed the course."
    ) from None

import inspect

import torch

from attncourse.attention import attend, dot_score, lengths_to_mask
from attncourse.data import BOS, Tokenizer, encode_pairs, number_words
from attncourse.data.number_words import say
from attncourse.decoding import translate
from attncourse.metrics import accuracy_by_length, exact_match
from attncourse.recurrent import SUMMARIES, AttentionDecoderStep, Seq2Seq
from attncourse.training import fit

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread, and lose when it has to wait

# %%
pairs = number_words("en", "de", train=20_000, test=1_000, dates=0, seed=0)
for source, target in pairs.test[:5]:
    print(f"{source}\n    {target}")

# %% [markdown]
# Lists of one to five numbers below a thousand, in English and German. The task has a property that real translation
# lacks: there is exactly one right answer, and everything needed for it stands in the source. Whatever a model gets
# wrong it has lost, or mixed up, on the way. And no list of the test set occurs in the training set, so no whole list
# can be recited from memory.
#
# One thing to keep in mind, because it will come back: where English says *ninety-one*, German says *einundneunzig*,
# "one and ninety". The parts change places.

# %% [markdown]
# ## Look back while you write
#
# The interpreter's trouble ends the moment that the speech may be kept. Nobody translates a list from memory with the
# list lying on the desk: you write a word, glance back at the right place, write the next. The network can do the
# same, because the encoder has left a trace of everything that it read, one state for each source position. (Two
# recurrent networks read the source, one from each end, and a state holds what both know there, side by side.) Only
# the end of the reading used to be handed over. Let us keep all of it, and give the decoder a way to glance.
#
# Two sets of vectors are in play. The *encoder states* $h_1, \dots, h_n$ stand for the source, one for each position.
# The *decoder states* $s_1, \dots, s_m$ come about one by one, while the target is written. At step $t$ there is one
# question, "where should I look now?", and the vector that asks it is $s_t$.

# %%
figures.encoder_decoder()

# %% [markdown]
# Read the picture from the bottom, at some step $t$. The new state $s_t$ is compared with every $h_i$, which gives
# one number each, the **scores** $e_{ti}$. Softmax turns them into shares, the **weights** $\alpha_{ti}$, which sum
# to one. The **attention output** $a_t$ is the average of the encoder states, each counted by its share. It is put
# beside the state, $[a_t; s_t]$, and the next word is predicted from both.
#
# We shall do it once by hand, with numbers so small that you can follow them in your head. Suppose that the network
# has learned three features: how much a position is about *tens*, about *units*, and about the *joint* between the
# two. English makes 91 of two parts, German of three: *ein·und·neunzig*.

# %%
source, target = ["ninety", "one"], ["ein", "und", "neunzig"]
#               tens  units  joint
H = torch.tensor([[3.0, 0.0, 1.0],                   # h₁  ninety
                  [0.0, 3.0, 1.0]])                  # h₂  one            H is (2, 3)
S = torch.tensor([[0.0, 1.0, 0.0],                   # s₁  about to write "ein"
                  [0.0, 0.0, 1.0],                   # s₂  about to write "und"
                  [1.0, 0.0, 0.0]])                  # s₃  about to write "neunzig";  S is (3, 3)
scores = S @ H.mT                                    # (3, 2)  row t, column i:  s_t · h_i
viz.draw_weights(scores, rows=target, columns=source, title="scores")

# %% [markdown] erratum="a square table"
# Every row is one question, every column is one place where the answer might be. *Ein* matches *one* and not
# *ninety*; *neunzig* the other way round: the crossing that we said would come. *Und* has no partner in English and
# matches both alike.
#
# The table is three by two. A translation is hardly ever as long as its source, so the table is hardly ever square,
# and whoever thinks of it as square will sooner or later mix up its axes. Some slides invite the mix-up.
#
# > **On the slide.** Two decks stack $T$ encoder states into $H$ and $T$ decoder states into $Z$ (our $S$), and a third
# > numbers both from 1 to $T$: one letter for two lengths. One of them prints the conclusion
# > $Z Q K^\top H^\top \in \mathbb{R}^{T \times T}$. It is $T_\text{target} \times T_\text{source}$:

# %%
Q = K = torch.eye(3)
table = S @ Q @ (H @ K).mT                           # (3, 2)
print("source:", len(source), "  target:", len(target), "  table:", tuple(table.shape))
assert table.shape == (len(target), len(source))

# %% [markdown]
# ## Which way do the shares go?
#
# Scores may be any numbers. To average with them we need shares: none negative, summing to one. Softmax makes them,
# by $e^{\text{score}}$ over the sum of such exponentials along one axis of the table. And the table has two axes.
#
# *Before you run the next cell:* one choice makes the rows sum to one, the other the columns. Which of them says "each
# target word has one unit of attention to give", and what would the other one say?

# %%
viz.draw_weights({"dim=-1": scores.softmax(dim=-1), "dim=-2": scores.softmax(dim=-2)}, rows=target, columns=source)

# %% [markdown]
# On the left each row sums to one: the word that is about to be written shares out its attention over the source. This
# is what we want:
#
# $$\alpha_{ti} = \frac{e^{\,e_{ti}}}{\sum_j e^{\,e_{tj}}}$$
#
# In the other table each *column* sums to one, as if the source word "ninety" had to decide which target word it would
# like to serve. Nothing crashes if you take that one. All numbers lie between 0 and 1, and the two large ones stand
# where they stood. But *und* now has less than a quarter of its unit to give. The way to find the mistake is to sum
# along the axis that must give ones.

# %%
alpha = scores.softmax(dim=-1)                       # (3, 2)
print("on the left each row gives away", alpha.sum(dim=-1))
print("on the right                   ", scores.softmax(dim=-2).sum(dim=-1))
assert torch.allclose(alpha.sum(dim=-1), torch.ones(3)), "each target position gives away exactly one"

# %% [markdown]
# ## The answer is an average
#
# With the shares in hand the rest is one matrix product. Row $t$ of $\alpha$ times $H$ is $a_t = \sum_i \alpha_{ti}
# h_i$.

# %%
a = alpha @ H                                        # (3, 3)  one attention output for each target position
for word, vector in zip(target, a, strict=True):
    print(f"{word:>8}:  tens {vector[0]:.2f}   units {vector[1]:.2f}   joint {vector[2]:.2f}")

# %% [markdown] erratum="x for h; the encoder's cross-attention"
# *Ein* has received nearly the state of "one", *neunzig* nearly that of "ninety", and *und* exactly half of each.
# Notice what did not happen. No place was chosen: a choice has no gradient, an average has one, so where to look can
# be *learned*. And however long the source is, $a_t$ is one vector of fixed width. The postcard is back, but a fresh
# one is written for every word, by somebody who knows what it is for. (Were all weights equal, it would be the plain
# mean of the states, the same for every word. That is called *mean pooling*, the simplest way to pass a sentence on,
# and we shall see how far it goes.)
#
# **Attention is this: a weighted average of values, where the weights depend on a query.** Here the query is the
# decoder's state, and the encoder's states play two parts, as the *keys* that are compared and as the *values* that
# are averaged. In later lectures the three will be different projections; what is done with them stays the same.
# Attention in which the query comes from one sequence and the keys and values from another, as here, is called
# **cross-attention**.
#
# > **On the slide.** Encoder outputs are called $h_i$ in the decks' cross-attention slides, but their type is given
# > for an $x_i$ that does not occur; one deck heads the slide "The Transformer *Encoder*: Cross-attention". It is the
# > decoder that attends. The queries come from the decoder's own states, $q_t = Q z_t$; keys and values come from the
# > encoder, $k_i = K h_i$ and $v_i = V h_i$.

# %% [markdown]
# ## Who is not there
#
# Sentences are computed in batches, and a batch is a rectangle. A short sentence is filled up with padding, and the
# encoder leaves states there too, or zeros. Nothing in a state says "I am padding".
#
# Below, a sentence of two words shares a batch with one of five, so three columns are empty seats with states of
# zero. *Guess:* how much of its attention does "ein" give to seats where nobody sits, when nobody tells it not to?

# %%
padded = torch.cat([H, torch.zeros(3, 3)])           # (5, 3)  two words and three empty seats
mask = lengths_to_mask([2], n=5)                     # (1, 5)  True where there is a word
names = [*source, "pad", "pad", "pad"]
unmasked = (S @ padded.mT).softmax(dim=-1)           # (3, 5)
viz.draw_weights(unmasked, rows=target, columns=names, title="nobody said who is there")
print("to padding:", (unmasked * ~mask).sum(dim=-1))

# %% [markdown] erratum="weights set to 0"
# *Ein* gives an eighth of its attention to empty seats, and *und* more than a third. A score of zero is not "no
# attention". Softmax makes it $e^0 = 1$, and three empty seats together weigh as much as a score of
# $\ln 3 \approx 1.1$. So the same sentence would be translated differently depending on whom it shares a batch with.
# (Large scores would drown the empty seats, and trained models often have large scores. Nothing guarantees it.) The
# remedy must make their weight *exactly* zero, and there are two places where one might try.
#
# > **On the slide.** Two decks say: "mask out … by artificially setting attention *weights* to 0". Their subject is the
# > future, not padding, but the step is the same. Run it: the rows no longer sum to one, because what was taken from
# > the forbidden places was not given to anybody. It is the *scores* that are set, to −∞, before the softmax. (Their
# > own slides on masking have it right.)

# %%
zeroed_weights = unmasked * mask                                                    # (3, 5)
masked_weights = (S @ padded.mT).masked_fill(~mask, -torch.inf).softmax(dim=-1)     # (3, 5)
print("weights set to 0:  rows sum to", zeroed_weights.sum(dim=-1))
print("scores set to −∞:  rows sum to", masked_weights.sum(dim=-1))
assert zeroed_weights.sum(dim=-1).max() < 0.99
assert torch.allclose(masked_weights[:, :2], alpha), "the two words share what they shared alone"

# %% [markdown]
# > **Check yourself.** A row of the mask may be False throughout: a source sentence that is empty. What does softmax
# > make of a row of nothing but −∞, and what would you want instead?
# > <details><summary>Answer</summary>Every exponential is 0, their sum is 0, and 0/0 is NaN, which poisons everything
# > that it touches. There is nothing to average, so zeros are the sensible answer. The package's
# > <code>masked_softmax</code> returns them, and assignment @cross_attention asks you to.</details>

# %% [markdown]
# ## One step of the decoder
#
# Now in sequence, as it runs. The state moves on, asks, receives, and the two vectors together predict a word:
#
# $$
# \begin{aligned}
# s_t &= \operatorname{GRU}\bigl([\,E y_{t-1};\ \tilde a_{t-1}\,],\ s_{t-1}\bigr) && \text{the state moves on}\\
# \alpha_{ti} &= \operatorname{softmax}_i\bigl(s_t \cdot h_i\bigr) && \text{it asks, over the words that are there}\\
# a_t &= \textstyle\sum_i \alpha_{ti} h_i && \text{it is answered}\\
# \tilde a_t &= \tanh\bigl(W\,[\,a_t;\ s_t\,]\bigr) && \text{the two are combined}\\
# \text{logits}_t &= W_o\, \tilde a_t && \text{and predict the next token}
# \end{aligned}
# $$
#
# $E$ is the table of embeddings, GRU a gated recurrent cell (lecture @bottleneck); biases are left out, and vectors are columns
# here and rows in the code. That attended comes before state in $[a_t; s_t]$ is a convention, but trained weights depend
# on it.
#
# One detail is easily overlooked. The vector $\tilde a_t$, from which the word is predicted, is handed to the next step
# beside that word's embedding. This is called **input feeding** (Luong et al. 2015, section 3.3): the next step is told
# what this one found. Without it the decoder must infer where it has looked from the words that it has written. For our
# lists that is no loss, as `benchmarks/ladder.py` measures; on real sentences Luong et al. report a gain (their
# table 1).
#
# `AttentionDecoderStep` in the package is these equations, a look at what comes in, and two switches: input feeding may be
# left out, and the cell may be an LSTM, which carries a second vector.

# %%
print(inspect.getsource(AttentionDecoderStep.forward).split('"""')[-1])

# %% [markdown]
# The `attend` in the middle of it is the package's attention. Does it do what we did by hand? Ours is the table
# `alpha`, and `a` with the averages; the package gets the padded sentence and the mask.

# %%
output, weights = attend(query=S, key=padded, value=padded, mask=mask, score=dot_score)     # (3, 3), (3, 5)
assert torch.allclose(output, a) and torch.allclose(weights[:, :2], alpha) and (weights[:, 2:] == 0).all()

# %% [markdown]
# It does. (Asked without a score, `attend` takes the *scaled* dot product, $s \cdot h / \sqrt d$, which is what a
# Transformer uses; lecture @many_heads shows why. Some slides show the cross-attention of a Transformer without the
# scale. That is an omission, not another method.)

# %% [markdown]
# ## How much is it worth?
#
# Three models now translate the same lists. They have the same encoder, the same decoder step, the same number of
# parameters to the last one, the same data in the same order, and the same number of training steps. They differ in
# what the encoder hands over:
#
# | | the decoder may look at | the postcard |
# |---|---|---|
# | **last state** | where the reading ended, from either side | one vector: what the two networks still remember |
# | **mean pool** | the average of all encoder states | one vector, in which every position counts the same |
# | **attention** | all encoder states | a fresh vector for every target token |
#
# (A decoder that attends over a memory of one vector always gives it the weight 1. So all three run through the same
# code.)
#
# *Write down your guess before you go on.* For lists of one number, of three, of five: what share of the translations
# will be right to the last letter, for each of the three? Sketch three curves. Where do they part?

# %%
english = Tokenizer.train((pair.source for pair in pairs.train), size=112)
german = Tokenizer.train((pair.target for pair in pairs.train), size=112, keep_apart="hundert|und")
encoded = encode_pairs(pairs.train, english, german)
print(" | ".join(english.pieces("ninety-one, four hundred")))
print(" | ".join(german.pieces("einundneunzig, vierhundert")))

# %% [markdown]
# The models see pieces rather than letters, found by byte-pair encoding ([lecture @training](@training) builds it). One thing was arranged so
# that the pictures can be read: the joints of a German number, *hundert* and *und*, stay pieces of their own, or
# "undneunzig" would become one.

# %%
models = {}
for summary in SUMMARIES:
    torch.manual_seed(0)
    models[summary] = Seq2Seq(len(english), len(german), d_embedding=32, d_hidden=128, summary=summary)
    fit(models[summary], encoded, steps=450, batch_size=32, lr=6e-3, seed=0, name=summary)
print({summary: sum(p.numel() for p in model.parameters()) for summary, model in models.items()}, "parameters")

# %% [markdown]
# A loss is not a translation. So we let each model write, token by token and with nobody to correct it, the thousand
# lists that none of them has seen, and count a list as right only if every letter is.

# %%
sources, truths = zip(*pairs.test, strict=True)
numbers = [source.count(",") + 1 for source in sources]
accuracy = {}
for summary, model in models.items():
    written = [translation.text for translation in translate(model, sources, english, german)]
    accuracy[summary] = accuracy_by_length(exact_match(written, truths), numbers, edges=(1, 2, 3, 4, 5))
figures.accuracy_by_length(accuracy, x_name="numbers in the list", title="three decoders, the same budget")

# %% [markdown]
# For a single number one vector is nearly enough. Then both postcards fade: of the lists of four about one in ten comes
# out whole, of the lists of five hardly any. With attention the curve stays far above. Compare it with your sketch.
#
# Neither summary is the better one: each must hold the whole list before anybody knows what will be asked.

# %%
five = {summary: line[5, 5] for summary, line in accuracy.items()}
print("lists of five:", {summary: f"{share:.0%}" for summary, share in five.items()})
assert five["attention"] > 0.6, "attention holds up on the longest lists"
assert max(five["last state"], five["mean pool"]) < 0.1, "one vector does not"

# %% [markdown]
# Is one vector too narrow for this, then, or only slow to fill? `python benchmarks/ladder.py --steps 1800` gives all
# three four times the budget. Both postcards then get about four in ten of the longest lists right, and attention
# practically all. So what attention changes is how much training a longer sentence costs. Nothing here needs a GPU.
# Real sentences need larger models, and those do ([lecture @training](@training)).
#
# > **Check yourself.** The three models have equally many parameters. Do they also do equally much arithmetic?
# > <details><summary>Answer</summary>No. At every step of the decoder, attention compares its state with all n encoder
# > states and averages n of them; the others have one to look at. For m target tokens that is m × n dot products
# > against m. The parameters do not notice, because a dot product has none.</details>

# %% [markdown]
# ## Two troubles, not one
#
# Why does one vector fail? There are two suspects. One is *distance*: to learn that the first German word depends on an
# English word in the middle of the list, the gradient must travel there, through every state in between. The other is
# *selection*: even if everything arrives, it arrives mixed.
#
# Distance can be measured before any training. Take fresh models and sources of $n$ tokens, all different, ask for the
# first target token, and look at the size of the gradient that reaches the *middle* source token. *Guess three curves
# once more:* which of the three models lets it through when $n$ is 80?

# %%
def gradient_at_the_middle(summary, n):
    torch.manual_seed(0)
    model = Seq2Seq(112, 112, d_embedding=32, d_hidden=128, summary=summary)
    source = 4 + torch.randperm(108)[None, :n]                                 # (1, n)  ordinary tokens, none twice
    logits = model(source, torch.tensor([n]), torch.tensor([[BOS]]))           # (1, 1, vocab_size)
    logits[0, 0].log_softmax(dim=-1)[5].backward()                             # the log-probability of some first token
    return model.embedding.weight.grad[source[0, n // 2]].norm().item()


sizes = [5, 10, 20, 40, 80]
gradients = {summary: [gradient_at_the_middle(summary, n) for n in sizes] for summary in SUMMARIES}
viz.curves(gradients, xs=sizes, x_name="source length n", y_name="gradient at the middle token", log_y=True)
assert gradients["last state"][-1] < 1e-4 * gradients["last state"][0]
assert min(gradients[s][-1] / gradients[s][0] for s in ("mean pool", "attention")) > 0.01

# %% [markdown]
# Through the last state the gradient has to walk, and dies exponentially on the way (the axis is logarithmic).
# Through the mean and through attention it takes a shortcut, one average long, and shrinks roughly as $1/n$: from 5
# tokens to 80 by a factor of some tens, where the last state loses a factor of a hundred million. The slides say that
# attention helps with vanishing gradients, and here it does.
#
# But now look at the two pictures together. Mean pooling has the shortcut too, and in the comparison above it did no
# better than the last state. So distance is not what kept it down: an average that is the same for every question
# cannot *select*. Attention is the one that mends both.

# %% [markdown]
# ## What it looked at
#
# Nobody ever told the model which English piece belongs to which German piece. It was told only which German piece
# comes next. But to say it, it had to look somewhere, and the weights say where. (Which piece belongs to which is
# called an *alignment*.) Here is one number, with the crossing that we have been waiting for. (The last row is
# `<eos>`, the end of the sentence, which has to look somewhere too.)

# %%
[ninety_one] = translate(models["attention"], ["ninety-one"], english, german)
viz.alignment_heatmap(ninety_one.weights, ninety_one.source_pieces, ninety_one.target_pieces)

# %% [markdown]
# But for *und*, this is nearly the table that we wrote by hand at the beginning, found by gradient descent. Below is
# a longer list, to be walked through one target token at a time. Before you move the slider, guess where *sechs* will
# look, and where the comma will.

# %%
[example] = translate(models["attention"], ["twenty-seven, four hundred and thirty-six, eighty-five"], english, german)
viz.step_through(example.weights, example.source_pieces, example.target_pieces)

# %% [markdown]
# One picture proves little, and a picture that was chosen proves less. The task lets us count. In all numbers from 21 to
# 99 with a unit, the German unit belongs to the English unit and the German ten to the English ten. (Nearly all of
# them stand alone in the training set too; nobody gave an alignment for any.) How often does the largest weight stand where
# it belongs?

# %%
tens_and_units = [number for number in range(21, 100) if number % 10]
unit_right = ten_right = 0
for one in translate(models["attention"], [say(n, "en") for n in tens_and_units], english, german):
    looks_at = one.weights.argmax(dim=-1).tolist()             # for each German piece the English piece with most weight
    unit_right += looks_at[0] == len(one.source_pieces) - 1    # German begins with the unit, English ends with it
    ten_right += looks_at[-2] == 0                             # before <eos> stands the ten; English begins with it
print(f"of {len(tens_and_units)}: unit on unit {unit_right}, ten on ten {ten_right}")
assert unit_right + ten_right > 0.75 * 2 * len(tens_and_units)

# %% [markdown]
# So a soft alignment comes for free, as a slide says. Take it for what it is, though. The weights say which states
# were averaged, and an encoder state knows its neighbours: in the long list above, as saved with this page, *sechs*
# looks at "and", where the encoder has already brought the six along. And *und*, which has no partner, goes now to the
# one and now to the other. How far weights explain what a model does is disputed (Jain and Wallace 2019; Wiegreffe and
# Pinter 2019, in answer). That they help is not: without them the lists were lost.

# %% [markdown]
# ## What you have, and what it costs
#
# Reading a source of $n$ positions to write $m$ takes a table of $m \times n$ scores. For sentences that is nothing.
# For a book translated as one sequence it is everything, and lecture @cheap_attention is about cheaper ways. In return, no word of
# the source is further from any word of the target than one weighted average, and each target word has an average of
# its own.
#
# Nothing in the average was about translation. Values, keys, a query, a score, a softmax: a decoder may ask an
# encoder, a text may ask a picture, and a sequence may ask itself. That last one is self-attention, and the next
# lecture throws the recurrent network away and keeps nothing else.
#
# > **Check yourself.** (1) Source 7 tokens, target 9, batch 4, width 128: what are the shapes of scores, weights
# > and outputs? (2) All keys are multiplied by 10, the values stay. What happens to the weights? (3) Two source
# > positions swap places, states and all. What happens to $a_t$?
# > <details><summary>Answers</summary>(1) Scores and weights (4, 9, 7), outputs (4, 9, 128). (2) All scores grow
# > tenfold, so softmax puts nearly everything on the largest: attention turns towards a hard lookup. (3) Nothing:
# > the weights swap along with the values, and a sum does not care about order. That the model knows the source's
# > order at all is the encoder's doing; lecture @order is about what to do when there is no such encoder.</details>
#
# **In the package.** `attncourse.attention` has `dot_score`, its relatives, `masked_softmax` and `attend`, in one
# short file. `attncourse.recurrent` has `AttentionDecoderStep` and the three models that you have compared.
#
# **Read next.** Bahdanau, Cho and Bengio, *Neural machine translation by jointly learning to align and translate*
# (2015): section 3, and the alignment pictures in section 5.2; the score is additive there and the old state asks.
# Luong, Pham and Manning, *Effective approaches to attention-based neural machine translation* (2015): sections 3.1
# and 3.3 are the decoder of this lecture, section 3.2 is the extension of the assignment. Cho et al., *On the
# properties of neural machine translation: encoder–decoder approaches* (2014), plot quality against the length of the
# sentence, as you have just done, for real sentences and one vector.
