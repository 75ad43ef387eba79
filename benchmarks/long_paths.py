"""Lecture 01's long path: can a recurrent network learn to name a token that it has read k tokens ago?

    python benchmarks/long_paths.py [--seeds 0 1 2] [--steps 300] [--part unlearnable] [--save FILE] [--json]

A text begins with one of ten tokens, and k tokens of noise follow, drawn from ten others. From its last state a network
must name the first token; guessing gives 0.1. The networks are those whose gradients the lecture draws: 64 numbers,
tokens as vectors of standard normal numbers (which are learned here), an RNN, an LSTM and a GRU as torch makes them,
and each with one thing changed at the start: W_h times 2.8, or 3 added to the bias of f or of z.

Each network is trained anew for each distance k, on fresh texts, 32 in a batch. Its learning rate is the best of three
on one seed and draws that are not used again. Then each seed decides weights and draws; networks of one seed and
distance see the same texts and are tested on the same 2,000.

`unlearnable` asks what a fresh GRU and LSTM learn about noise where nothing is to be kept: the name to say is drawn
anew, whatever the text, with k = 20, and half of the steps, at a rate of 0.01. Kept are, before and after: the mean of
the gate that keeps (z or f) over the noise, and the gradient that reaches the first token from the last state, as a
share of the one that reaches the last but one. `--part` measures this alone, and the record in --save keeps the rest.
One thread; about eight minutes of processor time.
"""

import argparse
import time
from typing import NamedTuple

import torch
from record import about, hand_over, output_arguments, standing
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from attncourse.training import descend

D, BATCH, TESTED, NAMES = 64, 32, 2000, 10  # NAMES: as many first tokens, and as many tokens of noise
DISTANCES = (5, 10, 20, 40, 60)
RATES = (3e-3, 1e-2, 3e-2)
PILOT_SEED = 100


class Start(NamedTuple):
    """A network, and what is changed in it before it learns: a factor on W_h, and a number added to one gate's bias."""

    kind: type[nn.RNNBase]
    grow: float = 1.0
    keep: float = 0.0


NETWORKS = {
    "RNN": Start(nn.RNN), "LSTM": Start(nn.LSTM), "GRU": Start(nn.GRU), "RNN, W_h × 2.8": Start(nn.RNN, grow=2.8),
    "LSTM, bias of f + 3": Start(nn.LSTM, keep=3.0), "GRU, bias of z + 3": Start(nn.GRU, keep=3.0),
}  # fmt: skip


class Namer(nn.Module):
    def __init__(self, start: Start):
        super().__init__()
        self.embedding = nn.Embedding(2 * NAMES, D)
        self.network = start.kind(D, D, batch_first=True)
        with torch.no_grad():
            self.network.weight_hh_l0 *= start.grow
            self.network.bias_ih_l0[D : 2 * D] += start.keep                     # an LSTM's forget gate, a GRU's z
        self.answer = nn.Linear(D, NAMES)

    def forward(self, tokens):
        states, _ = self.network(self.embedding(tokens))                         # (batch, 1 + k, D)
        return self.answer(states[:, -1])                                        # (batch, NAMES)


def first_and_noise(batch: int, k: int, generator: torch.Generator):
    """Texts of 1 + k tokens, and the token to name."""
    first = torch.randint(NAMES, (batch, 1), generator=generator)                # (batch, 1)
    noise = torch.randint(NAMES, 2 * NAMES, (batch, k), generator=generator)     # (batch, k)
    return torch.cat([first, noise], dim=1), first[:, 0]


def play(start: Start, k: int, steps: int, lr: float, seed: int) -> float:
    """Train a fresh network; the share of right names."""
    torch.manual_seed(seed)
    namer, draws = Namer(start), torch.Generator().manual_seed(seed)

    def losses():
        for _ in range(steps):
            tokens, first = first_and_noise(BATCH, k, draws)
            yield cross_entropy(namer(tokens), first)

    descend(namer, losses(), steps, lr=lr, progress=False)
    tokens, first = first_and_noise(TESTED, k, torch.Generator().manual_seed(10_000 + seed))
    with torch.no_grad():
        return (namer(tokens).argmax(dim=-1) == first).double().mean().item()


