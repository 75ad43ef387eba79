"""Lecture 05's comparison of positional encodings: one task, one embedding scale, three seeds, and what it rests on.

    python benchmarks/positions.py [--seeds 0 1 2] [--steps 500] [--only CHANGE ...] [--save FILE] [--json]

An encoder of one block reads random letters and says at each place which letter stood two places before (lecture 05's
`Echo`). Texts have 8 to 32 letters in training; then it is asked about 32, 128, 512 and 1024. Runs differ in one thing
at a time:

* scheme: no positions, integer, binary, sinusoidal, learned, Shaw's vectors, T5's biases, RoPE;
* scaled: whether the embedding is multiplied by √d_model, the same for every scheme;
* ratio: positions of "binary" and "learned" made √d_model times as long *beside* a scaled embedding: if what counts is
  how long the one is beside the other, that must undo what the scale did;
* window: the trained RoPE, Shaw, T5 and sinusoidal models, each letter seeing 16 on either side;
* RoPE clipped: the trained RoPE models, every key seen, but none turned further from its query than 16 places, so that
  no angle is new: if new angles are why RoPE fades, that must mend it; if the number of keys is, it must not;
* RoPE far keys: the trained RoPE models in texts of 1024, each letter seeing 8 on either side and 16, 64 or 256 that
  are drawn from those it never saw so far away: with 16 as many keys as in the window, half of them at new angles;
* RoPE one distance: the trained RoPE models in texts of 1024, every key further than 16 places away turned as if it
  stood at one and the same distance on its side, each of 17 to 1023 in turn; beside it, each at a distance drawn from
  17 to 31, so that many trained distances occur: is it the number of *different* new distances that harms, or some?
* RoPE mixed pairs: the same with two distances, one for a head's first 3, 4 or 5 pairs and one for the others. The
  distances that harm (42, 46, 98, 102) lend either part to one that does not (64), and have their slow pairs turned as
  at 31, which was trained: do the fast pairs do the harm, and does it need new angles in the slow ones? Beside it, RoPE
  clipped, of the fast pairs alone or of the slow ones alone;
* RoPE extended: the trained RoPE models in texts of 128 and 1024 without further training, their angles changed: all
  divided by the stretch s ("interpolation"), the base raised ("NTK-aware"), or only those pairs divided by s that did
  not come full circle in training, over the 63 distances from −31 to 31 ("by parts", YaRN's idea: the first five stay);
  beside it, YaRN's own limits, 1 and 32 circles in a text, and every number of pairs kept from 2 to 8;
* binary, sinusoidal, T5, Shaw, RoPE longer: four times as many steps, since a run that fails may only have been too
  short;
* T5 lead: by how much the largest of its biases exceeds the outermost ones, and all of them, distance by distance;
* T5 own buckets: T5's biases with the buckets of its paper, which end at distance 128 and not at 16; its biases alone;
* T5 quick: the same number of steps, and only T5's biases learn at ten times the rate, for Adam moves a number by at
  most about the rate in a step: is it the scheme that fails in long texts, or how far its numbers could move?
* learned scaled longer: four times as many steps for the learned table with the embedding scaled;
* crowd at trained positions: the trained sinusoidal model reads texts of 128 whose letters from 32 on stand at places
  0 to 11: as many keys, no unseen vector. Asked are positions 20 to 31;
* own head: the sinusoidal model with a head that looks two places back put in before the training, with the embedding
  as it is and scaled;
* base 4: sinusoids all of which come full circle within the trained length;
* anywhere: sinusoidal texts that begin at a place from 0 to 96, and are no longer than before.

Runs of one seed see the same letters. `--only` measures some of the changes (their names: `CHANGES`) and puts them
into the record that FILE holds. One thread; about fifteen minutes of processor time on a busy machine.
"""

import argparse
import math
import time

import torch
import torch.nn.functional as F
from record import about, hand_over, output_arguments, standing
from torch import Tensor, nn

from attncourse.positions import rope_angles, rotate, shift_matrix, sinusoidal
from attncourse.transformer import Encoder, TransformerConfig

