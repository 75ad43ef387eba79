# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @cross_attention · Cross-attention
#
# In this assignment you build the decoder of [lecture @cross_attention](@cross_attention), from the score of one state
# against another to the loss that the decoder is trained on. The lecture computed one query at a time and left the rest
# to the package; here you write the computation for whole batches. Every function is only a few lines long; what takes
# time is to be sure which axis is which. Exercises 1 and 3 are warm-ups: each is one of the matrix products of
# assignment @lookup, now between two sequences of different lengths. Exercises 4 and 5 are new.
#
# After each check comes a cell that *uses* what you wrote. It runs once the check gives all points, and is not graded.
# After exercise 4 your decoder translates. After exercise 5 you mislead it, and then you hide source positions from it.
#
# Each exercise has a check under it. Run it as often as you like, even before you have written anything: it tells you
# what it found, what it expected, and, if it recognises your mistake, what you were probably thinking. A check with
# other numbers and other sizes decides your points, so an answer that is fitted to the visible check will not pass.
#
# {exercises}
#
# If you are stuck, `hint("attention_scores", 1)` prints a hint; the later hints of an exercise tell you more. Answers
# that call the course's own attention or torch's are refused, because here you build it yourself. Use torch operations
# throughout, without `.item()`, `.detach()` or NumPy: most checks also test whether a gradient flows from what you
# return back to what you were given.

# %% locked=true
try:
    from attncourse import check, hint, solved
except ModuleNotFoundError:
    raise ImportError(
        "This notebook needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import torch
from torch import Tensor, nn

from attncourse import viz

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [markdown]
# ## 1 · Attention scores
#
# A decoder has states $s_1, \dots, s_m$, one for each token that it writes. An encoder has hidden states $h_1, \dots, h_n$, one
# for each token that it has read. How well does the query $s_t$ match the key $h_i$? In this assignment, the answer is their dot
# product, a multiplicative score:
#
# $$e_{ti} = s_t \cdot h_i$$
#
# Compute the whole table at once, for a batch of sentence pairs. Source and target rarely have the same length.

# %% exercise="attention_scores"
def attention_scores(decoder_states: Tensor, encoder_states: Tensor) -> Tensor:
    """How well each target position matches each source position: plain dot products.

    decoder_states: (batch, n_target, d)   encoder_states: (batch, n_source, d)
    returns         (batch, n_target, n_source)
    """
    ...  # solution

# %% check="attention_scores"
check("attention_scores", attention_scores)

# %% [markdown]
# **Use it.** Here is *four hundred and thirty-six*, with features as in the lecture: how strongly a token
# stands for hundreds, tens, units, and the joint between them. The table has four of the target tokens. *Guess* which row has no
# clear winner.

# %%
if solved("attention_scores"):
    source = ["four", "hundred", "and", "thirty-", "six"]
    target = ["vier", "sechs", "und", "dreißig"]
    #                hundreds tens units joint
    keys = torch.tensor([[3.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 2.0],
                         [0.0, 3.0, 0.0, 1.0], [0.0, 0.0, 3.0, 1.0]])
    queries = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0],
                            [0.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0]])
    scores = attention_scores(queries[None], keys[None])                             # (1, 4, 5)
    viz.draw_weights(scores[0], rows=target, columns=source, title="your scores",
                     row_name="target (queries)", column_name="source (keys)")

# %% [markdown]
# <details><summary>What to see</summary>
#
# *Vier* has no clear winner, because *four* and *hundred* both stand for hundreds. *Sechs* and *dreißig* each have one,
# in the opposite order to the English tokens. *Und* prefers *and*, but not by much. The key of *and* contains some of
# the unit, as a bidirectional encoder's state may: remember this when you see your own alignment. These are only
# scores: nothing sums to one yet.</details>

