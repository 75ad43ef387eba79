"""A second language for the capstone's function: English number words in, digits out. And a training at other rates."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from torch.optim import Optimizer
from torch.optim import optimizer as hooks

from attncourse.data.number_words import say

SIGNS = "0123456789,"
FIRST = 3  # the token id of the first word and of the first sign: 0, 1 and 2 are <pad>, <bos> and <eos>


class Digits(NamedTuple):
    """Pairs [source, target] of lists of token ids, to train on and others, and the words of the sources' ids."""

    training: list[list[list[int]]]
    unseen: list[list[list[int]]]
    words: list[str]


def digit_pairs(train: int = 1500, unseen: int = 200, seed: int = 0) -> Digits:
    """Lists of one or two numbers below 1000; none is among both the training and the unseen pairs.

    >>> data = digit_pairs(train=20, unseen=2)
    >>> source, target = data.unseen[0]
    >>> " ".join(data.words[token - FIRST] for token in source), signs(target)
    ('one , sixty five', '1,65')
    """
    rng, found = random.Random(seed), dict[str, list[int]]()
    while len(found) < train + unseen:
        items = [rng.randrange(10 ** rng.randint(1, 3)) for _ in range(rng.randint(1, 2))]
        text = " , ".join(say(item, "en") for item in items)
        found[text.replace("-", " ").replace(" and ", " ")] = items
    words = sorted({word for text in found for word in text.split()})
    pairs = [[[FIRST + words.index(word) for word in text.split()],
              [FIRST + SIGNS.index(sign) for sign in ",".join(map(str, items))]]
             for text, items in found.items()]  # fmt: skip
    rng.shuffle(pairs)
    return Digits(pairs[:train], pairs[train:], words)


def signs(tokens: Sequence[int]) -> str:
    """What the target's tokens say; "?" for one that is none of its signs.

    >>> signs([8, 3, 7]), signs([3, 30])
    ('504', '0?')
    """
    return "".join(SIGNS[i - FIRST] if FIRST <= i < FIRST + len(SIGNS) else "?" for i in tokens)


@contextmanager
def rates_times(factor: float) -> Iterator[None]:
    """Within, each step of torch's optimisers has `factor` times its learning rate; schedules see nothing of it."""

    def scale_by(number: float) -> Callable[..., None]:
        def change_rates(optimizer: Optimizer, *_: object) -> None:
            for group in optimizer.param_groups:
                group["lr"] *= number

        return change_rates

    before = hooks.register_optimizer_step_pre_hook(scale_by(factor))
    after = hooks.register_optimizer_step_post_hook(scale_by(1 / factor))
    try:
        yield
    finally:
        before.remove()
        after.remove()


def print_mistakes(data: Digits, outputs: Sequence[Sequence[int]], examples: int = 3) -> None:
    """Some outputs for the unseen sources, right and wrong; how many are right with and without a zero that no word
    says; and how many of the wrong ones are too short."""
    right: dict[str, list[bool]] = {"with such a zero": [], "without": []}
    too_short = 0
    for (source, target), output in zip(data.unseen, outputs, strict=True):
        said, truth = signs(output), signs(target)
        zero = any(number != "0" and "0" in number for number in truth.split(","))
        group = right["with such a zero" if zero else "without"]
        group.append(said == truth)
        too_short += len(said) < len(truth)
        if len(group) <= examples or (said != truth and group.count(False) <= examples):
            words = " ".join(data.words[i - FIRST] for i in source)
            print(f"{words}: {said}" + ("" if said == truth else f"  (wrong: {truth})"))
    for name, group in right.items():
        print(f"{name}: {sum(group)} of {len(group)} right")
    wrong = sum(group.count(False) for group in right.values())
    print(f"wrong: {wrong}, of which too short: {too_short}")
