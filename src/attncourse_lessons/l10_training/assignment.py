# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @training · Training an encoder–decoder
#
# In this assignment you build the parts around the model of [lecture @training](@training): the loss, the learning
# rate, the optimiser, and one step of training. None of these parts contains attention, but a mistake in any of them
# spoils a translator. Then you put the parts together and train a translator. Four extensions follow, if you want to
# know more: batches by tokens, a step in half precision, what a step costs, and a vocabulary of subwords.
#
# Under each exercise there is a check. Your points come from a check with other numbers and other sizes. The cell
# after the check *uses* what you wrote. This cell waits until the check gives all points, takes seconds, and is not
# graded.
#
# Functions return new tensors: an answer that changes its arguments fails one part of the check. (The parameters of
# `TrainStep` are the exception: they are there to be changed.)
#
# {exercises}
#
# If you are stuck, `hint("label_smoothed_loss", 1)` prints a hint; the later hints of an exercise tell more. Your
# answers are refused if they call the course's own training or metrics, or torch's cross entropy in exercise 1.

# %% locked=true
try:
    from attncourse import check, hint, solved
except ModuleNotFoundError:
    raise ImportError(
        "This notebook needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# %% [markdown]
# ## 1 · Label smoothing: targets that are never quite certain
#
# With label smoothing, the model is not asked to put all probability on the true token $y$. Its target distribution
# $q$ mixes the true token with a uniform distribution over all tokens, which gets a share $\varepsilon$ (`smoothing`).
# In a vocabulary of $V$ tokens,
#
# $$
# q_v = (1 - \varepsilon)\,[v = y] + \frac{\varepsilon}{V} \qquad\qquad
# \text{loss} = -\sum_v q_v \log p_v
# $$
#
# for one token, where $p$ is the softmax of its logits; $[v = y]$ is 1 for $v = y$, otherwise 0. The true token also
# gets its part $\varepsilon / V$, and the id of the padding gets one as well, like any other token. (This is what
# torch does.)
#
# Logits may be large. Then a probability can be too small for float32 although its logarithm is not.
#
# The targets of a batch are filled up with `pad`. A padded position is not a token, so it must have no effect on the
# loss. Average over the real tokens of all sentences together. There is at least one real token.

# %% exercise="label_smoothed_loss"
def label_smoothed_loss(logits: Tensor, target: Tensor, smoothing: float, pad: int) -> Tensor:
    """Cross entropy against smoothed targets, in nats: the mean over the batch's real tokens.

    logits: (batch, n, vocab_size)
    target: (batch, n), whole numbers, `pad` where there is no token
    returns one number, (), through which a gradient can flow
    """
    ...  # solution

# %% check="label_smoothed_loss"
check("label_smoothed_loss", label_smoothed_loss)

# %% [markdown]
# **Use it.** A model sees the same token a thousand times and learns it with your loss. The vocabulary has five
# tokens. *Guess:* which probability does the token get at ε = 0.1?

# %%
if solved("label_smoothed_loss"):
    for smoothing in (0.0, 0.1, 0.3):
        logits, truth = torch.zeros(1, 1, 5, requires_grad=True), torch.tensor([[2]])
        for _ in range(1000):
            (gradient,) = torch.autograd.grad(
                label_smoothed_loss(logits, truth, smoothing, pad=0), logits
            )
            logits = (logits - 2 * gradient).detach().requires_grad_()
        p = logits.softmax(dim=-1)[0, 0, 2]
        q = 1 - smoothing + smoothing / 5
        print(f"smoothing {smoothing}: the true token ends at {p:.4f}, its target is {q:.4f}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# With smoothing, the probability stops at its target, which at ε = 0.1 is 0.9 + 0.1/5 = 0.92. Without smoothing, the
# probability approaches 1 and never reaches it: each further step still lowers the loss a little.</details>

# %% [markdown]
# ## 2 · Warm-up: the learning rate rises before it falls
#
# This is the schedule of "Attention is all you need" ([@vaswani2017, section 5.3]) in words, with `warmup_steps` =
# $w$:
#
# * from step $w$ on, the rate is one over the root of the step, times one over the root of `d_model`;
# * before step $w$, the rate rises in a straight line, which would be 0 at step 0 and meets the falling curve at step
#   $w$.
#
# The slope of the line is for you to find. For `d_model` = 4 and $w$ = 4 the rates are
#
# | step | 1 | 2 | 4 | 16 |
# |---|---|---|---|---|
# | rate | 1/16 | 1/8 | 1/4 | 1/8 |

# %% exercise="warmup"
def warmup(step: int, d_model: int, warmup_steps: int) -> float:
    """The learning rate of this step; the first step is step 1.

    returns a number; a tensor with one element is fine, too
    """
    ...  # solution

# %% check="warmup"
check("warmup", warmup)

# %% [markdown]
# **Use it.** The cell prints the schedule of the paper's base model as a bar chart. Its training took 100,000 steps.
# *Guess:* at which step is the rate highest, and at which step is it down to half of that?

# %%
if solved("warmup"):
    rates = {step: float(warmup(step, 512, 4000)) for step in range(1, 100_001)}
    for step in (1, 500, 1000, 2000, 4000, 8000, 16_000, 50_000, 100_000):
        print(f"step {step:>7,}  rate {rates[step]:.2e}  {'█' * round(60_000 * rates[step])}")
    top = max(rates, key=rates.get)
    half = next(step for step in range(top, 100_001) if rates[step] <= 0.5000001 * rates[top])
    print(f"highest at step {top:,}, {rates[top]:.2e}; half of it at step {half:,}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The rate is highest at the end of the warm-up, at step 4,000. It is down to half of that at step 16,000: because of
# the root, the rate halves when the number of steps is four times as large. At step 100,000 the rate is still a fifth
# of its peak.</details>

# %% [markdown]
# ## 3 · AdamW: the optimiser
#
# Write one update of one parameter θ by **AdamW** ([@loshchilov2019]). The update is given here in words, in the order of the
# lecture's picture. Turn the words into code.
#
# 1. `m` is a moving average of the gradients: β₁ times the old average plus (1 − β₁) times the new gradient. `v` is a
#    moving average of the *squared* gradients, with β₂.
# 2. Both averages began at zero, so in the first steps they are too small. **Bias correction:** divide each average by
#    the total weight that the gradients so far have in it. (If all gradients had been 1, `m` would be just this
#    weight. What is it after $t$ steps?)
# 3. The **ratio**: divide the corrected average of the gradients by the root of the corrected average of the squares.
#    ϵ (`eps`) is added to the root.
# 4. **Decoupled weight decay:** add λθ to the ratio, with θ as it was before the step. The decay enters neither
#    average, and nothing divides it. Only parameters with two axes or more are decayed; a bias or a norm's gain has
#    one axis. (torch decays everything that it is given, so for this rule you hand it two groups of parameters.)
# 5. Subtract η (`lr`) times this sum from θ.
#
# *An example:* the matrix `[[1.0]]` in two steps, with η = 0.01, β₁ = 0.9, β₂ = 0.98, ϵ = 0 and λ = 0.1.
#
# | step | gradient | m | v | parameter |
# |---|---|---|---|---|
# | 1 | 1 | 0.1 | 0.02 | 0.989 |
# | 2 | −0.5 | 0.04 | 0.0246 | 0.98534 |

# %% exercise="adamw_step"
def adamw_step(
    parameter: Tensor,
    gradient: Tensor,
    m: Tensor,
    v: Tensor,
    step: int,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """One update of one parameter by AdamW.

    parameter, gradient, m, v: of one shape, with any number of axes; m and v as the step
    before has returned them
    step: 1 at the first update   betas: β₁ and β₂   weight_decay: λ
    returns the new parameter, m and v: new tensors of the same shape, m and v not corrected
    """
    ...  # solution

# %% check="adamw_step"
check("adamw_step", adamw_step)

# %% [markdown]
# **Use it.** Train the same small network on the same data twice: with your function and with `torch.optim.AdamW` (in
# two groups, for the decay). *Guess:* in which digit will the two losses differ after 300 steps? If they differ, is it
# rounding, or are the two updates not quite the same? Training in float64 gives the answer, because it shrinks only
# the differences that come from rounding.

# %%
if solved("adamw_step"):
    def losses_in(dtype):
        """{step: [loss with your function, loss with torch's]} of one training."""
        def network():
            torch.manual_seed(0)
            return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1)).to(dtype)

        x = torch.randn(256, 2, generator=torch.Generator().manual_seed(1)).to(dtype)
        y = (x[:, :1] * x[:, 1:]).sign()                         # a chessboard of four fields
        mine, theirs = network(), network()
        state = {p: (torch.zeros_like(p), torch.zeros_like(p)) for p in mine.parameters()}
        matrices = [p for p in theirs.parameters() if p.ndim >= 2]
        biases = [p for p in theirs.parameters() if p.ndim < 2]
        groups = [{"params": matrices, "weight_decay": 0.1},
                  {"params": biases, "weight_decay": 0.0}]
        torchs = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.98), eps=1e-9)
        losses = {}
        for step in range(1, 301):
            errors = [F.mse_loss(model(x), y) for model in (mine, theirs)]
            losses[step] = [error.item() for error in errors]
            for model, error in zip((mine, theirs), errors, strict=True):
                model.zero_grad()
                error.backward()
            for p in mine.parameters():
                p.data, *state[p] = adamw_step(
                    p.data, p.grad, *state[p], step, 0.01, (0.9, 0.98), 1e-9, 0.1
                )
            torchs.step()
        return losses

    for dtype in (torch.float32, torch.float64):
        losses = losses_in(dtype)
        for step in (1, 10, 100, 300):
            ours, torchs_loss = losses[step]
            print(f"{dtype}, step {step:>3}: your loss {ours:.6f}, torch's {torchs_loss:.6f}, "
                  f"apart by {abs(ours - torchs_loss):.0e}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# On our machine, all six printed digits agree in float32 up to step 100, and at step 300 the losses differ in the
# fourth digit. In float64 both losses are 0.108267 at step 300, and differ by less than 10⁻¹². So the difference in
# float32 was rounding: the two functions round in different places, and over 300 steps the difference grew. A mistake
# would show in both formats. Decay of the biases, for instance, shows at step 10. (A misplaced ϵ would not show here,
# because ϵ is too small. The check finds the mistake with a larger ϵ.)</details>

# %% [markdown]
# ## 4 · One step of training: accumulation, clipping, modes
#
# Below are a very small model with dropout and its optimiser. Write `forward`, which takes one step of training:
#
# 1. The step's batch comes in several *micro-batches*, because the whole batch would not fit into memory (or because
#    each micro-batch is on a GPU of its own). They have different numbers of tokens. Compute the gradient of the
#    **mean loss over all tokens of all micro-batches**: every token counts the same.
# 2. If the gradient of all parameters together is longer than `clip`, scale it down to that length.
# 3. Take one step of `self.optimizer` with the rate `lr`.
# 4. Then measure the mean loss on the held-out tokens.
#
# Dropout belongs to training alone. `forward` is called many times on the same object, and only the parameters may
# carry anything from one step to the next. No micro-batch is empty. Here a "token" is a row of `x` with its target.
# The model gives log-probabilities, so the loss is `F.nll_loss`. The optimiser is in the next cell. Use it like an
# optimiser of torch, except that its `step` takes the rate.

# %% locked=true
class GradientDescent:
    """Plain gradient descent."""

    def __init__(self, parameters):
        self.parameters = list(parameters)

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self, lr: float):
        for parameter in self.parameters:
            parameter -= lr * parameter.grad

