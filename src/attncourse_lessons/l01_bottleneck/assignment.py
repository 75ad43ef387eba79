# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @bottleneck · The parts of a recurrent language model
#
# Here you build the parts of the models in [lecture @bottleneck](@bottleneck): the number by which language models
# are compared, one step of a recurrent network, the loss that a language model learns from, a step with gates, and a
# readout that can select from one vector. Every function is only a few lines long, but several are easy to get wrong
# without any error message. After each check comes a cell that *uses* what you wrote; it runs once the check gives
# all points, and is not graded.
#
# Each exercise has a check under it, which you may run as often as you like, even before you have written anything.
# It tells you what it found, what it expected, and, if it recognises your mistake, what you were probably thinking.
# Another check with other numbers and other sizes decides your points, so an answer that is fitted to the visible
# check will not pass.
#
# {exercises}
#
# If you are stuck, `hint("perplexity", 1)` prints a hint. The later hints of an exercise tell more. An answer is refused
# if it calls the course's own function for the same thing, or one of torch's recurrent layers, because this is the
# place to build them. Use torch's operations throughout, without `.item()`, `.detach()` or NumPy. Most checks also test
# whether a gradient flows from what you return back to what you were given.

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
from torch import Tensor, nn

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [markdown]
# ## 1 · Perplexity
#
# A loss of 3.4 nats means little to most people, so perplexity expresses it as a number of choices: a model of
# perplexity 30 is as unsure as a player who guesses among 30 equally likely tokens. The lecture's formula,
# [@eq:perplexity], multiplies the probabilities of all $N$ tokens. For a thousand tokens this product is too small
# for any float, so it becomes 0 and the perplexity infinite. That is why you get the **natural logarithms** of the
# probabilities. Rewrite the formula on paper so that no product is left.
#
# You get several texts, padded to the same length. The mask is True where there is a token. $N$ is the number of tokens
# in all texts together, and each token counts the same. The padding holds finite numbers that mean nothing.

# %% exercise="perplexity"
def perplexity(log_probabilities: Tensor, mask: Tensor) -> Tensor:
    """How many equally likely tokens would be as hard to guess.

    log_probabilities: (batch, n), natural logarithms
    mask: (batch, n), True where there is a token
    returns a tensor of one number: shape ()
    """
    ...  # solution

# %% check="perplexity"
check("perplexity", perplexity)

# %% [markdown]
# **Use it.** Your function measures three n-gram models on docstrings that they have not seen. *Guess:* which order
# $n$ is best, and what kind of text is easiest? A course-mate computes a perplexity for *each text* and reports the
# mean: is it larger or smaller than your result, or the same? If it differs, is the hardest text alone the reason?
# The last printed lines give the answer.

