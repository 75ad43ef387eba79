"""What a professor would ask of attention between two sequences: each answer is computed by running it."""

import torch

from attncourse.attention import attend
from lessonkit.authoring.questions.question import ask


def which_axis(lots):
    n, m = lots.sample(range(3, 12), 2)
    weights = attend(torch.randn(n, 4), torch.randn(m, 4), torch.randn(m, 4))[1]
    rows, columns = (bool(torch.allclose(weights.sum(axis), torch.ones(()), atol=1e-5)) for axis in (1, 0))
    return ask(
        f"A decoder writes {n} tokens, the source has {m}. The weights are a table ({n}, {m}), a row for each target token. "
        "What sums to one?",
        ("every row", rows and not columns, "Each target token distributes a total weight of one over the source: softmax along the last axis."),
        ("every column", columns and not rows, "Then each source token would distribute its weight over the targets, and some target token could get nothing."),
        ("rows and columns", rows and columns, "A source token may be attended to by many target tokens, or by none."),
        ("the whole table", bool(torch.allclose(weights.sum(), torch.ones(()))), "Then the target tokens would compete with each other."),
    )  # fmt: skip


def context_shape(lots):
    batch, m, d_enc, d_dec = lots.sample(range(2, 40), 4)
    states = torch.zeros(batch, m, d_enc)
    context = (torch.full((batch, 1, m), 1 / m) @ states).squeeze(1)
    seen = tuple(context.shape)
    return ask(
        f"Encoder hidden states: ({batch}, {m}, {d_enc}); decoder state: ({batch}, {d_dec}). "
        "What is the shape of the context vector at one step, additive attention?",
        *((str(shape), shape == seen, why) for shape, why in {
            (batch, d_enc): "An average of encoder states is as wide as they are; the source's axis is summed over.",
            (batch, d_dec): "The decoder's state asks. What comes back are averages of *encoder* states.",
            (batch, m): "That is the shape of the weights.",
            (batch, m, d_enc): "The sum over the source tokens is missing.",
        }.items()),
    )  # fmt: skip


def number_of_scores(lots):
    n, m = lots.sample([5, 7, 8, 9, 11, 12], 2)
    seen = attend(torch.zeros(n, 2), torch.zeros(m, 2), torch.zeros(m, 2))[1].numel()
    return ask(
        f"A source of {m} tokens is translated into {n} tokens. How many attention scores are computed?",
        *((str(value), value == seen, why) for value, why in {
            n * m: "Every decoder step scores every encoder state once.",
            n + m: "That is what an encoder–decoder without attention costs in steps.",
            m: "That is one step's.",
            (n + m) ** 2: "That is self-attention over both sequences joined.",
        }.items()),
    )  # fmt: skip


def mask_after_softmax(lots):
    real = lots.randint(2, 4)
    scores = torch.zeros(6)
    keep = torch.arange(6) < real
    before = scores.masked_fill(~keep, -torch.inf).softmax(0)
    after = scores.softmax(0) * keep
    values = {
        f"before: 1; after: {real}/6": (1, real / 6),
        f"before: {real}/6; after: 1": (real / 6, 1),
        "before: 1; after: 1": (1, 1),
        f"before: {real}/6; after: {real}/6": (real / 6, real / 6),
    }
    seen = torch.stack([before.sum(), after.sum()])
    whys = (
        "−∞ before the softmax takes padding out of the sum. Zeros after it leave the sum as it was: weight is lost.",
        "Softmax distributes a total weight of one over what it is given: the mask must come first.",
        "After the softmax the padding's weight is thrown away, and nothing gives it to the others.",
        "Before the softmax, −∞ gives exactly zero, and the real tokens get all of the weight.",
    )
    return ask(
        f"Six equal scores, of which {real} are of real tokens and the rest of padding. What do the weights sum to if "
        "the mask comes before the softmax (scores of −∞), and what if it comes after (weights of 0)?",
        *((text, torch.allclose(seen, torch.tensor(pair, dtype=torch.float32)), why)
          for (text, pair), why in zip(values.items(), whys, strict=True)),
    )  # fmt: skip


def teacher_forcing(lots):
    target = lots.sample(["we", "see", "three", "old", "trees"], 4)
    wrong = "cats"
    step = lots.randint(2, 4)
    fed = ["<bos>", *target][step - 1]
    written = [*target[: step - 2], wrong][-1]
    return ask(
        f"The target is “{' '.join(target)}”. In training with **teacher forcing** the decoder's most likely token at step "
        f"{step - 1} was “{wrong}”. Which token does it read at step {step}?",
        (f"“{target[step - 2]}”", target[step - 2] == fed, "The true token before, whatever the model would have written."),
        (f"“{wrong}”", written == fed, "That is decoding with its own output: what it meets in use, and not in training."),
        (f"“{target[step - 1]}”", target[step - 1] == fed, "That is what it has to predict at this step: a target leak."),
        ("“<bos>”", fed == "<bos>", "That is what it reads at the first step."),
    )  # fmt: skip


def path_through_attention(lots):
    m = lots.choice([20, 30, 50])
    states = torch.zeros(m, 3, requires_grad=True)
    gradient = torch.autograd.grad(attend(torch.zeros(1, 3), states, states)[0].sum(), states)[0]
    reached = bool((gradient.abs().sum(1) > 0).all())
    return ask(
        f"The source has {m} tokens. Through how many *recurrent* steps must the gradient go from a decoder step's context "
        "vector to the encoder's hidden state of the first token?",
        ("0", reached, "The context vector is a weighted sum of all states: each is reached directly."),
        ("1", False, "Between the sum and a state stands no recurrent step."),
        (f"{m - 1}", not reached, "That is the way through the encoder's chain, the only one without attention."),
        (f"{m // 2}", False, "The way is equally short to every state: none is nearer."),
    )  # fmt: skip
