"""Lecture 07's heads that read gossip, in more seeds than the page trains: where they attend, and what is lost.

    python benchmarks/gossip_heads.py [--seeds 0 1 … 29] [--save FILE] [--json]

The model, its training and its test sentences are those of the lecture. Heads are chosen on validation sentences, and
all that is counted is counted on the test sentences.

Of each model the record has the accuracy on each question, and `unmissed`: the heads that attend to the name that is
the answer (mean weight above 0.4) and without which less than 10 % of the answers are lost. Each stands beside the
*other* head with the most weight on the same name, and beside what is lost without each and without both. `control`
is what is lost without the head and each of the six remaining ones in the partner's place, more than the two single
losses add up to: removing *any* second head from a weakened model may do that. `by_name` and `by_pronoun` are the right
answers to "who gave" if the first layer writes nothing into pronouns: of verbs whose giver is a name, and a pronoun.
`worst` is the accuracy on the worst question as heads are silenced, the least missed first, and `together` what it is
without all heads that can each be silenced above 90 % (`alone` of them). One thread; about three minutes of processor
time.
"""

import argparse
import copy
import random
import time

import torch
from record import about, hand_over, output_arguments
from torch import Tensor

from attncourse.data.gossip import QUESTIONS, Gossip, gossip
from attncourse.transformer import Weights
from attncourse_lessons.l07_many_heads.patching import Reader, givers, trained

HEADS = [(layer, head) for layer in range(2) for head in range(4)]
ATTENDS, MISSED, ENOUGH = 0.4, 0.1, 0.9


@torch.no_grad()
def right(model: Reader, told: Gossip) -> Tensor:
    """Which answers are right: (m,), 1 or 0."""
    return (model(told).argmax(dim=-1) == told.answer).float()


def by_question(hit: Tensor, told: Gossip) -> Tensor:
    return torch.stack([hit[told.kind == kind].mean() for kind in range(len(QUESTIONS))])


def without(model: Reader, heads: list[tuple[int, int]], told: Gossip) -> Tensor:
    """The share of right answers to each question, (questions,), with these heads silenced: their W_O is zero."""
    silenced = copy.deepcopy(model)
    for layer, head in heads:
        attention = silenced.encoder.stack.blocks[layer].attention.sublayer
        block = slice(head * attention.d_head, (head + 1) * attention.d_head)
        attention.output.weight.data[:, block] = 0.0
    return by_question(right(silenced, told), told)


@torch.no_grad()
def weight_on_name(model: Reader, told: Gossip) -> Tensor:
    """The mean weight from who asks to the name that is the answer: (heads, questions)."""
    seen = Weights()
    model.encoder(told.tokens, told.lengths, weights=seen)
    rows = []
    for layer, head in HEADS:
        rows.append(by_question(seen.self_attn[layer][told.sentence, head, told.asker, told.place], told))
    return torch.stack(rows)


def unmissed(model: Reader, validation: Gossip, test: Gossip) -> list[dict]:
    """Heads that attend to the name and are hardly missed, each beside the other head that attends to it most."""
    reads, full = weight_on_name(model, validation), without(model, [], validation)
    lost = torch.stack([full - without(model, [head], validation) for head in HEADS])
    found = []
    for i, kind in ((reads > ATTENDS) & (lost < MISSED)).nonzero().tolist():
        others = reads[:, kind].clone()
        others[i] = -1.0
        pair = [HEADS[i], HEADS[int(others.argmax())]]
        silenced = [without(model, heads, test)[kind].item() for heads in ([], pair[:1], pair[1:], pair)]
        losses = [silenced[0] - share for share in silenced[1:]]
        control = []
        for third in HEADS:
            if third not in pair:
                alone, both = (without(model, heads, test)[kind].item() for heads in ([third], [pair[0], third]))
                control.append((silenced[0] - both) - losses[0] - (silenced[0] - alone))
        found.append({
            "question": QUESTIONS[kind], "heads": pair, "lost": [round(x, 3) for x in losses],
            "control": [round(x, 3) for x in control],
        })  # fmt: skip
    return found


def nothing_for_pronouns(model: Reader, test: Gossip) -> tuple[float, float]:
    """Right answers to "who gave" if layer 0 writes nothing into pronouns: of givers by name, and by pronoun."""
    name, pronoun, means = givers(test)

    def hook(module, inputs, output):
        output = output.clone()
        output[test.sentence[means], test.asker[means]] = 0.0
        return output

    held = model.encoder.stack.blocks[0].attention.sublayer.register_forward_hook(hook)
    hit = right(model, test)
    held.remove()
    return hit[name].mean().item(), hit[pronoun].mean().item()


def silenced_in_turn(model: Reader, validation: Gossip, test: Gossip) -> tuple[list[float], int, float]:
    """The worst question, as one head after the other goes; how many can go alone; and without all of these."""
    gone: list[tuple[int, int]] = []
    worst, alone = [without(model, [], test).min().item()], []
    while len(gone) < len(HEADS):
        left = [head for head in HEADS if head not in gone]
        after = [without(model, [*gone, head], validation).min().item() for head in left]
        if not gone:
            alone = [head for head, share in zip(left, after, strict=True) if share >= ENOUGH]
        gone.append(left[after.index(max(after))])
        worst.append(without(model, gone, test).min().item())
    return worst, len(alone), without(model, alone, test).min().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(30)))
    output_arguments(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    command = f"python benchmarks/gossip_heads.py --seeds {' '.join(map(str, args.seeds))}"
    validation, test = gossip(120, random.Random(54321)), gossip(120, random.Random(12345))
    runs = []
    for seed in args.seeds:
        model = trained(seed)
        by_name, by_pronoun = nothing_for_pronouns(model, test)
        worst, alone, together = silenced_in_turn(model, validation, test)
        runs.append({
            "seed": seed, "right": [round(x, 3) for x in without(model, [], test).tolist()],
            "unmissed": unmissed(model, validation, test), "by_name": round(by_name, 3),
            "by_pronoun": round(by_pronoun, 3), "worst": [round(x, 3) for x in worst], "alone": alone,
            "together": round(together, 3),
        })  # fmt: skip
        print({key: value for key, value in runs[-1].items()}, flush=True)
    result = {**about("gossip_heads", command), "seeds": args.seeds, "runs": runs,
              "processor_seconds": round(time.process_time())}  # fmt: skip
    hand_over(result, args, depth=2)


if __name__ == "__main__":
    main()
