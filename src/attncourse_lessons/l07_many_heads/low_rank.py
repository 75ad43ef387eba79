"""Heads whose queries and keys are narrower than what they look for: trained on weeks, and fitted to given weights."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attncourse.attention import attend
from attncourse.data.diary import MEALS, shuffled_weeks


def with_narrow_keys(
    n_heads: int, d_k: int, seed: int, steps: int = 150, d_model: int = 32
) -> tuple[float, list[float], tuple[Tensor, Tensor]]:
    """Train heads with queries and keys of `d_k` numbers to name the next day's dinner.

    Returns the share of right answers in 2,000 new weeks, the share for each day, and the days' queries and keys in
    head 0, (7, d_k) each. The values keep `d_model` numbers in all.
    """
    torch.manual_seed(seed)
    draws, d_v = torch.Generator().manual_seed(seed), d_model // n_heads
    day, meal = nn.Embedding(7, d_model), nn.Embedding(len(MEALS), d_model)
    sizes = (d_model, d_k), (d_model, d_k), (d_model, d_v), (d_v, len(MEALS))
    W = [nn.Parameter(torch.randn(n_heads, *size) / math.sqrt(d_model)) for size in sizes]
    W_Q, W_K, W_V, W_O = W
    optimizer = torch.optim.Adam([*day.parameters(), *meal.parameters(), *W], lr=1e-2)

    def answers(batch: int) -> tuple[Tensor, Tensor, Tensor]:
        days, meals, tomorrow = shuffled_weeks(batch, draws)
        x = (day(days) + meal(meals))[:, None]                                   # (batch, 1, 7, d_model)
        outputs, _ = attend(x @ W_Q, x @ W_K, x @ W_V)                           # (batch, h, 7, d_v)
        return (outputs @ W_O).sum(dim=1), tomorrow, days                        # the heads add up

    for _ in range(steps):
        predicted, tomorrow, _ = answers(64)
        optimizer.zero_grad()
        nn.functional.cross_entropy(predicted.flatten(0, 1), tomorrow.flatten()).backward()
        optimizer.step()
    with torch.no_grad():
        predicted, tomorrow, days = answers(2000)
    hit = (predicted.argmax(dim=-1) == tomorrow).float()                         # (2000, 7)
    by_day = [hit[days == number].mean().item() for number in range(7)]
    return hit.mean().item(), by_day, ((day.weight @ W_Q[0]).detach(), (day.weight @ W_K[0]).detach())


def fitted(wanted: Float[Tensor, "tables 7 7"], d_k: int, steps: int = 300) -> Float[Tensor, " tables"]:
    """How much of the weight softmax(Q Kᵀ), with Q and K of `d_k` columns, places where it is wanted."""
    draws = torch.Generator().manual_seed(d_k)
    Q, K = (nn.Parameter(torch.randn(len(wanted), 7, d_k, generator=draws)) for _ in "QK")
    optimizer = torch.optim.Adam([Q, K], lr=0.1)
    for _ in range(steps):
        log_A = (Q @ K.mT).log_softmax(dim=-1)                                   # (tables, 7, 7)
        optimizer.zero_grad()
        (-(wanted * log_A).sum(dim=-1).mean(dim=-1).sum()).backward()
        optimizer.step()
    return torch.minimum(log_A.detach().exp(), wanted).sum(dim=-1).mean(dim=-1)


def overlaps() -> dict[str, Float[Tensor, "kinds 3"]]:
    """How much of the wanted weight `d_k` columns place, in three tables each of one, two and three wanted days."""
    draws = torch.Generator().manual_seed(0)
    wanted = torch.zeros(9, 7, 7)
    wanted[:3] = torch.eye(7).roll(1, dims=1)                                    # one: the next day
    for i in range(3, 9):
        for row in wanted[i]:                                                    # (7,)
            row[torch.randperm(7, generator=draws)[: i // 3 + 1]] = 1 / (i // 3 + 1)
    even = torch.minimum(wanted, torch.tensor(1 / 7)).sum(dim=-1).mean(dim=-1).view(3, 3)
    found = {"even weights": even}
    for d_k in (1, 2, 3, 4):
        found[f"d_k = {d_k}"] = kinds = fitted(wanted, d_k).view(3, 3)
        assert all((kind.min() > 0.98) == (d_k > days) for days, kind in enumerate(kinds, 1))
    return found


def largest_weights(found: list[tuple[float, list[float], tuple[Tensor, Tensor]]], missed: float) -> list[float]:
    """Of what `with_narrow_keys` gave: the largest weight of each query that finds its key less often than `missed`."""
    largest = []
    for _, by_day, (queries, keys) in found:
        most = (queries @ keys.T / math.sqrt(keys.shape[-1])).softmax(dim=-1).max(dim=-1).values      # (7,)
        largest += [weight for weight, share in zip(most.tolist(), by_day, strict=True) if share < missed]
    return largest
