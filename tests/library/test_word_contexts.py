"""Context counts are what one finds by hand."""

import pytest

from attncourse.data.word_contexts import word_contexts

TEXTS = [["the", "cat", "sat", "on", "the", "mat"], ["the", "dog", "sat"], ["mat"]]


def test_a_neighbour_within_reach_is_counted_each_time_and_one_beyond_it_is_not():
    found = word_contexts(TEXTS, words=["sat", "mat"], n_contexts=3, reach=2)
    assert found.contexts == ["the", "sat", "mat"] and found.occurrences["the"] == 3
    assert found.counts.tolist() == [[3, 0, 0], [1, 0, 0]]
    assert word_contexts(TEXTS, ["sat"], 3, reach=1).counts.tolist() == [[0, 0, 0]]
    assert word_contexts(TEXTS, ["sat"], 3, reach=3).counts.tolist() == [[3, 0, 1]]


def test_a_word_stands_beside_another_of_its_kind_and_not_beside_itself():
    assert word_contexts([["no", "no", "yes"]], ["no"], n_contexts=1).counts.tolist() == [[2]]


def test_a_window_does_not_reach_into_the_next_text():
    assert word_contexts([["a", "b"], ["c", "d"]], ["b"], n_contexts=4).counts.tolist() == [[1, 0, 0, 0]]


def test_fewer_words_than_columns_and_no_such_word():
    found = word_contexts([["a", "b"]], ["z"], n_contexts=10)
    assert found.counts.shape == (1, 2) and found.counts.sum() == 0


def test_no_columns_and_no_reach_are_refused():
    for wrong in ({"n_contexts": 0}, {"reach": 0}):
        with pytest.raises(ValueError, match="got 0, expected at least 1"):
            word_contexts(TEXTS, ["cat"], **wrong)
