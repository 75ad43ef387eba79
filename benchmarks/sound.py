"""Lecture 13's listeners: what a contrastive model learns when its negatives come from one sound, or from any.

    python benchmarks/sound.py [--seeds 0 1 2] [--save FILE] [--json]

wav2vec's game as on the page, 400 sung sounds to learn from, 360 steps of 24 sounds. A seed decides the first weights,
the batches, the spans and the negatives. Listeners differ in where their negatives come from:

* any sound: from the whole batch, in all steps;
* one sound: for 30 steps from the whole batch, then from the sound of the frame itself;
* one sound, from the start: from the sound of the frame itself in all steps;
* any sound, 30 steps: where the second of these changes, at the same learning rates;
* one singer, any sound: negatives from the whole batch, but all sounds have one pitch and one size of head.

A linear probe for the vowel of a frame and one for the logarithm of the pitch are fitted to the 400 sounds and asked
about 200 others: on each listener's output, and on its frames, before the Transformer; on one that was not trained, on
log spectra, and on the first formant as it was sung (powers of its logarithm). Where all sounds are of one singer, the
probes for vowels are fitted to and asked about such sounds, on a listener that was not trained, too. `confusions`
counts, over all seeds, which vowel (row) was taken for which. `losses` are means over ten steps each. `codes` is the
share of each entry of a codebook, most used first, on points of eight kinds: from a fair start, with an entry that
starts as the favourite, and so with the diversity loss.

One thread; about four minutes of processor time.
"""

import argparse
import math
import time
from unittest.mock import patch

import torch
import torch.nn.functional as F
from record import about, hand_over, output_arguments
from torch import Tensor, nn

from attncourse.beyond_text import (
    Quantizer,
    Wav2Vec2,
    Wav2Vec2Config,
    contrastive_loss,
    diversity_loss,
    sample_negatives,
    span_mask,
)
from attncourse.data import vowels as voices
from attncourse.data.vowels import FORMANTS, Sounds, vowels

STEPS = 360
CENTRES = 100 + 160 * torch.arange(49)  # the middle sample of each frame

draws = torch.Generator().manual_seed(1)
heard, unheard = (vowels(n, noise=0.1, generator=draws) for n in (400, 200))


def one_singer() -> tuple[Sounds, Sounds]:
    """As many sounds to learn from and to ask about, all of one pitch, 150 hertz, and one size of head."""
    generator = torch.Generator().manual_seed(1)
    with patch.multiple(voices, PITCHES=(150.0, 150.0), SIZES=(1.0, 1.0)):
        learn, ask = (vowels(n, noise=0.1, generator=generator) for n in (400, 200))
    return learn, ask


# What a listener hears, how many steps begin with negatives from any sound, after how many it stops.
LISTENERS = {
    "untrained": (heard, unheard, 0, 0),
    "any sound": (heard, unheard, STEPS, STEPS),
    "one sound": (heard, unheard, 30, STEPS),
    "one sound, from the start": (heard, unheard, 0, STEPS),
    "any sound, 30 steps": (heard, unheard, STEPS, 30),
    "one singer, untrained": (*one_singer(), 0, 0),
    "one singer, any sound": (*one_singer(), STEPS, STEPS),
}


def listener(seed: int) -> Wav2Vec2:
    torch.manual_seed(seed)
    config = Wav2Vec2Config(
        d_model=64, n_layers=2, n_heads=4, d_ff=128, dropout=0.0, positions="rope",
        d_feature=64, kernels=(80, 4), strides=(40, 4), d_code=64,
    )  # fmt: skip
    model = Wav2Vec2(config)
    model.target = nn.Linear(64, 64)  # what takes the place of a codebook
    return model


def one_sound(mask, generator):
    return sample_negatives(mask, 10, generator)


def any_sound(mask, generator):
    return sample_negatives(mask[mask][None], 10, generator)


def play(model, waveform, draw, generator):
    z = model.frames(waveform)                                                            # (batch, 49, 64)
    mask = span_mask(len(z), z.shape[1], p=0.12, span=3, generator=generator)
    c = model.guess(model.contextualise(z, mask=mask)[mask])                              # (n_hidden, 64)
    q = model.target(z[mask])                                                             # (n_hidden, 64)
    return contrastive_loss(c, q, q[draw(mask, generator)])


def hear(seed, easy, sounds=heard, stop=STEPS, steps=STEPS, lr=4e-3):
    model, generator = listener(seed), torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(model.parameters(), lr, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=steps, pct_start=0.2)
    losses = []
    for step in range(stop):
        batch = torch.randint(len(sounds.waveform), (24,), generator=generator)
        draw = any_sound if step < easy else one_sound
        loss = play(model, sounds.waveform[batch], draw, generator)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    return model.eval(), losses


def spectra(waveform: Tensor) -> Tensor:
    """How loud each frequency is, 25 ms at a time, every 20 ms."""
    frames = waveform.unfold(-1, 200, 160) * torch.hann_window(200)                       # (..., n_frames, 200)
    return (torch.fft.rfft(frames).abs().square() + 0.01).log()                           # (..., n_frames, 101)


def first_formant(sounds) -> Tensor:
    """What there is to know who hears the first formant alone, and that exactly: (sounds, 49, 3)."""
    hertz = torch.tensor(list(FORMANTS.values()))[:, 0][sounds.vowel[:, CENTRES]] * sounds.size[:, None]
    height = (hertz / 500).log()
    return torch.stack([height, height**2, height**3], dim=-1)


