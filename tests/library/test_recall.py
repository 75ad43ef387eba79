"""Letters with digits, and a question that can be answered from them."""

import pytest
import torch

from attncourse.data.recall import letters_with_digits


def test_the_answer_is_the_digit_of_the_letter_that_is_asked_for():
    letters, digits, asked, answer = letters_with_digits(200, 7, torch.Generator().manual_seed(0))
    assert letters.shape == digits.shape == (200, 7) and asked.shape == answer.shape == (200,)
    for row in range(200):
        said = dict(zip(letters[row].tolist(), digits[row].tolist(), strict=True))
        assert len(said) == 7 and said[int(asked[row])] == int(answer[row])
    assert set(letters.flatten().tolist()) == set(range(26)) and set(digits.flatten().tolist()) == set(range(10))


def test_every_place_is_asked_for_and_equal_seeds_draw_equal_pairs():
    letters, _, asked, _ = letters_with_digits(300, 5, torch.Generator().manual_seed(1))
    places = (letters == asked[:, None]).int().argmax(dim=1)
    assert torch.bincount(places).min() > 30
    again, *_ = letters_with_digits(300, 5, torch.Generator().manual_seed(1))
    assert torch.equal(letters, again)


@pytest.mark.parametrize("n", [0, 27])
def test_numbers_of_pairs_that_cannot_be_are_refused(n):
    with pytest.raises(ValueError, match="n: got"):
        letters_with_digits(2, n, torch.Generator())
