"""A drill: what shape does this line of code make? Shapes are drawn, answers checked, and a score is kept."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import traitlets
from matplotlib.figure import Figure

from attncourse.viz.live_widget import LiveWidget
from attncourse.viz.style import GREY, INK, figure, stage

ERROR = "an error"


class Question(NamedTuple):
    """A line of code, the shapes of the tensors in it, answers that are wrong, and why the right one is right."""

    shapes: Mapping[str, tuple[int, ...]]
    code: str
    wrong: Sequence[str]
    why: str

    @property
    def right(self) -> str:
        """What torch says: the shape, or that it is an error."""
        tensors = {name: torch.zeros(shape) for name, shape in self.shapes.items()}
        try:
            result = eval(self.code, {"torch": torch}, tensors)
        except (RuntimeError, IndexError):
            return ERROR
        return str(tuple(result.shape))


class shape_drill(LiveWidget):
    """One question after another, each answered by a button, without a kernel. The first answer counts.

    Its picture has the answers at the foot, unless `told` is false, for a page that tells them elsewhere.
    With a kernel, `score` is how many were answered rightly, of how many. Raises ValueError for no questions, for a
    question whose wrong answers hold the right one or the same one twice, and for code that fails for another reason
    than its shapes.

    >>> turned = Question({"x": (2, 3)}, "x.mT", ["(2, 3)", "an error"], "The axes change places.")
    >>> shape_drill([turned]).score
    (0, 0)
    """

    _esm = Path(__file__).with_suffix(".js")
    _css = Path(__file__).with_suffix(".css")
    kept = ("answers", "at")

    questions: traitlets.List = traitlets.List().tag(sync=True)
    """Of each {"shapes": [[name, shape], …], "code", "choices", "right", "why"}."""
    answers = traitlets.List(traitlets.Unicode()).tag(sync=True)
    """Of each question what was chosen, or nothing."""
    at = traitlets.Int().tag(sync=True)

    def __init__(self, questions: Sequence[Question], told: bool = True):
        if not questions:
            raise ValueError("questions: got none, expected at least one")
        asked = [_as_asked(place, question) for place, question in enumerate(questions)]
        self._told = told
        super().__init__(questions=asked, answers=[""] * len(asked), at=0)

    @traitlets.validate("answers")
    def _check_answers(self, proposal):
        answers, choices = proposal["value"], [question["choices"] for question in self.questions]
        known = len(answers) == len(choices)
        if not known or any(one not in ("", *each) for one, each in zip(answers, choices, strict=True)):
            raise ValueError(f"answers: got {answers}, expected one of each of {choices}, or nothing")
        return answers

    @traitlets.validate("at")
    def _check_at(self, proposal):
        if not 0 <= proposal["value"] < len(self.questions):
            raise ValueError(f"at: got {proposal['value']}, expected a question from 0 to {len(self.questions) - 1}")
        return proposal["value"]

    @property
    def score(self) -> tuple[int, int]:
        """How many answers are right, of how many that were given."""
        given = [(one, each["right"]) for one, each in zip(self.answers, self.questions, strict=True) if one]
        return sum(one == right for one, right in given), len(given)

    def still(self) -> tuple[Figure, str]:
        """All questions on a sheet with what can be chosen, and, if they are told, the answers at its foot."""
        drawn, ax = figure(8.6, 1.3 + 0.34 * len(self.questions))
        stage(ax, (0, 1), (len(self.questions) + 1.1, -1.5))
        given = [", ".join(f"{name} {tuple(shape)}" for name, shape in asked["shapes"]) for asked in self.questions]
        line = max(0.25, 0.06 + 0.008 * max(map(len, given)))                    # no column runs into the next
        choice = max(0.6, line + 0.02 + 0.0098 * max(len(asked["code"]) for asked in self.questions))
        columns = (0.0, 0.04, line, choice)
        for x, head in zip(columns[1:], ("given", "line", "which shape?"), strict=True):
            ax.text(x, -1, head, fontsize=10.5, color=GREY, va="center")
        said = []
        for row, (question, shapes) in enumerate(zip(self.questions, given, strict=True)):
            choices = "   ".join(question["choices"])
            for x, words, font in zip(
                columns, (f"{row + 1}", shapes, question["code"], choices), (None, None, "monospace", None), strict=True
            ):
                ax.text(x, row, words, fontsize=10, color=INK if x else GREY, va="center", family=font)
            said.append(f"{row + 1}. {shapes}: {question['code']}. {', or '.join(question['choices'])}?")
        words = f"A drill: say the shape. {' '.join(said)}"
        if not self._told:
            return drawn, words
        right = ";  ".join(f"{row}: {question['right']}" for row, question in enumerate(self.questions, start=1))
        ax.text(0.0, len(self.questions) + 0.5, f"answers   {right}", fontsize=9, color=GREY, va="center")
        return drawn, f"{words} Answers: {right.replace('  ', ' ')}."


def _as_asked(place: int, question: Question) -> dict[str, Any]:
    right, wrong = question.right, list(question.wrong)
    if right in wrong or len({*wrong}) < len(wrong):
        raise ValueError(f"wrong answers to {question.code}: got {wrong}, expected different ones, and not {right}")
    wrong.insert((5 * place + 2) % (len(wrong) + 1), right)  # in no place that could be learned
    shapes = [[name, list(shape)] for name, shape in question.shapes.items()]
    return {"shapes": shapes, "code": question.code, "choices": wrong, "right": right, "why": question.why}
