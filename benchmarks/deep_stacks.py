"""Lecture 08's deep stacks: which wirings of sublayers learn to spell, at which learning rate, from which start.

    python benchmarks/deep_stacks.py [--seeds 0 1 2] [--more 8] [--only PART] [--save FILE] [--json]

A small causal language model spells the numbers below a thousand, letter by letter. It has `depth` blocks of attention
and feed-forward network; a `wiring` says how x gets past a sublayer. What is measured is the loss on all thousand
numbers (nats per letter) after 60 steps of Adam on 16 numbers each. Models of one seed have the same embeddings and
sublayers at the start, and see the same numbers in the same order. None stands for a loss that is no number any more.

* sweep: post-norm, pre-norm and a block that one deck prints, six deep, at five learning rates,
  with the full rate at once and with a warm-up of 30 steps;
* branches: what makes a sublayer's contribution small, in post-norm, in pre-norm and without any norm;
* initialisation: six deep without residual connections, from Xavier's, He's and calibrated matrices;
* partial: the same, calibrated, with residual connections around one kind of sublayer alone; the token spread at the
  start is that of the last layer;
* mixing: the same without any residual connection, where each token keeps a share of its own value in place of the
  average, or where keys begin equal to queries four times as large; `own` is the mean weight of a token on itself, for
  each seed and layer, at the start;
* printed: two deep, that block, the block repaired, and that with a final norm; `--more` seeds; and at twice the rate;
* last_gradient: the gradient at the last block's second matrix in untrained models of 2 to 32 blocks; six seeds;
* longer: one block and six without residual connections, 500 steps in place of 60;
* warm_up: post-norm, six deep, at a rate of 0.01: the mean branch ratio and the token spread at the top at some steps
  of training, without and with a warm-up, with branches that begin at a fifth, and where Adam's averages rest on the
  gradients of 200 batches at the initial parameters before the first step;
* printed_normed: the sweep of the printed block, with a final norm;
* printed_final: the fourth arm of `printed` and `printed_twice`, the printed block with a final norm, same seeds;
* norm_steps: pre-norm, six deep, with RMSNorm in place of LayerNorm, and with norms that subtract the mean and do not
  divide, at two learning rates without a warm-up.

`--only mixing` (or `longer`, `warm_up`, `printed_normed`, `printed_final`, `norm_steps`) measures this part alone and
puts it into the record that FILE holds. One thread; about twelve minutes of processor time.
"""

import argparse
import math
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from record import about, hand_over, output_arguments, standing
from torch import Tensor, nn

from attncourse.attention import MultiHeadAttention
from attncourse.data.number_words import spelled_numbers
from attncourse.layers import FeedForward, LayerNorm, RMSNorm
from attncourse.transformer import initialise

RATES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
WARM_UPS = (0, 30)
DEPTHS = (2, 4, 8, 16, 32)
letters, spelled = spelled_numbers(1000)


class CausalAttention(MultiHeadAttention):
    def forward(self, x):
        return super().forward(x, causal=True)


class Speller(nn.Module):
    """A language model of letters, as on lecture 08's page."""

    def __init__(self, wiring, depth, d=32, final_norm=False):
        super().__init__()
        self.wiring = wiring
        self.token, self.position = nn.Embedding(len(letters), d), nn.Embedding(64, d)
        self.sublayers = nn.ModuleList()
        for _ in range(depth):
            self.sublayers += [CausalAttention(d, n_heads=4), FeedForward(d, 4 * d)]
        self.norms = nn.ModuleList(LayerNorm(d) for _ in self.sublayers)
        self.final_norm = LayerNorm(d) if final_norm else nn.Identity()
        self.output = nn.Linear(d, len(letters))
        initialise(self)

    def forward(self, tokens, stream=None):
        x = self.token(tokens) + self.position.weight[: tokens.shape[1]]          # (batch, n, d)
        for sublayer, norm in zip(self.sublayers, self.norms, strict=True):
            if stream is not None:
                stream.append(x)
            x = self.wiring(x, sublayer, norm)
        if stream is not None:
            stream.append(x)
        return self.output(self.final_norm(x))                                    # (batch, n, letters)


