"""Lecture 13's digits: what a ViT must learn that a convolution is born with, and whether pictures can tell it.

    python benchmarks/vision.py [--seeds 0 1 2 3 4 5] [--dear 0 1 2] [--only MODEL …] [--save FILE] [--json]

scikit-learn's 8 × 8 digits: 1,200 to learn from, 200 to choose by, 397 to report. A seed decides the first weights, the
batches and the shuffling; every model takes 450 steps of 64 pictures unless its name says otherwise. What is dear has
the seeds of `--dear`.

* models: right answers among the 200 and the 397, for the ViT and the CNN of the page, for an MLP, and for each of
  them with a change that its name says. "shuffled" is one permutation for all pictures, of patches or of pixels;
  "shifts" moves each picture by up to one pixel, drawn anew in every step. `moved` are the 397 moved by one pixel.
  A "wide frame" has five empty pixels on each side, and its convolutions pad nothing: a shift by one pixel cuts no ink,
  and no feature of the ink leaves the frame.
* few: the same with 120 pictures to learn from.
* baselines: what is fitted without a seed, on all pictures and on the 120.
* removed: right answers of the plain ViT among the 397 when four of the sixteen patches are replaced by what usually
  stands there: those with most and with least rollout, with most of each layer's weights and of the two layers' sum,
  four at random, those with most ink, and the four that differ most from what usually stands there. "changed as much"
  are four at random of those that change the picture as rollout's do: one of the ten sets of four whose squared change
  is nearest to that of rollout's. Both controls are means of five draws. "correlation with ink" is rollout's over the
  sixteen patches, the mean of the 397.
* places: pictures in a frame of 12 × 12, patch 2, 400 steps. In the middle; each moved once and for all, by up to two
  pixels; moved anew in every step. Means of the cosines of learned positions by how many steps along rows and columns
  lie between them, and right answers in the middle and moved. `maps` has the cosines of all pairs for the first seed.

One thread; about twenty minutes of processor time. With `--only` the models that it names (and "removed") are
measured and put into the record that stands in `--save`; processor seconds add up. The stored record was put together
so: the three controls of dropout, and the ViT with shifts and three times the steps, were measured after the rest, on
the same day; what has a wide frame or no pooling five days later; both ViTs on shuffled pixels, "removed", and all
learning rates but the page's after these. The versions are the same.
"""

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import replace

import torch
import torch.nn.functional as F
from record import about, hand_over, output_arguments, standing
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn

from attncourse.beyond_text import ViT, ViTConfig, attention_rollout, patchify, unpatchify

pixels, labels = load_digits(return_X_y=True)
images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 16                 # (1797, 1, 8, 8)
labels = torch.tensor(labels)
order = torch.randperm(len(images), generator=torch.Generator().manual_seed(12))
learn, choose, report = order[:1200], order[1200:1400], order[1400:]
normed = (images - images[learn].mean()) / images[learn].std()
PAPER = normed.min().item()  # a pixel without ink

CONFIG = ViTConfig(image_size=8, patch=2, channels=1, n_classes=10, d_model=64, n_layers=2, n_heads=4, d_ff=128)
STEPS = 450
FRAME = 5  # pixels around a digit: it moves by one, and two convolutions see two more on each side, or four from one


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),                                        # (batch, 16, 8, 8)
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),                                       # (batch, 32, 8, 8)
        nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 16, 10),
    )  # fmt: skip


def averaging_cnn() -> nn.Module:
    """The last layer gets the mean over all places, and so does not learn where anything stood."""
    return nn.Sequential(*small_cnn()[:5], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def moving_cnn(pools: bool, pads: bool, averages: bool = True) -> nn.Module:
    """The averaging CNN without its pooling, or without padding; or, in a wide frame, one that does not average."""
    pad = 1 if pads else 0
    layers = [nn.Conv2d(1, 16, 3, padding=pad), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=pad), nn.ReLU()]
    if pools:
        layers.append(nn.MaxPool2d(2))
    if averages:
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return nn.Sequential(*layers, nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * (8 + 2 * FRAME - 4) ** 2, 10))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, 10))


