"""Counts on the bridge lie about the rule that draws them, and a day is smooth, closed, and half unseen."""

import torch

from attncourse.data.bridge import counts, days, rush


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_counts_lie_about_the_rush_and_never_below_zero():
    hours, counted = counts(4000, seeded())
    assert hours.min() >= 0 and hours.max() < 24 and counted.min() >= 0
    busy = rush(hours) > 120                                     # where no noise is cut off at zero
    error = (counted - rush(hours))[busy]
    assert abs(error.mean()) < 5 and 37 < error.std() < 43
    assert torch.equal(counts(5, seeded(), noise=0.0)[1], rush(counts(5, seeded(), noise=0.0)[0]))


def test_the_rush_has_its_two_peaks():
    day = rush(torch.linspace(0, 24, 97))
    assert day.argmax() == 32 and rush(torch.tensor(17.5)) > 250 and rush(torch.tensor(3.0)) < 32


def test_of_each_day_so_many_hours_were_counted_and_all_hours_are_counted_some_day():
    today, counted = days(500, seeded(), seen=6)
    assert today.shape == counted.shape == (500, 24)
    assert (counted.sum(dim=1) == 6).all() and counted.any(dim=0).all()


def test_a_day_is_smooth_and_closes_at_midnight():
    today, _ = days(2000, seeded())
    step = (today.roll(-1, dims=1) - today).square().mean(dim=0)  # (24,)  the last is from 23 to 0
    apart = (today.roll(-12, dims=1) - today).square().mean()
    assert step.max() < 0.25 * apart and step.max() < 1.3 * step.min()


def test_waves_that_go_round_twice_repeat_after_twelve_hours():
    today, _ = days(3, seeded(), waves=(2, 4))
    assert torch.allclose(today[:, :12], today[:, 12:], atol=1e-5)
