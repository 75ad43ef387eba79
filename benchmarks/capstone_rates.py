"""Assignment 10's capstone, swept: how much the learning rate matters in short trainings and in longer ones.

    python benchmarks/capstone_rates.py [--seeds 0 1 2] [--steps 120 350] [--rates 0.001 0.003 0.01 0.03] [--save FILE]

Each seed invents another language, as the check does. The training is that of the course's solution: AdamW, batches of
32 pairs, and a rate that rises to the one given here and declines to zero. Kept is how many of the 200 unseen sentences
are right to the last token. One thread.
"""

import argparse

import torch
import torch.nn.functional as F
from record import about, hand_over, output_arguments
from torch import nn

from attncourse_lessons.l10_training.exercises import train_translator as capstone

SIZE = 32


def translations(pairs: list, sources: list, rate: float, steps: int) -> list[list[int]]:
    """What the solution's model writes when its highest rate and its number of steps are these."""
    torch.manual_seed(17)
    model = capstone.Translator()
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps, cycle_momentum=False)
    by_length = sorted(pairs, key=lambda pair: len(pair[1]))
    for i in torch.randint(len(by_length) // SIZE, (steps,)).tolist():
        batch = by_length[SIZE * i : SIZE * (i + 1)]
        target = capstone.rectangle([[1, *target, 2] for _, target in batch])
        logits = model(capstone.rectangle([source for source, _ in batch]), target[:, :-1])
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return capstone.translate(model, sources)


def right(seed: int, rate: float, steps: int) -> int:
    """How many of the unseen sentences of the seed's language are right."""
    found = capstone._pairs(seed, capstone.TRAINING + capstone.UNSEEN)
    unseen, training = found[: capstone.UNSEEN], found[capstone.UNSEEN :]
    said = translations(training, [source for source, _ in unseen], rate, steps)
    n = sum(ids == target for ids, (_, target) in zip(said, unseen, strict=True))
    print(f"seed {seed}, {steps} steps, rate {rate:g}: {n} of {len(unseen)} right", flush=True)
    return n


def measure(seeds: list[int], steps: list[int], rates: list[float]) -> dict:
    """The record: {steps: {rate: sentences right, one number for each seed}}."""
    options = (f"--{name} {' '.join(map(str, values))}" for name, values in
               {"seeds": seeds, "steps": steps, "rates": rates}.items())  # fmt: skip
    record = about("capstone_rates", f"python benchmarks/capstone_rates.py {' '.join(options)}")
    record |= {"seeds": seeds, "of": capstone.UNSEEN}
    record["right"] = {str(n): {str(rate): [right(seed, rate, n) for seed in seeds] for rate in rates} for n in steps}
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, nargs="+", default=[120, 350])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.001, 0.003, 0.01, 0.03])
    output_arguments(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    hand_over(measure(options.seeds, options.steps, options.rates), options, depth=2)


if __name__ == "__main__":
    main()