class AllRowsRead(nn.Module):
    """A ViT whose head reads not the class token's row alone but every row, each with weights of its own."""

    def __init__(self, dropout: float = 0.3):
        super().__init__()
        self.vit = ViT(CONFIG)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear((1 + CONFIG.n_patches) * CONFIG.d_model, 10)

    def forward(self, images: Tensor) -> Tensor:
        vit = self.vit
        x = vit.patches(patchify(images, CONFIG.patch))                                   # (batch, 16, 64)
        x = torch.cat([vit.class_token.expand(len(x), 1, -1), x], dim=1)                  # (batch, 17, 64)
        x = vit.stack(x + vit.positions(x.shape[1]))
        return self.head(self.dropout(x.flatten(1)))


def shifted(x: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Each picture moved by up to `most` pixels up or down, left or right; paper comes in at the edge."""
    size, wider = x.shape[-1], F.pad(x, 4 * (most,), value=PAPER)
    rows, columns = (torch.randint(2 * most + 1, (len(x), 1), generator=generator) + torch.arange(size) for _ in "rc")
    return wider[torch.arange(len(x))[:, None, None], 0, rows[:, :, None], columns[:, None, :]].unsqueeze(1)


def right(model: nn.Module, which: Tensor, x: Tensor = normed) -> float:
    model.eval()
    with torch.no_grad():
        return (model(x[which]).argmax(dim=-1) == labels[which]).float().mean().item()


def train(model, which=learn, steps=STEPS, lr=4e-3, images=normed, seed=0, most=0):
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=steps, pct_start=0.2)
    model.train()
    for _ in range(steps):
        batch = which[torch.randint(len(which), (64,), generator=generator)]
        x = images[batch] if most == 0 else shifted(images[batch], most, generator)
        loss = F.cross_entropy(model(x), labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return model


def fresh(build: Callable, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return build()


def shuffled(of: str, seed: int) -> Tensor:
    """All pictures with their patches, or their pixels, in another order: the same for all of them."""
    patch = {"patches": 2, "pixels": 1}[of]
    x, draws = patchify(normed, patch), torch.Generator().manual_seed(100 + seed)
    return unpatchify(x[:, torch.randperm(x.shape[1], generator=draws)], patch, 8, 8)


def vit() -> nn.Module:
    return ViT(CONFIG)


def vit_with_dropout() -> nn.Module:
    """Dropout before the head, as in the CNN and where all rows are read; the class token's row is read."""
    model = ViT(CONFIG)
    model.head = nn.Sequential(nn.Dropout(0.3), model.head)
    return model


def cnn_without_dropout() -> nn.Module:
    return nn.Sequential(*(layer for layer in small_cnn() if not isinstance(layer, nn.Dropout)))


# Name: what is built, and how it is trained.
MODELS: dict[str, tuple[Callable, dict]] = {
    "ViT": (vit, {}),
    "ViT, all rows read": (AllRowsRead, {}),
    "CNN": (small_cnn, {}),
    "CNN, patches shuffled": (small_cnn, {"of": "patches"}),
    "CNN, pixels shuffled": (small_cnn, {"of": "pixels"}),
    "CNN, mean over places": (averaging_cnn, {}),
    "MLP": (mlp, {}),
    "MLP, pixels shuffled": (mlp, {"of": "pixels"}),
    "ViT, pixels shuffled": (vit, {"of": "pixels"}),
    "ViT, all rows read, pixels shuffled": (AllRowsRead, {"of": "pixels"}),
}
RATES = (0.001, 0.002, 0.008)  # the page's is 0.004
DEAR: dict[str, tuple[Callable, dict]] = {
    "ViT, no positions": (lambda: ViT(replace(CONFIG, positions="none")), {}),
    "ViT, shifts": (vit, {"most": 1}),
    "CNN, shifts": (small_cnn, {"most": 1}),
    "ViT, three times the steps": (vit, {"steps": 3 * STEPS}),
    "ViT, shifts, three times the steps": (vit, {"most": 1, "steps": 3 * STEPS}),
    "ViT, dropout before the head": (vit_with_dropout, {}),
    "ViT, all rows read, no dropout": (lambda: AllRowsRead(dropout=0.0), {}),
    "CNN, no dropout": (cnn_without_dropout, {}),
    "CNN, mean over places, no pooling": (lambda: moving_cnn(pools=False, pads=True), {}),
    "CNN, mean over places, wide frame": (lambda: moving_cnn(pools=True, pads=False), {"frame": FRAME}),
    "CNN, mean over places, wide frame, no pooling": (lambda: moving_cnn(pools=False, pads=False), {"frame": FRAME}),
    "CNN, wide frame, no pooling": (lambda: moving_cnn(pools=False, pads=False, averages=False), {"frame": FRAME}),
} | {f"{name}, learning rate {lr}": (build, {"lr": lr}) for name, build in (("ViT", vit), ("CNN", small_cnn))
     for lr in RATES}  # fmt: skip


def measure(name: str, seed: int, which: Tensor = learn) -> tuple[nn.Module, dict]:
    build, how = (MODELS | DEAR)[name]
    x = shuffled(how["of"], seed) if "of" in how else F.pad(normed, 4 * (how.get("frame", 0),), value=PAPER)
    options = {key: value for key, value in how.items() if key not in ("of", "frame")}
    model = train(fresh(build, seed), which, images=x, seed=seed, **options)
    found = {"seed": seed, "choose": right(model, choose, x), "report": right(model, report, x)}
    if "of" not in how:
        found["moved"] = right(model, report, shifted(x, 1, torch.Generator().manual_seed(0)))
    return model, found


def as_changed(change: Tensor, chosen: Tensor, generator: torch.Generator, near: int = 10) -> Tensor:
    """Another four of each picture's patches, whose changes sum to nearly what the four highest of `chosen` come to.

    `change` and `chosen` are (n, 16); returns zeros and ones, (n, 16). The four are drawn from the `near` nearest sets.
    """
    sets = torch.zeros(1820, 16).scatter(1, torch.combinations(torch.arange(16), 4), 1.0)  # all sets of four
    own = torch.zeros_like(chosen).scatter(1, chosen.topk(4, dim=1).indices, 1.0)         # (n, 16)
    away = (change @ sets.mT - (change * own).sum(dim=1, keepdim=True)).abs()             # (n, 1820)
    away[own @ sets.mT > 3.5] = math.inf                                                  # that very set
    nearest = away.topk(near, dim=1, largest=False).indices                               # (n, near)
    drawn = torch.randint(near, (len(change), 1), generator=generator)
    return sets[nearest.gather(1, drawn)[:, 0]]


def removed(model: ViT, seed: int) -> dict[str, float]:
    """Right answers when four patches of each picture are replaced by what usually stands there."""
    patches = patchify(normed, CONFIG.patch)                                              # (1797, 16, 4)
    usual, given = patches[learn].mean(dim=0), patches[report]
    with torch.no_grad():
        _, weights = model.eval()(normed[report], with_weights=True)                      # (397, 2, 4, 17, 17)
    rolled = attention_rollout(weights)[:, 0, 1:]                                         # (397, 16)
    first, last = (weights[:, layer].mean(dim=1)[:, 0, 1:] for layer in (0, 1))            # (397, 16) each
    ink = patchify(images[report], CONFIG.patch).sum(dim=-1)                              # (397, 16)
    change = (given - usual).square().sum(dim=-1)                                         # (397, 16)
    draws = torch.Generator().manual_seed(seed)
    scores = {
        "rollout's most": [rolled], "rollout's least": [-rolled],
        "last layer's most": [last], "first layer's most": [first], "both layers, added": [first + last],
        "most ink": [ink],
        "any four": [torch.rand(len(report), 16, generator=draws) for _ in range(5)],
        "the most unusual": [change],
        "changed as much": [as_changed(change, rolled, draws) for _ in range(5)],
    }  # fmt: skip
    left = {}
    for name, tables in scores.items():
        shares = []
        for table in tables:
            gone = torch.zeros_like(table).scatter(1, table.topk(4, dim=1).indices, 1.0).bool()
            x = unpatchify(torch.where(gone[..., None], usual, given), CONFIG.patch, 8, 8)
            with torch.no_grad():
                shares.append((model(x).argmax(dim=-1) == labels[report]).float().mean().item())
        left[name] = round(sum(shares) / len(shares), 4)
    agree = [torch.corrcoef(torch.stack(pair))[0, 1].item() for pair in zip(rolled, ink, strict=True)]
    return left | {"correlation with ink": round(sum(agree) / len(agree), 4)}


def baselines(which: Tensor) -> dict[str, float]:
    flat = normed.flatten(1).numpy()                                                      # (1797, 64)
    fitted = {"regression": LogisticRegression(max_iter=500), "nearest neighbour": KNeighborsClassifier(1)}
    return {name: round(model.fit(flat[which], labels[which]).score(flat[report], labels[report]), 4)
            for name, model in fitted.items()}  # fmt: skip


def places(how: str, seed: int, most: int = 2, size: int = 12, steps: int = 400) -> tuple[Tensor, dict]:
    """Cosines of the positions that were learned, (36, 36), and what they and the model come to."""
    framed = F.pad(normed, 4 * (most,), value=PAPER)                                      # (1797, 1, 12, 12)
    moved = shifted(framed, most, torch.Generator().manual_seed(200 + seed))
    model = train(
        fresh(lambda: ViT(replace(CONFIG, image_size=size)), seed), steps=steps, seed=seed,
        images=moved if how == "moved once" else framed, most=most if how == "moved anew" else 0,
    )  # fmt: skip
    table = F.normalize(model.positions.table[1:].detach(), dim=-1)                       # (36, 64)
    cosines, side = table @ table.mT, size // CONFIG.patch
    grid = torch.cartesian_prod(torch.arange(side), torch.arange(side))                   # (36, 2)
    apart = (grid[:, None] - grid).abs().sum(dim=-1)                                      # (36, 36)
    by_distance = [round(cosines[apart == far].mean().item(), 4) for far in range(1, 2 * side - 1)]
    kept = {"seed": seed, "cosine_by_distance": by_distance,
            "report": right(model, report, framed), "report_moved": right(model, report, moved)}  # fmt: skip
    return cosines, kept


def shown(name: str, runs: list[dict]) -> list[dict]:
    print(f"{name:<30}", [round(run["report"], 3) for run in runs], flush=True)
    return [{key: round(value, 4) for key, value in run.items()} for run in runs]


def some(args: argparse.Namespace) -> dict:
    """The record in `args.save`, with the models of `args.only` measured anew."""
    result = standing(args.save, seeds=args.seeds, dear=args.dear)
    for name in args.only:
        seeds = args.dear if name in DEAR else args.seeds
        if name == "removed":
            result["removed"] = [removed(measure("ViT", seed)[0], seed) for seed in seeds]
            print(*result["removed"], sep="\n", flush=True)
            continue
        result["models"][name] = shown(name, [measure(name, seed)[1] for seed in seeds])
    result["processor_seconds"] += round(time.process_time())
    return result


def everything(args: argparse.Namespace) -> dict:
    found, maps = {}, {}
    for how in ("in the middle", "moved once", "moved anew"):
        runs = [places(how, seed) for seed in args.dear]
        found[how], maps[how] = [run for _, run in runs], runs[0][0].mul(100).round().int().tolist()
        for run in found[how]:
            print(f"{how:<14}", run, flush=True)
    models, gone = {}, []
    for name in MODELS:
        runs = [measure(name, seed) for seed in args.seeds]
        models[name] = shown(name, [run for _, run in runs])
        if name == "ViT":
            gone = [removed(model, seed) for seed, (model, _) in zip(args.seeds, runs, strict=True)]
            print(*gone, sep="\n", flush=True)
    models |= {name: shown(name, [measure(name, seed)[1] for seed in args.dear]) for name in DEAR}
    few = {name: shown(f"{name}, 120 pictures", [measure(name, seed, learn[:120])[1] for seed in args.dear])
           for name in ("ViT", "CNN", "MLP")}  # fmt: skip

    seeds, dear = (" ".join(map(str, each)) for each in (args.seeds, args.dear))
    return {
        **about("vision", f"python benchmarks/vision.py --seeds {seeds} --dear {dear}"),
        "seeds": args.seeds, "dear": args.dear, "processor_seconds": round(time.process_time()),
        "baselines": {"1200": baselines(learn), "120": baselines(learn[:120])},
        "models": models, "few": few, "removed": gone, "places": found, "maps": maps,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4, 5])
    parser.add_argument("--dear", type=int, nargs="+", default=[0, 1, 2], help="seeds of what is dear")
    parser.add_argument("--only", nargs="+", choices=[*MODELS, *DEAR, "removed"], metavar="MODEL",
                        default=[], help="these alone; the record in --save keeps the rest")  # fmt: skip
    output_arguments(parser)
    args = parser.parse_args()
    if args.only and not args.save:
        parser.error("--only puts its models into a record: say which, with --save FILE")
    torch.set_num_threads(1)
    hand_over(some(args) if args.only else everything(args), args, depth=3)


if __name__ == "__main__":
    main()
