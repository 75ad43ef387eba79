"""Lecture 08's slices through the loss of a deep network, with and without residual connections (Li et al. 2018).

    python benchmarks/loss_landscape.py [--seeds 0 1 2] [--save FILE] [--json]

Networks of 16 feed-forward layers, 32 wide, learn to tell two spirals apart. Both kinds have a norm in front of each
layer, so that the residual connection is the only difference. From the trained parameters we go some way in one random
direction and some way in another and write down the loss. A direction is as long, neuron by neuron, as the weights are
(filter normalisation). Kept are the slice of the first seed on a square, and for each seed two numbers, from 36
straight ways outwards: on what share of their steps the loss rises, and in what share of the disc it is below 0.1.

One thread; about half a minute of processor time.
"""

import argparse
import math
import time

import torch
import torch.nn.functional as F
from record import about, hand_over, output_arguments
from torch import Tensor, nn

TICKS = torch.linspace(-0.5, 0.5, 27)
KINDS = {"no residual": False, "residual": True}


def spirals() -> tuple[Tensor, Tensor]:
    """Points (400, 3), the last column ones, and on which of the two spirals each lies, (400,)."""
    generator = torch.Generator().manual_seed(0)
    angle = math.pi * torch.linspace(0.5, 2.5, 200)
    arm = angle[:, None] / 6 * torch.stack([angle.cos(), angle.sin()], dim=1)            # (200, 2)
    points = torch.cat([arm, -arm]) + 0.02 * torch.randn(400, 2, generator=generator)    # (400, 2)
    return torch.cat([points, torch.ones(400, 1)], dim=1), torch.arange(2).repeat_interleave(200)


POINTS, SIDE = spirals()


def spiral_loss(matrices: list[Tensor], with_residual: bool) -> Tensor:
    """The loss, for one set of matrices (d_in, d_out) each, or for many at once, (many, d_in, d_out)."""
    first, *layers, output = matrices
    x = POINTS @ first                                    # (…, 400, 32)
    for W in layers:
        found = (F.layer_norm(x, (32,)) @ W).relu()       # (…, 400, 32)
        x = x + found if with_residual else found
    logits = F.layer_norm(x, (32,)) @ output              # (…, 400, 2)
    return -logits.log_softmax(dim=-1)[..., torch.arange(400), SIDE].mean(dim=-1)        # (…,)


def learn_spirals(with_residual: bool, seed: int, depth: int = 16, steps: int = 160) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(3, 32), *[(32, 32)] * depth, (32, 2)]
    matrices = [torch.randn(shape, generator=generator) * math.sqrt(2 / shape[0]) for shape in shapes]
    matrices = [W.requires_grad_() for W in matrices]
    optimiser = torch.optim.Adam(matrices)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * min(1, (step + 1) / 20) * (1 - step / steps)
        loss = spiral_loss(matrices, with_residual)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(matrices, 1.0)
        optimiser.step()
    return [W.detach() for W in matrices]


def direction(matrices: list[Tensor], generator: torch.Generator) -> list[Tensor]:
    """A random direction in which each neuron's weights move by as much as they are long."""
    drawn = [torch.randn(W.shape, generator=generator) for W in matrices]
    return [D * W.norm(dim=0) / D.norm(dim=0) for D, W in zip(drawn, matrices, strict=True)]


@torch.no_grad()
def losses_around(matrices: list[Tensor], with_residual: bool, places: Tensor, seed: int = 0) -> Tensor:
    """Losses (many,) at places (many, 2) of the slice."""
    generator = torch.Generator().manual_seed(seed)
    one, two = direction(matrices, generator), direction(matrices, generator)
    a, b = places[:, 0, None, None], places[:, 1, None, None]
    moved = [W + a * D + b * E for W, D, E in zip(matrices, one, two, strict=True)]
    return spiral_loss(moved, with_residual)


def square(matrices: list[Tensor], with_residual: bool) -> Tensor:
    grid = torch.cartesian_prod(TICKS, TICKS)             # (729, 2)
    losses = [losses_around(matrices, with_residual, part) for part in grid.split(81)]
    return torch.cat(losses).view(len(TICKS), len(TICKS))


def bowl(matrices: list[Tensor], with_residual: bool, seed: int) -> dict[str, float]:
    """On what share of the steps outwards the loss rises, and in what share of the disc it is below 0.1."""
    steps, turns = torch.linspace(0, 0.5, 21), 2 * math.pi * torch.arange(36) / 36
    rays = torch.stack([turns.cos(), turns.sin()], dim=1)[:, None] * steps[:, None]      # (36, 21, 2)
    losses = torch.stack([losses_around(matrices, with_residual, ray, seed) for ray in rays])
    low = ((losses < 0.1) * steps).sum() / (steps.sum() * 36)     # a ring counts for more, the larger it is
    rising = (losses.diff(dim=1) > 0).float().mean()
    return {"seed": seed, "rising": round(rising.item(), 4), "low": round(low.item(), 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    output_arguments(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)

    slices, bowls = {}, {}
    for name, with_residual in KINDS.items():
        nets = [learn_spirals(with_residual, seed) for seed in args.seeds]
        slices[name] = [[float(f"{loss:.4g}") for loss in row] for row in square(nets[0], with_residual).tolist()]
        bowls[name] = [bowl(net, with_residual, seed) for net, seed in zip(nets, args.seeds, strict=True)]
        print(name, bowls[name], flush=True)
    command = f"python benchmarks/loss_landscape.py --seeds {' '.join(map(str, args.seeds))}"
    result = {
        **about("loss_landscape", command),
        "seeds": args.seeds, "processor_seconds": round(time.process_time()),
        "ticks": [round(tick, 6) for tick in TICKS.tolist()], "slices": slices, "bowls": bowls,
    }  # fmt: skip
    hand_over(result, args, depth=3)


if __name__ == "__main__":
    main()
