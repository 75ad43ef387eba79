"""The corpus is true, its halves are apart, and what goes into a model comes out again."""

import datetime

import pytest
import torch

from attncourse.data import (
    BOS,
    EOS,
    PAD,
    EncodedPair,
    Pair,
    Tokenizer,
    batches,
    collate,
    encode_pairs,
    number_words,
    pad_batch,
)
from attncourse.data.number_words import say


@pytest.fixture(scope="module")
def split():
    return number_words("en", "de", train=600, test=100, seed=3)


@pytest.fixture(scope="module")
def german(split):
    return Tokenizer.train((pair.target for pair in split.train), size=120, keep_apart="(?<!h)und")


def test_numbers_and_dates_are_said_as_a_speaker_says_them():
    assert [say(21, language) for language in ("en", "de", "fr")] == ["twenty-one", "einundzwanzig", "vingt et un"]
    assert say(datetime.date(1984, 5, 1), "fr") == "mardi premier mai mille neuf cent quatre-vingt-quatre"
    assert say(datetime.date(2026, 11, 21), "en") == "Saturday, the twenty-first of November twenty twenty-six"


def test_no_test_sentence_is_in_the_training_set_and_none_occurs_twice(split):
    sources = [pair.source for pair in split.train + split.test]
    assert len(set(sources)) == 700 and len(split.train) == 600 and len(split.test) == 100


def test_the_same_seed_gives_the_same_corpus_and_another_seed_another(split):
    assert number_words("en", "de", train=600, test=100, seed=3) == split
    assert number_words("en", "de", train=600, test=100, seed=4) != split


def test_the_test_set_and_any_slice_have_their_share_of_the_few_short_lists():
    train, test = number_words("en", "de", train=2000, test=500, dates=0, seed=0)
    parts = [test, train[:500], train[-500:]]
    single = [sum("," not in pair.source for pair in part) / len(part) for part in parts]
    assert min(single) > 0.05 and max(single) < 1.5 * min(single)


def test_both_sides_say_the_same_numbers(split):
    german_of = {say(n, "en"): say(n, "de") for n in range(1000)}
    only_numbers = [pair for pair in split.train if "day" not in pair.source]
    assert len(only_numbers) > 300
    for source, target in only_numbers:
        assert [german_of[item] for item in source.split(", ")] == target.split(", ")


def test_dates_can_be_had_or_not(split):
    assert any("day, the" in pair.source for pair in split.train)
    assert not any("day" in pair.source for pair in number_words(train=300, test=10, dates=0).train)


def test_an_unknown_language_and_an_impossible_size_are_refused():
    with pytest.raises(ValueError, match="source: got 'xx', expected one of de, en, fr"):
        number_words("xx", "de")
    with pytest.raises(ValueError, match="gives only"):
        number_words(train=5000, test=10, max_items=1, dates=0)


def test_text_survives_the_tokenizer(split, german):
    for pair in split.test:
        assert german.decode(german.encode(pair.target)) == pair.target


def test_what_is_kept_apart_is_a_piece_of_its_own(german):
    assert "und" in german.pieces("einundneunzig")
    assert "und" not in german.pieces("hundert"), "the und in hundert is no word"


def test_the_vocabulary_is_no_larger_than_asked_for_and_starts_with_the_special_tokens(german):
    assert len(german) <= 120
    assert german.decode([BOS, *german.encode("neun"), EOS, PAD]) == "neun"


def test_a_saved_tokenizer_is_the_same_tokenizer(german, tmp_path):
    german.save(tmp_path / "german.json")
    assert Tokenizer.load(tmp_path / "german.json").encode("einundneunzig") == german.encode("einundneunzig")


def test_a_letter_never_seen_becomes_unknown_and_stays_visible(german):
    assert "<unk>" in german.decode(german.encode("neun ж"))


def test_a_batch_is_shifted_by_one_and_padded_behind():
    batch = collate([EncodedPair([5, 6, 7], [8, 9]), EncodedPair([5], [8])])
    assert batch.source.tolist() == [[5, 6, 7], [5, PAD, PAD]] and batch.lengths.tolist() == [3, 1]
    assert batch.target_in.tolist() == [[BOS, 8, 9], [BOS, 8, PAD]]
    assert batch.target_out.tolist() == [[8, 9, EOS], [8, EOS, PAD]]


def test_an_epoch_holds_every_pair_once_in_an_order_of_its_seed(split, german):
    pairs = encode_pairs([Pair(pair.target, pair.target) for pair in split.train], german, german)

    def epoch(seed):
        rows = (row for batch in batches(pairs, 32, seed) for row in zip(batch.source, batch.lengths, strict=True))
        return [tuple(source[:n].tolist()) for source, n in rows]

    assert sorted(epoch(0)) == sorted(tuple(pair.source) for pair in pairs)
    assert epoch(0) == epoch(0) != epoch(1)


def test_batches_of_similar_length_hold_little_padding(split, german):
    pairs = encode_pairs([Pair(pair.target, pair.target) for pair in split.train], german, german)
    padding = sum(int((batch.target_out == PAD).sum()) for batch in batches(pairs, 32, seed=0))
    at_random = sum(int((collate(pairs[i : i + 32]).target_out == PAD).sum()) for i in range(0, 600, 32))
    assert padding < at_random / 2


def test_an_empty_batch_or_source_is_refused():
    with pytest.raises(ValueError, match="pairs: got none"):
        collate([])
    with pytest.raises(ValueError, match="at least one token"):
        collate([EncodedPair([], [4])])


def test_lengths_are_whole_numbers():
    assert collate([EncodedPair([5], [8])]).lengths.dtype == torch.int64


def test_padding_comes_behind_the_tokens_and_the_mask_knows_it_from_the_lengths():
    tokens, mask = pad_batch([[4, 9, 5], [9], []], pad=9)
    assert tokens.tolist() == [[4, 9, 5], [9, 9, 9], [9, 9, 9]]
    assert mask.tolist() == [[True] * 3, [True, False, False], [False] * 3]
    assert tokens.dtype == torch.int64 and mask.dtype == torch.bool


def test_rows_of_a_batch_may_be_tensors_and_are_not_written_to():
    rows = [torch.tensor([4, 5]), torch.tensor([6])]
    tokens, mask = pad_batch(rows)
    assert tokens.tolist() == [[4, 5], [6, PAD]] and mask.tolist() == [[True, True], [True, False]]
    assert rows[1].tolist() == [6]


def test_a_batch_of_nothing_or_of_decimal_numbers_is_refused():
    with pytest.raises(ValueError, match="sequences: got none"):
        pad_batch([])
    with pytest.raises(TypeError, match=r"sequences\[1\]: got torch\.float32 of shape \(1,\), expected whole numbers"):
        pad_batch([[1], [2.5]])
