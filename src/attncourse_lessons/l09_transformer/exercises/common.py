"""What several exercises of this lesson share: inputs, references, and words."""

import math

import torch

from lessonkit.exercises.local_runner import AspectFailed, Problem

READY_MADE = (
    "attncourse.attention",
    "attncourse.efficient",
    "attncourse.layers",
    "attncourse.transformer",
    "torch.nn.Transformer",
    "torch.nn.TransformerEncoderLayer",
    "torch.nn.TransformerDecoderLayer",
)

# The parts that are handed over
def _attends(draw, d, name="attention", finds=True):
    """An attention with drawn projections: `attend(x, memory, mask)`, in which x asks and the memory answers.

    Unless it `finds` something it returns zeros, and still refuses what does not fit.
    """
    W_Q, W_K, W_V = (draw.normal(d, d) / math.sqrt(d) for _ in range(3))

    def attend(x, memory, mask=None):
        n_query, n_key = x.shape[-2], memory.shape[-2]
        if mask is not None and (mask.shape[-1] != n_key or mask.shape[-2] not in (1, n_query)):
            shape = tuple(mask.shape)
            raise ValueError(f"{name}: a mask {shape} does not fit {n_query} queries and {n_key} keys")
        if not finds:
            return torch.zeros_like(x)
        scores = 2 * (x @ W_Q) @ (memory @ W_K).mT / math.sqrt(d)
        scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        return scores.softmax(dim=-1) @ (memory @ W_V)

    return attend

def _thinks(draw, d, finds=True):
    """A feed-forward network with drawn matrices, or one that returns zeros."""
    up, down = draw.normal(d, 2 * d) / math.sqrt(d), draw.normal(2 * d, d) / math.sqrt(d)
    return lambda x: (x @ up).relu() @ (down * finds)

def norms(draw, d):
    """A LayerNorm with drawn gain and bias: none is like another, and none leaves x as it is."""
    gain, bias = 0.5 + draw.uniform(d), draw.normal(d) / 2

    def norm(x):
        centred = x - x.mean(dim=-1, keepdim=True)
        return gain * centred / torch.sqrt(centred.square().mean(dim=-1, keepdim=True) + 1e-5) + bias

    return norm

class Asked:
    """A part, and whether it was asked at all."""

    def __init__(self, part):
        self.part, self.times = part, 0

    def __call__(self, *inputs, **named):
        self.times += 1
        return self.part(*inputs, **named)

def used(**parts):
    """Refuses an answer that did not ask these parts: of what is done with them nothing can be seen."""
    idle = [f"`{name}`" for name, part in parts.items() if not part.times]
    if idle:
        words = f"{' and '.join(idle)} {'was' if len(idle) == 1 else 'were'} never called"
        raise AspectFailed(Problem("unusable", words))

def with_padding(draw, batch, n):
    """(batch, n), True where there is a word: the first row lacks the last place, the second is shorter, one is full.

    So neither the first row's mask nor the full one's hides what stands in everybody's padding.
    """
    lengths = 1 + draw.integers(n, batch)
    lengths[:3] = torch.tensor([n - 1, 1 + int(draw.integers(n - 2, 1)), n])
    return torch.arange(n) < lengths[:, None]

def everybody(*shape):
    return torch.ones(*shape, dtype=torch.bool)
