"""Wrong answers that the checks and the search for the line had not seen: one file, `unseen_N.py`, for each draw.

The exercises were drawn at random, and the answers written from the contract in the notebook alone, before the
exercise's module was opened. A function is called `exercise__mistake`; `# here` marks the line at fault (two lines
where something is missing between them, or where either may be changed); what has `self` is a module's `forward`.
"""

from pathlib import Path

from torch import nn

from attncourse_lessons.l10_training.exercises.train_step import exercise as train_step


def two(answer):
    """Mark an answer with two mistakes."""
    answer.mistakes = 2
    return answer


def right(answer):
    """Mark an answer that is right."""
    answer.mistakes = 0
    return answer


def mistakes(answer):
    """How many an answer has."""
    return getattr(answer, "mistakes", 1)


def answers_in(module):
    """The answers of a file such as this, {exercise__what is wrong: answer}."""
    return {name: value for name, value in vars(module).items()
            if callable(value) and "__" in name and not name.startswith("_")}  # fmt: skip


class _Layer(nn.Module):
    """What the notebook gives of the multi-head layer."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key, self.value, self.output = (nn.Linear(d_model, d_model) for _ in range(4))


class _Step(nn.Module):
    """What the notebook gives of the decoder's step with attention."""

    def __init__(self, vocab_size, d_embedding, d_hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.cell = nn.GRUCell(d_embedding + d_hidden, d_hidden)
        self.combine = nn.Linear(2 * d_hidden, d_hidden)
        self.output = nn.Linear(d_hidden, vocab_size)


class _Block(nn.Module):
    """What the notebook gives of the block."""

    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attention = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)


GIVEN = {
    "MultiHeadAttention": _Layer,
    "AttentionDecoderStep": _Step,
    "repair_the_block": _Block,
    "TrainStep": train_step.reference,  # the notebook's class; its own step is replaced
}


def handed_in(answer):
    """What a learner hands in: a function, a class, or the notebook's class with the function as its forward."""
    if isinstance(answer, type):
        return answer
    given = GIVEN.get(answer.__name__.partition("__")[0])
    return type(given.__name__, (given,), {"forward": answer}) if given else answer


def draws():
    """The numbers of the draws there are."""
    return sorted(int(path.stem.removeprefix("unseen_")) for path in Path(__file__).parent.glob("unseen_[0-9]*.py"))