def no_residual(x, sublayer, norm):
    return sublayer(x)


def residual(x, sublayer, norm):
    return x + sublayer(x)


def post_norm(x, sublayer, norm):
    return norm(x + sublayer(x))


def pre_norm(x, sublayer, norm):
    return x + sublayer(norm(x))


def norm_on_the_branch(x, sublayer, norm):
    return x + norm(sublayer(x))


def as_printed(x, sublayer, norm):
    x = norm(x)
    return x + sublayer(x)


def residual_around(attention: bool) -> Callable:
    """A residual connection around attention alone, or around feed-forward networks alone, at a constant size of x."""

    def wiring(x, sublayer, norm):
        if isinstance(sublayer, MultiHeadAttention) != attention:
            return sublayer(x)
        return (x + sublayer(x)) / math.sqrt(2)

    return wiring


def attention_with_own_share(share: float) -> Callable:
    """No residual connection; a token's weight on itself is raised: (1 − share) α + share · I in place of α."""

    def wiring(x, sublayer, norm):
        if not isinstance(sublayer, MultiHeadAttention):
            return sublayer(x)
        return (1 - share) * sublayer(x) + share * sublayer.output(sublayer.value(x))

    return wiring


WIRINGS = {"post-norm": post_norm, "pre-norm": pre_norm, "as printed": as_printed}


def post_norm_scaled(carry: float, branch: float) -> Callable:
    """Post-norm with a factor on x and one on what is added to it."""

    def wiring(x, sublayer, norm):
        return norm(carry * x + branch * sublayer(x))

    return wiring


class Scaled(nn.Module):
    """A sublayer times a learned factor, or a factor for each feature."""

    def __init__(self, sublayer: nn.Module, start: Tensor):
        super().__init__()
        self.sublayer, self.scale = sublayer, nn.Parameter(start)

    def forward(self, x):
        return self.scale * self.sublayer(x)


def loss_of(model, chosen):
    tokens = spelled[chosen]
    tokens = tokens[:, : int((tokens >= 0).sum(dim=1).max())]
    logits = model(tokens[:, :-1].clamp(min=0))                                   # (batch, n, letters)
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=-1)


def train(model, lr, warm_up=0, steps=60, seed=0, optimizer=None, watch=None):
    """`watch`, if given, is called with the model and the number of steps taken, before the first and after each."""
    draws, losses = torch.Generator().manual_seed(seed), []
    optimizer = optimizer or torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    for step in range(steps):
        if watch:
            watch(model, step)
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / (warm_up + 1))
        loss = loss_of(model, torch.randint(1000, (16,), generator=draws))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if watch:
        watch(model, steps)
    return losses


def writes(sublayer: nn.Module) -> nn.Linear:
    """The linear layer with which a sublayer writes."""
    return sublayer.output if isinstance(sublayer, MultiHeadAttention) else sublayer.down


def quieter(model: Speller, factor: float) -> Speller:
    """The matrices that write begin smaller."""
    with torch.no_grad():
        for sublayer in model.sublayers:
            writes(sublayer).weight *= factor
    return model


def deep_norm_start(model: Speller, factor: float) -> Speller:
    """As DeepNorm begins: values, output projections, feed-forward networks are smaller; queries and keys are not."""
    with torch.no_grad():
        for sublayer in model.sublayers:
            attention = isinstance(sublayer, MultiHeadAttention)
            for linear in (sublayer.value, sublayer.output) if attention else (sublayer.up, sublayer.down):
                linear.weight *= factor
    return model


def scaled(model: Speller, start: Tensor) -> Speller:
    model.sublayers = nn.ModuleList(Scaled(sublayer, start.clone()) for sublayer in model.sublayers)
    return model


def normed_after(model: Speller, d: int) -> Speller:
    """A second norm at the end of each branch."""
    model.sublayers = nn.ModuleList(nn.Sequential(sublayer, LayerNorm(d)) for sublayer in model.sublayers)
    return model


