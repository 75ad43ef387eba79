"""Numbers and dates in words, in several languages: as many true translations as anyone wants, from a seed."""

import datetime
import random
from functools import cache
from typing import NamedTuple

from babel.dates import format_date
from num2words import num2words


class Pair(NamedTuple):
    source: str
    target: str


class Split(NamedTuple):
    train: list[Pair]
    test: list[Pair]


# How each language says a date; its keys are the languages that there are.
DATES = {
    "de": "{weekday}, der {day} {month} {year}",
    "en": "{weekday}, the {day} of {month} {year}",
    "fr": "{weekday} {day} {month} {year}",
}


def number_words(
    source: str = "en",
    target: str = "de",
    train: int = 20_000,
    test: int = 1_000,
    max_items: int = 5,
    dates: float = 0.1,
    seed: int = 0,
) -> Split:
    """Draw lists of one to `max_items` numbers below 1000 and dates, written out in the source and the target language.

    `dates` is the share of items that are dates. Languages: "en", "de", "fr".
    No source sentence occurs twice, so none of the test set is in the training set; the same seed gives the same split.
    Raises ValueError for a language that is not there, or when there are fewer different sentences than asked for.
    """
    for name, language in (("source", source), ("target", target)):
        if language not in DATES:
            raise ValueError(f"{name}: got {language!r}, expected one of {', '.join(sorted(DATES))}")
    rng = random.Random(seed)
    pairs: dict[str, Pair] = {}
    for _ in range(20 * (train + test)):
        if len(pairs) == train + test:
            break
        items = [_draw(rng, dates) for _ in range(rng.randint(1, max_items))]
        pair = Pair(*(", ".join(say(item, language) for item in items) for language in (source, target)))
        pairs.setdefault(pair.source, pair)
    else:
        raise ValueError(f"train, test: got {train} + {test} pairs, and max_items={max_items} gives only {len(pairs)}")
    drawn = list(pairs.values())
    return Split(train=drawn[test:], test=drawn[:test])


def _draw(rng: random.Random, dates: float) -> int | datetime.date:
    if rng.random() < dates:
        return datetime.date(1800, 1, 1) + datetime.timedelta(days=rng.randrange(300 * 365))
    # As many short numbers as long ones: uniform draws below 1000 would almost all have three digits.
    return rng.randrange(10 ** rng.randint(1, 3))


@cache
def say(item: int | datetime.date, language: str) -> str:
    """Write a number or a date out in words.

    >>> say(21, "en"), say(21, "de"), say(91, "fr")
    ('twenty-one', 'einundzwanzig', 'quatre-vingt-onze')
    >>> say(datetime.date(1984, 5, 21), "de")
    'Montag, der einundzwanzigste Mai neunzehnhundertvierundachtzig'
    """
    if isinstance(item, int):
        return num2words(item, lang=language)
    french_day = language == "fr" and item.day > 1                # "premier mai", but "deux mai"
    return DATES[language].format(
        weekday=format_date(item, "EEEE", locale=language),
        day=num2words(item.day, lang=language, to="cardinal" if french_day else "ordinal"),
        month=format_date(item, "MMMM", locale=language),
        year=num2words(item.year, lang=language, to="year"),
    )
