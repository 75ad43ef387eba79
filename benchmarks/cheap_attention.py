"""Lecture 12's trained models: what each cheaper attention gives up, with three seeds each.

    python benchmarks/cheap_attention.py [--seeds 0 1 2] [--only patterns recall …] [--save FILE] [--json]

* patterns: two layers of attention under four patterns, and one layer of minGRU, must find a marked letter; the loss of
  every step, averaged over five. Two controls tell the number of pairs from the number of hops between the letter and
  the position that must name it: few pairs and one hop, most pairs and two.
* rates: full attention of `patterns` again, at four learning rates: when it learns, and how high its loss rises after.
* partners: one layer with four heads answers three questions at every position: full attention, a window, Linformer.
* recall: associative recall by softmax attention and by linear attention, where one thing differs at a time: the
  feature map, the division by the sum of the weights, keys of length one, the update of the state, the width.
* shapes: the same recall by linear attention whose keys and values differ in width, with states of one size.
* strength: the same recall by the delta rule whose write strength is learned, one for all tokens or one for each key.
* overwritten: the plain sum and the delta rule again, where each name comes twice and the later number is asked for.
* sinks: a layer that needs its one head at some positions only, trained with full causal attention, and tested with
  it, with a window of 8, and with that window and one early token, the first or the second. All lines begin with the
  same token.
* any_first: the same, trained and tested on lines that begin with a letter like any other.
* own_answer: the same, where the first position has its old answer, 0, whatever its letter is.
* same_second: the same, where a letter like any other comes first, and second the token that all lines share.
* way_out: sinks again, where the weights of the tokens may sum to less than one, since a key of zeros takes the rest.

Finder and Clerk are those of the page, the tasks `attncourse.data.lookups`. Models of one part and one seed begin with
equal numbers where they have the same parameters, and see the same examples. In `patterns` each kind has the best of
six learning rates (the lowest mean loss of all steps), in `recall`, `strength` and `overwritten` of six (the highest
mean share that is recalled), chosen with a seed that is not used again. One thread; about a quarter of an hour of
processor time.

With `--only` the parts that it names are measured and put into the record that stands in `--save`; processor seconds
add up. The stored record was put together so, with the same versions throughout: `any_first`, `own_answer`,
`same_second`, `shapes` and `strength` were measured on 2026-11-28, after the rest, and the trials of `patterns` with
the lowest rate, which no pattern chose, on the same day; `rates` and `overwritten` on 2026-11-29.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial

import torch
from record import about, hand_over, output_arguments, standing
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, elu, normalize, pad

from attncourse.attention import MultiHeadAttention, attend, causal_mask
from attncourse.data.lookups import (
    FIRST,
    LETTERS,
    NAMES,
    TRIGGER,
    marked_lines,
    name_pairs,
    three_questions,
    triggered_lines,
)
from attncourse.efficient import LinformerAttention, bigbird, dense_mask, longformer, receptive_field, sliding_window
from attncourse.recurrent import LinearRecurrence
from attncourse.training import descend
from attncourse.transformer import Block, TransformerConfig

PILOT_SEED = 100
N = 32


def learn(model: nn.Module, draw: Callable, steps: int, lr: float, batch: int, seed: int) -> list[float]:
    """Adam on fresh examples; the loss of each step."""
    generator = torch.Generator().manual_seed(seed)

    def losses():
        while True:
            *seen, answers = draw(batch, generator)
            yield cross_entropy(model(*seen).flatten(0, -2), answers.flatten())

    return descend(model, losses(), steps, lr, progress=False).losses


@torch.no_grad()
def right(model: nn.Module, draw: Callable, seed: int, batch: int = 2000) -> Tensor:
    *seen, answers = draw(batch, torch.Generator().manual_seed(10_000 + seed))
    return (model(*seen).argmax(dim=-1) == answers).double()


def thinned(losses: list[float], every: int = 5) -> list[float]:
    return [round(sum(losses[at : at + every]) / every, 4) for at in range(0, len(losses), every)]


# Patterns


class Finder(nn.Module):
    def __init__(self, mask=None, n=N, d=32):
        super().__init__()
        config = TransformerConfig(vocab_size=16, d_model=d, n_layers=2, n_heads=2, d_ff=64, dropout=0.0)
        self.token, self.place, self.mask = nn.Embedding(16, d), nn.Embedding(n, d), mask
        self.blocks = nn.ModuleList(Block(config) for _ in range(2))
        self.read = nn.Linear(d, LETTERS)

    def forward(self, tokens):
        x = self.token(tokens) + self.place.weight                               # (batch, n, d)
        for block in self.blocks:
            x = block(x, mask=self.mask)
        return self.read(x[:, -1])                                               # (batch, letters)


class Carrier(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.token, self.layer, self.read = nn.Embedding(16, d), LinearRecurrence(d), nn.Linear(d, LETTERS)
        nn.init.constant_(self.layer.gate.bias, -3.0)                            # lets little in at first

    def forward(self, tokens):
        return self.read(self.layer(self.token(tokens))[:, -1])                  # (batch, letters)


def one_hop(mask: Tensor) -> Tensor:
    """The mask, where the last position, which answers, may also attend to all others."""
    return mask | (torch.arange(N) == N - 1)[:, None]


def two_hops() -> Tensor:
    """All pairs but those of the last position with the first half, where the marked letter is."""
    return (torch.arange(N) < N - 1)[:, None] | (torch.arange(N) >= N // 2)


PATTERNS = {
    "full": dense_mask(sliding_window(N - 1), N),
    "window": dense_mask(sliding_window(2), N),
    "window + global": dense_mask(longformer(2, 1), N),
    "BigBird": dense_mask(bigbird(N, 1, 1, 2), N),
    "few pairs, one hop": one_hop(dense_mask(sliding_window(2), N)),
    "most pairs, two hops": two_hops(),
}
PATTERN_RATES = (2.5e-3, 5e-3, 1e-2, 2e-2, 4e-2, 8e-2)


def patterns(seeds: list[int]) -> list[dict]:
    rows = []
    for name in (*PATTERNS, "minGRU"):
        row: dict = {"name": name}
        mask = None
        if name in PATTERNS:
            mask = PATTERNS[name]
            reached = receptive_field(mask, layers=2)[-1, : N // 2]              # of the half that holds the mark
            row |= {"pairs": mask.double().mean().item(), "reached": reached.double().mean().item()}

        def run(seed, lr, name=name, mask=mask):
            torch.manual_seed(seed)
            model = Finder(mask) if name in PATTERNS else Carrier()
            losses = learn(model, marked_lines, 350, lr, 32, seed)
            return {"seed": seed, "right": right(model, marked_lines, seed).mean().item(), "losses": thinned(losses)}

        pilots = {lr: sum(losses := run(PILOT_SEED, lr)["losses"]) / len(losses) for lr in PATTERN_RATES}
        lr = min(pilots, key=pilots.__getitem__)
        row |= {"lr": lr, "pilots": {f"{rate:g}": round(mean, 4) for rate, mean in pilots.items()}}
        row["runs"] = [run(seed, lr) for seed in seeds]
        below = [first_below(r["losses"]) for r in row["runs"]]
        print(f"{name:>20}, lr {lr}: below 0.5 at {below}, right", *(f"{r['right']:.3f}" for r in row["runs"]),
              row["pilots"], flush=True)  # fmt: skip
        rows.append(row)
    return rows


def first_below(losses: list[float], level: float = 0.5) -> int | None:
    """The step after which the mean over five steps was first below the level."""
    return next((5 * (at + 1) for at, loss in enumerate(losses) if loss < level), None)


def rates(seeds: list[int]) -> list[dict]:
    """Full attention at its own learning rate, at those of the sparse patterns, and at one between."""
    rows = []
    for lr in (5e-3, 1e-2, 2e-2, 4e-2):
        runs = []
        for seed in seeds:
            torch.manual_seed(seed)
            losses = thinned(learn(Finder(PATTERNS["full"]), marked_lines, 350, lr, 32, seed))
            below = first_below(losses)
            after = losses[below // 5 :] if below else []
            runs.append({"seed": seed, "below": below, "highest_after": max(after, default=None)})
        print(f"full, lr {lr}:", json.dumps(runs), flush=True)
        rows.append({"lr": lr, "runs": runs})
    return rows


# Partners


class Clerk(nn.Module):
    def __init__(self, attention, n=N, d=32):
        super().__init__()
        self.token, self.place = nn.Embedding(16, d), nn.Embedding(n, d)
        self.attention, self.read = attention, nn.Linear(d, 3 * LETTERS)

    def forward(self, tokens):
        x = self.token(tokens) + self.place.weight                               # (batch, n, d)
        return self.read(self.attention(x)).unflatten(-1, (3, LETTERS))          # (batch, n, 3, letters)


class Windowed(MultiHeadAttention):
    def forward(self, x):
        return super().forward(x, mask=dense_mask(sliding_window(2), x.shape[1]))


CLERKS = {"full": lambda: MultiHeadAttention(32, 4), "window 2": lambda: Windowed(32, 4)} | {
    f"Linformer, k = {k}": lambda k=k: LinformerAttention(32, 4, n_max=N, k=k) for k in (4, 8, 16)
}


def partners(seeds: list[int]) -> list[dict]:
    rows = []
    for name, build in CLERKS.items():
        runs = []
        for seed in seeds:
            torch.manual_seed(seed)
            model = Clerk(build())
            learn(model, three_questions, 400, 1e-2, 32, seed)
            answers = right(model, three_questions, seed, 500).mean(dim=(0, 1))              # (3,)
            runs.append({"seed": seed} | dict(zip(("mark", "before", "mirror"), answers.tolist(), strict=True)))
        print(f"{name:>18}:", *(f"{r['mark']:.2f}/{r['before']:.2f}/{r['mirror']:.2f}" for r in runs), flush=True)
        rows.append({"name": name, "runs": runs})
    return rows


# Recall


def positive(x):
    return elu(x) + 1


def identity(x):
    return x


def unit(x):
    return normalize(x, dim=-1)


def summed(phi, divided=False):
    """Attention by a state: S is the sum of φ(k) vᵀ over all pairs."""

    def attention(query, key, value):                                            # (batch, 1, d), (batch, m, d) twice
        query, key = phi(query), phi(key)
        found = query @ (key.mT @ value)                                         # (batch, 1, d)
        return found / (query @ key.sum(dim=1, keepdim=True).mT) if divided else found

    return attention


def corrected(query, key, value):
    """The delta rule: what is stored under a key is taken off before its value is added, S ← S + kᵀ (v − k S).

    What is added at each step solves a triangular system: u_t + Σ_{s<t} (k_t · k_s) u_s = v_t. Yang et al. 2024.
    """
    return delta_rule(unit(query), unit(key), value, torch.ones(()))


def delta_rule(query, key, value, beta):
    """S ← S + β kᵀ (v − k S): u_t + β_t Σ_{s<t} (k_t · k_s) u_s = β_t v_t."""
    earlier = beta * (key @ key.mT).tril(-1)                                     # (batch, m, m)
    added = torch.linalg.solve_triangular(earlier, beta * value, upper=False, unitriangular=True)
    return query @ (key.mT @ added)                                              # (batch, 1, d)


class OneStrength(nn.Module):
    """The delta rule with one write strength, learned, for all tokens; it begins at a half."""

    def __init__(self, d):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(()))

    def beta(self, key):
        return self.bias.sigmoid()

    def forward(self, query, key, value):
        query, key = unit(query), unit(key)
        return delta_rule(query, key, value, self.beta(key))


class StrengthOfEach(OneStrength):
    """The same with a write strength that is computed from each key."""

    def __init__(self, d):
        super().__init__(d)
        self.weight = nn.Parameter(torch.zeros(d))

    def beta(self, key):
        return (key @ self.weight + self.bias).sigmoid().unsqueeze(-1)           # (batch, m, 1)


class Recall(nn.Module):
    def __init__(self, attention, d_k, d_v):
        super().__init__()
        self.query, self.key = nn.Embedding(NAMES, d_k), nn.Embedding(NAMES, d_k)
        self.value, self.read = nn.Embedding(LETTERS, d_v), nn.Linear(d_v, LETTERS)
        self.attention = attention

    def forward(self, names, numbers, asked):
        q, k, v = self.query(asked), self.key(names), self.value(numbers)
        return self.read(self.attention(q, k, v))                                # (batch, 1, numbers)


SIZES = (2, 4, 8, 16, 32, 64)
RATES = (2e-2, 5e-2, 1e-1, 2e-1, 4e-1, 8e-1)
SHAPES_RATE = 5e-2
KINDS = {
    "softmax": lambda *qkv: attend(*qkv)[0],
    "elu + 1, divided": summed(positive, divided=True),
    "elu + 1": summed(positive),
    "identity": summed(identity),
    "unit keys": summed(unit),
    "unit keys, delta rule": corrected,
}
STRENGTHS = {"delta rule, one β learned": OneStrength, "delta rule, a β for each key": StrengthOfEach}
WIDTHS = {name: (16,) for name in ("softmax", *STRENGTHS)}


REWRITTEN = {name: KINDS[name] for name in ("unit keys", "unit keys, delta rule")} | STRENGTHS


def names_twice(batch: int, generator: torch.Generator, m: int | None = None) -> tuple[Tensor, ...]:
    """`m` pairs of m / 2 names, each name twice, in any order, with numbers of their own; the later one is asked."""
    m = 2 * int(torch.randint(1, 33, (1,), generator=generator)) if m is None else m
    few = torch.rand(batch, NAMES, generator=generator).argsort(dim=-1)[:, : m // 2]         # (batch, m / 2)
    order = torch.rand(batch, m, generator=generator).argsort(dim=-1)
    names = torch.cat([few, few], dim=-1).gather(1, order)                       # (batch, m)
    numbers = torch.randint(LETTERS, (batch, m), generator=generator)            # (batch, m)
    asked = few.gather(1, torch.randint(m // 2, (batch, 1), generator=generator))            # (batch, 1)
    later = ((names == asked) * torch.arange(1, m + 1)).argmax(dim=-1, keepdim=True)         # (batch, 1)
    return names, numbers, asked, numbers.gather(1, later)


def recall(
    seeds: list[int],
    kinds: dict[str, Callable] = KINDS,
    draw: Callable = name_pairs,
    widths: dict[str, tuple[int, ...]] = WIDTHS,
) -> list[dict]:
    rows = []
    for name, attention in kinds.items():
        for d in widths.get(name, (16, 64)):

            def run(seed, lr, attention=attention, d=d):
                torch.manual_seed(seed)
                model = Recall(attention(d) if isinstance(attention, type) else attention, d, d)
                learn(model, draw, 600, lr, 64, seed)
                row = {"seed": seed, "right": recalled(model, seed, draw)}
                if isinstance(model.attention, OneStrength):
                    row["beta"] = model.attention.beta(unit(model.key.weight)).mean().item()
                return row

            pilots = {lr: sum(run(PILOT_SEED, lr)["right"].values()) for lr in RATES}
            lr = max(pilots, key=pilots.__getitem__)
            runs = [run(seed, lr) for seed in seeds]
            means = [sum(r["right"][m] for r in runs) / len(runs) for m in SIZES]
            print(f"{name:>22}, d = {d}, lr {lr}:", *(f"{mean:.2f}" for mean in means), flush=True)
            kept = {f"{rate:g}": round(total / len(SIZES), 4) for rate, total in pilots.items()}
            rows.append({"name": name, "d": d, "lr": lr, "pilots": kept, "runs": runs})
    return rows


def recalled(model: nn.Module, seed: int, draw: Callable = name_pairs) -> dict[int, float]:
    return {m: right(model, partial(draw, m=m), seed, 1000).mean().item() for m in SIZES}


def shapes(seeds: list[int]) -> list[dict]:
    """Wide keys with narrow values, and the reverse; the learning rate is the one `recall` chose at both widths."""
    rows = []
    for d_k, d_v in ((64, 16), (16, 64)):
        runs = []
        for seed in seeds:
            torch.manual_seed(seed)
            model = Recall(summed(identity), d_k, d_v)
            learn(model, name_pairs, 600, SHAPES_RATE, 64, seed)
            runs.append({"seed": seed, "right": recalled(model, seed)})
        print(f"d_k = {d_k}, d_v = {d_v}:", *(f"{run['right'][64]:.3f}" for run in runs), flush=True)
        rows.append({"name": "identity", "d_k": d_k, "d_v": d_v, "lr": SHAPES_RATE, "runs": runs})
    return rows


# Sinks


class Copier(nn.Module):
    """One causal head and a feed-forward network; `way_out` adds a key and a value of zeros."""

    def __init__(self, n=N, d=32, way_out=False):
        super().__init__()
        self.way_out = way_out
        self.token, self.place = nn.Embedding(10, d), nn.Embedding(n, d)
        self.project, self.output = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.think = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d))
        self.read, self.mask = nn.Linear(d, LETTERS), causal_mask(n)

    def forward(self, tokens):
        x = self.token(tokens) + self.place.weight                               # (batch, n, d)
        query, key, value = self.project(x).chunk(3, dim=-1)                     # (batch, n, d) each
        more = (0, 0, 0, int(self.way_out))
        mask = pad(self.mask, (0, int(self.way_out)), value=True)                # (n, n), or (n, n + 1)
        found, self.weights = attend(query, pad(key, more), pad(value, more), mask)
        x = x + self.output(found)
        return self.read(x + self.think(x))                                      # (batch, n, letters)


WINDOW = 8


def lines_with_any_first(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Lines whose first token is a letter like any other: its answer is the next one."""
    tokens, answers = lines_with_own_answer(batch, generator)
    answers[:, 0] = (tokens[:, 0] + 1) % LETTERS
    return tokens, answers


