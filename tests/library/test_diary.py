"""Each card of a shuffled week is asked for the meal of the day after its own."""

import torch

from attncourse.data.diary import DAYS, MEALS, of_another_day, shuffled_weeks


def test_the_answer_of_a_card_is_the_meal_on_the_card_of_the_next_day():
    days, meals, tomorrow = shuffled_weeks(50, torch.Generator().manual_seed(0))
    assert days.shape == meals.shape == tomorrow.shape == (50, 7) and len(DAYS) == 7
    assert int(meals.min()) == 0 and int(meals.max()) == len(MEALS) - 1
    for row in range(50):
        eaten = dict(zip(days[row].tolist(), meals[row].tolist(), strict=True))
        assert sorted(eaten) == list(range(7))
        assert tomorrow[row].tolist() == [eaten[(day + 1) % 7] for day in days[row].tolist()]


def test_cards_lie_in_another_order_each_week_and_equal_seeds_draw_equal_weeks():
    first, again = (shuffled_weeks(20, torch.Generator().manual_seed(3))[0] for _ in range(2))
    assert torch.equal(first, again) and len({tuple(row) for row in first.tolist()}) > 15


def test_another_days_card_is_found_by_its_day_whatever_is_written_on_it():
    days, _, _ = shuffled_weeks(20, torch.Generator().manual_seed(5))
    written = torch.randn(20, 7, 3)
    for step in (-1, 0, 2, 7):
        found = of_another_day(days, written, step)                           # (20, 7, 3)
        for row in range(20):
            of_day = dict(zip(days[row].tolist(), written[row], strict=True))
            wanted = [of_day[(day + step) % 7] for day in days[row].tolist()]
            assert torch.equal(found[row], torch.stack(wanted))
