"""fit: A training loop: a linear model, an optimiser, and losses of the right shape."""

import torch
from torch import nn

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.judge import explain_worst
from lessonkit.exercises.observe import apart


def solution(features, targets, steps, lr):
    model = nn.Linear(features.shape[1], 1)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    losses = []
    for _ in range(steps):
        prediction = model(features)[:, 0]                           # (n,)
        loss = ((prediction - targets) ** 2).mean()
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.tensor(losses), model(features)[:, 0].detach()


def reference(features, targets, steps, lr):
    """The gradient of the mean squared error written out, in float64."""
    x = torch.cat([features, torch.ones(len(features), 1)], dim=1).double()
    w, losses = torch.zeros(x.shape[1], dtype=torch.float64), []
    for _ in range(steps):
        error = x @ w - targets
        losses.append(error.square().mean())
        w = w - 2 * lr * x.mT @ error / len(x)
    return torch.tensor(losses, dtype=torch.float64), x @ w


exercise = Exercise(
    "fit",
    reference=reference,
    solution=solution,
    returns=("losses", "predictions"),
    difficulty=2,
    minutes=12,
    hints=(
        "Print three shapes: of what the model returns, of the targets, and of their difference. How many numbers "
        "should the mean be taken of? And which learning rate takes the step?",
        "Follow `.grad` by hand through two steps, with the lecture's first rule. Where must the old gradients be "
        "cleared, so that `step()` finds those of this step, and no others?",
        "Let `steps` be 0 and go through your lines: does each name exist that you return? Where does a model begin "
        "that nobody has trained? See `nn.init.zeros_`.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


def _rows(draw):
    """Features (n, d), targets (n,) whose mean is not 0, and a learning rate at which nothing diverges."""
    n, d = draw.sizes(2, 2, 6)
    return draw.normal(n, d), 2 + draw.normal(n), 0.02 + 0.03 * float(draw.uniform(1))


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("losses", points=1, hint=1,
        explain=explain_worst("the loss {place} is {size} away from the mean squared error of what the model predicts "
                              "at that moment"))  # fmt: skip
def losses(answer, draw):
    """each is the mean squared error of the predictions as they are before its step"""
    features, targets, lr = _rows(draw)
    said = [torch.zeros(len(targets)), *(answer(features, targets, steps, lr)[1] for steps in (1, 2, 3))]
    own = torch.stack([(each.double().flatten() - targets).square().mean() for each in said])
    return apart(answer(features, targets, 4, lr)[0].double(), own)


@aspect("first step", points=1, hint=1)
def first_step(answer, draw):
    """from zeros, one step of the learning rate against the gradient of the mean over all rows"""
    features, targets, lr = _rows(draw)
    return answer(features, targets, 1, lr)[1]


@aspect("later steps", points=2, hint=2)
def later_steps(answer, draw):
    """each starts from gradients of its own"""
    features, targets, lr = _rows(draw)
    n = len(targets)
    one, wanted = features[:1].expand(n, -1), targets[:1].abs().add(1).expand(n)
    return torch.stack([answer(one, wanted, steps, lr)[1] for steps in (2, 5)])


@aspect("no steps", points=1, hint=3)
def no_steps(answer, draw):
    """no loss, and zeros for the predictions of a model that starts at zero"""
    features, targets, lr = _rows(draw)
    return torch.cat(answer(features, targets, 0, lr))


# -------------------------------------------------------------------------------------- one slip away from the solution

TAUGHT = ("losses", "first step")
MOVED = ("first step", "later steps")
ALL = ("losses", "first step", "later steps", "no steps")
PREDICTION, LOSS = "model(features)[:, 0]                           #", "((prediction - targets) ** 2).mean()"
ZERO, BACK, STEP = "    optimizer.zero_grad()\n", "    loss.backward()\n", "    optimizer.step()\n"
KEPT, SGD = "    losses.append(loss.item())\n", "torch.optim.SGD(model.parameters(), lr=lr)"
ZEROS, RETURNED = "nn.init.zeros_(parameter)", "model(features)[:, 0].detach()"

slip("a column against a row", TAUGHT, {PREDICTION: "model(features)  #"},
     {LOSS: "((prediction - targets[:, None]) ** 2).mean()"}, words="""
    A column met a row, and broadcasting made an (n, n) table of differences: every prediction against *every* target.
    That loss falls, and it punishes a model that tells rows apart. Print both shapes beside the subtraction, and make
    them equal.""")
slip("old gradients kept", ("later steps",), {ZERO: ""}, words="""
    The second step still has the first one's gradient in it, and so on: `backward()` adds to what is there. The steps
    gather speed, so they run past the minimum, and the loss rises again. Clear the old gradients once per step.""")
slip("forgotten before they are used", MOVED, {ZERO: "", STEP: f"{ZERO}{STEP}"},
     {BACK: "", STEP: f"{STEP}{BACK}"}, words="""
    When `step()` is called there is no gradient to use, and nothing moves. The order is: clear the old gradients,
    `backward()` for the new ones, `step()`.""")
slip("the loss after the step", ("losses",),
     {KEPT: "", STEP: f"{STEP}    losses.append(((model(features)[:, 0] - targets) ** 2).mean().item())\n"}, words="""
    The loss was measured again, after the step. What is asked for is the loss that the gradient came from: it is there
    already, and costs nothing.""")
slip("summed, not averaged", ALL[:3], {LOSS: "((prediction - targets) ** 2).sum()"}, words="""
    The squares were added up. With twice as many rows each step is then twice as long, so a learning rate that works
    for one table diverges for a larger one. Take the mean.""")
slip("half the square", ALL[:3], {LOSS: "((prediction - targets) ** 2).mean() / 2"}, words="""
    Half of the mean squared error has half the slope. Textbooks write the ½ so that the 2 of the derivative cancels;
    the contract asks for the mean squared error itself.""")
slip("absolute error", ALL[:3], {LOSS: "(prediction - targets).abs().mean()"}, words="""
    This is the mean *absolute* error. Its slope is the same however large the error is, so the steps near the minimum
    are as long as those far away.""")
slip("the root of the mean", ALL[:3], {LOSS: "((prediction - targets) ** 2).mean().sqrt()"}, words="""
    A root was taken, so the gradient is divided by twice the error: another step, and another loss. The contract asks
    for the mean squared error.""")
slip("uphill", MOVED, {BACK: "    (-loss).backward()\n"},
     {SGD: "torch.optim.SGD(model.parameters(), lr=lr, maximize=True)"}, words="""
    The parameters moved *along* the gradient, so the loss rises. The gradient points uphill: a step goes against
    it.""")
slip("a learning rate of one's own", MOVED, {SGD: "torch.optim.SGD(model.parameters(), lr=0.1)"},
     {SGD: "torch.optim.SGD(model.parameters())"}, words="""
    The step does not depend on `lr`. The learning rate is an argument: hand it to the optimiser.""")
slip("momentum", ("later steps",), {SGD: "torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)"}, words="""
    With momentum a step has a part of all earlier gradients in it. The contract asks for plain gradient descent: the
    learning rate times this step's gradient.""")
slip("Adam", MOVED, {SGD: "torch.optim.Adam(model.parameters(), lr=lr)"}, words="""
    Adam's first step is `lr` for every parameter, however large its gradient is. The contract asks for plain gradient
    descent, SGD: the learning rate times the gradient.""")
slip("the weights alone are trained", MOVED, {SGD: "torch.optim.SGD([model.weight], lr=lr)"},
     {"nn.Linear(features.shape[1], 1)": "nn.Linear(features.shape[1], 1, bias=False)"}, words="""
    The bias did not move, or is missing: a row of zeros would always be predicted as 0. `model.parameters()` lists the
    weight and the bias.""")
slip("a random start", ALL, {ZEROS: "pass"}, words="""
    The model started from the numbers that `nn.Linear` draws, so no run is like another. Set its weight and its bias to
    zero before the first step. (For one linear layer that does no harm. A network with hidden layers needs a random
    start: from zeros all its units would stay alike.)""")
slip("a start from ones", ALL, {ZEROS: "nn.init.ones_(parameter)"}, words="""
    The weight and the bias started at one. They start at zero.""")
slip("one step too many", ALL, {"range(steps)": "range(steps + 1)"}, words="""
    `range(steps)` has `steps` numbers. One step more was taken, and one loss more came back.""")
slip("one step too few", ("losses", *MOVED), {"range(steps)": "range(steps - 1)"}, words="""
    `range(steps)` counts from 0 to `steps` − 1, which are `steps` numbers. One step was left out.""")
slip("a stack of no losses", ("no steps",),
     {"losses.append(loss.item())": "losses.append(loss.detach())", "torch.tensor(losses)": "torch.stack(losses)"},
     words="""
    `torch.stack` needs at least one tensor, and with no step there is none. `torch.tensor([])` is empty, as it should
    be: collect the numbers, with `.item()`.""")
slip("predicted before the last step", ALL, {RETURNED: "prediction.detach()"}, words="""
    The predictions are those of the last forward pass, and the model has moved since. Ask the trained model once more,
    after the loop. (With no step at all there is no earlier prediction, and the name does not exist.)""")
slip("a column comes back", ALL[1:], {RETURNED: "model(features).detach()"}, words="""
    The predictions came back as a column, (n, 1), and the next one who subtracts targets from them has the bug of this
    exercise again. One number for each row: (n,).""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("parameters moved by hand")
def parameters_moved_by_hand(features, targets, steps, lr):
    """No optimiser and no `backward`; tensors of losses."""
    model = nn.Linear(features.shape[-1], 1)
    with torch.no_grad():
        model.weight.zero_()
        model.bias.zero_()
    losses = torch.zeros(steps)
    for step in range(steps):
        loss = nn.functional.mse_loss(model(features).squeeze(-1), targets)
        losses[step] = loss.detach()
        gradients = torch.autograd.grad(loss, [model.weight, model.bias])
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.sub_(lr * gradient)
    return losses, model(features).squeeze(-1)


@alternative("the gradient written out, float64")
def the_gradient_written_out_float64(features, targets, steps, lr):
    """No autograd: the derivative of the mean squared error by hand."""
    x, y = features.double(), targets.double()
    weight, bias, losses = x.new_zeros(x.shape[1]), x.new_zeros(()), []
    for _ in range(steps):
        error = x @ weight + bias - y
        losses.append((error @ error / len(y)).item())
        weight = weight - lr * 2 * (error @ x) / len(y)
        bias = bias - lr * 2 * error.mean()
    return torch.tensor(losses, dtype=torch.float64), x @ weight + bias


@alternative("a column against a column, zeroed at the end")
def a_column_against_a_column_zeroed_at_the_end(features, targets, steps, lr):
    """The targets become a column; the gradients are cleared after the step; a module of its own."""

    class Rater(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.zeros(d, 1)), nn.Parameter(torch.zeros(1))

        def forward(self, x):
            return x @ self.weight + self.bias

    model, column, kept = Rater(features.shape[1]), targets.unsqueeze(1), [torch.zeros(0)]
    optimizer = torch.optim.SGD(model.parameters(), lr)
    for _ in range(steps):
        loss = nn.MSELoss()(model(features), column)
        kept.append(loss.detach().reshape(1))
        loss.backward()
        optimizer.step()
        model.zero_grad()
    with torch.no_grad():
        return torch.cat(kept), model(features).flatten()
