"""Lines of slides that this lesson tests: as printed, as they should be, and what tells them apart."""

from attncourse.attention import attend
from attncourse.efficient import tiled_attend
from attncourse_lessons.slides.erratum import CS11711, Erratum, Finding, drawn

from .largest import Largest


def _growth_of_the_largest_tensor(attention) -> Finding:
    sizes = []
    for n in (64, 256):
        query, key, value = drawn(3, n, 8)                                    # (n, d) each
        with Largest() as largest:
            attention(query, key, value)
        sizes.append(largest.numbers)
    growth = sizes[1] / sizes[0]
    return Finding(growth <= 4, f"4 times the length: the largest tensor on the way is {growth:.0f} times as large")


T_BY_T = Erratum(
    name="a T × T matrix must be stored",
    decks=(CS11711,),
    place="RNNs vs. Transformers",
    claim="Need to store a large T × T matrix in memory",
    correction="true of the usual implementation; in tiles, the same result needs memory that grows like T",
    question="Does the largest tensor that is made grow like the length?",
    printed=lambda query, key, value: attend(query, key, value)[0],
    corrected=lambda query, key, value: tiled_attend(query, key, value, tile=16),
    check=_growth_of_the_largest_tensor,
    kind="overclaim",
)

ERRATA = (T_BY_T,)