# %%
if solved("perplexity"):
    from attncourse.data import Tokenizer, docstrings, encode_texts
    from attncourse.ngram import NGram

    corpus = docstrings(limit=1500)
    tokenizer = Tokenizer.train(corpus.train, size=512)
    train, test = encode_texts(corpus.train, tokenizer), encode_texts(corpus.test, tokenizer)
    for order in (1, 2, 3):
        model = NGram(train, order, len(tokenizer))
        rows = [model.log_probabilities(text) for text in test]      # (n,) each
        mask = torch.arange(max(map(len, rows))) < torch.tensor([[len(row)] for row in rows])
        log_p = nn.utils.rnn.pad_sequence(rows, batch_first=True)    # (batch, n)
        print(f"order {order}: perplexity {perplexity(log_p, mask):.1f}")
    of_each = [float(perplexity(log_p[i : i + 1], mask[i : i + 1])) for i in range(len(rows))]
    for name, best in {"easiest": min(of_each), "hardest": max(of_each)}.items():
        print(f"{name}, perplexity {best:.0f}: {corpus.test[of_each.index(best)][:80]}")
    print(f"all tokens together {perplexity(log_p, mask):.1f},",
          f"mean over the texts {sum(of_each) / len(of_each):.1f}")
    kept = [number for number in of_each if number < max(of_each)]
    print(f"mean without the hardest text {sum(kept) / len(kept):.1f}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Order 3, with two tokens of context, is best here. Stock phrases are easy, whereas operators and names that the
# model has never seen are hard. The mean over the texts is larger than the perplexity over all tokens, even without
# the hardest text, for two reasons: every text counts the same, however long it is, and *exponentials* are averaged,
# which gives more than the exponential of the average. So average the losses over all tokens first, and take the
# exponential last.</details>

# %% [markdown]
# ## 2 · One step
#
# A recurrent network reads a text one token at a time. Its *state* holds what it knows of everything that it has read.
# Each step computes the new state from the token's vector $x_t$ and the previous state ([@elman1990]):
#
# $$h_t = \tanh\bigl(x_t W_x + h_{t-1} W_h + b\bigr)$$
#
# Vectors are rows, so they stand on the left of their matrices. The step is done for a batch of texts at once: row $i$
# of `x` and row $i$ of `state` belong to text $i$.
#
# The texts have different lengths, and `there` says which of them have a token at this step. A text that has ended
# **keeps its state**. Its row of `x` is padding and may hold any numbers. *Answer before you write:* suppose that a
# decoder starts from the last states, and that all texts took all steps. What would the decoder start from for the
# shortest text of the batch? And why is it not enough to set the padding to 0?

# %% exercise="rnn_step"
def rnn_step(
    x: Tensor, state: Tensor, there: Tensor, W_x: Tensor, W_h: Tensor, b: Tensor
) -> Tensor:
    """The state after one more token; a text that is over keeps its state.

    x: (batch, d_in)   state: (batch, d_hidden)
    there: (batch,), boolean, True where a text has a token at this step
    W_x: (d_in, d_hidden)   W_h: (d_hidden, d_hidden)   b: (d_hidden,)
    returns (batch, d_hidden)
    """
    ...  # solution

# %% check="rnn_step"
check("rnn_step", rnn_step)

# %% [markdown]
# **Use it.** Here is a state of one number, with weights set by hand. It reads an opening bracket as 1, a closing
# bracket as −1 and anything else as 0, and it should remember whether it is inside brackets. Three texts are read at
# once, and the padding after the shorter texts consists of nothing but opening brackets. *Guess:* with which $w_h$
# does the state remember, 0.5 or 3? What happens at the second bracket? And what does the padding do?

# %%
if solved("rnn_step"):
    texts = ["a (bc (d e) fghij", "k (lm) nop", "x (y"]
    n, signs = max(map(len, texts)), {"(": 1.0, ")": -1.0}
    padded = [text.ljust(n, "(") for text in texts]
    W_x, b = torch.tensor([[6.0]]), torch.zeros(1)
    for w_h in (0.5, 3.0):
        state, seen = torch.full((3, 1), -0.9), ["", "", ""]     # (batch, d_hidden): outside
        for at in range(n):
            x = torch.tensor([[signs.get(text[at], 0.0)] for text in padded])    # (batch, d_in)
            there = torch.tensor([at < len(text) for text in texts])     # (batch,)
            state = rnn_step(x, state, there, W_x, torch.tensor([[w_h]]), b)
            for i, h in enumerate(state[:, 0].tolist()):
                seen[i] += "#" if h > 0.5 else "." if h < -0.5 else "?"
        print(f"w_h = {w_h}  (# inside, . outside, ? forgotten)")
        for text, signal in zip(texts, seen, strict=True):
            print("   ", text.ljust(n + 3), signal)

# %% [markdown]
# <details><summary>What to see</summary>
#
# With $w_h = 0.5$ the state falls back towards 0 and the model forgets, whereas with 3 the state stays where it is
# until the next bracket. But this one number only says *that* a bracket is open, and cannot count how many are. After
# the first closing bracket, which ends (d e), the state says "outside", although one bracket is still open.
#
# After its end each text keeps what it knew, whatever its padding says. If all texts took all steps, a decoder would
# start for the shortest text with a state that has read mostly padding. Padding of 0 would not be enough, because a
# step on 0 still moves the state, through $W_h$ and $b$.</details>

# %% [markdown]
# ## 3 · What a language model learns from
#
# A language model has read a batch of texts. At each position it has produced *logits*, one number for each token of
# the vocabulary, and softmax turns them into probabilities. `logits[:, t]` was computed when the tokens 0, 1, …, t had
# been read, and it says what the model expects **next**. The loss is the mean of
#
# $$-\log p(\text{the token that came next})$$
#
# over all positions that have a next token. The logarithm is the natural one, so the loss is in nats.
#
# A text of five positions, with padding in the last, gives three terms:
#
# | read so far | prediction in | what came next |
# |---|---|---|
# | `the` | `logits[0, 0]` | `cat` |
# | `the cat` | `logits[0, 1]` | `sat` |
# | `the cat sat` | `logits[0, 2]` | `<eos>` |
# | `the cat sat <eos>` | | padding: nothing came |
#
# All predicted tokens of the batch count the same, whichever text they come from. The first token of a text is read and
# never predicted. The padding's id comes as an argument, so do not rely on its being 0; `pad` never occurs inside a
# text. There is at least one token to predict. A model may be very sure of itself, with logits hundreds apart. Where
# such a model is wrong, the loss must be large, but not infinite.

# %% exercise="shifted_loss"
def shifted_loss(logits: Tensor, tokens: Tensor, pad: int) -> Tensor:
    """The mean of −log p(next token), in nats, over all predicted tokens that are not padding.

    logits: (batch, n, vocab_size), made when tokens 0 … t had been read
    tokens: (batch, n), ids, padded at the end with `pad`
    returns a tensor of one number: shape ()
    """
    ...  # solution

# %% check="shifted_loss"
check("shifted_loss", shifted_loss)

# %% [markdown]
# **Use it.** This language model is made of your own parts. It reads a number from 100 to 999 letter by letter with
# your `rnn_step`, trains on your `shifted_loss`, and then writes 200 words. *Guess:* what share of the words are
# numbers from 100 to 999, spelt without a mistake? And does the model only repeat numbers that it was trained on?

# %%
if solved("rnn_step") and solved("shifted_loss"):
    from attncourse.data import pad_batch, say

    torch.manual_seed(0)
    numbers = 100 + torch.randperm(900)
    texts = [f".{say(int(number), 'en')}." for number in numbers]  # "." begins and ends each
    letters = ["padding", *sorted(set("".join(texts)))]
    tokens, _ = pad_batch([[letters.index(letter) for letter in text] for text in texts], pad=0)
    table, to_logits = nn.Embedding(len(letters), 64), nn.Linear(64, len(letters))
    W_x, W_h, b = (nn.Parameter(torch.randn(size) / 8) for size in ((64, 64), (64, 64), (64,)))

    def letter_logits(tokens):
        state, logits = torch.zeros(len(tokens), 64), []             # (batch, d_hidden)
        for token in tokens.unbind(dim=1):                           # (batch,)
            state = rnn_step(table(token), state, token > 0, W_x, W_h, b)
            logits.append(to_logits(state))
        return torch.stack(logits, dim=1)                            # (batch, n, vocab_size)

    parameters = [W_x, W_h, b, *table.parameters(), *to_logits.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    for step in range(201):
        batch = tokens[torch.randint(600, (32,))]                    # 300 are kept apart
        loss = shifted_loss(letter_logits(batch), batch, pad=0)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step:>3}: {loss.item():.2f} nats per letter")
    with torch.no_grad():
        loss = shifted_loss(letter_logits(tokens[600:]), tokens[600:], pad=0)
        print(f"on numbers it has not seen: {loss.item():.2f}")
        n_letters = sum(len(text) - 1 for text in texts) / 900           # "." at the end counts
        print(f"ln 900 nats over {n_letters:.1f} letters: {math.log(900) / n_letters:.2f}")
        written = torch.full((200, 1), letters.index("."))           # (200, 1)
        for _ in range(40):
            p = letter_logits(written)[:, -1].softmax(dim=-1) ** 2   # favours likely letters
            written = torch.cat([written, torch.multinomial(p, 1)], dim=1)
    words = ["".join(letters[i] for i in row[1:]).split(".")[0] for row in written.tolist()]
    print(*words[:4], sep="\n")
    for name, part in {"trained on": texts[:600], "new numbers": texts[600:]}.items():
        known = {text.strip(".") for text in part}
        print(f"{name}: {sum(word in known for word in words) / 200:.0%} of 200 words")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Nearly all words are numbers, spelt correctly, and more than a quarter of them are numbers that the model was not
# trained on. A third of all numbers were kept apart, and a model that only recites would write none of them. The loss
# does not go to zero, because no model can know which of 900 numbers comes next. That alone costs $\ln 900 = 6.8$
# nats for each number, or 0.25 for each letter, so the model, with 0.27 on new numbers, has little left to
# learn.</details>

# %% [markdown]
# ## 4 · A state with gates
#
# A GRU ([@cho2014]) decides at each step, and for each number of its state, how much of the old state to keep. The
# lecture draws its cell. Read the equations of the **reset gate** $r$, the **update gate** $z$, the **candidate** and
# the new state off the lower half of [@fig:gated-cells], and write them for a batch. Watch what each × multiplies. Only
# one thing is not in the picture: the three input matrices come stacked in `W_x`, the three matrices of the state ($U$
# in the picture and the lecture) in `W_h`, and the three biases in `b`, each in the order reset, update, candidate.
#
# Test your equations on paper with the lecture's GRU of one number: the state is 0.8, the input is −1, the candidate's
# weights are 1 for the input and 2 for the state, and $(r, z)$ is $(1, 0)$, $(0, 0)$ and $(0, 0.9)$. The new states
# must be 0.54, −0.76 and 0.64.
#
# **Before you write**, answer on paper, for one number of the state: (1) Which values of r and z make the step forget
# everything that was read before, and what is the new state then? (2) Which value of z keeps the state for a thousand
# steps, whatever is read? (3) In another paper z is the share of the *candidate*. What changes in your answers? The
# check tests (1) and (2) on your function.

# %% exercise="gru_step"
def gru_step(x: Tensor, state: Tensor, W_x: Tensor, W_h: Tensor, b: Tensor) -> Tensor:
    """The state of a GRU after one more token.

    x: (batch, d_in)   state: (batch, d_hidden)
    W_x: (3, d_in, d_hidden)   W_h: (3, d_hidden, d_hidden)   b: (3, d_hidden)
         each: reset, update, candidate, in this order
    returns (batch, d_hidden)
    """
    ...  # solution

# %% check="gru_step"
check("gru_step", gru_step)

# %% [markdown]
# **Use it.** Give your step the weights of torch's GRU and let both read thirty tokens, once from each of **two
# different first states**. Then add 5 to the update gate's bias. *Guess*, before and after: how far apart are the two
# states after thirty tokens, as a share of their distance at the start? And does each still point in its original
# direction? (A cosine of 1 means that it does.)

# %%
if solved("gru_step"):
    torch.manual_seed(0)
    theirs = nn.GRU(5, 8, batch_first=True).requires_grad_(False)  # frozen
    W_x, W_h = (matrix.unflatten(0, (3, 8)).mT for matrix in theirs.all_weights[0][:2])
    theirs.bias_hh_l0.zero_()                                # a second bias, in r's brackets
    x, starts = torch.randn(1, 30, 5).expand(2, -1, -1), torch.randn(2, 8)       # one text
    starts.requires_grad_()
    for opened in (0.0, 5.0):
        theirs.bias_ih_l0[8:16] += opened                    # the update gate's
        b, states = theirs.bias_ih_l0.unflatten(0, (3, 8)), starts
        for x_t in x.unbind(dim=1):                          # (batch, d_in)
            states = gru_step(x_t, states, W_x, W_h, b)
        same = torch.allclose(states, theirs(x, starts[None])[0][:, -1], atol=1e-5)
        apart = (states[0] - states[1]).norm() / (starts[0] - starts[1]).norm()
        likeness = nn.functional.cosine_similarity(states, starts)               # (2,)
        print(f"z's bias + {opened:.0f}: the same as torch's, {same};",
              f"distance left {apart.item():.4f}; cosine of each with its first state",
              [round(cosine, 2) for cosine in likeness.tolist()])
        lengths = states.norm(dim=-1) / starts.norm(dim=-1)                      # (2,)
        print("length of each, as a share of the first state's:",
              [round(length, 2) for length in lengths.tolist()])
        (gradient,) = torch.autograd.grad(states.sum(), starts)      # (2, d_hidden)
        print(f"gradient that reaches the first states: {gradient.norm().item():.1g}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Your step is torch's. With fresh gates the two states are the same after thirty tokens: nothing shows any more which
# first state each came from. With 5 added to one bias, about two thirds of their distance is left, and each state
# still points in its original direction. Even the open gate leaks, since both states are shorter than at the start,
# but most of the difference between them has survived. The gradient tells the same story: where a change of the first
# state no longer changes the result, hardly any gradient arrives. It has vanished.
#
# The answers to the questions on paper: (1) $r = 0$ and $z = 0$ forget; the new state is the tanh of the input's part
# plus the bias. (2) $z = 1$. (3) $z$ and $1 - z$ swap places: $r = 0$ and $z = 1$ forget, and $z = 0$ keeps.</details>

# %% [markdown]
# **Set the gates by hand.** A state of one number reads values, and some of the values carry a mark "write". The
# state should take in each marked value and keep it while other values go by. A GRU does this with the weights below,
# and the RNN beside it has the same candidate but no gate. *Guess* what state the RNN ends in. Then change `write`
# and `keep`: what does each change ruin?

# %%
if solved("gru_step"):
    heard = [(0.7, 1), (0.2, 0), (-0.9, 0), (0.4, 0), (-0.3, 1), (0.8, 0), (0.6, 0), (-0.5, 0)]
    keep, write = 8.0, -16.0                         # of z: the bias, the weight of the mark
    W_x = torch.tensor([[[0.0], [0.0]], [[0.0], [write]], [[1.0], [0.0]]])       # (3, 2, 1)
    W_h, b = torch.zeros(3, 1, 1), torch.tensor([[0.0], [keep], [0.0]])
    gated, plain = torch.zeros(1, 1), torch.zeros(1, 1)  # (batch, d_hidden) each
    for value, mark in heard:
        x = torch.tensor([[value, mark]])                # (batch, d_in)
        gated = gru_step(x, gated, W_x, W_h, b)
        plain = torch.tanh(x @ W_x[2] + 1.0 * plain)             # an RNN's step with w_h = 1
        print(f"{'write' if mark else 'read ':>5} {value:>4}: GRU {gated.item():>5.2f}",
              f"  RNN {plain.item():>5.2f}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The GRU holds $\tanh 0.7 = 0.60$, then $\tanh(-0.3) = -0.29$, while the RNN mixes whatever it reads into its state.
# A small `keep` ruins the keeping: with 0 the gate is half open, and half of the state is replaced at each step. A
# `write` that is too weak ruins the writing: with $-8$ half of a marked value gets in, and with 0 next to
# nothing.</details>

# %% [markdown]
# ## 5 · A readout that can select
#
# The lecture's reader has packed letters and digits into one vector when it is asked for one of the digits. How does
# it get the answer out? **First find the fault.** A course-mate puts what was found and the question side by side and
# multiplies the result by a matrix. The next cell asks two questions of two memories. *Test it:* for each memory,
# subtract the answer to the second question from the answer to the first. Change the memories, the questions and the
# seed. What does the difference never depend on? And why can a readout of this kind not answer "which digit stood
# with a?"

# %%
def side_by_side(found, question, A):
    return torch.cat([found, question], dim=-1) @ A          # (d + d_q,) @ (d + d_q, d)


torch.manual_seed(0)
A, memories, asked = torch.randn(6, 4), torch.randn(2, 4), torch.randn(2, 2)
for i, memory in enumerate(memories):
    for j, question in enumerate(asked):
        answered = side_by_side(memory, question, A)                             # (4,)
        print(f"memory {i}, question {j}:", [round(x, 2) for x in answered.tolist()])

# %% [markdown]
# <details><summary>What to see</summary>
#
# The difference never depends on the memory: it is the difference of the questions, times the lower rows of the
# matrix. But the digits that stood with a and with b differ from memory to memory, so the difference of the right
# answers must depend on the memory, too. A matrix alone therefore cannot select. With a tanh layer after it, it can:
# a question can push a number far into the flat part of the tanh, where the memory no longer matters. But a network
# learns this slowly, as [@fig:readout] shows.</details>

# %% [markdown]
# To select, the question must decide how much of each number gets through, as a gate does. The question $q$ gives a
# share between 0 and 1 for each number of what was found: the sigmoid of a linear map of $q$, with weights $W$ and bias
# $b$. Each number is multiplied by its share.
#
# Write this readout for a batch of texts. Each text is asked *several* questions at once.

# %% exercise="gated_readout"
def gated_readout(found: Tensor, questions: Tensor, W: Tensor, b: Tensor) -> Tensor:
    """What was found in each text, with each number let through as far as each question says.

    found: (batch, d)   questions: (batch, n_questions, d_q)   W: (d_q, d)   b: (d,)
    returns (batch, n_questions, d)
    """
    ...  # solution

# %% check="gated_readout"
check("gated_readout", gated_readout)

# %% [markdown]
# **Use it.** This is the lecture's task with one vector of 32 numbers, read out by your gate and by putting two vectors
# side by side. Both readouts then go through a tanh layer. *Guess* the share of right answers with one pair, with two,
# and with four. Guess it for both readouts, and for a player who knows which digits were read but not with which
# letters, and names the most frequent digit. Chance gives 0.1.

# %%
if solved("gated_readout"):
    from attncourse.data.recall import letters_with_digits

    class Reader(nn.Module):
        def __init__(self, gated, d=32):
            super().__init__()
            self.gated = gated
            self.letter, self.digit = nn.Embedding(26, d), nn.Embedding(10, d)
            self.network = nn.GRU(d, d, batch_first=True)
            self.W, self.b = nn.Parameter(torch.randn(d, d) / 6), nn.Parameter(torch.zeros(d))
            self.combine, self.answer = nn.Linear(d if gated else 2 * d, d), nn.Linear(d, 10)

        def forward(self, letters, digits, asked):
            states, _ = self.network(self.letter(letters) + self.digit(digits))  # (batch, n, d)
            last, question = states[:, -1], self.letter(asked)       # (batch, d) each
            if self.gated:
                read = gated_readout(last, question[:, None], self.W, self.b)[:, 0]
            else:
                read = torch.cat([last, question], dim=-1)                       # (batch, 2 d)
            return self.answer(self.combine(read).tanh())                        # (batch, 10)

    for name, gated in {"your gate": True, "side by side": False}.items():
        torch.manual_seed(0)
        reader, draws = Reader(gated), torch.Generator().manual_seed(0)
        optimizer = torch.optim.Adam(reader.parameters(), lr=2e-2)
        for step in range(400):
            letters, digits, asked, answer = letters_with_digits(64, 1 + step % 4, draws)
            loss = nn.functional.cross_entropy(reader(letters, digits, asked), answer)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for pairs in (1, 2, 4):
            letters, digits, asked, answer = letters_with_digits(1000, pairs, draws)
            right = reader(letters, digits, asked).argmax(dim=-1) == answer      # (1000,)
            print(f"{name:>12}, pairs = {pairs}: {right.float().mean().item():.2f}")
    for pairs in (1, 2, 4):
        letters, digits, asked, answer = letters_with_digits(10_000, pairs, draws)
        right = digits.mode(dim=1).values == answer                  # (10000,)
        print(f"the most frequent digit, pairs = {pairs}: {right.float().mean().item():.2f}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# With one pair there is nothing to select, and both readouts are right. With two and four pairs your gate is far ahead.
# The readout side by side is no better than naming the most frequent digit: it has learned what was read, but not to
# select. Its tanh layer could select, and with more steps it begins to, as [@fig:readout] shows. The gate makes
# selecting easy to learn.</details>

# %% [markdown]
# ## 6 · In your own words
#
# **First question.** On a test text of 10,000 characters, model A has a perplexity of 20. Its tokens are pieces of
# words, and the text has 2,500 of them. Model B has a perplexity of 2.2. Its tokens are single characters.
#
# Which of the two models is better, and why must you not compare 20 with 2.2? Show the calculation. (2 points)

# %% [markdown] written="which-is-better" points=2 minutes=6 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.**
#
# 1. (1 point) A perplexity is per token, and the two count different tokens: 2,500 hard guesses against 10,000 easy ones. What can be
#    compared is the probability (or nats, or bits) that each gives to the *whole* text, or that per character.
# 2. (1 point) A: $2500 \cdot \ln 20 \approx 7490$ nats. B: $10000 \cdot \ln 2.2 \approx 7885$ nats. A needs fewer nats for the text and
#    is better. Per character: $20^{1/4} \approx 2.11$ against 2.2. In bits (10,800 against 11,400) is as good. A slip in the arithmetic with
#    the right plan: half a point.
# ### END SOLUTION

# %% [markdown]
# **Second question.** A course-mate trains a recurrent language model. After a few minutes its perplexity on the
# training text is 1.04, and on a test text that it has never seen it is 1.04 as well. "No overfitting," she says, "and
# better than anything published."
#
# **(a)** Why can the test perplexity not be so low, however good the model? **(b)** What has most probably happened?
# **(c)** In the lecture the model had to write. Describe *another* test, of model and loss together, that would have
# shown her the mistake, without looking at the code.
#
# Answer in four to eight sentences. (3 points)

# %% [markdown] written="too-good" points=3 minutes=9 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) Real text is not that predictable: a perplexity of 1.04 means that the next token is guessed nearly every time (with probability
#    $1/1.04 \approx 0.96$, in the geometric mean). In a text that one has not seen, several continuations are possible in most places.
#    Any argument from the entropy of text, or from playing the guessing game oneself, earns the point.
# 2. (b) The target leaks: the model is asked about a token that it has read already. Forgetting to shift is the usual cause; a
#    bidirectional network, or a mask that is missing, are as good. "Overfitting" or "the test text is in the training set" do not
#    earn the point: the first would show as a difference, and of the second she says that it is not so (half a point if it is argued
#    that test and training text overlap).
# 3. (c) Something that changes only what must not be known, and watches: change the last token of a text, and
#    the prediction that is scored against it must stay the same; or feed random tokens, on which no honest model can have a
#    perplexity below the size of the vocabulary, and see it "predict" them. To let the model write is the lecture's test: half a
#    point. "Print the shapes" or "look at the code" do not earn it.
# ### END SOLUTION

# %% [markdown]
# ## Extension: a sentence as one vector
#
# This exercise and the next earn extra credit, and you lose nothing by leaving them out.
#
# A network has read a batch of sentences and left one state for each position. A classifier or a decoder that comes
# next needs one vector, so all states of a sentence must become one. The simplest way is their mean:
#
# $$\bar h = \frac{1}{n} \sum_{t=1}^{n} h_t, \qquad n = \text{the number of words of }\textit{this}\text{ sentence}$$
#
# The sentences have different lengths, and `states` is as wide as the longest sentence. The states after a sentence's
# end are *not* zero: the network read the padding, too, and left states there that are as large as any others. Each
# sentence has at least one word.
#
# (Assignment @getting_ready has a mean with a mask. Here you are given no mask, only the lengths.)

# %% exercise="mean_pool"
def mean_pool(states: Tensor, lengths: Tensor) -> Tensor:
    """The mean of the states of each sentence's words.

    states: (batch, n, d)
    lengths: (batch,), whole numbers from 1 to n: how many words each sentence has
    returns (batch, d)
    """
    ...  # solution

# %% check="mean_pool"
check("mean_pool", mean_pool)

# %% [markdown]
# **Use it.** Is a number from 100 to 999, written in English words, odd? Each word gets a learned vector, your function
# makes one vector of them, and a linear layer decides. The answer lies in the last word. *Guess:* will the classifier
# be right on all numbers that it has not seen? If not, on which numbers is it wrong?

# %%
if solved("mean_pool"):
    from attncourse.data import pad_batch, say

    torch.manual_seed(0)
    numbers = 100 + torch.randperm(900)
    words = [say(int(number), "en").replace("-", " ").split() for number in numbers]
    vocabulary = sorted({word for number in words for word in number})
    tokens, mask = pad_batch([[vocabulary.index(word) for word in number] for number in words])
    lengths, is_odd = mask.sum(dim=1), numbers % 2
    embedding, decide = nn.Embedding(len(vocabulary), 16), nn.Linear(16, 2)
    optimizer = torch.optim.Adam([*embedding.parameters(), *decide.parameters()], lr=2e-2)
    for _ in range(300):
        logits = decide(mean_pool(embedding(tokens[:600]), lengths[:600]))       # (600, 2)
        loss = nn.functional.cross_entropy(logits, is_odd[:600])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    logits = decide(mean_pool(embedding(tokens[600:]), lengths[600:]))           # (300, 2)
    right = logits.argmax(dim=-1) == is_odd[600:]
    print(f"right on {right.float().mean():.0%} of 300 new numbers")
    wrong = numbers[600:][~right]
    for number in wrong[:4].tolist():
        print("wrong on", say(number, "en"))
    apart = (wrong // 100 + wrong) % 2 == 1                  # hundreds odd, or last digit odd
    print(f"of {len(wrong)} wrong ones, {apart.sum()} have one of the two digits odd")

# %% [markdown]
# <details><summary>What to see</summary>
#
# A mean does not know which word was last: 205 and 502 have the same words. This does no harm where the first and the
# last digit are both odd or both even, so all errors occur where one is odd and the other even.</details>

# %% [markdown]
# ## Extension: all states of a batch
#
# Exercise 2 is one step, and is told which texts still have a token. Here you get only the *lengths*, and take the
# texts through all their steps, from $h_0 = 0$. After a text's end comes padding: numbers of any size that mean
# nothing. Return two things: all states, with zeros where a text has ended, and the **last state** of each text, the
# state after *its own* last token. Both are easy to get wrong without any error message.

# %% exercise="rnn_states"
def rnn_states(
    x: Tensor, lengths: Tensor, W_x: Tensor, W_h: Tensor, b: Tensor
) -> tuple[Tensor, Tensor]:
    """All states of a recurrent network over texts of several lengths, and each one's last.

    x: (batch, n, d_in), padded at the end     lengths: (batch,), whole numbers from 1 to n
    W_x: (d_in, d_hidden)   W_h: (d_hidden, d_hidden)   b: (d_hidden,)
    returns states (batch, n, d_hidden), zeros where a text is over;
            last (batch, d_hidden), after each text's last token
    """
    ...  # solution

# %% check="rnn_states"
check("rnn_states", rnn_states)

# %% [markdown]
# **Use it.** torch's network can skip padding, too, if the batch is *packed*. The next cell gives your function its
# weights, and then reads each text alone, without any padding. *Guess:* which of the differences below is not (nearly)
# zero?

# %%
if solved("rnn_states"):
    torch.manual_seed(0)
    theirs = nn.RNN(5, 8, batch_first=True)
    x, lengths = torch.randn(4, 9, 5), torch.tensor([9, 2, 6, 1])
    with torch.no_grad():
        b = theirs.bias_ih_l0 + theirs.bias_hh_l0            # torch keeps two
        states, last = rnn_states(x, lengths, theirs.weight_ih_l0.mT, theirs.weight_hh_l0.mT, b)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
        _, packed_last = theirs(packed)                      # (1, batch, d_hidden)
        alone = torch.stack([theirs(row[:n])[0][-1] for row, n in zip(x, lengths, strict=True)])
        unpacked, _ = theirs(x)                              # reads the padding like text
    for name, other in {"torch's, packed": packed_last[0], "each text alone": alone,
                        "torch's last column": unpacked[:, -1]}.items():
        print(f"{name:>20}: largest difference {(last - other).abs().max().item():.6f}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Packed or alone, torch's last states are yours. The last column of a padded batch holds the states after the
# *padding*, so only the state of the longest text is right. No error message says so.</details>
