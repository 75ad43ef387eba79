"""What a prediction costs that counts the letters 8 to 24 places back in texts that repeat a stretch."""

import torch
from torch import nn


def counting_letters(texts: int = 1000) -> dict[str, float]:
    """Nats per letter that can be known: all letters are counted, or only those after a copy of the present one."""
    draws = torch.Generator().manual_seed(0)
    period = torch.randint(8, 25, (texts, 1), generator=draws)                   # (texts, 1)
    stretch = torch.randint(26, (texts, 48), generator=draws)
    letters = stretch.gather(1, torch.arange(48) % period)                       # (texts, 48)
    past = torch.cat([torch.full((texts, 1), -1), letters[:, :-1]], dim=1)       # one letter before
    nats: dict[str, list[torch.Tensor]] = {"all": [], "only those after the present letter": []}
    for t in range(9, 48):
        far = slice(max(t - 24, 0), t - 7)                                       # 8 to 24 places back
        seen = nn.functional.one_hot(letters[:, far], 26)                        # (texts, places, 26)
        same = past[:, far] == past[:, t : t + 1]                                # (texts, places)
        for which, counted in zip(nats, (seen, seen * same[..., None]), strict=True):
            counts = counted.sum(dim=1) + 0.05                                   # (texts, 26)
            share = counts / counts.sum(dim=1, keepdim=True)                     # (texts, 26)
            cost = -share.gather(1, letters[:, t : t + 1]).log()[:, 0]           # (texts,)
            nats[which].append(cost[t > period[:, 0]])                           # where it can be known
    return {which: torch.cat(costs).mean().item() for which, costs in nats.items()}