# %% [markdown]
# ## 2 · Attention weights: softmax and mask
#
# Each target position distributes a total weight of one. Softmax turns the scores into these weights:
#
# $$\alpha_{ti} = \frac{\exp(e_{ti})}{\sum_{j} \exp(e_{tj})}$$
#
# A batch holds sentences of several lengths, so the shorter sentences end in padding. The weight of a padded position
# must be exactly zero, and the weights of the tokens must sum to one. The mask says where there is a token: `True`
# means "may attend". It has an axis of length one in the middle, because the padding of a source sentence is the same
# for every target position; torch broadcasts that axis.
#
# Two cases need care. A row may contain nothing but padding; then all its weights must be 0, and no gradient may become
# NaN. And a score may be large, such as 300, at a token or at padding, although $\exp(300)$ does not fit into float32.

# %% exercise="attention_distribution"
def attention_distribution(scores: Tensor, mask: Tensor) -> Tensor:
    """Turn scores into weights that sum to one over the source positions that hold a token.

    scores: (batch, n_target, n_source)
    mask: (batch, 1, n_source), True where there is a token
    returns (batch, n_target, n_source); a row with nothing to attend to is all zeros
    """
    ...  # solution

# %% check="attention_distribution"
check("attention_distribution", attention_distribution)

# %% [markdown]
# **Use it.** The translation of a sentence must not depend on the other sentences in its batch. Here are three tokens:
# alone, then with two and with five positions of padding. The scores of the padding are random. *Guess* the three rows.

# %%
if solved("attention_distribution"):
    torch.manual_seed(0)
    alone = torch.tensor([2.0, 0.0, 1.0])
    for n_pad in (0, 2, 5):
        scores = torch.cat([alone, 50 * torch.randn(n_pad)])[None, None]     # (1, 1, 3 + n_pad)
        mask = torch.arange(3 + n_pad)[None, None] < 3                       # (1, 1, 3 + n_pad)
        print(n_pad, "padded:", attention_distribution(scores, mask)[0, 0].numpy().round(3))

# %% [markdown]
# <details><summary>What to see</summary>
#
# The three tokens have the same weights each time, and padding has exactly 0, although some of its scores are far above
# the scores of the tokens. So the translation of a sentence does not depend on its batch.</details>

# %% [markdown]
# ## 3 · Context vectors
#
# Now the decoder receives the answer to its query, the weighted average of the values:
#
# $$c_t = \sum_{i} \alpha_{ti} \, h_i$$
#
# However long the source is, $c_t$ is one vector, as wide as an encoder state. Use the weights as they are. A sentence
# of nothing but padding has weights of 0, so its context vectors are 0.

# %% exercise="attention_output"
def attention_output(weights: Tensor, encoder_states: Tensor) -> Tensor:
    """The context vectors: averages of the encoder states, weighted anew for each target.

    weights: (batch, n_target, n_source)   encoder_states: (batch, n_source, d)
    returns  (batch, n_target, d); a row of zeros in the weights gives a vector of zeros
    """
    ...  # solution

# %% check="attention_output"
check("attention_output", attention_output)

# %% [markdown]
# **Use it.** Together, your three functions are cross-attention. Here they run on the five tokens of the first cell,
# with all queries multiplied by 0, 1 and 4. *Guess* what *sechs* receives in each case, and what attention with factor
# 0 is called.

# %%
names = ("attention_scores", "attention_distribution", "attention_output")
if all(solved(name) for name in names):
    everyone = torch.ones(1, 1, 5, dtype=torch.bool)
    for factor in (0.0, 1.0, 4.0):
        scores = attention_scores(factor * queries[None], keys[None])        # (1, 4, 5)
        weights = attention_distribution(scores, everyone)                   # (1, 4, 5)
        context = attention_output(weights, keys[None])                      # (1, 4, 4)
        received = zip(("hundreds", "tens", "units", "joint"),
                       context[0, target.index("sechs")].tolist(), strict=True)
        print(f"factor {factor:g}:", ", ".join(f"{name} {x:.2f}" for name, x in received))