def lines_with_own_answer(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Lines whose first token is a letter, but has the answer 0, as the token that is always the same."""
    tokens, answers = triggered_lines(batch, generator, N)
    tokens[:, 0] = torch.randint(LETTERS, (batch,), generator=generator)
    return tokens, answers


def lines_with_same_second(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Lines whose second token is the same in all; the first is a letter like any other."""
    tokens, answers = triggered_lines(batch, generator, N - 1)
    letter = torch.randint(LETTERS, (batch, 1), generator=generator)
    return torch.cat([letter, tokens], dim=1), torch.cat([(letter + 1) % LETTERS, answers], dim=1)


def sinks(seeds: list[int], way_out: bool = False, draw: Callable = triggered_lines) -> list[dict]:
    query, key = torch.arange(N)[:, None], torch.arange(N)
    near = (key <= query) & (query - key < WINDOW)                               # (n, n)
    masks = {
        "full": causal_mask(N),
        "window": near,
        "window + first token": near | (key == 0),
        "window + second token": near | ((key == 1) & (key <= query)),
    }
    rows: list[dict] = []
    for seed in seeds:
        torch.manual_seed(seed)
        model = Copier(way_out=way_out)
        learn(model, draw, 400, 1e-2, 64, seed)
        tokens, answers = draw(1000, torch.Generator().manual_seed(10_000 + seed))
        late = torch.arange(N) >= WINDOW                                         # where the window has lost the first
        asks = {"trigger": (tokens == TRIGGER) & late, "letter": (tokens < FIRST) & late}
        row: dict = {"seed": seed, "loss": {}, "right": {}}
        for name, mask in masks.items():
            model.mask = mask
            with torch.no_grad():
                logits = model(tokens)                                           # (batch, n, letters)
            losses = cross_entropy(logits.flatten(0, 1), answers.flatten(), reduction="none").view_as(tokens)
            hits = (logits.argmax(dim=-1) == answers).double()
            row["loss"][name] = {kind: losses[where].mean().item() for kind, where in asks.items()}
            row["right"][name] = {kind: hits[where].mean().item() for kind, where in asks.items()}
            if name == "full":
                for place, early in enumerate(("weight_on_first", "weight_on_second")):
                    weight = model.weights[..., place]
                    row[early] = {kind: weight[where].mean().item() for kind, where in asks.items()}
        print(f"{draw.__name__}{', a way out' if way_out else ''}, seed {seed}:", json.dumps(row), flush=True)
        rows.append(row)
    return rows


PARTS = {
    "patterns": patterns,
    "rates": rates,
    "partners": partners,
    "recall": recall,
    "shapes": shapes,
    "strength": partial(recall, kinds=STRENGTHS),
    "overwritten": partial(recall, kinds=REWRITTEN, draw=names_twice, widths=dict.fromkeys(REWRITTEN, (16,))),
    "sinks": sinks,
    "any_first": partial(sinks, draw=lines_with_any_first),
    "own_answer": partial(sinks, draw=lines_with_own_answer),
    "same_second": partial(sinks, draw=lines_with_same_second),
    "way_out": partial(sinks, way_out=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=PARTS, help="these parts alone; --save keeps the others")
    output_arguments(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)

    command = f"python benchmarks/cheap_attention.py --seeds {' '.join(map(str, args.seeds))}"
    result = {**about("cheap_attention", command), "seeds": args.seeds, "processor_seconds": 0}
    if args.only and args.save and args.save.exists():
        result = standing(args.save, seeds=args.seeds)
    for name in args.only or PARTS:
        began = time.process_time()
        result[name] = PARTS[name](args.seeds)
        print(f"{name}: {time.process_time() - began:.0f} s of processor time", flush=True)
    result["processor_seconds"] += round(time.process_time())
    hand_over(result, args, depth=4)


if __name__ == "__main__":
    main()
