"""The sounds are what their formula says: harmonics of one pitch, loud where the formants are."""

import pytest
import torch

from attncourse.data.vowels import FORMANTS, RATE, SIZES, resonance, vowels


def seed(n):
    return torch.Generator().manual_seed(n)


def test_the_same_generator_makes_the_same_sounds():
    one, two = vowels(2, 0.5, generator=seed(0)), vowels(2, 0.5, generator=seed(0))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_sounds_have_mean_zero_and_variance_one():
    waveform = vowels(3, 0.5, generator=seed(0)).waveform
    assert waveform.shape == (3, RATE // 2)
    torch.testing.assert_close(waveform.mean(dim=1), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(waveform.std(dim=1), torch.ones(3))


def test_without_noise_all_of_a_sound_lies_at_multiples_of_its_pitch():
    # One vowel all along: nothing glides, and the lines are sharp.
    sounds = vowels(4, 1.0, noise=0.0, shortest=30.0, longest=30.0, generator=seed(1))
    power = torch.fft.rfft(sounds.waveform * torch.hann_window(RATE)).abs().square()  # (4, 4001)  a hertz apart
    for spectrum, pitch in zip(power, sounds.pitch.tolist(), strict=True):
        away = (torch.arange(len(spectrum)) / pitch + 0.5) % 1 - 0.5                    # in pitches, from a multiple
        assert spectrum[away.abs() * pitch < 4].sum() > 0.99 * spectrum.sum()


def test_no_vowel_follows_itself_and_each_lasts_as_long_as_it_should():
    sounds = vowels(20, 2.0, shortest=0.1, longest=0.2, generator=seed(2))
    for vowel in sounds.vowel:
        _, lengths = vowel.unique_consecutive(return_counts=True)
        inner = lengths[1:-1] / RATE                                               # the ends may be cut
        assert inner.min() > 0.09 and inner.max() < 0.21
    assert sounds.vowel.unique().tolist() == list(range(len(FORMANTS)))


def test_a_tone_at_a_formant_is_louder_than_its_neighbours():
    for formants in FORMANTS.values():
        table = torch.tensor(formants)[:, None]
        at, above = (resonance(torch.tensor([formants[0] * x]), table).item() for x in (1.0, 1.6))
        assert at > 3 * above


def test_each_harmonic_is_as_loud_as_the_formants_of_the_voices_size_make_it():
    sounds = vowels(6, 1.0, noise=0.0, shortest=30.0, longest=30.0, generator=seed(4))       # one vowel each
    power = torch.fft.rfft(sounds.waveform * torch.hann_window(RATE)).abs().square()         # (6, 4001)  a hertz apart
    formants = torch.tensor(list(FORMANTS.values()))[sounds.vowel[:, 0]] * sounds.size[:, None]
    for spectrum, of_voice, pitch in zip(power, formants, sounds.pitch.tolist(), strict=True):
        there = [spectrum[round(k * pitch) - 4 : round(k * pitch) + 5].sum().sqrt().item() for k in range(1, 12)]
        meant = [resonance(torch.tensor([k * pitch]), of_voice[:, None]).item() / k for k in range(1, 12)]
        ratios = torch.tensor(there) / torch.tensor(meant)
        assert ratios.max() < 1.05 * ratios.min()


def test_voices_differ_in_pitch_and_stay_within_their_range():
    pitch = vowels(50, 0.1, generator=seed(3)).pitch
    assert 90 <= pitch.min() < 120 and 200 < pitch.max() <= 240 and SIZES[0] < 1 < SIZES[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n": 0}, "n: got 0"),
        ({"n": 1, "shortest": 0.0}, "shortest: got"),
        ({"n": 1, "shortest": 1.0}, "longest = 0.2"),
    ],
)
def test_bad_input_is_refused_at_the_door(arguments, words):
    with pytest.raises(ValueError, match=words):
        vowels(**arguments)
