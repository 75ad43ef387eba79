"""Lecture 01's bottleneck: one vector of d numbers against all states, asked for one of n letters with digits.

    python benchmarks/recall.py [--seeds 0 1 2] [--steps 800] [--longer READOUT …] [--part NAME] [--save FILE] [--json]

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
--save keeps the rest. `by_quarter` asks the last state of 64 numbers, read out by the product, for pairs from each
quarter of the text, in 8,000 texts: where a long path is to blame, the first quarter is answered worst. `kept` varies
the vector and hardly the network: a GRU of 128 numbers hands the first 16, 32, 64 or all 128 numbers of its last state
to the readout, the product. `widest` trains the last state of 256 numbers six times as long, at half of the lowest
rate. `--part` measures one of these three alone, and the record in --save keeps the rest. One thread; about half an
hour of processor time.
"""

import argparse
import time
from collections.abc import Sequence
from functools import partial

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
QUARTERED, TESTED_BY_QUARTER = (8, 16), 8000  # numbers of pairs, texts
KEPT = (16, 32, 64, 128)


class Reader(nn.Module):
    """Reads pairs, is asked for one, and says its digit. As on lecture 01's page, with its other readouts."""

    def __init__(self, memory: str, d: int, readout: str = "product", kept: int | None = None):
        super().__init__()
        self.memory, self.readout, self.kept = memory, readout, kept or d
        if self.kept != d and (memory, readout) != ("last state", "product"):
            raise ValueError("a part of a vector is kept of the last state alone, and read out by the product")
        self.letter, self.digit = nn.Embedding(LETTERS, d), nn.Embedding(DIGITS, d)
        self.network = nn.GRU(d, d, batch_first=True)
        if readout == "decoder":
            self.cell = nn.GRUCell(d, d)
        else:
            self.scale = nn.Linear(d, self.kept)
            self.combine = nn.Linear(2 * d if readout == "concatenation" else self.kept, d)
        self.answer = nn.Linear(d, DIGITS)

    def forward(self, letters, digits, asked):
        states, _ = self.network(self.letter(letters) + self.digit(digits))      # (batch, n, d)
        question = self.letter(asked)                                            # (batch, d)
        if self.memory == "last state":
            states = states[:, -1:]                                              # (batch, 1, d)
        if self.memory == "mean pool":
            states = states.mean(dim=1, keepdim=True)                            # (batch, 1, d)
        found, _ = attend(question[:, None], states, states)                     # (batch, 1, d)
        found = found[:, 0, : self.kept]                                         # (batch, kept), else (batch, d)
        if self.readout == "decoder":
            return self.answer(self.cell(question, found))                       # (batch, 10)
        if self.readout == "concatenation":
            both = torch.cat([found, self.scale(question)], dim=-1)              # (batch, 2 d)
        else:
            both = found * self.scale(question)                                  # (batch, kept)
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


def measure(memory: str, d: int, readout: str, steps: int, seeds: list[int], kept: int | None = None) -> dict:
    """Choose a learning rate, then train from each seed."""
    what = memory, d, readout, kept
    pilots = {lr: play(fresh(PILOT_SEED, *what), steps, lr, PILOT_SEED)["right"] for lr in RATES}
    chosen = max(pilots, key=lambda lr: sum(pilots[lr].values()))
    runs = [play(fresh(seed, *what), steps, chosen, seed) for seed in seeds]
    part = {"kept": kept} if kept else {}
    return {"memory": memory, "d": d, **part, "readout": readout, "steps": steps, "lr": chosen,
            "parameters": sum(p.numel() for p in fresh(0, *what).parameters()), "runs": runs}  # fmt: skip


def by_quarter(readers: list[dict], steps: int, seeds: list[int]) -> dict:
    """Right answers by where the pair stood that is asked for, from the first quarter of the text to the last."""
    what, runs = ("last state", 64, "product"), []
    (lr,) = [each["lr"] for each in readers if (each["memory"], each["d"], each["readout"]) == what]
    for seed in seeds:
        reader = fresh(seed, *what)
        play(reader, steps, lr, seed)
        tested, right = torch.Generator().manual_seed(20_000 + seed), {}
        for n in QUARTERED:
            letters, digits, asked, answer = letters_with_digits(TESTED_BY_QUARTER, n, tested)
            with torch.no_grad():
                is_right = (reader(letters, digits, asked).argmax(dim=-1) == answer).double()    # (texts,)
            quarter = (letters == asked[:, None]).int().argmax(dim=1) * 4 // n                   # (texts,)
            right[n] = [is_right[quarter == i].mean().item() for i in range(4)]
        runs.append({"seed": seed, "right": right})
        print(f"by quarter, seed {seed}: {right}", flush=True)
    return {"memory": what[0], "d": what[1], "readout": what[2], "steps": steps, "lr": lr, "runs": runs}


def widest(steps: int, seeds: list[int]) -> dict:
    """The last state of 256 numbers with six times the training."""
    what, lr = ("last state", 256, "product"), min(RATES) / 2
    runs = [play(fresh(seed, *what), 6 * steps, lr, seed) for seed in seeds]
    reader = {"memory": what[0], "d": what[1], "readout": what[2], "steps": 6 * steps, "lr": lr, "runs": runs}
    show(reader)
    return reader


def show(reader: dict) -> None:
    part = f" ({reader['kept']} of it)" if "kept" in reader else ""
    name = f"{reader['memory']}, d = {reader['d']}{part}, {reader['readout']}, {reader['steps']} steps"
    means = [sum(run["right"][n] for run in reader["runs"]) / len(reader["runs"]) for n in PAIRS]
    print(f"{name:<52}{reader['lr']:>6g}" + "".join(f"{mean:>7.2f}" for mean in means), flush=True)


def trained_longer(readouts: Sequence[str], args: argparse.Namespace) -> list[dict]:
    readers = []
    for readout in readouts:
        readers.append(measure("last state", 64, readout, 6 * args.steps, args.seeds))
        show(readers[-1])
    return readers


def kept_in_part(steps: int, seeds: list[int]) -> list[dict]:
    readers = []
    for kept in KEPT:
        readers.append(measure("last state", max(KEPT), "product", steps, seeds, kept))
        show(readers[-1])
    return readers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--longer", nargs="+", choices=LONGER, help="these alone; the record in --save keeps the rest")
    parser.add_argument("--part", choices=("by_quarter", "kept", "widest"), help="measure this part alone")
    output_arguments(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)

    if args.part:
        result = standing(args.save, seeds=args.seeds)
        measured = {"kept": kept_in_part, "widest": widest, "by_quarter": partial(by_quarter, result["readers"])}
        result[args.part] = measured[args.part](args.steps, args.seeds)
        result["processor_seconds"] += round(time.process_time())
        hand_over(result, args, depth=3)
        return
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
        "readers": readers, "longer": longer, "by_quarter": by_quarter(readers, args.steps, args.seeds),
        "kept": kept_in_part(args.steps, args.seeds), "widest": widest(args.steps, args.seeds),
    }  # fmt: skip
    hand_over(result, args, depth=3)


if __name__ == "__main__":
    main()