def he(model: Speller) -> Speller:
    """He et al. 2015: every matrix has variance 2 / d_in."""
    for module in model.sublayers.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=math.sqrt(2 / module.in_features))
    return model


@torch.no_grad()
def calibrated(model: Speller) -> Speller:
    """Each sublayer writes as large as it reads (after Mishkin and Matas 2016), on all numbers."""
    tokens = spelled[:, :-1].clamp(min=0)
    x = model.token(tokens) + model.position.weight[: tokens.shape[1]]            # (1000, n, d)
    for sublayer in model.sublayers:
        writes(sublayer).weight *= x.norm() / sublayer(x).norm()
        x = model.wiring(x, sublayer, None)
    return model


def keys_as_queries(model: Speller) -> Speller:
    """Keys begin equal to queries, and queries four times as large: a token's score with itself is a large square."""
    with torch.no_grad():
        for attention in model.sublayers[::2]:
            attention.key.weight.copy_(attention.query.weight)
            attention.query.weight *= 4
    return model


def own_weights(model: Speller, share: float = 0.0) -> list[float]:
    """In each attention layer the mean weight, over heads and real tokens, that a token gives to itself."""
    tokens, stream, found = spelled[:, :-1], [], []
    with torch.no_grad():
        model(tokens.clamp(min=0), stream)
        for attention, x in zip(model.sublayers[::2], stream[::2], strict=False):
            weights: list[Tensor] = []
            MultiHeadAttention.forward(attention, x, causal=True, weights=weights)
            own = weights[0].diagonal(dim1=-2, dim2=-1).mean(dim=1)[tokens >= 0]            # (real tokens,)
            found.append(round(share + (1 - share) * own.mean().item(), 4))
    return found


def token_spread(x: Tensor) -> float:
    """How much of x (batch, n, d) differs between tokens: 0 where all are the same."""
    return ((x - x.mean(dim=(0, 1))).norm() / x.norm()).item()


def fresh(seed: int, wiring, depth: int, **options) -> Speller:
    torch.manual_seed(seed)
    return Speller(wiring, depth, **options)


def loss_after(model: Speller, seed: int, **options) -> float | None:
    """Train it; the loss on all numbers."""
    train(model, seed=seed, **options)
    with torch.no_grad():
        loss = loss_of(model, torch.arange(1000)).item()
    return round(loss, 4) if math.isfinite(loss) else None


def sweep(seeds: list[int]) -> list[dict]:
    rows = []
    for name, wiring in WIRINGS.items():
        for warm_up in WARM_UPS:
            for lr in RATES:
                models = [fresh(seed, wiring, 6, final_norm=(name == "pre-norm")) for seed in seeds]
                losses = [loss_after(model, seed, lr=lr, warm_up=warm_up)
                          for seed, model in zip(seeds, models, strict=True)]  # fmt: skip
                rows.append({"wiring": name, "warm_up": warm_up, "lr": lr, "losses": losses})
                print(f"{name:>12}, warm-up {warm_up:>2}, lr {lr:<6}", losses, flush=True)
    return rows