# %% [markdown]
# <details><summary>What to see</summary>
#
# With factor 0 all weights are equal: *sechs* receives the mean of the five states, which is **mean pooling**. With
# factor 1 it receives mostly units. With factor 4 it receives the state of *six* alone, (0, 0, 3, 1), which is nearly a
# hard lookup. A large scale makes attention select; a small scale makes it average.</details>

# %% [markdown]
# ## 4 · One step of the decoder
#
# The decoder takes one step for each token of the target. Its inputs are the previous token $y_{t-1}$, and the state
# $s_{t-1}$ and the attentional vector $\tilde s_{t-1}$ of the previous step. In training $y_{t-1}$ is the correct
# token, at inference the decoder's own, and at the start `<bos>`. One step is
#
# $$
# \begin{aligned}
# s_t &= \operatorname{GRU}\bigl([\,E[y_{t-1}];\ \tilde s_{t-1}\,],\ s_{t-1}\bigr) && \text{the state moves on}\\
# e_{ti} &= s_t \cdot h_i && \text{the new state is the query}\\
# \alpha_t &= \operatorname{softmax}(e_t) \text{, over tokens alone} \\
# c_t &= \textstyle\sum_i \alpha_{ti}\, h_i && \text{context vector}\\
# \tilde s_t &= \tanh\bigl([\,c_t;\ s_t\,]\,W\bigr) && \text{context first, state second}\\
# \text{logits}_t &= \tilde s_t\, W_o && \text{one for each token of the vocabulary}
# \end{aligned}
# $$
#
# Giving $\tilde s_{t-1}$ to the cell together with the embedding is called *input feeding*. It tells the cell what the
# previous step attended to. The layers are made for you in `__init__`; write `forward`.
#
# There is only one target position and no axis for it, so the scores and the mask are (batch, n_source). You may call
# your functions from above, with `state[:, None]` and `mask[:, None]` to add the missing axis and `[:, 0]` to remove it
# again; but then a mistake in one of them costs points here as well. Every source sentence has at least one token, and scores may be as large as in exercise 2.

# %% exercise="AttentionDecoderStep"
class AttentionDecoderStep(nn.Module):
    """One step of a decoder with attention and input feeding (Luong et al. 2015)."""

    def __init__(self, vocab_size: int, d_embedding: int, d_hidden: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_embedding)      # E
        self.cell = nn.GRUCell(d_embedding + d_hidden, d_hidden)    # [embedding; attentional]
        self.combine = nn.Linear(2 * d_hidden, d_hidden)            # W, for [context; state]
        self.output = nn.Linear(d_hidden, vocab_size)               # W_o

    def forward(self, token, state, attentional, encoder_states, mask):
        """Read one token, attend to the source, predict the next token.

        token: (batch,)
        state, attentional: (batch, d_hidden) each, from the step before
        encoder_states: (batch, n_source, d_hidden)
        mask: (batch, n_source), True where there is a token
        returns logits (batch, vocab_size), state, attentional, and weights (batch, n_source),
                in this order
        """
        ...  # solution

# %% check="AttentionDecoderStep"
check("AttentionDecoderStep", AttentionDecoderStep)

# %% [markdown]
# **Use it: translate with your decoder.** The package's bidirectional encoder reads the source, and *your* step writes
# the target. The two are trained together by teacher forcing for 250 steps, on lists of one or two numbers, in less
# than a minute. Then they translate 200 new lists, and one more, whose alignment is drawn. *Guess* how many of the 200
# are correct to the last letter.

