"""Sung vowels, made by a formula: as much sound as anyone wants, and it is known what is said where, and how high.

A voice is a sum of harmonics, whole multiples of its pitch, each as loud as the mouth's resonances, the formants, let
it be. Which vowel it is lies in the formants; the pitch lies in the distance of the harmonics.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attncourse._checks import check_at_least

RATE = 8000
"""Samples a second."""

# The first three formants in hertz, means over men: Peterson and Barney 1952, table II.
FORMANTS = {
    "heed": (270.0, 2290.0, 3010.0),
    "head": (530.0, 1840.0, 2480.0),
    "hod": (730.0, 1090.0, 2440.0),
    "who'd": (300.0, 870.0, 2240.0),
    "heard": (490.0, 1350.0, 1690.0),
}
BANDWIDTHS = (60.0, 90.0, 130.0)
PITCHES = (90.0, 240.0)
SIZES = (0.9, 1.2)
"""Formants of a speaker, as multiples of those in the table: a smaller head has higher ones."""

HOP = 40  # samples from one value of the envelopes to the next


class Sounds(NamedTuple):
    waveform: Float[Tensor, "batch n_samples"]
    """Mean zero, variance one, with noise."""
    vowel: Int[Tensor, "batch n_samples"]
    """Which of FORMANTS is said, by number: at a change, the one that is nearer."""
    pitch: Float[Tensor, " batch"]
    """Hertz."""
    size: Float[Tensor, " batch"]
    """The voice's formants are this many times those of FORMANTS."""


def vowels(
    n: int,
    seconds: float = 1.0,
    noise: float = 0.5,
    shortest: float = 0.08,
    longest: float = 0.2,
    generator: torch.Generator | None = None,
) -> Sounds:
    """Draw n sounds, each one voice that sings vowel after vowel, `shortest` to `longest` seconds each, on one pitch.

    Voices differ in pitch and in the size of the head. The noise has `noise` times the voice's variance.
    Raises ValueError for no sound, or vowels of no length.
    """
    check_at_least(1, n=n)
    if not 0 < shortest <= longest:
        raise ValueError(f"shortest: got {shortest}, expected more than 0 and at most longest = {longest}")
    n_steps = math.ceil(seconds * RATE / HOP)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    # Which vowel, when: lengths are drawn until the sound is over. A vowel is never followed by itself.
    most = math.ceil(seconds / shortest) + 1
    lengths = shortest + (longest - shortest) * uniform(n, most)                      # (n, most)  seconds
    lengths[:, 0] *= uniform(n)
    ends = (lengths.cumsum(dim=1) * RATE / HOP).contiguous()                          # (n, most)  steps
    hops = torch.randint(1, len(FORMANTS), (n, most), generator=generator)
    spoken = hops.cumsum(dim=1) % len(FORMANTS)                                       # (n, most)
    steps = torch.arange(n_steps, dtype=ends.dtype).expand(n, -1).contiguous()
    vowel = spoken.gather(1, torch.searchsorted(ends, steps, right=True))             # (n, n_steps)

    # The formants glide from one vowel to the next within 40 ms.
    formants = torch.tensor(list(FORMANTS.values()))[vowel].mT                        # (n, 3, n_steps)
    glide = 2 * (round(0.02 * RATE / HOP)) + 1
    formants = torch.nn.functional.pad(formants, (glide // 2, glide // 2), mode="replicate")
    formants = torch.nn.functional.avg_pool1d(formants, glide, stride=1)              # (n, 3, n_steps)
    low, high = SIZES
    size = low + (high - low) * uniform(n, 1, 1)                                      # (n, 1, 1)
    formants = formants * size
    low, high = PITCHES
    pitch = low * (high / low) ** uniform(n)                                          # (n,)

    voice = torch.zeros(n, n_steps * HOP)
    phase = 2 * math.pi * (uniform(n, 1) + pitch[:, None] * torch.arange(n_steps * HOP) / RATE)
    for k in range(1, int(RATE / 2 / PITCHES[0])):
        frequency = k * pitch[:, None]                                                # (n, 1)
        loud = resonance(frequency, formants) / k * (frequency < RATE / 2)            # (n, n_steps)
        loud = torch.nn.functional.interpolate(loud[:, None], scale_factor=HOP, mode="linear")[:, 0]
        voice += loud * torch.sin(k * phase)
    voice = voice / voice.std(dim=1, keepdim=True)
    waveform = voice + math.sqrt(noise) * torch.randn(voice.shape, generator=generator)
    waveform = (waveform - waveform.mean(dim=1, keepdim=True)) / waveform.std(dim=1, keepdim=True)
    return Sounds(waveform, vowel.repeat_interleave(HOP, dim=1), pitch, size.flatten())


def resonance(
    frequency: Float[Tensor, "*batch 1"], formants: Float[Tensor, "*batch n_formants n_steps"]
) -> Float[Tensor, "*batch n_steps"]:
    """How much a mouth with these formants makes of a tone: 1 for a deep one, much more near a formant, less above.

        Π_j 1 / √( (1 − (f/F_j)²)² + (f B_j/F_j²)² )
    """
    ratio = frequency.unsqueeze(-2) / formants                                        # (*batch, n_formants, n_steps)
    width = torch.tensor(BANDWIDTHS).unsqueeze(-1) / formants
    return ((1 - ratio**2) ** 2 + (ratio * width) ** 2).rsqrt().prod(dim=-2)