def branch_builders(depth: int, d: int = 32) -> dict[str, Callable[[int], Speller]]:
    """{name: seed → model}. All have 2 · depth sublayers; they differ in how large these are beside x."""
    alpha, beta, few = (2 * depth) ** 0.25, (8 * depth) ** -0.25, (2 * depth) ** -0.5

    def plain(wiring, final_norm=False):
        return lambda seed: fresh(seed, wiring, depth, final_norm=final_norm)

    def pre(seed):
        return fresh(seed, pre_norm, depth, final_norm=True)

    def bare(seed):
        return fresh(seed, residual, depth)

    return {
        "post-norm": plain(post_norm),
        "post-norm, branch × 0.5": plain(post_norm_scaled(1.0, 0.5)),
        "post-norm, branch × 0.2": plain(post_norm_scaled(1.0, 0.2)),
        "post-norm, branch × 2": plain(post_norm_scaled(1.0, 2.0)),
        "post-norm, × 0.2 at the start only": lambda seed: quieter(plain(post_norm)(seed), 0.2),
        "DeepNorm": lambda seed: deep_norm_start(plain(post_norm_scaled(alpha, 1.0))(seed), beta),
        "pre-norm": pre,
        "pre-norm, 1/√(2L) at the start": lambda seed: quieter(pre(seed), few),
        "LayerScale": lambda seed: scaled(pre(seed), torch.full((d,), 0.1)),
        "norm on the branch (OLMo 2)": plain(norm_on_the_branch, final_norm=True),
        "sandwich": lambda seed: normed_after(pre(seed), d),
        "no norm": bare,
        "no norm, 0 at the start": lambda seed: quieter(bare(seed), 0.0),
        "ReZero": lambda seed: scaled(bare(seed), torch.zeros(())),
    }


def branches(seeds: list[int]) -> list[dict]:
    rows = []
    for name, build in branch_builders(6).items():
        for lr in (1e-2, 3e-2):
            for warm_up in (0, 30) if "× 2" in name else (0,):
                losses = [loss_after(build(seed), seed, lr=lr, warm_up=warm_up) for seed in seeds]
                rows.append({"name": name, "warm_up": warm_up, "lr": lr, "losses": losses})
                print(f"{name:>36}, warm-up {warm_up:>2}, lr {lr:<6}", losses, flush=True)
    return rows


def initialisation(seeds: list[int]) -> list[dict]:
    rows = []
    starts = {"Xavier": lambda model: model, "He": he, "calibrated": calibrated}
    for name, start in starts.items():
        for lr in (1e-3, 3e-3, 1e-2):
            losses = [loss_after(start(fresh(seed, no_residual, 6)), seed, lr=lr) for seed in seeds]
            rows.append({"start": name, "lr": lr, "losses": losses})
            print(f"{name:>12}, lr {lr:<6}", losses, flush=True)
    return rows


def partial(seeds: list[int]) -> list[dict]:
    rows = []
    wirings = {"neither": no_residual, "feed-forward": residual_around(False), "attention": residual_around(True)}
    for name, wiring in wirings.items():
        spreads = []
        for seed in seeds:
            model, stream = calibrated(fresh(seed, wiring, 6)), []
            with torch.no_grad():
                model(spelled[:, :-1].clamp(min=0), stream)
            spreads.append(round(token_spread(stream[-1]), 4))
        for lr in (1e-3, 3e-3, 1e-2):
            losses = [loss_after(calibrated(fresh(seed, wiring, 6)), seed, lr=lr) for seed in seeds]
            rows.append({"residual": name, "lr": lr, "losses": losses, "spreads": spreads})
            print(f"residual around {name:>12}, lr {lr:<6}", losses, spreads, flush=True)
    return rows


def mixing(seeds: list[int]) -> list[dict]:
    rows = []
    variants = [("keys as queries", 0.0)] + [("own share", share) for share in (0.0, 0.5, 0.7, 0.8, 0.9, 1.0)]
    for name, share in variants:

        def build(seed, name=name, share=share):
            model = fresh(seed, attention_with_own_share(share), 6)
            return calibrated(keys_as_queries(model) if name == "keys as queries" else model)

        spreads, own = [], []
        for seed in seeds:
            model, stream = build(seed), []
            with torch.no_grad():
                model(spelled[:, :-1].clamp(min=0), stream)
            spreads.append(round(token_spread(stream[-1]), 4))
            own.append(own_weights(model, share))
        for lr in (1e-3, 3e-3, 1e-2):
            losses = [loss_after(build(seed), seed, lr=lr) for seed in seeds]
            rows.append({"start": name, "share": share, "lr": lr, "losses": losses, "spreads": spreads, "own": own})
            print(f"{name:>16}, share {share}, lr {lr:<6}", losses, spreads, flush=True)
    return rows


