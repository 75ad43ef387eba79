"""Lecture 03's ladder on three seeds and two budgets, and how often attention looks where the true alignment is.

    python benchmarks/ladder.py [--steps 450 1800] [--seeds 0 1 2] [--models NAME …] [--save FILE] [--json]

The ladder: of a thousand lists of numbers, English to German, the share that each decoder writes exactly right, by how
many numbers they hold. Beside the lecture's three: attention without input feeding (the cell reads the embedding
alone). All have seen the same batches in the same order; a seed decides the weights at the beginning and the order of
the batches, and is the same for all four. `--models "mean pool, twice as wide"` measures one more, whose vectors are
256 wide in place of 128 (in the decoder, too). `--models "attention, one query"` measures attention whose query is the
decoder's initial state at every step: the weights are learned, and there is one average of the states for all steps.
`--models "attention, eight averages"` measures the middle way of Britz et al. 2017: eight learned queries average the
encoder's states once, and at every step the decoder attends to those eight. `--models "eight averages, one vector"`
makes one vector of the same eight, so that there is no choice at a step: they are put side by side and mapped to 128
numbers. (What the decoder makes of a context vector is 128 numbers wide, too, so all 1,024 can take part in it.)
`--models "eight averages, one choice"` has the parameters of the eight averages to the last one, but the query of the
decoder's attention to them is its initial state at every step: one choice, kept for all steps.

The alignments: the models with attention read the right translation, token by token (teacher forcing), and the largest
weight of each target token is looked up in the true alignment, for units and for tens. Counted are the numbers from 21
to 99 and from 121 to 999 that have a ten and a unit, each alone; and those in the lists of the test set, the lists
that the model writes right and those that it writes wrong apart. For the numbers from 121 to 999 there is also where
the largest weight of each unit lies, by source position, and how many units are predicted right with nothing hidden,
with one source position hidden from the decoder at every step, and with all but one hidden. One thread.
"""

import argparse
import time
from collections.abc import Sequence

import torch
from record import about, hand_over, output_arguments
from torch import Tensor, nn

from attncourse.attention import attend, dot_score
from attncourse.data import Pair, Tokenizer, aligned_pieces, collate, encode_pairs, number_words
from attncourse.data.number_words import say
from attncourse.decoding import translate
from attncourse.metrics import accuracy_by_length, exact_match
from attncourse.recurrent import SUMMARIES, Memory, Seq2Seq
from attncourse.training import fit
from attncourse_lessons.l03_cross_attention.hiding import predicted

UNFED = "attention, no input feeding"
WIDE = "mean pool, twice as wide"
ONE_QUERY = "attention, one query"
EIGHT = "attention, eight averages"
EIGHT_JOINED = "eight averages, one vector"
EIGHT_ONCE = "eight averages, one choice"


def chosen_once(memory: Memory) -> Memory:
    """What the initial state finds in the memory, as the only state that is left: one choice, kept for all steps."""
    query = memory.start.unsqueeze(1)                                                      # (batch, 1, d_hidden)
    chosen, _ = attend(query, memory.states, memory.states, memory.mask.unsqueeze(1), dot_score)
    return memory._replace(states=chosen, mask=memory.mask[:, :1])                         # n_memory = 1


class OneQuery(Seq2Seq):
    """Attention from the initial state: all states are averaged with learned weights, but once, for every step."""

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        return chosen_once(super().encode(source, lengths))


class EightAverages(Seq2Seq):
    """Attention to eight averages of the states, made once with learned queries: the decoder weighs them anew."""

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.queries = nn.Parameter(torch.randn(8, self.decoder.d_hidden) / self.decoder.d_hidden**0.5)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        memory = super().encode(source, lengths)
        queries = self.queries.expand(len(source), -1, -1)                                 # (batch, 8, d_hidden)
        averages, _ = attend(queries, memory.states, memory.states, memory.mask.unsqueeze(1), dot_score)
        return memory._replace(states=averages, mask=memory.mask[:, :1].expand(-1, 8))     # n_memory = 8


class EightJoined(EightAverages):
    """The eight averages side by side, mapped to one vector: every number of them is there, at each step alike."""

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.join = nn.Linear(8 * self.decoder.d_hidden, self.decoder.d_hidden)

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        memory = super().encode(source, lengths)
        joined = self.join(memory.states.flatten(start_dim=1))                             # (batch, d_hidden)
        return memory._replace(states=joined.unsqueeze(1), mask=memory.mask[:, :1])        # n_memory = 1


class EightOnce(EightAverages):
    """The eight averages weighed once, by the initial state: the same parameters, but one choice for all steps."""

    def encode(self, source: Tensor, lengths: Tensor) -> Memory:
        return chosen_once(super().encode(source, lengths))


BUILT = {ONE_QUERY: OneQuery, EIGHT: EightAverages, EIGHT_JOINED: EightJoined, EIGHT_ONCE: EightOnce}


def where_units_come_from(model: Seq2Seq, pairs: Sequence[Pair], english: Tokenizer, german: Tokenizer) -> dict:
    """Of numbers like 436: each source position's share of largest weights, and the units right without it or it alone.

    Each list has a number for each of the five source positions: four, hundred, and, thirty-, six.
    """
    batch = collate(encode_pairs(pairs, english, german))
    truth = batch.target_out[:, -4]                                                        # unit, und, ten, <eos>
    with torch.inference_mode():
        _, weights = model(batch.source, batch.lengths, batch.target_in, with_weights=True)
    largest = weights[:, -4].argmax(dim=-1)                                                # (batch,)

    def right(hidden: Sequence[int]) -> int:
        return int((predicted(model, batch, hidden)[:, -4] == truth).sum())

    positions = range(5)
    return {
        "largest": [int((largest == i).sum()) for i in positions],
        "right": right([]),
        "right_without": [right([i]) for i in positions],
        "right_with_alone": [right([j for j in positions if j != i]) for i in positions],
    }