def measure(name: str, k: int, steps: int, seeds: list[int]) -> dict:
    """Choose a learning rate, then train from each seed."""
    pilots = {lr: play(NETWORKS[name], k, steps, lr, PILOT_SEED) for lr in RATES}
    chosen = max(pilots, key=pilots.__getitem__)
    right = [play(NETWORKS[name], k, steps, chosen, seed) for seed in seeds]
    print(f"{name:<22}{k:>4}{chosen:>8g}  " + " ".join(f"{share:.2f}" for share in right), flush=True)
    return {"network": name, "k": k, "pilots": pilots, "lr": chosen, "right": right}


def kept_and_reached(namer: Namer, k: int) -> dict[str, float]:
    """The mean of the gate that keeps, over the noise; and the first token's gradient, as a share of a near one's."""
    tokens, _ = first_and_noise(256, k, torch.Generator().manual_seed(1))
    x = namer.embedding(tokens).detach().requires_grad_()                        # (256, 1 + k, D)
    states, _ = namer.network(x)                                                 # (256, 1 + k, D)
    cell = namer.network
    gates = x[:, 1:] @ cell.weight_ih_l0.mT + states[:, :-1] @ cell.weight_hh_l0.mT + cell.bias_ih_l0 + cell.bias_hh_l0
    (states[:, -1] * torch.randn(256, D, generator=torch.Generator().manual_seed(2))).sum().backward()
    sizes = x.grad.norm(dim=-1).mean(dim=0)                                      # (1 + k,)
    return {"gate": gates[..., D : 2 * D].sigmoid().mean().item(), "gradient": (sizes[0] / sizes[-2]).item()}


def unlearnable(steps: int, seeds: list[int], k: int = 20, lr: float = 1e-2) -> list[dict]:
    found = []
    for name in ("GRU", "LSTM"):
        for seed in seeds:
            torch.manual_seed(seed)
            namer, draws = Namer(NETWORKS[name]), torch.Generator().manual_seed(seed)
            before = kept_and_reached(namer, k)

            def loss(namer: Namer = namer, draws: torch.Generator = draws) -> Tensor:
                tokens, _ = first_and_noise(BATCH, k, draws)
                return cross_entropy(namer(tokens), torch.randint(NAMES, (BATCH,), generator=draws))

            descend(namer, (loss() for _ in range(steps // 2)), steps // 2, lr=lr, progress=False)
            found.append({"network": name, "k": k, "seed": seed, "before": before, "after": kept_and_reached(namer, k)})
            print(found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--part", choices=("unlearnable",), help="measure this part alone")
    output_arguments(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)

    if args.part:
        result = standing(args.save, seeds=args.seeds, steps=args.steps)
        result["unlearnable"] = unlearnable(args.steps, args.seeds)
        result["processor_seconds"] += round(time.process_time())
        hand_over(result, args, depth=2)
        return
    print(f"{'share of right answers':<22}{'k':>4}{'lr':>8}  a seed each")
    found = [measure(name, k, args.steps, args.seeds) for name in NETWORKS for k in DISTANCES]
    command = f"python benchmarks/long_paths.py --steps {args.steps} --seeds {' '.join(map(str, args.seeds))}"
    result = {
        **about("long_paths", command),
        "seeds": args.seeds, "steps": args.steps, "rates": RATES, "d": D,
        "processor_seconds": round(time.process_time()), "found": found,
        "unlearnable": unlearnable(args.steps, args.seeds),
    }  # fmt: skip
    hand_over(result, args, depth=2)


if __name__ == "__main__":
    main()
