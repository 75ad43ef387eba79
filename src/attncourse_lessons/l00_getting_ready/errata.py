"""Lines of slides that this lesson tests: as printed, as they should be, and what tells them apart."""

import torch

from attncourse_lessons.slides.erratum import CSE576, PARAMETRIC, Erratum, Finding, N, drawn, near


def _weighted(product) -> Finding:
    weights, values = drawn(N, N).softmax(dim=-1), drawn(N, 4, seed=1)
    return near(product(weights, values), torch.einsum("ij,jd->id", weights, values))


STAR = Erratum(
    name="a star for a matrix product",
    decks=(CSE576, PARAMETRIC),
    place="Multi-headed attention",
    claim="softmax(XQKᵀXᵀ) * XV",
    correction="a star on paper may be any product; in Python it is elementwise, and this one is @",
    question="Is it the matrix product?",
    printed=lambda weights, values: weights * values,
    corrected=lambda weights, values: weights @ values,
    check=_weighted,
    by="shapes",
    kind="convention",
)

ERRATA = (STAR,)