def counted_alignments(
    model: Seq2Seq, pairs: Sequence[Pair], english: Tokenizer, german: Tokenizer
) -> dict[str, list[int]]:
    """{"units": [on their English unit, all], "tens": …} of the numbers with a ten and a unit, by teacher forcing."""
    counts = {"units": [0, 0], "tens": [0, 0]}
    for start in range(0, len(pairs), 250):
        chunk = pairs[start : start + 250]
        batch = collate(encode_pairs(chunk, english, german))
        with torch.inference_mode():
            _, weights = model(batch.source, batch.lengths, batch.target_in, with_weights=True)
        for pair, rows in zip(chunk, weights, strict=True):
            pieces = german.pieces(pair.target)
            truth = aligned_pieces(pair, english.pieces(pair.source), pieces)
            looked = rows[: len(pieces), : truth.shape[1]].argmax(dim=-1)
            for t in (t for t, piece in enumerate(pieces) if piece == "und"):
                for name, at in (("units", t - 1), ("tens", t + 1)):
                    counts[name][0] += int(truth[at, looked[at]])
                    counts[name][1] += 1
    return counts


def run(name: str, steps: int, seed: int, encoded, test: list[Pair], english: Tokenizer, german: Tokenizer) -> dict:
    """Train one model from one seed: what it gets right, and where it looks."""
    torch.manual_seed(seed)
    summary = "attention" if name in BUILT or name == UNFED else "mean pool" if name == WIDE else name
    d_hidden = 256 if name == WIDE else 128
    model = BUILT.get(name, Seq2Seq)(len(english), len(german), 32, d_hidden, summary, input_feeding=name != UNFED)
    began = time.process_time()
    fit(model, encoded, steps=steps, batch_size=32, lr=6e-3, seed=seed, progress=False)
    result = {"seed": seed, "seconds": round(time.process_time() - began, 1)}
    sources, truths = zip(*test, strict=True)
    right = exact_match([one.text for one in translate(model, sources, english, german)], truths)
    numbers = [source.count(",") + 1 for source in sources]
    by_length = accuracy_by_length(right, numbers, edges=range(1, 6))
    result |= {"all": sum(right) / len(right), "right": {n: by_length[n, n] for n in range(1, 6)}}
    if summary == "attention" and name not in BUILT:
        alone = {"21 to 99": range(21, 100), "121 to 999": range(121, 1000)}
        populations = {
            title: [Pair(say(n, "en"), say(n, "de")) for n in rows if n % 100 > 20 and n % 10]
            for title, rows in alone.items()
        }
        populations["lists written right"] = [pair for pair, ok in zip(test, right, strict=True) if ok]
        populations["lists written wrong"] = [pair for pair, ok in zip(test, right, strict=True) if not ok]
        result["aligned"] = {
            title: counted_alignments(model, pairs, english, german) for title, pairs in populations.items()
        }
        for title in alone:
            sources, truths = zip(*populations[title], strict=True)
            written = translate(model, sources, english, german)
            result["aligned"][title]["right"] = sum(exact_match([one.text for one in written], truths))
        result["units"] = where_units_come_from(model, populations["121 to 999"], english, german)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[450, 1800], help="training steps of each model")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="the table shows the mean over these")
    ladder, known = [*SUMMARIES, UNFED], [*SUMMARIES, UNFED, WIDE, *BUILT]
    parser.add_argument("--models", nargs="+", choices=known, default=ladder, metavar="NAME", help=", ".join(known))
    output_arguments(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)

    pairs = number_words("en", "de", train=20_000, test=1_000, dates=0, seed=0)
    english = Tokenizer.train((pair.source for pair in pairs.train), size=112)
    german = Tokenizer.train((pair.target for pair in pairs.train), size=112, keep_apart="hundert|und")
    encoded = encode_pairs(pairs.train, english, german)
    numbers = [pair.source.count(",") + 1 for pair in pairs.test]

    budgets: dict[int, dict[str, list[dict]]] = {}
    for steps in args.steps:
        budgets[steps] = {}
        print(f"{f'{steps} steps: right, lists of':<32}" + "".join(f"{n:>7}" for n in range(1, 6)))
        for name in args.models:
            runs = [run(name, steps, seed, encoded, pairs.test, english, german) for seed in args.seeds]
            budgets[steps][name] = runs
            means = [sum(one["right"][n] for one in runs) / len(runs) for n in range(1, 6)]
            print(f"{name:<32}" + "".join(f"{share:>7.0%}" for share in means), flush=True)
            for one in runs:
                if "aligned" in one:
                    print(f"  seed {one['seed']}: {one['aligned']}", flush=True)

    command = f"python benchmarks/ladder.py --steps {' '.join(map(str, args.steps))}"
    command += f" --seeds {' '.join(map(str, args.seeds))}"
    if args.models != ladder:
        command += " --models " + " ".join(f'"{name}"' for name in args.models)
    result = {
        **about("ladder", command),
        "seeds": args.seeds, "lists": {n: numbers.count(n) for n in range(1, 6)}, "steps": budgets,
    }  # fmt: skip
    hand_over(result, args, depth=4)


if __name__ == "__main__":
    main()