def printed(n_seeds: int, lr: float = 5e-3) -> dict[str, list]:
    models = {"as printed": (as_printed, False), "repaired": (pre_norm, False), "and final norm": (pre_norm, True)}
    found = {}
    for name, (wiring, final_norm) in models.items():
        found[name] = [loss_after(fresh(seed, wiring, 2, final_norm=final_norm), seed, lr=lr, warm_up=30, steps=90)
                       for seed in range(n_seeds)]  # fmt: skip
        print(f"{name:>16}", found[name], flush=True)
    return found


def last_gradients(n_seeds: int = 6) -> list[dict]:
    rows = []
    for name in ("post-norm", "pre-norm"):
        for depth in DEPTHS:
            norms = []
            for seed in range(n_seeds):
                model = fresh(seed, WIRINGS[name], depth, d=64, final_norm=(name == "pre-norm"))
                loss_of(model, torch.arange(0, 1000, 30)).backward()
                norms.append(round(model.sublayers[-1].down.weight.grad.norm().item(), 4))
            rows.append({"wiring": name, "depth": depth, "norms": norms})
            print(f"{name:>12}, {depth:>2} deep", norms, flush=True)
    return rows


def longer(seeds: list[int], steps: int = 500) -> list[dict]:
    rows = []
    for name, start, depth in (("Xavier", None, 1), ("Xavier", None, 6), ("calibrated", calibrated, 6)):
        for lr in (3e-4, 1e-3, 3e-3):
            models = [fresh(seed, no_residual, depth) for seed in seeds]
            losses = [loss_after(start(model) if start else model, seed, lr=lr, steps=steps)
                      for seed, model in zip(seeds, models, strict=True)]  # fmt: skip
            rows.append({"start": name, "depth": depth, "lr": lr, "steps": steps, "losses": losses})
            print(f"{name:>12}, {depth} deep, {steps} steps, lr {lr:<6}", losses, flush=True)
    return rows


def informed_adam(model: Speller, seed: int, batches: int = 200) -> torch.optim.Adam:
    """Adam whose averages rest on the gradients of so many other batches; no parameter has moved."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98))
    draws = torch.Generator().manual_seed(1000 + seed)
    for _ in range(batches):
        optimizer.zero_grad()
        loss_of(model, torch.randint(1000, (16,), generator=draws)).backward()
        optimizer.step()
    return optimizer


def branch_ratios(model: Speller, stream: list[Tensor]) -> list[float]:
    """Post-norm: the size of what each sublayer writes, over that of the x to which it is added."""
    return [(sublayer(x).norm() / x.norm()).item() for x, sublayer in zip(stream, model.sublayers, strict=False)]


WATCHED = (0, 1, 2, 5, 10, 20, 30, 40, 50, 60)


def warm_up(seeds: list[int]) -> list[dict]:
    rows = []
    variants = {"no warm-up": (0, 1.0, False), "warm-up": (30, 1.0, False),
                "× 0.2 at the start": (0, 0.2, False), "Adam's averages first": (0, 1.0, True)}  # fmt: skip
    for name, (steps_up, factor, informed) in variants.items():
        row = {"name": name, "lr": 1e-2, "steps": list(WATCHED), "losses": [], "ratios": [], "spreads": []}
        for seed in seeds:
            model, ratios, spreads = quieter(fresh(seed, post_norm, 6), factor), [], []

            def look(model, step, ratios=ratios, spreads=spreads):
                if step in WATCHED:
                    tokens, stream = spelled[torch.arange(0, 1000, 30), :-1].clamp(min=0), []
                    with torch.no_grad():
                        model(tokens, stream)
                        found = branch_ratios(model, stream)
                    ratios.append(round(sum(found) / len(found), 4))
                    spreads.append(float(f"{token_spread(stream[-1]):.4g}"))

            optimizer = informed_adam(model, seed) if informed else None
            row["losses"].append(loss_after(model, seed, lr=1e-2, warm_up=steps_up, optimizer=optimizer, watch=look))
            row["ratios"].append(ratios)
            row["spreads"].append(spreads)
        rows.append(row)
        print(f"{name:>22}", row["losses"], row["ratios"], row["spreads"], flush=True)
    return rows


def printed_normed(seeds: list[int]) -> list[dict]:
    rows = []
    for steps_up in WARM_UPS:
        for lr in RATES:
            losses = [loss_after(fresh(seed, as_printed, 6, final_norm=True), seed, lr=lr, warm_up=steps_up)
                      for seed in seeds]  # fmt: skip
            rows.append({"warm_up": steps_up, "lr": lr, "losses": losses})
            print(f"as printed, final norm, warm-up {steps_up:>2}, lr {lr:<6}", losses, flush=True)
    return rows


def printed_final(n_seeds: int = 8) -> dict[str, list]:
    """The printed block, two deep, with a final norm: at the rate of `printed`, and at twice that rate."""
    found = {}
    for name, lr in (("printed", 5e-3), ("printed_twice", 1e-2)):
        found[name] = [loss_after(fresh(seed, as_printed, 2, final_norm=True), seed, lr=lr, warm_up=30, steps=90)
                       for seed in range(n_seeds)]  # fmt: skip
        print(f"as printed, and final norm, lr {lr}", found[name], flush=True)
    return found


class MeanOnly(nn.Module):
    """LayerNorm's first step without its second: subtracts the mean, does not divide, then gain and bias."""

    def __init__(self, d: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x):
        return (x - x.mean(dim=-1, keepdim=True)) * self.weight + self.bias


