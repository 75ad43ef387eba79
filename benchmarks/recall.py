"""Lecture 01's bottleneck: one vector of d numbers against all states, asked for one of n letters with digits.

    python benchmarks/recall.py [--seeds 0 1 2] [--steps 800] [--longer READOUT …] [--save FILE] [--json]

A GRU reads n letters, each with a digit; then it is asked for one letter's digit (attncourse.data.recall). Readers
differ in one thing at a time:

* memory: what is left when the question comes, the last state, the mean of the states, or all states, over which
  attention takes a weighted average with the question as query;
* d: how wide embeddings and states are;
* readout: "product" multiplies what was found by a linear map of the question, number by number, so that the question
  can select; "concatenation" puts them side by side, as wide after that, which learns to far more slowly; "decoder" has
  a GRU cell read the question, with what was found as its state, as a decoder would.

Each reader is trained with 1, 2, 4, 8 and 16 pairs in turn, 64 in a batch. Its learning rate is the best of four on
one seed and draws that are not used again. Then each seed decides weights and draws; readers of one seed see the same
pairs and are tested on the same 2,000 for each n. `longer` trains the last state of 64 numbers six times as long, with
two of the readouts and a learning rate for each; `--longer concatenation` measures this one anew, and the record in
--save keeps the rest. One thread; about fifteen minutes of processor time.
"""

import argparse
import time
from collections.abc import Sequence

import torch
from record import about, hand_over, output_arguments, standing
from torch import nn
from torch.nn.functional import cross_entropy

from attncourse.attention import attend
from attncourse.data.recall import DIGITS, LETTERS, letters_with_digits
from attncourse.training import descend

PAIRS = (1, 2, 4, 8, 16)
RATES = (2.5e-3, 5e-3, 1e-2, 2e-2)
LONGER = ("product", "concatenation")
PILOT_SEED = 100
BATCH, TESTED = 64, 2000


class Reader(nn.Module):
    """Reads pairs, is asked for one, and says its digit. As on lecture 01's page, with its other readouts."""

    def __init__(self, memory: str, d: int, readout: str = "product"):
        super().__init__()
        self.memory, self.readout = memory, readout
        self.letter, self.digit = nn.Embedding(LETTERS, d), nn.Embedding(DIGITS, d)
        self.network = nn.GRU(d, d, batch_first=True)
        if readout == "decoder":
            self.cell = nn.GRUCell(d, d)
        else:
            self.scale = nn.Linear(d, d)
            self.combine = nn.Linear(2 * d if readout == "concatenation" else d, d)
        self.answer = nn.Linear(d, DIGITS)

    def forward(self, letters, digits, asked):
        states, _ = self.network(self.letter(letters) + self.digit(digits))      # (batch, n, d)
        question = self.letter(asked)                                            # (batch, d)
        if self.memory == "last state":
            states = states[:, -1:]                                              # (batch, 1, d)
        if self.memory == "mean pool":
            states = states.mean(dim=1, keepdim=True)                            # (batch, 1, d)
        found, _ = attend(question[:, None], states, states)                     # (batch, 1, d)
        found = found[:, 0]                                                      # (batch, d)
        if self.readout == "decoder":
            return self.answer(self.cell(question, found))                       # (batch, 10)
        if self.readout == "concatenation":
            both = torch.cat([found, self.scale(question)], dim=-1)              # (batch, 2 d)
        else:
            both = found * self.scale(question)                                  # (batch, d)
        return self.answer(self.combine(both).tanh())                            # (batch, 10)


def play(reader: Reader, steps: int, lr: float, seed: int) -> dict:
    """Train a fresh reader; the share of right answers for each number of pairs."""
    draws = torch.Generator().manual_seed(seed)

    def losses():
        for step in range(steps):
            letters, digits, asked, answer = letters_with_digits(BATCH, PAIRS[step % len(PAIRS)], draws)
            yield cross_entropy(reader(letters, digits, asked), answer)

    began = time.process_time()
    descend(reader, losses(), steps, lr=lr, progress=False)
    seconds = time.process_time() - began
    tested, right = torch.Generator().manual_seed(10_000 + seed), {}
    with torch.no_grad():
        for n in PAIRS:
            letters, digits, asked, answer = letters_with_digits(TESTED, n, tested)
            right[n] = (reader(letters, digits, asked).argmax(dim=-1) == answer).double().mean().item()
    return {"seed": seed, "right": right, "seconds": round(seconds, 1)}


def fresh(seed: int, *what) -> Reader:
    torch.manual_seed(seed)
    return Reader(*what)


def measure(memory: str, d: int, readout: str, steps: int, seeds: list[int]) -> dict:
    """Choose a learning rate, then train from each seed."""
    what = memory, d, readout
    pilots = {lr: play(fresh(PILOT_SEED, *what), steps, lr, PILOT_SEED)["right"] for lr in RATES}
    chosen = max(pilots, key=lambda lr: sum(pilots[lr].values()))
    runs = [play(fresh(seed, *what), steps, chosen, seed) for seed in seeds]
    return {"memory": memory, "d": d, "readout": readout, "steps": steps, "lr": chosen,
            "parameters": sum(p.numel() for p in fresh(0, *what).parameters()), "runs": runs}  # fmt: skip


def show(reader: dict) -> None:
    name = f"{reader['memory']}, d = {reader['d']}, {reader['readout']}, {reader['steps']} steps"
    means = [sum(run["right"][n] for run in reader["runs"]) / len(reader["runs"]) for n in PAIRS]
    print(f"{name:<52}{reader['lr']:>6g}" + "".join(f"{mean:>7.2f}" for mean in means), flush=True)


def trained_longer(readouts: Sequence[str], args: argparse.Namespace) -> list[dict]:
    readers = []
    for readout in readouts:
        readers.append(measure("last state", 64, readout, 6 * args.steps, args.seeds))
        show(readers[-1])
    return readers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--longer", nargs="+", choices=LONGER, help="these alone; the record in --save keeps the rest")
    output_arguments(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)

    print(f"{'share of right answers':<52}{'lr':>6}" + "".join(f"{n:>7}" for n in PAIRS))
    if args.longer:
        result = standing(args.save, seeds=args.seeds)
        result["longer"] = [reader for reader in result["longer"] if reader["readout"] not in args.longer]
        result["longer"] += trained_longer(args.longer, args)
        result["processor_seconds"] += round(time.process_time())
        hand_over(result, args, depth=3)
        return
    readers = []
    wanted = [(memory, d, "product") for d in (16, 32, 64, 128) for memory in ("last state", "attention")]
    wanted += [("last state", 256, "product"), ("mean pool", 64, "product"), ("last state", 64, "decoder")]
    wanted += [(memory, 64, "concatenation") for memory in ("last state", "attention")]
    wanted += [("last state", 128, "concatenation")]
    for what in wanted:
        readers.append(measure(*what, args.steps, args.seeds))
        show(readers[-1])
    longer = trained_longer(LONGER, args)

    command = f"python benchmarks/recall.py --steps {args.steps} --seeds {' '.join(map(str, args.seeds))}"
    result = {
        **about("recall", command),
        "seeds": args.seeds, "rates": RATES, "processor_seconds": round(time.process_time()),
        "readers": readers, "longer": longer,
    }  # fmt: skip
    hand_over(result, args, depth=3)


if __name__ == "__main__":
    main()