# %%
if solved("AttentionDecoderStep"):
    from attncourse.data import Tokenizer, encode_pairs, number_words
    from attncourse.decoding import translate
    from attncourse.metrics import exact_match
    from attncourse.recurrent import Seq2Seq
    from attncourse.training import fit

    pairs = number_words("en", "de", train=6_000, test=200, max_items=2, dates=0, seed=0)
    some = pairs.train[:2_000]
    english = Tokenizer.train((pair.source for pair in some), size=112)
    german = Tokenizer.train((pair.target for pair in some), size=112, keep_apart="hundert|und")
    torch.manual_seed(0)
    model = Seq2Seq(len(english), len(german), d_embedding=32, d_hidden=64)
    model.decoder = AttentionDecoderStep(len(german), d_embedding=32, d_hidden=64)   # yours
    model.decoder.d_hidden = 64                                      # Seq2Seq asks for it
    encoded = encode_pairs(pairs.train, english, german)
    fit(model, encoded, steps=250, batch_size=32, lr=1e-2, seed=0)
    sources, truths = zip(*pairs.test, strict=True)
    written = [one.text for one in translate(model, sources, english, german)]
    print(sum(exact_match(written, truths)), "of 200 are right")
    [one] = translate(model, ["ninety-one, four hundred and thirty-six"], english, german)
    print(one.text)
    viz.alignment_heatmap(one.weights, one.source_pieces, one.target_pieces)

# %% [markdown]
# <details><summary>What to see</summary>
#
# After 250 steps most of the 200 lists are correct. The alignment may surprise you: in our run *sechs* attends to
# *and*, not to *six*, and is still written correctly. (Your run may have another alignment, because processors round
# differently.)</details>

# %% [markdown]
# ## 5 · Teacher forcing
#
# So far `fit` has hidden from you what it trains on. At each step the decoder reads the previous token $y_{t-1}$ of the
# *correct* translation, and its logits predict the next token $y_t$. The loss is the mean of $-\log p(y_t)$ over all
# tokens to be predicted in the whole batch. Each target begins with `<bos>` and ends with `<eos>`. Shorter targets are
# filled up with the token `pad`, which never has to be predicted.
#
# `step` is a decoder step such as yours: it takes and returns what exercise 4 says. Before the first step the state is
# $s_0$, which is given, and the attentional vector is zero.

# %% exercise="teacher_forcing"
def teacher_forcing(step, target, state, encoder_states, mask, pad):
    """Read the correct translations: what does a decoder predict, and how large is its loss?

    step: (token, state, attentional, encoder_states, mask)
          → (logits, state, attentional, weights)
    target: (batch, n) from <bos> to <eos>, then `pad`
    state: (batch, d_hidden), s₀
    encoder_states, mask: as in exercise 4
    pad: int, the id of the padding token
    returns logits (batch, n - 1, vocab_size), and the loss, a tensor of shape ()
    """
    ...  # solution

# %% check="teacher_forcing"
check("teacher_forcing", teacher_forcing)

# %% [markdown]
# **Use it: one wrong token.** At inference the decoder reads its own mistakes. Here your function gives your trained
# decoder the correct translations of the 200 new lists, and then the same translations with one token replaced by the
# token at the same position of another list. The first token after `<bos>` becomes another number word; the second
# often becomes a token of another kind, such as *und* for *hundert* or a comma for *und*. Lists that would end too
# early are left out. *Guess* which of the two changes does more harm, and for how many steps.

# %%
if solved("AttentionDecoderStep") and solved("teacher_forcing"):
    from attncourse.data import EOS, PAD, collate

    batch = collate(encode_pairs(pairs.test, english, german))
    target = torch.cat([batch.target_in[:, :1], batch.target_out], dim=1)        # <bos> … <eos>
    memory = model.encode(batch.source, batch.lengths)
    rest = memory.start, memory.states, memory.mask, PAD
    _, loss = teacher_forcing(model.decoder, target, *rest)
    print(f"loss on the correct translations: {loss.item():.3f} nats per token")
    for at, name in ((1, "first token replaced"), (2, "second token replaced")):
        other = target.clone()
        other[:, at] = target[:, at].roll(1)                         # from another list
        logits, _ = teacher_forcing(model.decoder, other, *rest)
        right = logits.argmax(dim=-1) == target[:, 1:]               # (batch, n - 1)
        changed = (other[:, at] != target[:, at]) & (other[:, at] != EOS)        # (batch,)
        counted = (target[:, 1:] != PAD) & changed[:, None]
        shares = [right[:, t][counted[:, t]].float().mean() for t in range(at, at + 5)]
        print(f"{name:>21}; right from then on:", [f"{x:.0%}" for x in shares])