# %% exercise="TrainStep"
class TrainStep(nn.Module):
    """A small classifier with dropout, its optimiser, and one step of training."""

    def __init__(self, d: int, n_classes: int, dropout: float):
        super().__init__()
        self.model = nn.Sequential(
            nn.Linear(d, 8),
            nn.Tanh(),
            nn.Dropout(dropout),
            nn.Linear(8, n_classes),
            nn.LogSoftmax(dim=-1),                               # gives log-probabilities
        )
        self.optimizer = GradientDescent(self.model.parameters())

    def forward(self, micro_batches, held_out, lr: float, clip: float):
        """Take one step; then evaluate.

        micro_batches: a list of pairs (x, target), x (n, d) and target (n,), with an n of their
        own
        held_out: one such pair
        returns the step's mean loss (before the step, as computed in training), the norm of its
        gradient before clipping, and the mean loss on held_out after the step: three numbers,
        as tensors or plain
        """
        ...  # solution

# %% check="TrainStep"
check("TrainStep", TrainStep)

# %% [markdown]
# **Use it.** Train the classifier to tell the inside of a circle from its outside, once with each batch in one piece,
# and once with each batch cut into micro-batches of 10, 50 and 196 points. *Guess:* how will the two columns of
# held-out losses differ? And what does the cut cost: will a step take more FLOPs, more operations, or both?

