"""What heads cost in time: the three steps of attention, one after the other."""

import math
import statistics
import time
from itertools import pairwise

from torch import Tensor


def milliseconds(q: Tensor, k: Tensor, v: Tensor, calls: int = 5) -> list[float]:
    """CPU time of the scores, the softmax and the average, (batch, h, n, d_k) each: the median of so many calls."""
    taken = []
    for _ in range(calls):
        clock = [time.process_time()]
        scores = (q / math.sqrt(q.shape[-1])) @ k.mT                             # (batch, h, n, n)
        clock.append(time.process_time())
        A = scores.softmax(dim=-1)                                               # (batch, h, n, n)
        clock.append(time.process_time())
        A @ v                                                                    # (batch, h, n, d_k)
        clock.append(time.process_time())
        taken.append([1000 * (after - before) for before, after in pairwise(clock)])
    return [statistics.median(part) for part in zip(*taken, strict=True)]