# %% [markdown]
# <details><summary>What to see</summary>
#
# Replacing the first token, always by another number word, does almost no harm: the decoder reads from the source, by
# attention, which number comes next. Replacing the second, often by a token of another kind, does more. Directly after
# it, the decoder hardly ever predicts the correct token, and it needs some steps to recover, although it reads correct
# tokens again. One guess is that the tokens tell the decoder not
# what to say, but how far it has come. At inference nothing corrects its mistakes (**exposure bias**,
# [lecture @writing](@writing)).</details>

# %% [markdown]
# **One more use: is an alignment an explanation?** In your alignment, what does each *und* attend to, and does *sechs*
# attend to *six*? An alignment is a hypothesis. *Guess* which source position your decoder cannot do without when it
# predicts the unit, and test it on all numbers from 121 to 999 with a ten and a unit:

# %%
if solved("AttentionDecoderStep") and solved("teacher_forcing"):
    from attncourse.data import Pair
    from attncourse.data.number_words import say

    numbers = [n for n in range(121, 1000) if n % 100 > 20 and n % 10]
    spoken = [Pair(say(n, "en"), say(n, "de")) for n in numbers]
    batch = collate(encode_pairs(spoken, english, german))
    target = torch.cat([batch.target_in[:, :1], batch.target_out], dim=1)
    memory = model.encode(batch.source, batch.lengths)
    for hidden, name in enumerate(("four", "hundred", "and", "thirty-", "six")):
        mask = memory.mask.clone()                                   # (batch, n_source)
        mask[:, hidden] = False
        with torch.no_grad():
            logits, _ = teacher_forcing(model.decoder, target, memory.start, memory.states,
                                        mask, PAD)
        right = logits[:, -4].argmax(dim=-1) == target[:, -4]        # unit, und, ten, <eos>
        share = right.float().mean()
        print(f"without the position of {name:>7}: {share:4.0%} of the units right")

# %% [markdown]
# Change the seeds in the cell that trains the model, and run that cell and the cells below it again. See which
# alignments change, and whether the translations change.
#
# <details><summary>What to see</summary>
#
# In our run the decoder cannot do without *and*: without that position many units are wrong, and without the position
# of *six* hardly any. So this decoder reads the unit from the state at *and*, where the bidirectional encoder has
# copied it. Here the weights told the truth; the lecture has a model whose weights do not tell the whole
# truth.</details>

# %% [markdown]
# **Two questions about your decoder**, to answer in writing before you open the answers:
#
# 1. Suppose that the query were $s_{t-1}$, as in Bahdanau et al. Which lines of your `forward` move, to where, and which
#    new use of $c_t$ becomes possible?
# 2. Suppose that the score were additive, with $d_a$ hidden units. Which parameters does the step need for it, of which
#    shapes? Which product can be computed before the first step?
#
# <details><summary>Answers</summary>
#
# (1) Scores, weights and context vector move in front of the cell: first attend with the old state, then run the cell.
# Now $c_t$ can be an input to the cell at the same step, as in Bahdanau et al. (2) $W_a$ and $U_a$ of shape (d_hidden,
# $d_a$) and $v_a$ of shape ($d_a$,). The products $h_i U_a$ do not depend on the decoder, so they are computed once for
# the whole source. The tanh and the product with $v_a$ come at every step, for every source position.</details>