LETTERS, BACK, TRAINED, D = 16, 2, 32, 64
LENGTHS = (32, 128, 512, 1024)
NEAR = 16
FAR = (16, 64, 256)
ALIKE = range(NEAR + 1, 1024)
HARMFUL, HARMLESS, FAST = (42, 46, 98, 102), 64, (3, 4, 5)
SCHEMES = {"none": "no positions", "integer": "integer", "binary": "binary", "sinusoidal": "sinusoidal",
           "learned": "learned", "shaw": "relative (Shaw)", "bucketed": "relative (T5)", "rope": "RoPE"}  # fmt: skip


class Echo(nn.Module):
    """Says at each place which letter stood BACK places before. As on lecture 05's page."""

    def __init__(self, positions: str, max_length: int = TRAINED, scaled: bool = False, furthest: int = 16):
        super().__init__()
        config = TransformerConfig(
            vocab_size=LETTERS, d_model=D, n_layers=1, n_heads=2, d_ff=64, positions=positions,
            max_length=max_length, max_distance=furthest, scale_embedding=scaled, dropout=0.0,
        )  # fmt: skip
        self.encoder, self.output = Encoder(config), nn.Linear(D, LETTERS)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.output(self.encoder(tokens, mask=mask))                   # (batch, n, LETTERS)

    @property
    def table(self) -> nn.Module:
        return self.encoder.embedding.positions


