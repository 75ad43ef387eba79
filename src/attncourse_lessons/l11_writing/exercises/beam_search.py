"""beam_search: The hypothesis with the best score, and that score."""

import torch
from torch import Tensor, nn

from lessonkit.exercises.exercise import Exercise
from lessonkit.exercises.local_runner import AspectFailed, Problem
from lessonkit.exercises.observe import Draw

from .common import READY_MADE


def reference(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    open_, finished = [([bos], 0.0)], []
    for _ in range(max_length):
        log_p = next_log_p(torch.tensor([tokens for tokens, _ in open_])).tolist()        # (n_open, vocab_size)
        longer = [
            ([*tokens, v], total + log_p[i][v]) for i, (tokens, total) in enumerate(open_) for v in range(len(log_p[i]))
        ]
        kept = sorted(longer, key=lambda hypothesis: hypothesis[1], reverse=True)[:n_beams]
        finished += [hypothesis for hypothesis in kept if hypothesis[0][-1] == eos]
        open_ = [hypothesis for hypothesis in kept if hypothesis[0][-1] != eos]
        if not open_:
            break
    scored = [(total / ((5 + len(tokens) - 1) / 6) ** length_penalty, tokens) for tokens, total in finished + open_]
    score, tokens = max(scored)
    return torch.tensor(tokens[1:]), score


def solution(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    open_: list[tuple[list[int], float]] = [([bos], 0.0)]
    finished: list[tuple[list[int], float]] = []
    for _ in range(max_length):
        so_far = torch.tensor([tokens for tokens, _ in open_])    # (n_open, t)
        log_p = next_log_p(so_far)                                # (n_open, vocab_size)
        longer = [
            ([*tokens, v], total + p)
            for (tokens, total), row in zip(open_, log_p.tolist(), strict=True)
            for v, p in enumerate(row)
        ]
        kept = sorted(longer, key=lambda hypothesis: hypothesis[1], reverse=True)[:n_beams]
        finished += [hypothesis for hypothesis in kept if hypothesis[0][-1] == eos]
        open_ = [hypothesis for hypothesis in kept if hypothesis[0][-1] != eos]
        if not open_:
            break

    def score(hypothesis):
        tokens, total = hypothesis
        return total / ((5 + len(tokens) - 1) / 6) ** length_penalty

    best = max(finished + open_, key=score)
    return torch.tensor(best[0][1:]), score(best)


exercise = Exercise(
    "beam_search",
    reference=reference,
    solution=solution,
    returns=("tokens", "score"),
    forbidden=READY_MADE,
    numbers=True,
    difficulty=3,
    minutes=40,
    hints=(
        "Keep two lists of (tokens, total): the open hypotheses, at first one that holds <bos> and 0.0, and those that "
        "have ended. Each round makes every continuation of every open one and keeps the `n_beams` with the largest "
        "totals.",
        "A continuation's total is its hypothesis' total plus the log-probability of the new token. Put the "
        "continuations of all hypotheses into one list, sort it once, cut it at `n_beams`, and only then look which "
        "of those end in <eos>.",
        "At the end everything competes, ended or cut off, by total / ((5 + n) / 6) ** length_penalty, where n counts "
        "the tokens without <bos>. Totals are negative: a larger divisor makes a score better.",
    ),
)
aspect, slip, misconception, variant, alternative = exercise.decorators()


# How likely which letter is next, after the letters before the colon; a point is <eos>. What is not listed shares the
# rest. The right way is b e c: neither its first word nor its second is the likeliest. Each of the known mistakes goes
# astray in a way of its own: greedily to a, beam by beam to c, by likely last words to b d f.
_WAYS = {"": "a .45  b .4  c .1", "b": "d .5  e .475", "be": "c .95", "bec": ". .93", "bd": "f .4"}
_TREES = {
    # What could end at once is not what greedy decoding follows, and would be better than what it finds.
    "one": _WAYS | {"": "a .45  . .35  b .1", "a": ". .6"},
    "several": _WAYS
    | {"": "a .43  b .4  c .14", "a": ". .27  d .2  e .2", "bdf": ". .995"}
    | {"c": "d .99", "cd": "e .96", "cde": ". .96"},
    # What ended at once would, if it went on, take the place of b e, which wins.
    "penalty": _WAYS
    | {"": "a .4  b .38  . .2", "a": "d .5  . .47", "b": "d .5  e .43", "bec": ". .97"}
    | {"bd": "f .25", "bdf": "a .8  . .1", "bdfa": "b .75", "bdfab": ". .99"},
    # Two beams: c d f is best and falls out at once; b d f wins where an ended hypothesis makes room for another.
    "narrow": {"": "a .5  b .3  c .15", "a": ". .35  d .3  e .15", "b": "d .35  e .3", "bd": "f .98", "bdf": ". .98"}
    | {"c": "d .98", "cd": "f .98", "cdf": ". .98"},
    # What ends does so at once, and what is still open is better all the same.
    "both": {"": "a .6  . .2  b .15", "a": "c .95", "ac": "c .95", "acc": "d .95"},
    # The likeliest ends at once, and with the next round as many have ended as there are beams. The long one wins.
    "long": {"": ". .4  a .36  b .1", "a": "b .75  . .2", "ab": "c .99", "abc": "d .99", "abcd": "e .99"}
    | {"abcde": ". .99"},
    # Here every search finds the same, so what is wrong with the search does not cost the score as well.
    "score": {"": "a .9", "a": "b .9", "ab": "c .9", "abc": ". .95"},
    "nobody": _WAYS
    | {"": "a .45  b .4  c .07", "a": "f .333  d .3  e .3", "bec": "f .93", "bdf": "a .995"}
    | {"c": "c .99", "cc": "c .99", "ccc": "c .95"},
}


class _Oracle:
    """A model of one sentence, by a tree: which tokens stand for its letters is drawn, and a little noise."""

    def __init__(self, draw: Draw, tree: str):
        self.tree, self.vocab_size = _TREES[tree], 8
        names = torch.randperm(self.vocab_size, generator=draw.generator).tolist()
        self.bos, self.letters = names[0], dict(zip(names[1:], ".abcdef", strict=True))
        self.tokens = {letter: token for token, letter in self.letters.items()}
        self.eos, self.may_end = self.tokens["."], tree != "nobody"
        self.noise = 0.005 * draw.normal(8, self.vocab_size)

    def __call__(self, tokens: Tensor) -> Tensor:
        if tokens.ndim != 2 or not 1 <= tokens.shape[1] <= 7 or tokens.is_floating_point():
            raise ValueError(f"tokens: got {tokens.dtype} of shape {tuple(tokens.shape)}, expected (n, 1 to 6) tokens")
        logits = torch.stack([self._after(row) for row in tokens.tolist()])          # (n_hypotheses, vocab_size)
        return (logits + self.noise[tokens.shape[1]]).log_softmax(dim=-1)

    def _after(self, row: list[int]) -> Tensor:
        said = "".join(self.letters.get(token, "?") for token in row[1:])
        listed = self.tree.get(said, "").split() if row[0] == self.bos else []
        if "." in said:  # nobody needs to ask; who does hears what would win
            listed = ["a", ".99"]
        known = {self.tokens[letter]: float(p) for letter, p in zip(listed[::2], listed[1::2], strict=True)}
        p = torch.full((self.vocab_size,), (1 - sum(known.values())) / (self.vocab_size - len(known)))
        p[self.eos], p[self.bos] = 1e-3 if self.may_end else 1e-12, 1e-12
        p[list(known)] = torch.tensor(list(known.values()))
        return p.log()


def _search(answer, draw, tree, n_beams, penalty, max_length):
    """(max_length + 1,): what was written, filled up with −1."""
    oracle = _Oracle(draw, tree)
    tokens, _ = answer(oracle, n_beams, penalty, oracle.bos, oracle.eos, max_length)
    if tokens.ndim != 1 or len(tokens) > max_length + 1:
        raise AspectFailed(Problem("unusable", f"tokens of shape {tuple(tokens.shape)}, expected one row of them"))
    return nn.functional.pad(tokens, (0, max_length + 1 - len(tokens)), value=-1)


def _texts(got, expected):
    got, expected = (" ".join(str(int(token)) for token in row if token >= 0) for row in (got, expected))
    return f"wrote {got or 'nothing'}, expected {expected}"


# ----------------------------------------------------------------------------------------------------- what is observed


@aspect("one beam", points=1, hint=1, explain=_texts)
def one_beam(answer, draw):
    """with one beam it is greedy decoding"""
    return _search(answer, draw, "one", 1, 0.0, 6)


@aspect("several beams", points=2, hint=2, explain=_texts)
def several_beams(answer, draw):
    """finds what greedy decoding misses"""
    return _search(answer, draw, "several", 4, 0.0, 6)


@aspect("length penalty", points=1, hint=3, explain=_texts)
def length_penalty(answer, draw):
    """a long hypothesis is not punished for its many factors"""
    return _search(answer, draw, "penalty", 4, 0.95 + 0.1 * float(draw.uniform(1)), 6)


@aspect("nobody ends", points=1, hint=3, explain=_texts)
def nobody_ends(answer, draw):
    """what is still open at `max_length` competes as it is"""
    return _search(answer, draw, "nobody", 3, 0.6, 4)


@aspect("one has ended", points=1, hint=3, explain=_texts)
def one_has_ended(answer, draw):
    """what is still open at `max_length` competes with what has ended before, and may win"""
    return _search(answer, draw, "both", 3, 0.6, 4)


@aspect("the search goes on", points=1, hint=3, explain=_texts)
def the_search_goes_on(answer, draw):
    """what is open may still win when as many hypotheses have ended as there are beams"""
    return _search(answer, draw, "long", 2, 0.95 + 0.1 * float(draw.uniform(1)), 6)


@aspect("no more than the beams", points=1, hint=2, explain=_texts)
def no_more_than_the_beams(answer, draw):
    """what has fallen out stays out, and nothing takes the place of one that ended in that round"""
    return _search(answer, draw, "narrow", 2, 1.5, 6)


@aspect("score", points=1, hint=3)
def score(answer, draw):
    """the total, divided by the penalty, where every token that was written counts"""
    oracle = _Oracle(draw, "score")
    return answer(oracle, 4, 0.7 + 0.2 * float(draw.uniform(1)), oracle.bos, oracle.eos, 6)[1]


# -------------------------------------------------------------------------------------- one slip away from the solution

EVERY_SEARCH = ("one beam", "several beams", "length penalty", "nobody ends", "one has ended", "the search goes on",
                "no more than the beams")
WIDE = ("several beams", "length penalty", "nobody ends")
SCORE = ("score",)
BEAMS, COMPETE = "[:n_beams]", "finished + open_"
ENDED, OPEN = "kept if hypothesis[0][-1] == eos]", "kept if hypothesis[0][-1] != eos]"
PENALTY = "((5 + len(tokens) - 1) / 6)"

slip("the penalty's sign", ("length penalty", "the search goes on", "score"), {"total /": "total *"}, words="""
    The total was *multiplied* by the penalty. Totals are negative, so this makes long hypotheses worse still,
    whereas the penalty is there to make up for their many factors. It divides.""")
slip("no length penalty", ("length penalty", "the search goes on", "score"),
     {f" / {PENALTY} ** length_penalty": ""}, words="""
    The totals were compared as they are. Each token makes a total smaller, so short hypotheses win; that is what
    `length_penalty` is there to make good, and here it has no effect.""")
slip("chosen before the penalty", ("length penalty", "the search goes on"),
     {"key=score": "key=lambda hypothesis: hypothesis[1]"}, words="""
    The hypotheses were compared by their totals, and only the winner's was divided by the penalty. What the penalty is
    there for is the comparison: it is the scores that compete.""")
slip("the first to end wins", ("several beams", "length penalty", "one has ended", "the search goes on"),
     {"if not open_": "if finished", COMPETE: "finished or open_"},
     words="""
    The search was over as soon as one hypothesis had ended. One that ends later may have the better score: let the
    others have their chance.""")
slip("over too soon", ("the search goes on",),
     {"if not open_": "if not open_ or len(finished) >= n_beams"},
     {"if not open_": "if not open_ or kept[0][0][-1] == eos"},
     words="""
    The search was over when `n_beams` hypotheses had ended, or when the best of a round had. With a length penalty one
    that is still open can overtake them all: a larger divisor makes its score better. Go on while anything is open.""")
slip("runs past <eos>",
     ("one beam", "several beams", "length penalty", "the search goes on", "no more than the beams", "score"),
     {f"    finished += [hypothesis for hypothesis in {ENDED}\n": "", OPEN: "kept]"},
     words="""
    Hypotheses are continued after their <eos>. What has ended is taken out of the open ones, and waits with its
    total until the end.""")
slip("what had ended is forgotten", ("several beams", "length penalty", "no more than the beams", "score"),
     {"finished += [": "finished = ["}, words="""
    A hypothesis that had ended was forgotten while the search went on. It has left the beam, but it is one of the
    candidates: put it aside, and let all that was put aside, in *every* round, compete at the end.""")
slip("what had ended is forgotten",
     ("several beams", "length penalty", "the search goes on", "no more than the beams", "score"),
     {COMPETE: "open_ or finished"})
slip("goes on for one more step", ("length penalty",), {OPEN: "kept if hypothesis[0][-2] != eos]"}, words="""
    What ended was taken out of the open hypotheses one step too late. It is asked for once more, and its continuations
    take places that belong to others. Look at the token that has just been written.""")
slip("the past is forgotten", (*WIDE, "no more than the beams", "score"), {"total + p": "p"}, words="""
    Continuations were ranked by the new token's log-probability alone. A beam is as good as all of its tokens
    together: add the hypothesis' own total before you compare.""")
slip("each beam by itself", (*WIDE, "no more than the beams"),
     {"for _ in": "for t in",
      "enumerate(row)": "sorted(enumerate(row), key=lambda pair: -pair[1])[: n_beams if t == 0 else 1]"},
     words="""
    After the first token each hypothesis was continued with its own best token, so there are several greedy
    searches side by side. In a beam search all continuations compete with each other: two of the kept ones may come
    from the same hypothesis, and a hypothesis may have none.""")
slip("greedy whatever the beams", (*WIDE, "the search goes on"),
     {BEAMS: "[:1]"},
     {"[([bos], 0.0)]": "[([bos], 0.0)] * n_beams"},  # all beams start alike
     words="""
    This is greedy decoding, whatever `n_beams` says. Either one hypothesis is kept all along, or the search begins
    with several copies of the same one. Copies have the same continuations with the same totals, so they stay
    copies: begin with one, and let it have many continuations.""")
slip("probabilities are added", (*WIDE, "score"), {"log_p.tolist()": "log_p.exp().tolist()"}, words="""
    Probabilities were added up. The probability of a sentence is the *product* of its tokens', so it is their
    logarithms that are added, and logarithms are what you were given.""")
slip("<bos> comes along", EVERY_SEARCH, {"best[0][1:]": "best[0]"}, words="""
    The <bos> that stands in front was handed back. It was not written by the model, and does not count.""")
slip("what is unfinished is thrown away", ("nobody ends", "one has ended"), {COMPETE: "finished"}, words="""
    Only hypotheses that had ended were compared, and where `max_length` comes first there are none. A translation
    that was cut off is better than nothing: let the open ones compete as they are.""")
slip("what has ended comes first", ("one has ended",), {COMPETE: "finished or open_"}, words="""
    As soon as one hypothesis had ended, those that `max_length` cut off were not compared with it. They compete on
    equal terms: the best score wins, ended or not.""")
slip("ended ones are replaced", ("no more than the beams",),
     {BEAMS: "", ENDED: f"kept{BEAMS} if hypothesis[0][-1] == eos]", OPEN: f"{OPEN}{BEAMS}"},
     words="""
    When a hypothesis had ended, the next best open one came up in its place. Many programs do that, and it is a
    different search. Here the `n_beams` best are picked first, ended or not, and what ends leaves its place empty.""")
slip("more than the beams", ("one beam", "no more than the beams"), {BEAMS: "[:100]"}, words="""
    More hypotheses were kept than `n_beams`. What comes out may even be better, for more computing than was
    allowed: all continuations of all open hypotheses compete for the same few places.""")
slip("a different penalty", SCORE,
     {PENALTY: "(len(tokens) - 1)"},
     {PENALTY: "len(tokens)"},  # with <bos> in the length
     words="""
    The total was divided by a power of the length itself. That is used, too, and is stronger: the same hypothesis
    wins here, but elsewhere another may. What is asked for is ((5 + n) / 6)^α, which treats the first few tokens
    gently.""")
slip("the exponent left out", SCORE, {" ** length_penalty": ""}, words="""
    The total was divided by (5 + n) / 6 as it stands, as if `length_penalty` were 1. The penalty is that to the power
    of `length_penalty`: with 0 there is none.""")
slip("tokens miscounted", SCORE,
     {"len(tokens) - 1": "len(tokens)"},
     {"len(tokens)": "len([token for token in tokens if token != eos])"},  # without the <eos>
     words="""
    The length is off by one: n counts what was written, an <eos> with it, and not the <bos> that you put in front
    yourself. What is `len` of the list that holds all three?""")


# ------------------------------------------------------------------------------------------------ right in other styles


@alternative("topk over the flattened table")
def topk_over_the_flattened_table(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """Tensors throughout: which beam and which token come out of one index."""
    tokens, totals, finished = torch.tensor([[bos]]), torch.zeros(1), []
    for t in range(1, max_length + 1):
        table = totals[:, None] + next_log_p(tokens)
        totals, index = table.flatten().topk(min(n_beams, table.numel()))
        beam, token = index // table.shape[1], index % table.shape[1]
        tokens = torch.cat([tokens[beam], token[:, None]], dim=1)
        ended = (token == eos) | (t == max_length)
        for row, total in zip(tokens[ended], totals[ended].tolist(), strict=True):
            finished.append((total / ((5 + t) / 6) ** length_penalty, row[1:]))
        tokens, totals = tokens[~ended], totals[~ended]
        if not len(tokens):
            break
    score, best = max(finished, key=lambda pair: pair[0])
    return best, torch.tensor(score)


@alternative("one hypothesis at a time, float64")
def one_hypothesis_at_a_time_float64(next_log_p, n_beams, length_penalty, bos, eos, max_length):
    """Asks the model about each by itself."""
    finished: list = []
    open_: list = [(0.0, (bos,))]
    while open_ and len(open_[0][1]) <= max_length:
        longer = []
        for total, tokens in open_:
            row = next_log_p(torch.tensor([tokens]))[0].double()
            longer += [(total + float(p), (*tokens, v)) for v, p in enumerate(row)]
        longer.sort(reverse=True)
        open_ = []
        for total, tokens in longer[:n_beams]:
            (finished if tokens[-1] == eos else open_).append((total, tokens))
    everything = [(total / ((4 + len(tokens)) / 6) ** length_penalty, tokens) for total, tokens in finished + open_]
    score, best = max(everything)
    return torch.tensor(best[1:]), score