# %% [markdown]
# ## 6 · In your own words
#
# A fellow student is annoyed: "My rows summed to one. Then I set the padded weights to zero, and now the rows do not
# sum to one. So I divided every row by its sum again, and on my ten sentences the weights are correct. But exercise 2
# gives me full points only if I mask *before* the softmax. Why, if the result is the same?"
#
# **(a)** Show that for a row with at least one token the two methods give the same weights *on paper*, whatever the
# scores. **(b)** Give a row of scores and a mask for which they differ when *computed in float32*, and say what each
# method returns.
#
# Answer in four to eight sentences or lines of mathematics. (3 points)

# %% [markdown] written="why-mask-first" points=3 minutes=10 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) Softmax over all positions, then zeros, then division by what is left: the common denominator
#    $\sum_j \exp(e_j)$ cancels, and $\exp(e_i) / \sum_{j \in \text{tokens}} \exp(e_j)$ remains, which is the softmax over the tokens alone.
#    An argument in words ("both distribute in proportion to $\exp(e_i)$ among the tokens") earns the point.
# 2. (b) An example in which the padding's score exceeds every token's by so much that the tokens' weights underflow, for instance
#    scores (0, 200) with the second position padded. (About 104 is enough: $\exp(-104)$ is 0 in float32.)
# 3. What each returns there: masking first gives (1, 0); masking afterwards gives (0, 0), and the division gives 0/0 = NaN.
#    Half a point if only one of the two results is right. "Dividing by zero" without the scores that cause it earns this point, but
#    not the second.
#
# An answer that names the row of nothing but padding, where both methods need a rule of their own, is right as far as it goes but
# was excluded by (a): one point instead of those for 2 and 3. (The check of exercise 2 says the same: masking afterwards and
# dividing fails "high scores in the padding", where the padding's scores lie hundreds above the tokens', and
# "nothing but padding"; it passes the other aspects on values.)
# ### END SOLUTION

# %% [markdown]
# ## Extension: local attention
#
# This exercise is for extra credit; you lose nothing if you leave it out.
#
# The next target token usually translates a source token near the one translated last. Luong et al. ([-@luong2015,
# section 3.2]) let each target position predict a *centre* $p_t$ in the source. The target position attends only within
# a window around the centre, which saves work when the source is a document, and its weights are multiplied by a
# Gaussian that falls off from the centre. Here you build the Gaussian:
#
# $$\alpha'_{ti} = \alpha_{ti} \, \exp\!\left(-\frac{(i - p_t)^2}{2\sigma^2}\right)$$
#
# Source positions $i$ are counted from 0. A centre may lie between two positions. Do not normalise the result again: if
# the tokens in a window do not match, all weights may be small.

# %% exercise="local_attention"
def local_attention(weights: Tensor, centers: Tensor, sigma: float) -> Tensor:
    """Weights times a Gaussian window around each target's centre (Luong et al. 2015, eq. 10).

    weights: (batch, n_target, n_source)
    centers: (batch, n_target), in source positions   sigma: in positions
    returns  (batch, n_target, n_source)
    """
    ...  # solution

# %% check="local_attention"
check("local_attention", local_attention)

# %% [markdown]
# **Use it.** Here are twelve source positions and five target positions, with equal weights at first and centres that
# move along the source. (The figure shows the weights times twelve.) *Guess* what the rows look like for σ = 1 and for
# σ = 4.

# %%
if solved("local_attention"):
    equal, centers = torch.full((1, 5, 12), 1 / 12), torch.linspace(0, 11, 5)[None]   # (1, 5)
    for sigma in (1.0, 4.0):
        viz.draw_weights(12 * local_attention(equal, centers, sigma)[0],
                         rows=[f"p = {p:g}" for p in centers[0]],
                         columns=[str(i) for i in range(12)],
                         title=f"your window, σ = {sigma:g}",
                         row_name="target (queries)", column_name="source (keys)")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Each row is a bell around its centre. At σ = 1 it covers about five positions; at σ = 4 it reaches nearly the whole
# source. A centre of 5.5 lies between two positions, which get the same weight, a little less than at a centre. At p =
# 0 half of the bell lies outside the source, and nothing replaces the lost weight, because the weights are not
# normalised again.</details>
