"""Small tasks for attention: what is asked for can be answered from the line, and by what is said of it."""

import pytest
import torch

from attncourse.data.lookups import (
    FIRST,
    LETTERS,
    TRIGGER,
    marked_lines,
    name_pairs,
    three_questions,
    triggered_lines,
)


def drawn(seed=0):
    return torch.Generator().manual_seed(seed)


def test_a_line_has_one_mark_in_its_first_half_and_its_letter_is_the_answer():
    tokens, answer = marked_lines(300, drawn(), n=10)
    marked = tokens >= LETTERS
    assert tokens.shape == (300, 10) and torch.equal(marked.sum(dim=1), torch.ones(300, dtype=torch.long))
    assert not marked[:, 5:].any() and marked[:, :5].any(dim=0).all()
    assert torch.equal(tokens[marked] - LETTERS, answer)


def test_the_three_questions_ask_for_the_mark_the_letter_before_and_the_mirrored_one():
    tokens, answers = three_questions(50, drawn(), n=7)
    letters = tokens % LETTERS
    for row in range(50):
        for i in range(7):
            mark, before, mirror = answers[row, i].tolist()
            assert mark == int(letters[row][tokens[row] >= LETTERS])
            assert before == int(letters[row, i - 1]) and mirror == int(letters[row, 6 - i])


def test_the_number_of_the_name_that_is_asked_for_is_the_answer():
    names, numbers, asked, answer = name_pairs(100, drawn(), 5)
    for row in range(100):
        said = dict(zip(names[row].tolist(), numbers[row].tolist(), strict=True))
        assert len(said) == 5 and said[int(asked[row])] == int(answer[row])


def test_without_a_number_there_are_two_to_64_pairs():
    seen = {name_pairs(1, drawn(seed))[0].shape[1] for seed in range(200)}
    assert min(seen) >= 2 and max(seen) <= 64 and len(seen) > 30


def test_a_trigger_asks_for_the_letter_before_and_a_letter_for_the_next_of_the_alphabet():
    tokens, answers = triggered_lines(200, drawn(), n=12)
    ask = tokens == TRIGGER
    assert (tokens[:, 0] == FIRST).all() and not ask[:, :2].any() and 0.1 < ask[:, 2:].float().mean() < 0.25
    assert not (ask[:, 1:] & ask[:, :-1]).any()
    assert torch.equal(answers[ask], tokens.roll(1, 1)[ask])
    letters = tokens < LETTERS
    assert torch.equal(answers[letters], (tokens[letters] + 1) % LETTERS)


def test_equal_seeds_draw_equal_lines():
    for task in (marked_lines, three_questions, name_pairs, triggered_lines):
        assert all(torch.equal(a, b) for a, b in zip(task(3, drawn(1)), task(3, drawn(1)), strict=True))


@pytest.mark.parametrize(
    ("task", "size", "words"),
    [(marked_lines, 1, "n: got 1"), (three_questions, 0, "n: got 0"), (name_pairs, 129, "m: got 129"),
     (triggered_lines, 2, "n: got 2")],
)  # fmt: skip
def test_lines_that_cannot_be_are_refused(task, size, words):
    with pytest.raises(ValueError, match=words):
        task(2, drawn(), size)