# %%
if solved("TrainStep"):
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import FlopCounterMode

    class CountOperations(TorchDispatchMode):                     # as in the lecture
        n = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.n += not function.is_view
            return function(*args, **(kwargs or {}))

    x = 2 * torch.randn(512, 2, generator=torch.Generator().manual_seed(2))
    inside = (x.norm(dim=1) < 2).long()
    held_out = (x[256:], inside[256:])
    sizes = [10, 50, 196]
    pieces = list(zip(x[:256].split(sizes), inside[:256].split(sizes), strict=True))
    whole = [(x[:256], inside[:256])]
    losses = []
    for micro_batches in (whole, pieces):
        torch.manual_seed(0)
        trainer = TrainStep(2, 2, 0.0)
        losses.append(
            [float(trainer(micro_batches, held_out, 1.0, 1.0)[2]) for _ in range(200)]
        )
    print("step   in one piece   in three")
    for step in (1, 10, 50, 200):
        print(f"{step:>4}   {losses[0][step - 1]:.6f}       {losses[1][step - 1]:.6f}")
    for name, micro_batches in (("in one piece", whole), ("in three", pieces)):
        trainer = TrainStep(2, 2, 0.0)
        with FlopCounterMode(display=False) as flops, CountOperations() as operations:
            trainer(micro_batches, held_out, 1.0, 1.0)
        print(f"a step {name}: {flops.get_total_flops():,} FLOPs, {operations.n} operations")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The columns differ by rounding alone, in the last digit if at all. It must not matter how a batch is cut into
# micro-batches, and with your step it does not.
#
# With the course's solution, a step takes 57,344 FLOPs either way, because each point is computed once. But the step in
# three calls 81 operations instead of 39, so on a GPU that waits for launches it would take longer. What it saves is
# memory: it keeps the activations of at most 196 points at a time, instead of 256.</details>