def fit(x, y):
    """Least squares with a little ridge: weights (d + 1, answers)."""
    x = F.pad(x.flatten(0, 1), (0, 1), value=1.0).double()                                # (n, d + 1)
    ridge = 1e-3 * len(x) * torch.eye(x.shape[1])
    return torch.linalg.solve(x.mT @ x + ridge, x.mT @ y.flatten(0, 1).double())


def read(x, weight):
    return F.pad(x, (0, 1), value=1.0).double() @ weight                                  # (sounds, 49, answers)


def probe(inputs: Tensor, outputs: Tensor, learn: Sounds = heard, ask: Sounds = unheard) -> tuple[dict, Tensor]:
    """Share of vowels that are right, of the pitch's variance explained; which vowel was taken for which, (5, 5).

    Where all sounds have one pitch, there is nothing to explain.
    """
    mean, std = inputs.mean((0, 1)), inputs.std((0, 1)) + 1e-6
    a, b = (inputs - mean) / std, (outputs - mean) / std                                  # (sounds, 49, d)
    truth = ask.vowel[:, CENTRES]
    said = read(b, fit(a, F.one_hot(learn.vowel[:, CENTRES]))).argmax(dim=-1)             # (200, 49)
    confusion = torch.bincount(5 * truth.flatten() + said.flatten(), minlength=25).view(5, 5)
    found = {"vowel": round((said == truth).double().mean().item(), 4)}
    height, true_height = (sounds.pitch.log().view(-1, 1, 1) for sounds in (learn, ask))
    if learn.pitch.unique().numel() > 1:
        unexplained = (read(b, fit(a, height.expand(-1, 49, 1))) - true_height).square().mean() / true_height.var()
        found["pitch"] = round(1 - unexplained.item(), 4)
    return found, confusion


kinds = 2 * torch.randn(8, 16, generator=torch.Generator().manual_seed(0))


def two_views(n, generator):
    """Points of eight kinds, seen twice with different noise: (n, 16) each."""
    kind = torch.randint(8, (n,), generator=generator)
    return (kinds[kind] + 0.5 * torch.randn(n, 16, generator=generator) for _ in range(2))


def code_loss(quantizer, guess, alpha, generator):
    a, b = two_views(128, generator)
    codes, probabilities = quantizer(a, generator)                                        # (128, 16), (128, 1, 16)
    negatives = codes[sample_negatives(torch.ones(1, 128).bool(), 10, generator)]
    return contrastive_loss(guess(b), codes, negatives) + alpha * diversity_loss(probabilities)


def learn_codes(seed, alpha, favourite, steps=300):
    torch.manual_seed(seed)
    generator, quantizer = torch.Generator().manual_seed(seed), Quantizer(16, 16, n_groups=1, n_entries=16)
    quantizer.scores.bias.data[0] = favourite
    guess = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
    optimiser = torch.optim.Adam([*quantizer.parameters(), *guess.parameters()], lr=5e-3)
    for step in range(steps):
        quantizer.temperature = 2 * 0.25 ** (step / steps)
        loss = code_loss(quantizer, guess, alpha, generator)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return quantizer


def used(quantizer) -> Tensor:
    a, _ = two_views(4000, torch.Generator().manual_seed(1))
    return F.one_hot(quantizer.scores(a).argmax(dim=-1), 16).float().mean(dim=0)          # (16,)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    output_arguments(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)

    def listened(model, *sounds):
        with torch.no_grad():
            found, confusion = probe(*(model.features(each.waveform) for each in sounds), *sounds)
            before, _ = probe(*(model.frames(each.waveform) for each in sounds), *sounds)
        return found | {f"{what} of frames": value for what, value in before.items()}, confusion

    known = {"log spectra": probe(*(spectra(sounds.waveform) for sounds in (heard, unheard))),
             "first formant": probe(*map(first_formant, (heard, unheard)))}  # fmt: skip
    probes = {name: [found] for name, (found, _) in known.items()}
    confusions, losses = {name: table for name, (_, table) in known.items()}, {}
    for name, (learn, ask, easy, stop) in LISTENERS.items():
        probes[name], losses[name], confusions[name] = [], [], torch.zeros(5, 5, dtype=torch.long)
        for seed in args.seeds:
            model, curve = hear(seed, easy, learn, stop)
            found, confusion = listened(model, learn, ask)
            probes[name].append({"seed": seed, **found})
            losses[name].append([round(sum(curve[i : i + 10]) / 10, 3) for i in range(0, len(curve), 10)])
            confusions[name] += confusion
            print(f"{name:>25}", probes[name][-1], losses[name][-1][-1:], flush=True)

    codes = []
    for name, alpha, favourite in (("fair start", 0, 0), ("a favourite", 0, 30), ("diversity × 100", 100, 30),
                                   ("diversity × 1000", 1000, 30)):  # fmt: skip
        for seed in args.seeds:
            shares = used(learn_codes(seed, alpha, favourite)).sort(descending=True).values
            entries = math.exp(-(shares[shares > 0] * shares[shares > 0].log()).sum().item())
            codes.append({"name": name, "seed": seed, "entries": round(entries, 2),
                          "shares": [round(share, 4) for share in shares.tolist()]})  # fmt: skip
            print(f"{name:>25}", seed, codes[-1]["entries"], flush=True)

    result = {
        **about("sound", f"python benchmarks/sound.py --seeds {' '.join(map(str, args.seeds))}"),
        "seeds": args.seeds, "processor_seconds": round(time.process_time()), "steps": STEPS, "probes": probes,
        "losses": {name: curves for name, curves in losses.items() if curves[0]},
        "confusions": {name: table.tolist() for name, table in confusions.items()}, "codes": codes,
    }  # fmt: skip
    hand_over(result, args, depth=3)


if __name__ == "__main__":
    main()
