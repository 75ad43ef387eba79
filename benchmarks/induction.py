"""Lecture 07's induction heads: random letters that repeat, read by one block and by two.

    python benchmarks/induction.py [--seeds 0 1 2 3 4] [--steps 1200] [--only-control] [--save FILE] [--json]

A text is a stretch of 8 to 24 random letters, which is repeated until there are 48. A language model learns to predict
each next letter. In the first stretch nobody can. From the second letter of the repetition on, the letter that followed
the last time is the answer, at a distance that differs from text to text. Models of one block and of two, otherwise
equal (one head, width 64, RoPE), see the same texts if they have the same seed. As a control, a third kind has one
block of *two* heads, so as many heads as the two blocks have; it has the first three of the seeds.

Of each model the record has the loss on repeated letters along the way and at the end, and the loss by position in
texts that repeat after 20. `induction` is the last block's mean weight on the letter that followed the last time,
`cut` the same when the first block's attention is silenced (its W_O is zero); of several heads it is the head with
the most. Of the first model of two blocks, both heads' weights on one text are kept. With `--only-control` the
control is measured anew and put into FILE, beside what stands there. One thread; about four minutes of processor time.
"""

import argparse
import copy
import time

import torch
from record import about, hand_over, output_arguments, standing
from torch import Tensor
from torch.nn.functional import cross_entropy

from attncourse.training import descend
from attncourse.transformer import LanguageModel, TransformerConfig

LETTERS, N, SHORTEST, LONGEST = 26, 48, 8, 24
COMPARED, CONTROL = ((1, 1), (2, 1)), (1, 2)  # blocks, and heads of a block
EVERY, TESTED = 20, 1000


def repeating(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Texts (batch, N) and the lengths of their stretches (batch, 1)."""
    period = torch.randint(SHORTEST, LONGEST + 1, (batch, 1), generator=generator)
    stretch = torch.randint(LETTERS, (batch, N), generator=generator)
    return stretch.gather(1, torch.arange(N) % period), period


def losses_of(model: LanguageModel, texts: Tensor) -> Tensor:
    """The loss of each letter but the first, (batch, N - 1), in nats."""
    return cross_entropy(model(texts[:, :-1]).mT, texts[:, 1:], reduction="none")


def on_repeated(losses: Tensor, period: Tensor) -> float:
    """The mean loss of the letters that can be known: not those of the first stretch, nor the first of the second."""
    known = torch.arange(1, N) > period                                          # (batch, N - 1)
    return losses[known].mean().item()


def silenced(model: LanguageModel, layer: int) -> LanguageModel:
    """The model without this block's head: its W_O is zero."""
    changed = copy.deepcopy(model)
    changed.decoder.stack.blocks[layer].attention.sublayer.output.weight.data.zero_()
    return changed


def induction(model: LanguageModel, texts: Tensor, period: Tensor) -> float:
    """The last block's mean weight on the letter that followed the last time: of its heads, the largest."""
    _, weights = model(texts[:, :-1], with_weights=True)
    followed = torch.arange(1, N) - period                                       # (batch, N - 1)
    known, places = followed > 0, followed.clamp(min=0)[..., None]               # places: (batch, N - 1, 1)
    heads = weights[:, -1].unbind(dim=1)                                         # each (batch, N - 1, N - 1)
    return max(head.gather(-1, places)[..., 0][known].mean().item() for head in heads)


def play(layers: int, heads: int, steps: int, seed: int) -> tuple[dict, LanguageModel]:
    """Train from a seed; what the record keeps, and the model."""
    torch.manual_seed(seed)
    model = LanguageModel(
        TransformerConfig(
            vocab_size=LETTERS, d_model=64, n_layers=layers, n_heads=heads, d_ff=128, positions="rope", max_length=N,
            dropout=0.0,
        )
    )  # fmt: skip
    draws, curve = torch.Generator().manual_seed(seed), {}

    def losses():
        for step in range(steps):
            texts, period = repeating(64, draws)
            each = losses_of(model, texts)
            if step % EVERY == 0:
                curve[step] = on_repeated(each.detach(), period)
            yield each.mean()

    began = time.process_time()
    descend(model, losses(), steps, lr=3e-3, progress=False)
    seconds = time.process_time() - began
    texts, period = repeating(TESTED, torch.Generator().manual_seed(10_000 + seed))
    at_20 = texts[:, :20].repeat(1, 3)[:, :N]
    with torch.no_grad():
        run = {
            "layers": layers, "heads": heads, "seed": seed, "seconds": round(seconds, 1), "curve": curve,
            "repeated": on_repeated(losses_of(model, texts), period),
            "by_position": [round(x, 3) for x in losses_of(model, at_20).mean(dim=0).tolist()],
            "induction": induction(model, texts, period),
            "cut": induction(silenced(model, 0), texts, period),
            "without": [on_repeated(losses_of(silenced(model, layer), texts), period) for layer in range(layers)],
        }  # fmt: skip
    return run, model


def example(model: LanguageModel) -> dict:
    """A text of nine letters twice, and both heads' weights on it."""
    stretch = torch.randperm(LETTERS, generator=torch.Generator().manual_seed(7))[:9]
    text = stretch.repeat(2)                                                     # (18,)
    with torch.no_grad():
        _, weights = model(text[None], with_weights=True)
    return {
        "letters": "".join(chr(ord("a") + i) for i in text.tolist()),
        "weights": [[[round(x, 3) for x in row] for row in head] for head in weights[0, :, 0].tolist()],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--only-control", action="store_true", help="keep the other runs of the file in --save")
    output_arguments(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':<32}{'loss on repeated':>17}{'induction':>11}{'cut':>7}   without the heads of block 0, 1")
    runs, kept = [], None
    if args.only_control:
        old = standing(args.save, seeds=args.seeds)
        runs, kept = [run for run in old["runs"] if run["heads"] == 1], old["example"]
    for layers, heads in ((CONTROL,) if args.only_control else (*COMPARED, CONTROL)):
        for seed in args.seeds[: 3 if (layers, heads) == CONTROL else None]:
            run, model = play(layers, heads, args.steps, seed)
            runs.append(run)
            if layers == 2 and kept is None:
                kept = example(model)
            shape = f"{layers} blocks, {heads} heads each, seed {seed}"
            print(shape.ljust(32) + f"{run['repeated']:>17.3f}"
                  f"{run['induction']:>11.2f}{run['cut']:>7.2f}   "
                  + ", ".join(f"{x:.2f}" for x in run["without"]), flush=True)  # fmt: skip
    command = f"python benchmarks/induction.py --seeds {' '.join(map(str, args.seeds))} --steps {args.steps}"
    result = {**about("induction", command), "seeds": args.seeds, "runs": runs, "example": kept,
              "processor_seconds": round(time.process_time())}  # fmt: skip
    hand_over(result, args, depth=3)


if __name__ == "__main__":
    main()