def train(
    positions: str, steps: int, seed: int, scaled: bool = False, before=None, each=None, quick: float = 1,
    furthest: int = 16,
) -> Echo:  # fmt: skip
    """`before` is called with the model once, `each` before every step; T5's biases learn `quick` times as fast."""
    torch.manual_seed(seed)
    model = Echo(positions, scaled=scaled, furthest=furthest)
    if before is not None:
        before(model)
    draws = torch.Generator().manual_seed(seed)
    rates, groups = 3e-3, model.parameters()
    if quick != 1:
        numbers = [*model.encoder.stack.bias.parameters()]
        others = [part for part in model.parameters() if not any(part is number for number in numbers)]
        rates, groups = [3e-3, quick * 3e-3], [{"params": others}, {"params": numbers}]
    optimiser = torch.optim.Adam(groups, lr=3e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=rates, total_steps=steps, pct_start=0.2)
    for _ in range(steps):
        if each is not None:
            each(model)
        n = int(torch.randint(8, TRAINED + 1, (), generator=draws))
        tokens = torch.randint(LETTERS, (32, n), generator=draws)             # (32, n)
        guess = model(tokens)[:, BACK:]                                       # (32, n − 2, LETTERS)
        loss = F.cross_entropy(guess.flatten(0, 1), tokens[:, :-BACK].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return model.eval()


def longer(model: Echo, positions: str, n: int, table: Tensor | None = None) -> Echo:
    """The trained model with positions for n letters; `table` in place of the scheme's own."""
    built = Echo(positions, n if positions != "learned" else TRAINED, scaled=model.encoder.embedding.scale != 1)
    built.load_state_dict(model.state_dict())
    if table is not None:
        built.table.table = table
    return built.eval()


def letters(n: int, batch: int) -> Tensor:
    return torch.randint(LETTERS, (batch, n), generator=torch.Generator().manual_seed(1))      # (batch, n)


def seen(n: int, window: int, far: int) -> Tensor:
    """True where a letter sees another: `window` on either side, and `far` drawn from those TRAINED or more away."""
    place = torch.arange(n)
    apart = (place - place[:, None]).abs()                                    # (n, n)
    lots = torch.rand(n, n, generator=torch.Generator().manual_seed(0)).masked_fill(apart < TRAINED, -1)
    drawn, near = lots.topk(far, dim=-1), apart <= window
    return near | torch.zeros_like(near).scatter(1, drawn.indices, drawn.values >= 0)


def agrees(answer: Tensor, tokens: Tensor) -> Tensor:
    """Whether each answer is the letter BACK places before, from place BACK on: (batch, n − BACK), as numbers."""
    return (answer[:, BACK:] == tokens[:, :-BACK]).double()


@torch.no_grad()
def right_at(
    model: Echo, positions: str, n: int, window: int | None = None, table: Tensor | None = None, far: int = 0
) -> Tensor:
    """The share of texts in which the answer at each place is right, from place BACK on: (n − BACK,)."""
    tokens = letters(n, max(2, 8192 // n))
    mask = None if window is None else seen(n, window, far)                   # (n, n)
    answer = longer(model, positions, n, table)(tokens, mask).argmax(dim=-1)  # (batch, n)
    return agrees(answer, tokens).mean(dim=0)


def right_clipped(model: Echo, n: int, pairs: Tensor | None = None) -> float:
    """The share right with RoPE clipped, in as many texts as elsewhere; some at a time, for the memory."""
    tokens = letters(n, max(2, 8192 // n))
    return torch.cat([clipped(model, some, pairs=pairs) for some in tokens.split(max(2, 2048 // n))]).mean().item()


def clipped(model: Echo, tokens: Tensor, furthest: int = NEAR, pairs: Tensor | None = None) -> Tensor:
    """RoPE with every distance beyond `furthest` taken for `furthest`: all keys are seen, none at a new angle.

    `pairs` (pairs,), boolean: those that are clipped; all without it.
    """
    return turned_alike(model, tokens, {furthest: None}, furthest, pairs=pairs)


@torch.no_grad()
def turned_alike(
    model: Echo, tokens: Tensor, at: dict[float, Tensor | None], beyond: int = NEAR, slow: float | None = None,
    fast: int = FAST[-1], pairs: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """RoPE with every key further than `beyond` turned as if at another distance on its side.

    `at` {distance: where it holds, (n, n), or None for everywhere}. With `slow`, the first `fast` pairs alone are
    turned as at that distance, and the others as at the distance `slow`. With `pairs`, (pairs,) and boolean, only these
    are turned so, and the others by their own distance.
    """
    n = tokens.shape[1]
    place = torch.arange(n)
    built = longer(model, "rope", n)
    block = built.encoder.stack.blocks[0]
    layer, x = block.attention.sublayer, built.encoder.embedding(tokens)
    h = block.attention.norm(x)
    parts = layer.query, layer.key, layer.value
    query, key, value = (part(h).unflatten(-1, (2, -1)).transpose(1, 2) for part in parts)
    angles, theta = rope_angles(place, query.shape[-1]), rope_angles(torch.tensor(1), query.shape[-1])
    first = torch.arange(len(theta)) < fast                                   # (pairs,)
    scores = rotate(query, angles) @ rotate(key, angles).mT                   # (batch, 2, n, n)  as trained
    columns = torch.ones_like(theta).bool() if pairs is None else pairs
    columns = torch.cat([columns, columns]).float()                           # (d_head,)  the layout is "half"
    others = (rotate(query, angles) * (1 - columns)) @ rotate(key, angles).mT if pairs is not None else 0
    apart = place - place[:, None]                                            # (n, n)  key less query
    for distance, where in at.items():
        each = torch.where(first, distance, distance if slow is None else slow)           # (pairs,)
        for side in (-1, 1):
            turned = rotate(key, (side * each * theta).expand(n, -1))
            far = side * apart > beyond
            instead = others + (query * columns) @ turned.mT
            scores = torch.where(far if where is None else far & where, instead, scores)
    output = (scores * layer.scale).softmax(dim=-1) @ value                   # (batch, 2, n, d_head)
    x = x + layer.output(output.transpose(1, 2).flatten(2))
    x = x + block.ff.sublayer(block.ff.norm(x))
    answer = built.output(built.encoder.stack.norm(x)).argmax(dim=-1)
    return agrees(answer, tokens)


def right_alike(model: Echo, n: int = 1024, batch: int = 1) -> dict[str, float]:
    """The share right in texts of n: far keys all at one distance, {distance: share}; or each at a trained one."""
    tokens = letters(n, batch)
    shares = {str(distance): turned_alike(model, tokens, {distance: None}).mean().item() for distance in ALIKE}
    drawn = torch.randint(NEAR + 1, TRAINED, (n, n), generator=torch.Generator().manual_seed(0))
    known = {distance: drawn == distance for distance in range(NEAR + 1, TRAINED)}
    return shares | {"17 to 31": turned_alike(model, tokens, known).mean().item()}


def right_mixed(model: Echo, n: int = 1024, batch: int = 1) -> dict[str, dict[str, dict[str, float]]]:
    """The share right in texts of n, {fast pairs: {harmful distance: {how the far keys are turned: share}}}."""
    tokens = letters(n, batch)

    def right(fast: int, at: float, slow: float) -> float:
        return turned_alike(model, tokens, {at: None}, slow=slow, fast=fast).mean().item()

    return {str(fast): {str(far): {"as it is": right(fast, far, far),
                                   "fast as at 64": right(fast, HARMLESS, far),
                                   "slow as at 64": right(fast, far, HARMLESS),
                                   "slow as at 31": right(fast, far, TRAINED - 1),
                                   "slow divided by 32": right(fast, far, far / 32)} for far in HARMFUL}
            for fast in FAST}  # fmt: skip


def right_clipped_in_part(model: Echo, n: int = 1024) -> dict[str, dict[str, float]]:
    """The share right in texts of n with the fast or the slow pairs clipped, {fast pairs: {which: share}}."""
    pair = torch.arange(model.encoder.stack.blocks[0].attention.sublayer.rope.d_head // 2)
    return {str(fast): {"fast clipped": right_clipped(model, n, pair < fast),
                        "slow clipped": right_clipped(model, n, pair >= fast)} for fast in FAST}  # fmt: skip


# What is changed before or during a training

LONGER = {"binary longer": "binary", "sinusoidal longer": "sinusoidal", "T5 longer": "bucketed",
          "Shaw longer": "shaw", "RoPE longer": "rope"}  # fmt: skip
CHANGES = (*LONGER, "RoPE clipped", "RoPE far keys", "RoPE one distance", "RoPE mixed pairs", "RoPE extended",
           "T5 lead", "T5 own buckets", "T5 quick", "learned scaled longer", "crowd at trained positions", "own head",
           "own head scaled", "base 4", "anywhere", "binary louder", "learned louder")  # fmt: skip
CROWDED = slice(20 - BACK, 32 - BACK)


def stretched(model: Echo, n: int) -> dict[str, float]:
    """The share right in texts of n, for RoPE's angles as they were trained and changed in several ways."""
    layer = model.encoder.stack.blocks[0].attention.sublayer
    width, stretch = layer.rope.d_head, n / TRAINED
    theta = rope_angles(torch.tensor(1), width)                               # (width/2,)  angle per token
    closed = 2 * math.pi / theta <= 2 * TRAINED - 1
    slow = ((32 - TRAINED * theta / (2 * math.pi)) / (32 - 1)).clamp(0, 1)
    higher = layer.rope.base * stretch ** (width / (width - 2))
    pair = torch.arange(len(theta))
    ways = {"no change": theta, "interpolation": theta / stretch,
            "NTK-aware": rope_angles(torch.tensor(1), width, base=higher),
            "by parts": torch.where(closed, theta, theta / stretch),
            "YaRN's limits": (1 - slow) * theta + slow * theta / stretch}     # fmt: skip
    ways |= {f"keep {kept}": torch.where(pair < kept, theta, theta / stretch) for kept in range(2, 9)}
    return {way: right_turned(model, n, turn) for way, turn in ways.items()}


@torch.no_grad()
def right_turned(model: Echo, n: int, turn: Tensor) -> float:
    """The share right in texts of n where RoPE turns its pairs by `turn` (pairs,) a token."""
    built, tokens = longer(model, "rope", n), letters(n, max(2, 8192 // n))
    angles = torch.arange(n).unsqueeze(-1) * turn                             # (n, pairs)
    rope = built.encoder.stack.blocks[0].attention.sublayer.rope
    rope.cos, rope.sin = angles.cos().float(), angles.sin().float()
    answer = built(tokens).argmax(dim=-1)                                     # (batch, n)
    return agrees(answer, tokens).mean().item()


def our_head(model: Echo) -> None:
    """Queries that are the position vector two places before, keys that are their own; the 16 fastest pairs."""
    attention = model.encoder.stack.blocks[0].attention.sublayer
    key = 2 * torch.eye(D)[:, :32]                                            # (64, 32)  the 2 makes it sharp
    query = shift_matrix(-BACK, D) @ key                                      # (64, 32)
    with torch.no_grad():
        attention.query.weight.copy_(torch.cat([query, query], dim=1).T)      # nn.Linear keeps the transpose
        attention.key.weight.copy_(torch.cat([key, key], dim=1).T)


def base_4(n: int = TRAINED) -> Tensor:
    return sinusoidal(torch.arange(n), D, base=4.0)


def restart(model: Echo) -> None:
    model.table.table = base_4()


def begin_anywhere(model: Echo) -> None:
    first = int(torch.randint(128 - TRAINED + 1, ()))
    model.table.table = sinusoidal(torch.arange(first, first + TRAINED), D)   # (32, 64)


def louder(model: Echo) -> None:
    """Position vectors √d_model times as long."""
    with torch.no_grad():
        if isinstance(model.table.table, nn.Parameter):
            model.table.table.mul_(math.sqrt(D))
        else:
            model.table.table = model.table.table * math.sqrt(D)


def crowded() -> Tensor:
    """Sinusoids of a text of 128 in which every letter from TRAINED on stands at one of the positions 0 to 11."""
    place = torch.arange(128)
    return sinusoidal(torch.where(place < TRAINED, place, place % 12), D)     # (128, 64)


# What is kept of a run


def lead(model: Echo) -> list[float]:
    """By how much the largest of T5's biases exceeds the larger of the two outermost ones, for each head."""
    table = model.encoder.stack.bias
    numbers = table.bias.weight.detach().T                                    # (heads, buckets)
    outermost = table.buckets(torch.tensor([-TRAINED, TRAINED]))              # (2,)
    return (numbers.amax(dim=-1) - numbers[:, outermost].amax(dim=-1)).tolist()


def biases(model: Echo) -> list[list[float]]:
    """T5's bias at each distance from −(TRAINED − 1) to TRAINED − 1, for each head."""
    table = model.encoder.stack.bias
    return table.bias.weight.detach()[table.buckets(torch.arange(1 - TRAINED, TRAINED))].T.tolist()


def split(line: Tensor) -> dict:
    """Before the end of the trained length and behind it."""
    return {"inside": line[: TRAINED - BACK].mean().item(), "beyond": line[TRAINED - BACK :].mean().item()}


def rounded(found):
    if isinstance(found, dict):
        return {key: rounded(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [rounded(value) for value in found]
    return round(found, 4) if isinstance(found, float) else found


def measure(positions: str, scaled: bool, steps: int, seed: int) -> tuple[dict, Echo]:
    model = train(positions, steps, seed, scaled)
    run = {"scheme": SCHEMES[positions], "scaled": scaled, "seed": seed}
    lengths = (TRAINED,) if positions == "learned" else LENGTHS
    lines = {n: right_at(model, positions, n) for n in lengths}
    run["by_length"] = {n: line.mean().item() for n, line in lines.items()}
    run["inside"] = run["by_length"][TRAINED]
    if positions != "learned":
        run["beyond"] = split(lines[128])["beyond"]
    if not scaled:
        run["at"] = {n: lines[n].tolist() for n in lengths if n <= 128}
        if positions in ("sinusoidal", "shaw", "bucketed", "rope"):
            run["window"] = {n: right_at(model, positions, n, window=NEAR).mean().item() for n in LENGTHS}
    return run, model


def changed(name: str, steps: int, seed: int) -> dict:
    """One of the runs in which something else than scheme or scale was changed."""
    run: dict = {"name": name, "seed": seed}
    if name in LONGER:
        positions = LONGER[name]
        model = train(positions, 4 * steps, seed)
        lines = {n: right_at(model, positions, n) for n in LENGTHS}
        run |= split(lines[128])
        run["by_length"] = {n: line.mean().item() for n, line in lines.items()}
        run["at"] = {n: lines[n].tolist() for n in (TRAINED, 128)}
        if positions == "bucketed":
            run |= {"lead": lead(model), "bias": biases(model)}
    elif name == "RoPE clipped":
        model = train("rope", steps, seed)
        run["by_length"] = {n: right_clipped(model, n) for n in LENGTHS}
    elif name == "RoPE far keys":
        model = train("rope", steps, seed)
        run["far"] = {far: right_at(model, "rope", 1024, window=NEAR // 2, far=far).mean().item() for far in FAR}
    elif name == "RoPE one distance":
        model = train("rope", steps, seed)
        run["alike"] = right_alike(model)
    elif name == "RoPE mixed pairs":
        model = train("rope", steps, seed)
        run |= {"mixed": right_mixed(model), "in part": right_clipped_in_part(model)}
    elif name == "RoPE extended":
        model = train("rope", steps, seed)
        run["at"] = {n: stretched(model, n) for n in (128, 1024)}
    elif name == "T5 lead":
        model = train("bucketed", steps, seed)
        run |= {"lead": lead(model), "bias": biases(model)}
    elif name == "T5 own buckets":
        model = train("bucketed", steps, seed, furthest=128)
        run |= {"lead": lead(model), "bias": biases(model)}
    elif name == "T5 quick":
        model = train("bucketed", steps, seed, quick=10)
        run["by_length"] = {n: right_at(model, "bucketed", n).mean().item() for n in LENGTHS}
        run |= {"lead": lead(model), "bias": biases(model)}
    elif name == "learned scaled longer":
        model = train("learned", 4 * steps, seed, scaled=True)
        run["inside"] = right_at(model, "learned", TRAINED).mean().item()
    elif name == "crowd at trained positions":
        model = train("sinusoidal", steps, seed)
        run["as they stand"] = right_at(model, "sinusoidal", 128)[CROWDED].mean().item()
        run["at trained positions"] = right_at(model, "sinusoidal", 128, table=crowded())[CROWDED].mean().item()
    elif name in ("own head", "own head scaled"):
        model = train("sinusoidal", steps, seed, scaled="scaled" in name, before=our_head)
        run |= split(right_at(model, "sinusoidal", 128))
    elif name == "base 4":
        model = train("sinusoidal", steps, seed, before=restart)
        run |= split(right_at(model, "sinusoidal", 128, table=base_4(128)))
    elif name == "anywhere":
        model = train("sinusoidal", steps, seed, each=begin_anywhere)
        run |= split(right_at(model, "sinusoidal", 128))
        run["beyond 128"] = right_at(model, "sinusoidal", 256)[128 - BACK :].mean().item()
    else:
        positions = name.split()[0]
        model = train(positions, steps, seed, scaled=True, before=louder)
        table = model.table.table if positions == "binary" else None
        run["inside"] = right_at(model, positions, TRAINED, table=table).mean().item()
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--only", nargs="+", choices=CHANGES, metavar="CHANGE")
    output_arguments(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)

    if args.only:
        if not args.save:
            parser.error("--only puts its runs into the record of --save FILE")
        record = standing(args.save, seeds=args.seeds, trained=TRAINED)
        fresh = [rounded(changed(name, args.steps, seed)) for name in args.only for seed in args.seeds]
        record["changed"] = [run for run in record["changed"] if run["name"] not in args.only] + fresh
        record["processor_seconds"] += round(time.process_time())
        hand_over(record, args, depth=3)
        return
    runs, changes = [], []
    for scaled in (False, True):
        for positions in SCHEMES:
            for seed in args.seeds:
                run, _ = measure(positions, scaled, args.steps, seed)
                runs.append(run)
                shown = " ".join(f"{share:6.1%}" for share in run["by_length"].values())
                extra = " ".join(f"{kind} {run[kind][1024]:.1%}" for kind in ("window",) if kind in run)
                print(f"{run['scheme']:>16} {'scaled' if scaled else '':>6} {seed}: {shown}  {extra}", flush=True)
    for name in CHANGES:
        for seed in args.seeds:
            changes.append(changed(name, args.steps, seed))
            print(changes[-1], flush=True)

    command = f"python benchmarks/positions.py --steps {args.steps} --seeds {' '.join(map(str, args.seeds))}"
    result = rounded({
        **about("positions", command),
        "seeds": args.seeds, "trained": TRAINED, "processor_seconds": round(time.process_time()),
        "runs": runs, "changed": changes,
    })  # fmt: skip
    hand_over(result, args, depth=3)


if __name__ == "__main__":
    main()
