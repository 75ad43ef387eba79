"""Numbers and dates in words, in several languages: as many true translations as anyone wants, from a seed.

And which words translate which: here the true alignment is known.
"""

import datetime
import random
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import torch
from babel.dates import format_date, get_month_names
from jaxtyping import Bool, Int
from num2words import num2words
from torch import Tensor

from attncourse._checks import check_one_of
from attncourse.data.parallel import Pair
from attncourse.data.tokenizer import SPECIAL


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
    Both parts come in random order, and any slice of either holds its share of short lists.
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
    # There are few short lists, and none comes twice: the first draws hold nearly all of them.
    random.Random(seed).shuffle(drawn)
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


def spelled_numbers(limit: int = 1000) -> tuple[str, Int[Tensor, "limit n"]]:
    """The letters that numbers below `limit` are spelled with in English, and the numbers spelled, a row for each.

    A full stop stands at the beginning and at the end of a number, and is letter 0; shorter ones are filled up with -1.

    >>> letters, tokens = spelled_numbers(3)
    >>> letters, tokens[1].tolist()
    ('.enortwz', [0, 3, 2, 1, 0, -1])
    """
    texts = [f".{say(number, 'en')}." for number in range(limit)]
    letters = "." + "".join(sorted({*"".join(texts)} - {"."}))
    rows = [torch.tensor([letters.index(letter) for letter in text]) for text in texts]
    return letters, torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-1)


class Part(NamedTuple):
    """A stretch of a sentence, and what it says: (which item of the list, what of it). Words like "and" say nothing."""

    text: str
    says: frozenset[tuple[int, str]]


def say_parts(sentence: str, language: str) -> list[Part]:
    """A sentence of `number_words` cut into what it says; parts of two languages that share something are translations.

    A number has hundreds (how many), the word hundred, tens and units; a date a weekday, day, month and year; a list
    its commas. One word may say two things: "dreizehn" is tens and units, and so is "onze" in "quatre-vingt-onze" (4·20
    and 11), where "quatre-vingt" is tens alone; "cent" with no number before it is hundreds and hundred. Numbers from
    10 to 19 are one part, "dix-sept" too, and so are a date's day and its year.
    Raises ValueError for any other sentence or language.

    >>> [(part.text, *sorted(what for _, what in part.says)) for part in say_parts("einundneunzig", "de")]
    [('ein', 'units'), ('und',), ('neunzig', 'tens')]
    >>> [(part.text, *sorted(what for _, what in part.says)) for part in say_parts("quatre-vingt-onze", "fr")]
    [('quatre-vingt', 'tens'), ('-',), ('onze', 'tens', 'units')]
    """
    check_one_of("language", language, sorted(DATES))
    found = []
    # A date's own comma has its article after it.
    for k, item in enumerate(re.split(r"(, )(?!the |der )", sentence)):
        words = [(item, "comma")] if k % 2 else _words(item, language)
        at = 0
        for word, *what in words:
            start = item.index(word, at)
            found.append(Part(item[at:start], frozenset()))
            found.append(Part(word, frozenset((k // 2, one) for one in what)))
            at = start + len(word)
    return [part for part in found if part.text]


def aligned_pieces(
    pair: Pair, source_pieces: Sequence[str], target_pieces: Sequence[str], source: str = "en", target: str = "de"
) -> Bool[Tensor, "n_target n_source"]:
    """The true alignment of a pair of `number_words`: True where the two pieces say something in common.

    The pieces are `Tokenizer.pieces` of the pair's sentences, or those of a `Translation` that is right, whose <eos>
    has a row with nothing in it. A piece that reaches over several parts says what all of them say.
    Raises ValueError for pieces that do not spell the sentence, and as `say_parts`.
    """
    columns = _what_pieces_say(pair.source, source_pieces, source)
    rows = _what_pieces_say(pair.target, target_pieces, target)
    return torch.tensor([[not row.isdisjoint(column) for column in columns] for row in rows])


def _what_pieces_say(sentence: str, pieces: Sequence[str], language: str) -> list[set[tuple[int, str]]]:
    # Pieces have no spaces, so letters are counted without them.
    letters = [part.says for part in say_parts(sentence, language) for _ in part.text.replace(" ", "")]
    bare = ["" if piece in SPECIAL else piece.replace("▁", "") for piece in pieces]
    if "".join(bare) != sentence.replace(" ", ""):
        raise ValueError(f"pieces: got {' '.join(pieces)!r}, expected the pieces of {sentence!r}")
    says, at = [], 0
    for piece in bare:
        says.append(set().union(*letters[at : at + len(piece)]))
        at += len(piece)
    return says


def _words(item: str, language: str) -> Iterator[tuple[str, ...]]:
    """The words of a number or date that say something, in their order, each with what."""
    if (number := _numbers(language).get(item)) is not None:
        yield from _number_words(number, language)
    elif date := _date_pattern(language).fullmatch(item):
        yield from ((text, what) for what, text in date.groupdict().items())
    else:
        raise ValueError(f"sentence: got {item!r} in it, expected what number_words writes in {language!r}")


def _number_words(number: int, language: str) -> Iterator[tuple[str, ...]]:
    hundreds, rest = divmod(number, 100)
    if hundreds == 1 and language == "fr":
        yield "cent", "hundreds", "hundred"
    elif hundreds:
        yield "ein" if hundreds == 1 and language == "de" else say(hundreds, language), "hundreds"
        yield {"en": "hundred", "de": "hundert", "fr": "cent" if rest else "cents"}[language], "hundred"
    if hundreds and not rest:
        return
    if rest < 20:
        yield _below_twenty(rest, language)
    elif language == "fr" and rest >= 70:                         # counted in twenties: 60 + 17, 4·20 + 11
        twenties = 60 if rest < 80 else 80
        yield {60: "soixante", 80: "quatre-vingt" if rest > 80 else "quatre-vingts"}[twenties], "tens"
        if rest > twenties:
            yield _below_twenty(rest - twenties, language)
    else:
        tens, units = (say(rest - rest % 10, language), "tens"), rest % 10
        if not units:
            yield tens
        elif language == "de":
            yield "ein" if units == 1 else say(units, language), "units"
            yield tens
        else:
            yield tens
            yield say(units, language), "units"


def _below_twenty(number: int, language: str) -> tuple[str, ...]:
    return say(number, language), *(("units",) if number < 10 else ("tens",) if number == 10 else ("tens", "units"))


@cache
def _numbers(language: str) -> dict[str, int]:
    return {say(number, language): number for number in range(1000)}


@cache
def _date_pattern(language: str) -> re.Pattern[str]:
    months = "|".join(get_month_names("wide", locale=language).values())
    return re.compile(
        DATES[language].format(
            weekday=r"(?P<weekday>\w+)", day="(?P<day>.+?)", month=f"(?P<month>{months})", year="(?P<year>.+)"
        )
    )
