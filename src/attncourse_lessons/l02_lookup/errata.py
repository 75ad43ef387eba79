"""Lines of slides that this lesson tests: as printed, as they should be, and what tells them apart."""

import math

import torch

from attncourse_lessons.slides.erratum import CS11711, FOUNDATIONS, Erratum, Finding, equal


def _one_or_none(lookup) -> Finding:
    table = {"aunt": 1, "tea": 2}
    found = lookup(table, "uncle")
    return equal(found, 0, "a key that is not there matches")


EXACTLY_ONE = Erratum(
    name="exactly one pair",
    decks=(FOUNDATIONS,),
    place="Intuition for Attention Mechanism",
    claim="Each query (hash) maps to exactly one key-value pair",
    correction="at most one: a table may not hold the key",
    question="How many pairs does a missing key match?",
    printed=lambda table, key: 1,
    corrected=lambda table, key: int(key in table),
    check=_one_or_none,
    kind="overclaim",
)


def _order_by_products(score) -> Finding:
    """A key may be made longer, across the query's direction, without matching any better or worse."""
    query, keys = torch.tensor([1.0, 0.0]), torch.tensor([[0.9, 0.0], [1.0, 9.0]])
    scores = torch.stack([score(query, key) for key in keys])
    products, best = keys @ query, int(scores.argmax())
    said = f"of products 0.9 and 1.0 the larger score goes to {products[best].item():.1f}"
    return Finding(best == int(products.argmax()), said)


SIZE_OF_K = Erratum(
    name="√|k|",
    decks=(CS11711,),
    place="Attention Score Functions (2)",
    claim="Fix: scale by size of the vector, q·k/√|k|",
    correction="√d_k says the same; in that deck |x| counts entries everywhere. It is not how long the key is",
    question="Does the key with the larger product get the larger score?",
    printed=lambda query, key: query @ key / math.sqrt(len(key)),
    misread=lambda query, key: query @ key / key.norm().sqrt(),
    corrected=lambda query, key: query @ key / math.sqrt(key.shape[-1]),
    check=_order_by_products,
    kind="no error",
)

ERRATA = (EXACTLY_ONE, SIZE_OF_K)
