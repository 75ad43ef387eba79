"""The short training loop of the lectures: teacher forcing, Adam, one cycle of the learning rate, a history.

It fits on a page and trains for a minute. `attncourse.training.trainer` trains in earnest: from a recipe, with AdamW,
in 16 bits, on several GPUs, in a folder from which it goes on. (It is another optimiser with another schedule and other
batches, so the one is no special case of the other.)
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, count, islice

import torch
from torch import Tensor, nn

from attncourse.data import EncodedPair, batches, text_batches
from attncourse.metrics import token_loss


@dataclass
class History:
    """What a run measured: the loss of each step in nats a token, and the seconds that all took."""

    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    interrupted: bool = False

    def __str__(self) -> str:
        last = self.losses[-20:]
        loss = f"loss {sum(last) / len(last):.3f}" if last else "no step finished"
        stopped = ", interrupted" if self.interrupted else ""
        return f"{len(self.losses)} steps, {loss}, {self.seconds:.0f} s{stopped}"


def fit(
    model: nn.Module,
    pairs: Sequence[EncodedPair],
    steps: int,
    batch_size: int = 32,
    lr: float = 5e-3,
    seed: int = 0,
    name: str = "",
    progress: bool = True,
) -> History:
    """Train `model(source, lengths, target_in) -> logits` for `steps` batches: Adam, gradients clipped to norm 1.

    The learning rate rises to `lr` and falls to zero within the steps (one cycle, Smith 2018), so models compare fairly
    at equal `steps` only. The order of the pairs is drawn from `seed`. Ctrl-C (Interrupt in Jupyter) ends the run
    early: the model keeps what it has learned, and the history so far comes back. A line of progress, beginning with
    `name`, is shown in a terminal or a notebook. The batches go where the model is.
    Raises ValueError for no pairs, or fewer than one step.
    """
    if not pairs:
        raise ValueError("pairs: got none, expected at least one")
    device = next(model.parameters()).device
    epochs = (batch.to(device) for epoch in count() for batch in batches(pairs, batch_size, seed=seed + epoch))
    losses = (token_loss(model(b.source, b.lengths, b.target_in), b.target_out) for b in epochs)
    return descend(model, losses, steps, lr, name, progress)


def fit_texts(
    model: nn.Module,
    texts: Sequence[Sequence[int]],
    steps: int,
    batch_tokens: int = 512,
    max_length: int = 64,
    lr: float = 1e-2,
    seed: int = 0,
    name: str = "",
    progress: bool = True,
) -> History:
    """Train a language model, `model(tokens) -> logits`, on what `encode_texts` returns; the rest is as in `fit`.

    Each batch holds about `batch_tokens` tokens; longer texts than `max_length` are cut.
    Raises ValueError for no texts.
    """
    if not texts:
        raise ValueError("texts: got none, expected at least one")
    device = next(model.parameters()).device
    made = (text_batches(texts, batch_tokens, max_length, seed=seed + epoch) for epoch in count())
    epochs = (batch.to(device) for batch in chain.from_iterable(made))
    losses = (token_loss(model(b.tokens_in), b.tokens_out) for b in epochs)
    return descend(model, losses, steps, lr, name, progress)


def descend(
    model: nn.Module, losses: Iterator[Tensor], steps: int, lr: float, name: str = "", progress: bool = True
) -> History:
    """Take `steps` steps down the losses, which are computed one by one as they are asked for; see `fit`."""
    if steps < 1:
        raise ValueError(f"steps: got {steps}, expected at least 1")
    history = History()
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, betas=(0.9, 0.98))
    rising = 0.2 if steps > 6 else 0.3  # of 5 steps, torch would divide by the 0 that a rise of 0.2 leaves
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps, pct_start=rising)
    show = _status_line(progress)
    name = f"{name}: " if name else ""
    started = shown = time.perf_counter()
    model.train()
    try:
        for loss in islice(losses, steps):
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            history.losses.append(loss.item())
            history.seconds = time.perf_counter() - started
            if history.seconds > shown - started + 0.5:
                shown = started + history.seconds
                show(f"{name}{history} (of {steps} steps)")
    except KeyboardInterrupt:
        history.interrupted = True
    model.eval()
    show(f"{name}{history}\n")
    return history


def _status_line(wanted: bool) -> Callable[[str], None]:
    """Shows a line in the place of the one before: in a terminal or a notebook, nowhere else.

    A notebook keeps only the last line, so that the saved page reads well.
    """
    if wanted and "ipykernel" in sys.modules:
        from IPython.display import display

        handle = display({"text/plain": ""}, raw=True, display_id=True)
        return lambda line: handle.update({"text/plain": line.strip()}, raw=True)
    if wanted and sys.stdout.isatty():
        return lambda line: print(f"\r\033[K{line}", end="", flush=True)
    return lambda line: None