# %% [markdown]
# ## 5 · Capstone: learn a language in seconds
#
# Now train an encoder–decoder yourself. The check invents a language for lists of one or two numbers below 1000: it
# samples a vocabulary and a grammar. (Is 42 "forty-two" or "two-and-forty"? Is the list said in reverse order?) The
# check gives your function 1,500 pairs of sentences, as token ids, and 200 sources that are not among them. Your
# function trains a model on the pairs and returns the translations of the 200 sources.
#
# The language is unknown until the check runs, and the check that decides your points invents another one. So all that
# you can prepare is a good training run.
#
# * A source consists of plain number words, with ids from 3 to 32. A target has ids from 3 to 39, which mean something
#   else. 0 is `<pad>`, 1 is `<bos>`, 2 is `<eos>`; none of the three occurs in the pairs or the sources. No sentence
#   has more than 11 tokens.
# * The next cell holds the model and two functions: `rectangle` makes a tensor of rows of unequal length, and
#   `translate` writes a trained model's translations, each up to `<eos>` or, if that never comes, 20 tokens long. Only
#   the training is left to you. Use all three as they are, or write your own from torch's layers (the course's
#   Transformer is not available when this is graded). Exercises 1 to 4 will help; torch's own losses and optimisers are
#   allowed here.
# * **The time.** Your function is called once by the check in your notebook, and once by the grader, on another
#   language. Each of these calls may take 30 seconds on one processor thread; after that, the check is stopped and
#   earns nothing. The grader may be slower than your machine, so aim for less than 12 seconds. One training of 350
#   steps with batches of 32 pairs takes about 10, and is enough.
# * **The points.** There are eight: one if each source has a translation without `<pad>`, `<bos>` and `<eos>`; one if
#   nine in ten translations begin with the right word; and two each if a third, two thirds and four fifths of the 200
#   translations are right to the last token. The check shows the share.
# * **The learning rate.** Your function takes its highest rate and its number of steps as arguments. The check calls it
#   without them, so it uses your defaults. The rate has none yet: choose one with the cell "Your sweep", and put it in
#   place of `None` before you run the check. The sweep runs three trainings of 120 steps and takes about as long as one
#   training of 350 steps. With 120 steps the rate is decisive, so the sweep shows clearly which rates are far off. With
#   350 steps it matters less (in our trials, rates a factor of ten apart earned all points), so the sweep's best rate is
#   a good first guess there.
# * The grader also runs your other cells. Each may take 30 seconds, and all of them together 180, so remove any
#   longer experiments from the notebook.
#
# <details><summary>What the check cannot see</summary>A program that works out the grammar by rules and trains nothing
# would pass the check, but it would miss the point of the exercise. Your teacher can show the class a leaderboard of the
# shares, without names.</details>

# %% locked=true
class Translator(nn.Module):
    """One block of encoder, one of decoder, of torch's layers, with the norms in front."""

    def __init__(self, vocab_size=40, d_model=48, max_length=24):
        super().__init__()
        self.source_tokens = nn.Embedding(vocab_size, d_model)
        self.target_tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        options = dict(d_model=d_model, nhead=4, dim_feedforward=2 * d_model, dropout=0.0)
        self.encoder = nn.TransformerEncoderLayer(**options, batch_first=True, norm_first=True)
        self.decoder = nn.TransformerDecoderLayer(**options, batch_first=True, norm_first=True)
        self.norms = nn.ModuleList([nn.LayerNorm(d_model), nn.LayerNorm(d_model)])
        self.output = nn.Linear(d_model, vocab_size)

    def forward(self, source, target):
        """The logits of each next token, (batch, n_target, vocab_size).

        source: (batch, n_source), filled up with 0   target: (batch, n_target), <bos> in front
        """
        n_source, n_target = source.shape[1], target.shape[1]
        padding = source == 0
        x = self.source_tokens(source) + self.positions.weight[:n_source]
        memory = self.norms[0](self.encoder(x, src_key_padding_mask=padding))
        future = torch.ones(n_target, n_target, dtype=torch.bool).triu(1)
        y = self.target_tokens(target) + self.positions.weight[:n_target]
        y = self.decoder(y, memory, tgt_mask=future, memory_key_padding_mask=padding)
        return self.output(self.norms[1](y))