def with_norms(model: Speller, norm: Callable[[int], nn.Module], d: int = 32) -> Speller:
    """The model with other norms, in front of every sublayer and of the output layer."""
    model.norms = nn.ModuleList(norm(d) for _ in model.norms)
    model.final_norm = norm(d)
    return model


def norm_steps(seeds: list[int]) -> list[dict]:
    rows = []
    for name, norm in (("RMSNorm", RMSNorm), ("subtract the mean only", MeanOnly)):
        for lr in (1e-2, 3e-2):
            losses = [loss_after(with_norms(fresh(seed, pre_norm, 6, final_norm=True), norm), seed, lr=lr)
                      for seed in seeds]  # fmt: skip
            rows.append({"name": name, "lr": lr, "losses": losses})
            print(f"pre-norm, {name:>22}, lr {lr:<6}", losses, flush=True)
    return rows


# The parts that can be measured by themselves.
ALONE = {"mixing": mixing, "longer": longer, "warm_up": warm_up, "printed_normed": printed_normed,
         "printed_final": lambda seeds: printed_final(), "norm_steps": norm_steps}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--more", type=int, default=8, help="seeds of the paired comparison")
    parser.add_argument("--only", choices=ALONE, help="measure this part alone")
    output_arguments(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)

    if args.only:
        if not args.save:
            parser.error("--only puts its runs into the record of --save FILE")
        record = standing(args.save, seeds=args.seeds)
        record[args.only] = ALONE[args.only](args.seeds)
        record["processor_seconds"] += round(time.process_time())
        hand_over(record, args, depth=2)
        return
    measured = {
        "sweep": sweep(args.seeds),
        "branches": branches(args.seeds),
        "initialisation": initialisation(args.seeds),
        "partial": partial(args.seeds),
        "mixing": mixing(args.seeds),
        "printed": printed(args.more),
        "printed_twice": printed(args.more, lr=1e-2),
        "last_gradient": last_gradients(),
        "longer": longer(args.seeds),
        "warm_up": warm_up(args.seeds),
        "printed_normed": printed_normed(args.seeds),
        "printed_final": printed_final(args.more),
        "norm_steps": norm_steps(args.seeds),
    }
    seeds = " ".join(map(str, args.seeds))
    result = {
        **about("deep_stacks", f"python benchmarks/deep_stacks.py --seeds {seeds} --more {args.more}"),
        "seeds": args.seeds, "processor_seconds": round(time.process_time()), **measured,
    }  # fmt: skip
    hand_over(result, args, depth=2)


if __name__ == "__main__":
    main()
