"""Language models that know a fixed number of tokens: one counts, one has learned a vector for each token."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import log

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from attncourse._checks import check_at_least, check_tokens


class NGram:
    """Interpolated Kneser–Ney: a token is predicted from the `order` − 1 before it, and from fewer where those are new.

        p(w | h) = (max(c(h w) − D, 0) + D · N(h) · p(w | h without its first token)) / c(h)

    c(h w) says how often w followed the context h, c(h) is its sum over w, N(h) how many different tokens followed h.
    D is taken away from each count and given to the shorter context; below one token, to all tokens alike. (Where h is
    new, p(w | h) is the shorter context's.) In a shorter context than the longest, c counts the different tokens
    *before* h w in place of its occurrences: "Francisco" may be frequent, but it follows one word. What begins a text
    has nothing before it and keeps its occurrences.

    `texts` are token ids, each text with <bos> in front, which is context alone and never predicted, and <eos> after.
    Raises ValueError for an order below 1, no token to count, or one outside the vocabulary.
    Kneser and Ney 1995; Chen and Goodman 1999, section 2.7 (this form), and 2.8 for D, one for each length.

    >>> model = NGram([[1, 5, 6, 5, 7, 2], [1, 5, 6, 2]], order=2, vocab_size=8)
    >>> model.probability(6, [1, 5]) > model.probability(7, [1, 5])
    True
    """

    def __init__(self, texts: Iterable[Sequence[int]], order: int, vocab_size: int):
        check_at_least(1, order=order, vocab_size=vocab_size)
        self.order, self.vocab_size = order, vocab_size
        counts: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(order + 1)]
        for text in map(tuple, texts):
            counts[order].update(zip(*(text[i if order > 1 else 1 :] for i in range(order)), strict=False))
            for n in range(2, min(order, len(text) + 1)):
                counts[n][text[:n]] += 1
        for n in range(order - 1, 0, -1):
            counts[n].update(longer[1:] for longer in counts[n + 1])
        seen = [gram[0] for gram in counts[1]]
        if not seen:
            raise ValueError("texts: got no token to count, expected at least one text of <bos> and a token")
        if not 0 <= min(seen) <= max(seen) < vocab_size:
            raise ValueError(f"texts: got tokens {min(seen)}..{max(seen)}, expected each within 0..{vocab_size - 1}")
        self._counts = counts
        self._discount = [0.0, *map(_discount, counts[1:])]
        self._total: list[Counter[tuple[int, ...]]] = [Counter() for _ in counts]             # c(h)
        self._kinds: list[Counter[tuple[int, ...]]] = [Counter() for _ in counts]             # N(h)
        for n, grams in enumerate(counts):
            for gram, count in grams.items():
                self._total[n][gram[:-1]] += count
                self._kinds[n][gram[:-1]] += 1

    def __len__(self) -> int:
        """How many counts it keeps: what stands for parameters."""
        return sum(map(len, self._counts))

    def probability(self, token: int, context: Sequence[int]) -> float:
        """p(token | context), of which the last `order` − 1 tokens count."""
        p = 1 / self.vocab_size
        context = tuple(context)
        for n in range(1, min(self.order, len(context) + 1) + 1):
            h = context[len(context) - n + 1 :]
            total = self._total[n][h]
            if not total:                                         # new, and so is whatever is longer
                break
            d = self._discount[n]
            p = (max(self._counts[n][(*h, token)] - d, 0) + d * self._kinds[n][h] * p) / total
        return p

    def known(self, context: Sequence[int]) -> int:
        """How many of the last tokens of the context were seen in training, in this order, with something after."""
        context = tuple(context)
        longest = min(self.order - 1, len(context))
        return max(n for n in range(longest + 1) if self._total[n + 1][context[len(context) - n :]])

    def distribution(self, context: Sequence[int]) -> Float[Tensor, " vocab_size"]:
        """p(· | context), which sums to one."""
        return torch.tensor([self.probability(token, context) for token in range(self.vocab_size)])

    def log_probabilities(self, text: Sequence[int]) -> Float[Tensor, " n"]:
        """In nats, of each token of the text but the first, given those before it."""
        text = tuple(text)
        reach = self.order - 1
        scores = [log(self.probability(text[i], text[max(0, i - reach) : i])) for i in range(1, len(text))]
        return torch.tensor(scores, dtype=torch.float64)          # (n,)


def _discount(counts: Counter) -> float:
    """D from how many things were seen once, and twice; between 0 and 1."""
    once, twice = (sum(count == k for count in counts.values()) for k in (1, 2))
    return once / (once + 2 * twice) if once and twice else 0.5


class WindowLanguageModel(nn.Module):
    """A neural network predicts a token from the `order` − 1 before it: an n-gram model with parameters for counts.

        x_t = E y_t,   h_t = tanh([x_{t−order+2}; …; x_t] W + b),   logits_t = E h_t + c

    Before a text's beginning stand zeros. One table E reads the tokens and scores them, as in
    `RecurrentLanguageModel` (the paper has two, and an optional map from the window straight to the logits).
    Raises ValueError for an order below 2. Bengio et al. 2003.

    >>> model = WindowLanguageModel(10, order=3, d_hidden=8)
    >>> model(torch.tensor([[1, 4, 5], [1, 6, 2]])).shape
    torch.Size([2, 3, 10])
    """

    max_positions: int | None = None  # it reads on as long as there is something to read

    def __init__(self, vocab_size: int, order: int, d_hidden: int):
        super().__init__()
        check_at_least(2, order=order)
        self.width = order - 1
        self.embedding = nn.Embedding(vocab_size, d_hidden)
        nn.init.normal_(self.embedding.weight, std=d_hidden**-0.5)       # logits of about the size of a state's numbers
        self.hidden = nn.Linear(self.width * d_hidden, d_hidden)
        self.output = nn.Linear(d_hidden, vocab_size)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Int[Tensor, "batch n"]) -> Float[Tensor, "batch n vocab_size"]:
        """Logits of each next token. Padding after a text changes nothing before it.

        Raises ValueError for tokens outside the vocabulary.
        """
        check_tokens("tokens", tokens, self.embedding.num_embeddings)
        x = pad(self.embedding(tokens), (0, 0, self.width - 1, 0))              # (batch, width - 1 + n, d_hidden)
        n = tokens.shape[1]
        window = torch.cat([x[:, i : i + n] for i in range(self.width)], -1)    # (batch, n, width · d_hidden)
        return self.output(self.hidden(window).tanh())                          # (batch, n, vocab_size)
