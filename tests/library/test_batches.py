"""Batches by tokens: none is too large, little of them is padding, and every epoch is another and can be had again."""

import random
from itertools import islice, pairwise

import pytest
import torch

from attncourse.data import (
    BOS,
    EOS,
    PAD,
    EncodedPair,
    Tokenizer,
    batch_by_tokens,
    collate,
    encode_pairs,
    epoch_batches,
    loader,
    number_words,
    pad_batch,
)
from attncourse.data.batches import rectangle

LENGTHS = random.Random(0).choices(range(1, 40), k=500)


@pytest.fixture(scope="module")
def pairs():
    split = number_words("en", "de", train=2_000, test=1, seed=0)
    english = Tokenizer.train((pair.source for pair in split.train), size=112)
    german = Tokenizer.train((pair.target for pair in split.train), size=112)
    return encode_pairs(split.train, english, german)


def rectangles(pairs, batch):
    source = max(len(pairs[i].source) for i in batch)
    target = max(len(pairs[i].target) + 1 for i in batch)
    return len(batch) * source, len(batch) * target


def padding(pairs, batches):
    """The share of padding in all that an encoder and a decoder read."""
    real = sum(len(pair.source) + len(pair.target) + 1 for pair in pairs)
    return 1 - real / sum(sum(rectangles(pairs, batch)) for batch in batches)


def test_no_batch_is_larger_than_asked_for_and_none_could_take_the_next_sequence():
    batches = batch_by_tokens(LENGTHS, batch_tokens=128)
    lengths = [[LENGTHS[i] for i in batch] for batch in batches]
    assert all(len(batch) * max(batch) <= 128 for batch in lengths)
    for batch, following in pairwise(lengths):
        assert max(batch) <= following[0] and (len(batch) + 1) * following[0] > 128


def test_each_sequence_is_in_one_batch():
    assert sorted(i for batch in batch_by_tokens(LENGTHS, 128) for i in batch) == list(range(500))


def test_equals_stay_in_the_order_given():
    assert batch_by_tokens([3, 3, 3, 3], batch_tokens=6) == [[0, 1], [2, 3]]


def test_a_sequence_longer_than_a_batch_may_be_is_a_batch_of_its_own():
    assert batch_by_tokens([50, 2, 70], batch_tokens=10) == [[1], [0], [2]]
    assert batch_by_tokens([], batch_tokens=10) == []


def test_an_epoch_holds_every_pair_once_and_neither_side_of_a_batch_is_too_large(pairs):
    batches = epoch_batches(pairs, 512, seed=0, epoch=0)
    assert sorted(i for batch in batches for i in batch) == list(range(2_000))
    assert all(max(rectangles(pairs, batch)) <= 512 for batch in batches)
    for batch in batches[:5]:
        made = collate([pairs[i] for i in batch])
        assert (made.source.numel(), made.target_in.numel()) == rectangles(pairs, batch)


def test_the_same_seed_and_epoch_give_the_same_batches(pairs):
    assert epoch_batches(pairs, 512, seed=3, epoch=4) == epoch_batches(pairs, 512, seed=3, epoch=4)


def test_another_seed_has_other_batches(pairs):
    first, second = ({frozenset(b) for b in epoch_batches(pairs, 512, seed=seed, epoch=0)} for seed in (0, 1))
    assert len(first & second) < len(first) / 10


def test_another_epoch_has_other_batches_and_not_the_same_ones_in_another_order(pairs):
    first, second = ({frozenset(b) for b in epoch_batches(pairs, 512, seed=0, epoch=epoch)} for epoch in (0, 1))
    assert len(first & second) < len(first) / 10


def test_batches_do_not_come_from_short_to_long(pairs):
    longest = [max(len(pairs[i].target) for i in batch) for batch in epoch_batches(pairs, 512, seed=0, epoch=0)]
    assert longest != sorted(longest) and longest != sorted(longest, reverse=True)


def test_batches_by_tokens_hold_less_than_a_quarter_of_the_padding_of_random_ones(pairs):
    batches = epoch_batches(pairs, 512, seed=0, epoch=0)
    size = len(pairs) // len(batches)
    at_random = [range(i, min(i + size, len(pairs))) for i in range(0, len(pairs), size)]
    assert padding(pairs, batches) < 0.12 < 0.4 < padding(pairs, at_random)


def test_no_pairs_or_no_tokens_are_refused(pairs):
    with pytest.raises(ValueError, match="pairs: got none, expected at least one"):
        epoch_batches([], 512, seed=0, epoch=0)
    with pytest.raises(ValueError, match="batch_tokens: got 0, expected at least 1"):
        epoch_batches(pairs, 0, seed=0, epoch=0)


def test_the_loader_gives_the_batches_of_the_indices_from_wherever_it_starts(pairs):
    indices = epoch_batches(pairs, 512, seed=0, epoch=0)
    for made, batch in zip(loader(pairs, indices[7:10]), indices[7:10], strict=True):
        for tensor, expected in zip(made, collate([pairs[i] for i in batch]), strict=True):
            assert torch.equal(tensor, expected)


def test_other_processes_make_the_same_batches_in_the_same_order(pairs):
    indices = epoch_batches(pairs, 512, seed=0, epoch=0)[:9]
    for made, expected in zip(loader(pairs, indices, workers=2), loader(pairs, indices), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(made, expected, strict=True))


def test_lists_become_the_rectangle_that_they_become_one_by_one():
    rows = [[7, 8, 9], [5], [], [4, 6]]
    assert torch.equal(rectangle(rows), pad_batch(rows)[0]) and rectangle(rows).dtype == torch.int64


def test_the_loader_asks_for_no_more_indices_than_it_needs(pairs):
    def endless():
        epoch = 0
        while True:
            yield from epoch_batches(pairs, 512, seed=0, epoch=epoch)
            epoch += 1

    assert len(list(islice(loader(pairs, endless()), 100))) == 100


def test_the_loader_draws_nothing_from_torchs_generator(pairs):
    before = torch.get_rng_state()
    list(loader(pairs, [[0, 1], [2]]))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("workers", [0, 2])
def test_on_a_gpu_the_batches_are_the_same(pairs, workers):
    indices = epoch_batches(pairs, 512, seed=0, epoch=0)[:9]
    for made, expected in zip(loader(pairs, indices, "cuda", workers=workers), loader(pairs, indices), strict=True):
        assert made.source.is_cuda and all(torch.equal(a.cpu(), b) for a, b in zip(made, expected, strict=True))


def test_an_empty_target_begins_and_ends():
    batch = collate([EncodedPair([5, 6], []), EncodedPair([5], [8, 9])])
    assert batch.target_in.tolist() == [[BOS, PAD, PAD], [BOS, 8, 9]]
    assert batch.target_out.tolist() == [[EOS, PAD, PAD], [8, 9, EOS]]