def rectangle(rows: list[list[int]]) -> Tensor:
    """The rows of token ids as one tensor, (number of rows, longest), filled up with 0."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


@torch.no_grad()
def translate(model: nn.Module, sources: list[list[int]]) -> list[list[int]]:
    """The likeliest next token, again and again, up to <eos>: for each source a list of ids."""
    source, written = rectangle(sources), torch.ones(len(sources), 1).long()
    for _ in range(20):
        best = model(source, written)[:, -1].argmax(dim=-1)
        written = torch.cat([written, best[:, None]], dim=1)
    return [row[: row.index(2)] if 2 in row else row for row in written[:, 1:].tolist()]

# %% exercise="train_translator"
def train_translator(
    pairs: list[list[list[int]]],
    sources: list[list[int]],
    rate: float | None = None,
    steps: int = 350,
) -> list[list[int]]:
    """Train a new `Translator` on `pairs` and translate `sources`.

    pairs: [source, target] each, lists of token ids without <bos> and <eos>
    sources: lists of token ids
    rate: the highest learning rate; None stands for the one that you have chosen
    steps: how many steps of training; the check uses both defaults, which you may change
    returns a translation for each source, in their order: lists of token ids without <pad>,
    <bos> and <eos>
    """
    ...  # solution

# %%
# Your sweep: the rate with the most held-out pairs right is a first guess for your default.
from .digits import digit_pairs

pairs = digit_pairs(train=1500, seed=1).training          # English number words, and digits
kept, (sources, targets) = pairs[200:], zip(*pairs[:200], strict=True)
try:
    for rate in (0.003, 0.01, 0.03):
        outputs = train_translator(kept, list(sources), rate, steps=120)
        n = sum(ids == target for ids, target in zip(outputs, targets, strict=True))
        print(f"highest rate {rate}: {n} of {len(targets)} held-out pairs are right")
except NotImplementedError:
    print("write train_translator first")

# %% check="train_translator"
check("train_translator", train_translator)

# %% [markdown]
# **Use it.** Teach your function another language: English number words in, digits out. "five hundred four" becomes
# 5 0 4, although no word of the source says "zero". The cell trains with your learning rate, with a third of it and
# with three times as much. *Guess:* is your rate clearly the best of the three? Which mistake is most frequent: a
# missing zero, another wrong digit, or an output that is too short? The cell takes three times as long as the check; the
# grader skips it, so its time does not count.

# %%
if solved("train_translator"):
    from .digits import digit_pairs, print_mistakes, rates_times

    data, outputs = digit_pairs(train=1500, unseen=200), {}
    sources, targets = zip(*data.unseen, strict=True)
    for name, factor in {"a third of": 1 / 3, "exactly": 1.0, "3 times": 3.0}.items():
        with rates_times(factor):                     # of torch's optimisers
            outputs[name] = train_translator(data.training, list(sources))
        n = sum(ids == target for ids, target in zip(outputs[name], targets, strict=True))
        print(f"{name} your rate: {n} of {len(targets)} right")
    if outputs["exactly"] == outputs["3 times"]:
        print("The rate changed nothing: this cell scales those of torch's optimisers.")
    print_mistakes(data, outputs["exactly"])

# %% [markdown]
# <details><summary>What to see</summary>
#
# With the course's solution, 170 of the 200 outputs are right at a third of its rate, 179 at its rate, and 152 at
# three times its rate (a few more or fewer on another machine). The standard error of one such count is about 5, so
# 200 sentences can hardly tell 170 and 179 apart, whereas 152 are too few to be explained by the choice of sentences.
# But with one training per rate, we cannot say whether another seed would give the same result. If another rate is clearly
# better for you, put it into your function and run the check again.
#
# How much the rate matters depends on the length of the training. The table shows the solution on three invented
# languages (`benchmarks/capstone_rates.py`): the median number of sentences that are right, out of 200.
#
# | highest rate | 0.001 | 0.003 | 0.01 | 0.03 |
# |---|---|---|---|---|
# | 120 steps | 0 | 23 | 132 | 46 |
# | 350 steps | 114 | 176 | 180 | 176 |
#
# With 120 steps, one rate stands out (did your sweep find it, too?). With 350 steps, the three higher rates all reach
# four fifths in each of the languages.
#
# The model does learn the zeros that no word says: 21 of 26 sentences with such a zero are right. Of the 21 wrong
# outputs, 17 are too short: the model ends before the last digit.</details>

# %% [markdown]
# ## 6 · Read a log like an engineer
#
# A friend trains a translator on a T4 and sends you the log. (It is made up for this question.) She had written the
# script herself. Her command was
# `python my_train.py --precision fp16 --lr 2e-3 --warmup 400 --batch-tokens 8192 --save-every 1000`. A seed fixes the
# order of the batches.
#
# | step | rate | gradient norm, before clipping at 1 | training loss | tokens/s | |
# |---|---|---|---|---|---|
# | 100 | 0.0005 | 1.9 | 6.81 | 21,400 | |
# | 300 | 0.0015 | 2.4 | 5.20 | 21,600 | |
# | 400 | 0.0020 | 9.7 | 5.02 | 21,500 | |
# | 430 | 0.0019 | 310 | 6.4 | 21,500 | |
# | 440 | 0.0019 | nan | nan | 21,500 | stopped; restarted with `--lr 5e-4` |
# | 1,000 | 0.0003 | 1.1 | 3.91 | 21,400 | checkpoint saved |
# | 2,000 | 0.0002 | 0.9 | 3.10 | 10,600 | from step 1,500 on she also prints `loss.item()` and samples a translation at every step |
# | 2,000 | 0.0002 | 0.9 | 3.17 | 21,300 | the same without the printing, resumed from the checkpoint of step 1,000 |
#
# Three things went wrong. The loss became NaN soon after the warm-up. The tokens per second halved. The resumed run
# does not reach the same loss as the uninterrupted one. For **each of the three** say
#
# * (a) the likely cause, and the entry of the log that points to it;
# * (b) another possible cause, and a measurement or experiment of a few minutes that would tell the two apart;
# * (c) the remedy.
#
# Then (d): why would it have been a mistake to answer the first problem with "clip at 0.1"? A sentence or two for each.
# (5 points: half a point for each (a), (b) and (c), three times; half a point for (d). A cause without its entry, or
# an experiment without the other cause, earns nothing.)

# %% [markdown] written="read-a-log" points=5 minutes=25 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** Half a point for each of (a), (b) and (c), three times, and half a point for (d).
#
# * (a) earns it with a cause that the log supports *and* its entry. A cause without its entry earns nothing.
# * (b) earns it with a named other cause *and* an experiment whose outcomes tell the two causes apart. One without the
#   other earns nothing.
# * (c) earns it with a remedy for the cause that (a) names; "train again" is not a remedy.
# * (d) earns it with either of the two reasons in 4.
#
# 1. *NaN after warm-up.* The highest rate is too high: the norm grows from 2 to 10 to 310 at the peak of the rate,
#    **before** there is a NaN, and with a quarter of the rate the run goes through. Other causes: a single bad batch,
#    or an overflow in float16 without divergence. Experiments: run the same hundred steps in float32 (if the run
#    diverges again, the rate is the cause; if not, the precision is), or skip the batches 420–440, or run the same
#    order at half the rate. Remedy: a lower rate or a longer warm-up; if the precision was the cause, a loss scale
#    that skips steps. (An answer that names the precision as the cause and tests it properly gets the points: a
#    growing norm speaks for the rate, but the log does not decide the question.)
# 2. *Half the tokens per second.* The cause is the printing and the sampled translation: they begin at step 1,500, and
#    without them the speed is back. The translation is the more expensive of the two, because it is decoded token by
#    token. `loss.item()` makes the CPU wait for the GPU at every step, which costs much only where the CPU runs ahead
#    of the GPU. Other causes: a hot or shared GPU, a slower loader, longer sentences. Experiments: take
#    out one of the two; time a step with `synchronize()` around it; look at the profiler. Remedy: do both every few
#    hundred steps, and add up losses on the device.
# 3. *The resumed run differs.* The checkpoint lacks something: the optimiser's moments and step, the schedule's step,
#    the loss scale, the state of the random numbers (dropout), or the place in the order of the batches. Or the
#    translations that the first run sampled from step 1,500 on used up random numbers of dropout. The rate in both
#    rows is the same, so the schedule was kept. As far as one can tell, 0.07 is more than the order of operations
#    explains after so few steps. (Another cause: operations on a GPU that are not deterministic. Then two
#    uninterrupted runs differ as well.) Experiments: save, resume at once, and compare the *first* step's loss and
#    norm with those of the uninterrupted run, in evaluation mode to leave out dropout; or run twice without resuming;
#    or resume with the sampling on. Remedy: save all of this state (sampling gets a generator of its own), and test
#    that resuming gives the same numbers.
# 4. *Why not clip at 0.1?* Clipping treats the symptom and not the cause. In AdamW, a gradient that is scaled by a
#    constant gives nearly the same step, because $\hat m / \sqrt{\hat v}$ does not change, so clipping harder hardly
#    shortens the steps. And NaN cannot be clipped. (Either reason.)
# ### END SOLUTION

# %% [markdown]
# ## Extension: batches by tokens
#
# The four extensions from here on give extra credit; you lose nothing by leaving them out.
#
# A batch is a rectangle: it has a row for each sentence, and as many columns as the longest sentence has tokens. The
# whole rectangle, with its padding, has to fit into memory. So divide the sentences like this:
#
# * Go from the shortest sentence to the longest (sentences of the same length in the order in which they were given).
# * Put as many sentences into a batch as fit into `batch_tokens`, counted as rows × longest, before you begin the next
#   batch.
# * A sentence that is longer than `batch_tokens` is a batch of its own.
#
# (The order in which the batches are used is left to the training loop, which shuffles them.)

# %% exercise="batch_by_tokens"
def batch_by_tokens(lengths: list[int], batch_tokens: int) -> list[list[int]]:
    """Divide sentences into batches of similar length.

    lengths: how many tokens each sentence has
    batch_tokens: how large a batch may be at most, with its padding
    returns a list of batches; a batch is a list of indices into `lengths`, and each index
    comes once
    """
    ...  # solution

# %% check="batch_by_tokens"
check("batch_by_tokens", batch_by_tokens)

# %% [markdown]
# **Use it.** The data are two thousand lists of number words, cut into letters. *Guess:* what share of your batches is
# padding? And what share is it if the sentences are put into the same number of batches in the order in which they
# come?

# %%
if solved("batch_by_tokens"):
    from attncourse.data import number_words

    lengths = [len(pair.source) for pair in number_words("de", "en", train=2000, test=1).train]
    mine = batch_by_tokens(lengths, 4096)
    n = math.ceil(len(lengths) / len(mine))
    as_they_come = [list(range(i, min(i + n, 2000))) for i in range(0, 2000, n)]
    for name, batches in (("by tokens", mine), ("as they come", as_they_come)):
        room = [len(batch) * max(lengths[i] for i in batch) for batch in batches]
        empty = 1 - sum(lengths) / sum(room)
        print(f"{name:>12}: {len(batches)} batches, the largest {max(room):,}, "
              f"{empty:.0%} padding")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Your batches are 5 % padding, the others 64 %. Although there are just as many batches, the largest rectangle of the
# others has 13,797 places instead of 4,096. The largest rectangle decides how much memory the training
# needs.</details>

# %% [markdown]
# ## Extension: loss scaling, one step in half precision
#
# A GPU that lacks bfloat16 computes in float16, whose smallest positive number is about 6 · 10⁻⁸. Gradients below half
# of that become 0. So the *loss* is multiplied by a **loss scale** before the backward pass. All gradients on the way
# are then larger by this factor, and before the step they are divided by it ([@micikevicius2018]). If the scale is too
# large, something overflows to ∞, and the step is skipped. Here is one step of training with a scale that adjusts
# itself:
#
# 1. The weights are kept in float32. The loss is computed with a float16 copy of them, `loss_of(copy)`, and comes back
#    in float32, as under autocast.
# 2. Get the gradient of `scale` × loss with respect to the copy. Bring it back to its own size, in float32.
# 3. If the gradient holds ∞ or NaN anywhere, the weights stay as they are, the scale is halved, and the count of good
#    steps starts again from 0.
# 4. Otherwise take one step of plain gradient descent on the float32 weights, and count one more good step. When
#    `growth_interval` good steps have come in a row, the scale is doubled and the count starts again from 0.

# %% exercise="scaled_step"
def scaled_step(
    weights: Tensor,
    loss_of,
    scale: float,
    good_steps: int,
    growth_interval: int,
    lr: float,
):
    """One step of gradient descent in half precision.

    weights: (n,), float32
    loss_of: takes a copy of them, (n,) in float16, and returns the loss, () in float32
    good_steps: how many steps in a row were good before this one, less than `growth_interval`
    returns the new weights, (n,) in float32, and the scale and the number of good steps for
    the next step: two numbers
    """
    ...  # solution

# %% check="scaled_step"
check("scaled_step", scaled_step)

# %% [markdown]
# **Use it.** The loss has gradients of about 10⁻⁹, and at first the scale is far too large. Watch how the scale
# adjusts. *Guess:* what is left of the gradient without a scale?

# %%
if solved("scaled_step"):
    target = torch.tensor([0.5, -0.25, 2.0])

    def small_loss(copy):
        return 1e-9 * (copy.float() - target).square().sum()

    weights, scale, good = torch.zeros(3), 2.0**48, 0
    print("step   scale   loss")
    for step in range(1, 41):
        before = scale
        weights, scale, good = scaled_step(weights, small_loss, scale, good, 20, lr=1e8)
        if step <= 6 or step % 10 == 0:
            skipped = "   skipped: overflow" if scale < before else ""
            loss = small_loss(weights)
            print(f"{step:>4}   2^{math.log2(before):.0f}    {loss:.2e}{skipped}")
    copy = torch.zeros(3).half().requires_grad_()
    small_loss(copy).backward()
    print("the gradient without a scale:", copy.grad.tolist())

# %% [markdown]
# <details><summary>What to see</summary>
#
# Without a scale, nothing is left of the gradient: it is all zeros. With your step, the first five steps overflow, and
# each halves the scale. The sixth step is the first that moves the weights. After twenty good steps the scale is
# doubled once, and the loss goes on falling.</details>

# %% [markdown]
# ## Extension: what a step costs in memory and FLOPs
#
# Count, in whole numbers, what it takes to train the encoder–decoder of lecture @training.
#
# **Memory.** For each of the N parameters there is a weight, a gradient, the two moments of AdamW, and perhaps a master
# copy of the weight in a higher precision. `bytes_each` says how many bytes *one* number of each kind takes. (Activations
# are left out.)
#
# **FLOPs.** A multiplication and an addition count as one each, so the product of $(n, a)$ and $(a, b)$ takes $2nab$.
# Training takes three times the FLOPs of the forward pass. There are two ways to count a step over `batch` pairs of
# `n_source` and `n_target` tokens:
#
# * *by the rule*: six FLOPs for each parameter that a token meets. A token of the source or of the target meets only
#   one of the two stacks, which is half of the N parameters;
# * *exactly*, product by product. Encoder and decoder have `n_layers` blocks each. An attention layer projects to
#   queries, keys and values, all $d_\text{model}$ wide, and projects the average once more (`projections`). It also
#   multiplies queries with keys, and weights with values; count the whole square, even where a mask forbids half of it
#   (`scores`). The feed-forward network has two matrices. The decoder's output makes `vocab_size` logits for each
#   token of the target. Padding counts like real tokens. Everything else (biases, norms, softmax, looking up
#   embeddings) counts as nothing.

# %% exercise="memory_and_flops"
def memory_and_flops(
    n_parameters: int,
    bytes_each: dict[str, int],
    d_model: int,
    d_ff: int,
    n_layers: int,
    vocab_size: int,
    batch: int,
    n_source: int,
    n_target: int,
) -> tuple[int, int, int, int, int, int]:
    """What one step of training an encoder–decoder takes.

    n_parameters: N, an even number
    bytes_each: has "weights", "gradients", "moments" and "master" (0: no such copy)
    returns six whole numbers, of any type: the bytes of memory; the FLOPs of the step by
    the rule; and, exact, its FLOPs in all the projections, in all the scores and averages,
    in the feed-forward networks, and in the output
    """
    ...  # solution

# %% check="memory_and_flops"
check("memory_and_flops", memory_and_flops)

# %% [markdown]
# **Use it.** The big model of "Attention is all you need" has about 210 million parameters. Does its state fit on each
# GPU, and how long would a step of 25,000 tokens on each side take at 40 % of what the data sheet promises? (These are
# predictions from data sheets: nothing here was measured on a GPU.) Then torch's own counter counts a step of a small
# model. Does it agree with your count? (torch is told to use its plain attention, because on a CPU the counter cannot
# look into the fused one.)

# %%
if solved("memory_and_flops"):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    from attncourse.training.hardware import CHIPS
    from attncourse.transformer import EncoderDecoder, TransformerConfig

    mixes = {
        "float32": (4, 4, 4, 0),
        "16 bits, float32 master": (2, 2, 4, 4),
        "16 bits alone": (2, 2, 2, 0),
    }
    kinds = ("weights", "gradients", "moments", "master")
    big = dict(d_model=1024, d_ff=4096, n_layers=6, vocab_size=37_000)
    tokens = dict(batch=1000, n_source=25, n_target=25)
    for name, mix in mixes.items():
        bytes_each = dict(zip(kinds, mix, strict=True))
        memory, rule, *exact = memory_and_flops(210_000_000, bytes_each, **big, **tokens)
        print(f"{name:>24}: {memory / 1e9:.2f} GB without activations")
    print(f"FLOPs of a step: {sum(exact):.3g} exactly, {rule:.3g} by the rule")
    for name, chip in CHIPS.items():
        kind = "bf16" if "bf16" in chip.flops else "fp16"
        print(f"{name:>24}: {chip.memory / 1e9:.0f} GB of memory; "
              f"{sum(exact) / (0.4 * chip.flops[kind]):.2f} s per step in {kind}")

    small = dict(d_model=32, d_ff=64, n_layers=2, vocab_size=50)
    torch.manual_seed(0)
    model = EncoderDecoder(TransformerConfig(n_heads=4, **small))
    source, lengths = torch.ones(3, 7).long(), torch.full((3,), 7)
    target = torch.ones(3, 9).long()
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(source, lengths, target).sum().backward()
    _, _, *exact = memory_and_flops(
        2, dict.fromkeys(kinds, 0), batch=3, n_source=7, n_target=9, **small
    )
    print(f"a step of a small model: torch counts {counter.get_total_flops():,}, "
          f"you {sum(exact):,}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The master copy costs as much as the 16-bit formats save: 3.36 GB either way. The state fits on each of the GPUs. The
# rule is 2 % below the exact count here. torch and you count the same number, to the last FLOP.</details>

# %% [markdown]
# ## Extension: grow a vocabulary
#
# Here byte-pair encoding starts from letters instead of bytes. It counts all pairs of neighbours in the training
# words, merges the most frequent pair into one piece wherever it occurs, counts again, and so on.
#
# * A word that occurs ten times counts ten times. No pair crosses the end of a word.
# * Among equally frequent pairs, take the alphabetically *first*, as Python compares the tuples of pieces.
# * A merge works through a word from the left.
#
# The merges, in their order, are what is learned. A new word is cut up by applying them in the same order. Learn from
# the words of `train`, and cut up the words of `test`.

# %% exercise="byte_pairs"
def byte_pairs(train: list[str], test: list[str], n_merges: int) -> list[list[str]]:
    """Learn `n_merges` merges and cut the words of `test` into pieces with them.

    returns the pieces of each test word; joined, they are the word. There are always enough
    pairs to merge.
    """
    ...  # solution

# %% check="byte_pairs"
check("byte_pairs", byte_pairs)

# %% [markdown]
# **Use it.** Your function learns forty merges from two hundred German numbers. *Guess:* do the cuts fall where a
# German speaker would put them, as in *drei·hundert·ein·und·zwanzig*?

# %%
if solved("byte_pairs"):
    from attncourse.data import number_words

    pairs = number_words("de", "en", train=200, test=8, max_items=1, dates=0)
    words, unseen = [p.source for p in pairs.train], [p.source for p in pairs.test]
    for pieces in byte_pairs(words, unseen, 40):
        print(" · ".join(pieces))

# %% [markdown]
# <details><summary>What to see</summary>
#
# Frequent parts such as *hundert*, *und* and *sieben* come out whole, and many cuts fall where a German speaker would
# put them. Others do not: *zw·anzig*, and *vier·z·e·h·n*, which forty merges do not reach. The counts reflect
# frequency, not grammar.</details>
