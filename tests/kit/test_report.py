"""The report on a class: what it counts, flags and calls nearly identical, and that the page is safe to open."""

import inspect
import json
import random
import re
import time
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from textwrap import indent
from unittest.mock import Mock

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from rich.console import Console

from attncourse_lessons import course as lessons
from commandkit.errors import CommandError
from lessonkit.grading.report import command as report
from lessonkit.grading.report import similarity
from lessonkit.grading.report.page import page, visible
from lessonkit.grading.report.results import (
    Column,
    Released,
    Results,
    Row,
    RunLog,
    _well_formed,
    distribution,
    flags,
    leaderboards,
    mistakes,
    outliers,
    read_log,
)
from lessonkit.grading.report.similarity import RUN, aligned, normal_form, similar
from lessonkit.grading.submission import run_log
from lessonkit.grading.submission.records import Records

EXERCISES = lessons.exercises_of("a03")
STUB = "    # Your code here.\n    raise NotImplementedError()"
RELEASED = {
    "attention_scores": "def attention_scores(decoder_states: Tensor, encoder_states: Tensor) -> Tensor:\n"
    '    """How well each target position matches each source position."""\n' + STUB,
    "attention_distribution": "def attention_distribution(scores: Tensor, mask: Tensor) -> Tensor:\n"
    '    """Turn scores into weights."""\n' + STUB,
    "AttentionDecoderStep": "class AttentionDecoderStep(nn.Module):\n"
    "    def __init__(self, vocab_size: int, d_embedding: int, d_hidden: int):\n"
    "        super().__init__()\n"
    "        self.embedding = nn.Embedding(vocab_size, d_embedding)      # E\n"
    "        self.cell = nn.GRUCell(d_embedding + d_hidden, d_hidden)    # eats [embedding; attentional vector]\n\n"
    "    def forward(self, token, state, attentional, encoder_states, mask):\n"
    '        """Read one token."""\n' + STUB.replace("    ", "        "),
}
QUESTION = "A course-mate is annoyed: my rows summed to one, then I set the padded weights to zero, and now they don't."
# Ways to write each statement; every student chooses.
STYLES = {
    "attention_scores": [["return decoder_states @ encoder_states.mT", "return decoder_states @ encoder_states.mT"]],
    "attention_distribution": [
        [
            "m = scores.masked_fill(~mask, float('-inf'))",
            "m = torch.where(mask, scores, -torch.inf)",
            "m = scores.masked_fill(mask == False, -1e9)",
            "m = scores.clone()\nm[~mask.expand_as(scores)] = -math.inf",
        ],
        ["w = torch.softmax(m, dim=-1)", "w = m.softmax(-1)", "w = nn.functional.softmax(m, -1)"],
        ["return w * mask", "return torch.nan_to_num(w, nan=0.0)", "w = torch.where(mask, w, 0.0)\nreturn w"],
    ],
    "AttentionDecoderStep": [
        [
            "e = self.embedding(token)\nx = torch.cat([e, attentional], dim=1)\ns = self.cell(x, state)",
            "s = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)",
            "x = torch.cat((self.embedding(token), attentional), 1)\ns = self.cell(x, state)",
        ],
        [
            "e_t = attention_scores(s.unsqueeze(1), encoder_states).squeeze(1)",
            "e_t = (s[:, None] * encoder_states).sum(-1)",
            "e_t = torch.bmm(encoder_states, s.unsqueeze(2)).squeeze(2)",
        ],
        [
            "a = attention_distribution(e_t[:, None], mask[:, None])[:, 0]",
            "a = e_t.masked_fill(~mask, float('-inf')).softmax(1)",
            "e_t[~mask] = -1e9\na = torch.softmax(e_t, dim=1)",
        ],
        ["c = (a[:, None] @ encoder_states)[:, 0]", "c = (a.unsqueeze(-1) * encoder_states).sum(dim=1)"],
        [
            "h = torch.tanh(self.combine(torch.cat([c, s], dim=-1)))",
            "both = torch.cat((c, s), 1)\nh = torch.tanh(self.combine(both))",
        ],
        ["return self.output(h), s, h, a", "logits = self.output(h)\nreturn logits, s, h, a"],
    ],
}
# An answer that nobody else would write.
ODD = """
# every sentence of the batch gets its own little turn
rows = []
for one in range(token.shape[0]):
    heard = encoder_states[one, mask[one]]
    moved = self.cell(torch.hstack([self.embedding(token[one]), attentional[one]]), state[one])
    share = (heard * moved).sum(1).exp()
    share = share / share.sum()
    # the padding never entered so nothing has to be hidden
    rows.append((moved, share, share @ heard))
return self.finish(rows)
""".strip()


def cell(name, body):
    """What was released of an exercise, with `body` where the stub was."""
    head, _, _ = RELEASED[name].partition("# Your code here.")
    indent = " " * (len(head) - len(head.rstrip(" ")))
    return head.rstrip(" ") + "\n".join(indent + line if line else "" for line in body.splitlines())


def verdict(exercise, points, out_of, misconceptions=(), problem=None):
    aspects = [{"name": "output", "ok": points == out_of, "points": points, "out_of": out_of, "message": "m"}]
    return {
        "exercise": exercise,
        "points": points,
        "out_of": out_of,
        "extra": False,
        "aspects": aspects,
        "misconceptions": list(misconceptions),
        "problem": problem,
    }


def made_up_class(n=30, **answers):
    """A class in which everybody works alone; `answers` are more students: {student: {exercise: body}}."""
    draw = random.Random(3)
    rows = []
    for i in range(n):
        bodies = {name: "\n".join(draw.choice(s) for s in styles) for name, styles in STYLES.items()}
        rows.append(Row(f"s{i:03}", f"Student {i:03}", {}, answers={k: cell(k, body) for k, body in bodies.items()}))
    for student, bodies in answers.items():
        rows.append(Row(student, student.capitalize(), answers={k: cell(k, body) for k, body in bodies.items()}))
    columns = [Column("nb", f"check-{name}", 4, False) for name in STYLES] + [Column("nb", "why", 3, True)]
    for row in rows:
        row.points = {column.grade_id: None if column.written else 4.0 for column in columns}
        row.verdicts = {name: verdict(name, 4.0, 4.0) for name in STYLES}
        row.total = 12.0
        row.log = RunLog(seconds=0.1 + 0.001 * draw.random(), peak_mb=300.0 + draw.random(), sandbox="bubblewrap")
    released = {name: Released(text) for name, text in RELEASED.items()}
    return Results("a03", columns, rows, 15.0, {**released, "why": Released("", code=False)}, QUESTION)


def pairs(results):
    return [{pair.first.student, pair.second.student if pair.second else None} for pair in similar(results, EXERCISES)]


# --------------------------------------------------------------------------------------------------- nearly identical


def test_students_who_work_alone_are_not_flagged():
    assert pairs(made_up_class(60)) == []


def test_an_idiomatic_one_liner_is_everybodys():
    results = made_up_class(30)
    assert len({row.answers["attention_scores"] for row in results.rows}) == 1
    for row in results.rows:
        row.answers = {"attention_scores": row.answers["attention_scores"]}
    results.rows[0].answers["attention_scores"] = cell(
        "attention_scores", "return torch.einsum('btd,bsd->bts', decoder_states, encoder_states)"
    )
    results.rows[1].answers["attention_scores"] = results.rows[0].answers["attention_scores"]
    assert pairs(results) == []


def test_another_name_for_everything_and_other_comments_hide_nothing():
    names = {"rows": "liste", "one": "k", "heard": "quelle", "moved": "neu", "share": "g", "token": "wort", "mask": "m"}
    renamed = re.sub(r"\b(" + "|".join(names) + r")\b", lambda match: names[match[0]], ODD.replace("self.cell", "@@"))
    lines = [line for line in renamed.replace("@@", "self.cell").splitlines() if "#" not in line]
    copied = "\n".join(["# my own idea", *lines[:3], "    # and a remark here", *lines[3:]]).replace(" + ", "+")
    results = made_up_class(30, ada={"AttentionDecoderStep": ODD}, bob={"AttentionDecoderStep": copied})
    results.rows[-1].answers["AttentionDecoderStep"] = results.rows[-1].answers["AttentionDecoderStep"].replace(
        "forward(self, token, state, attentional, encoder_states, mask)",
        "forward(self, wort, state, attentional, encoder_states, m)",
    )
    assert copied != ODD and pairs(results) == [{"ada", "bob"}]
    (pair,) = similar(results, EXERCISES)
    assert "the same but for names, comments and layout" in pair.evidence[0]
    assert [sign for sign, _, _ in aligned(pair.answers[0])].count("≈") == 8


def test_an_answer_that_does_not_parse_is_compared_too():
    broken = "".join(ODD.rsplit(")", 1))
    results = made_up_class(30, ada={"AttentionDecoderStep": broken}, bob={"AttentionDecoderStep": broken})
    with pytest.raises(SyntaxError):
        compile(results.rows[-1].answers["AttentionDecoderStep"], "answer", "exec")
    assert pairs(results) == [{"ada", "bob"}]


def test_what_more_than_a_few_wrote_says_nothing():
    ring = {f"friend{i}": {"AttentionDecoderStep": ODD} for i in range(5)}
    results = made_up_class(30, **ring)
    for row in results.rows[-5:]:
        row.answers["AttentionDecoderStep"] = re.sub("#.*", "", row.answers["AttentionDecoderStep"])
    assert pairs(results) == []


def test_the_untouched_stub_says_nothing():
    results = made_up_class(30)
    for row in results.rows[:3]:
        row.answers = dict(RELEASED)
    assert pairs(results) == []
    assert normal_form(RELEASED["AttentionDecoderStep"], RELEASED["AttentionDecoderStep"]).tokens == ()


def test_the_same_misconception_is_no_sign():
    wrong = {exercise.name: exercise.misconceptions[1].body for exercise in EXERCISES if exercise.name in STYLES}
    assert pairs(made_up_class(30, ada=wrong, bob=wrong)) == []


def test_the_packages_own_source_is_recognised():
    code = "\n".join(line[8:] for line in report_source("AttentionDecoderStep").splitlines())
    results = made_up_class(30, ada={"AttentionDecoderStep": code})
    assert pairs(results) == [{"ada", None}]
    (pair,) = similar(results, EXERCISES)
    assert "attncourse.recurrent.AttentionDecoderStep.forward" in pair.evidence[0]


def report_source(name):
    """The body of the reference's forward, as it stands in the package."""
    text = inspect.getsource(lessons.exercise(name).reference.forward)
    return text.partition('source token."""\n')[2]


def test_the_model_solution_is_recognised():
    first = "s = self.cell(torch.cat([self.embedding(token), attentional], dim=-1), state)\n"
    model = first + ODD.partition("rows = []\n")[2]
    results = made_up_class(30, ada={"AttentionDecoderStep": re.sub("#.*", "", model)})
    results.released["AttentionDecoderStep"] = Released(RELEASED["AttentionDecoderStep"], model=model)
    (pair,) = similar(results, EXERCISES)
    assert pair.second is None and "the model solution" in pair.evidence[0]


def test_another_style_of_the_packages_is_recognised():
    style = lessons.exercise("AttentionDecoderStep").alternatives[1]
    results = made_up_class(30, ada={"AttentionDecoderStep": style.body.replace("shares", "anteil")})
    (pair,) = similar(results, EXERCISES)
    assert pair.second is None and style.name in pair.evidence[0]


def test_comments_in_the_same_words_are_evidence():
    remark = "# here i was not sure whether the padding should be hidden first\n# so i tried both and kept this one\n"
    bodies = [STYLES["attention_distribution"][i] for i in range(3)]
    ada, bob = ("\n".join(styles[i] for styles in bodies) for i in (0, 1))
    results = made_up_class(
        30, ada={"attention_distribution": remark + ada}, bob={"attention_distribution": bob + "\n" + remark}
    )
    (pair,) = similar(results, EXERCISES)
    assert {pair.first.student, pair.second.student} == {"ada", "bob"}
    assert all("the same comment" in line for line in pair.evidence)


def test_a_long_passage_in_the_same_words_is_shown_and_a_quoted_question_is_not():
    passage = (
        "Suppose the padded position had a score of two hundred while the only real word scored nothing at all; then "
        "its exponential swallows the sum, the word underflows to zero, and dividing afterwards has nothing to divide."
    )
    results = made_up_class(30)
    for i, row in enumerate(results.rows):
        row.answers["why"] = f"Student {i} thinks that option {i * i} is the best because of reason {i + 7}."
    results.rows[2].answers["why"] = results.rows[3].answers["why"] = QUESTION
    results.rows[5].answers["why"] = f"First of all, hello. {passage}"
    results.rows[9].answers["why"] = f"{passage.upper()} That is all."
    (pair,) = similar(results, EXERCISES)
    assert {pair.first.student, pair.second.student} == {"s005", "s009"}
    assert "words in a row" in pair.evidence[0] and "suppose the padded position" in pair.evidence[0]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = a + 1\nreturn x", "y = a+1  # mine\nreturn (y)"),
        ("return torch.einsum('bij,bkj->bik', a, a)", "return torch.einsum('nsd, ntd -> nst', a, a)"),
        ("def helper(k):\n    '''Doc.'''\n    return k\nreturn helper(a)", "def h(z):\n    return z\nreturn h(a)"),
        ("x: Tensor = a\nreturn x", "x = a\nreturn x"),
    ],
)
def test_the_normal_form_drops_what_a_copier_can_change_freely(one, other):
    released = "def f(a):\n    raise NotImplementedError()"
    forms = [normal_form("def f(a):\n" + indent(body, "    "), released) for body in (one, other)]
    assert forms[0].tokens and forms[0].text == forms[1].text


@pytest.mark.parametrize("change", ["return b - a", "return a + b + 1", "return b @ a"])
def test_the_normal_form_keeps_what_is_computed(change):
    released = "def f(a, b):\n    raise NotImplementedError()"
    first, second = (normal_form(f"def f(a, b):\n    {body}", released) for body in ("return b + a", change))
    assert first.text != second.text


@pytest.mark.parametrize("code", ["(" * 5000, "'" * 999, "\x00", "!ls\n%time x = 1", "x = '\ud800'", "9" * 6000])
def test_no_answer_stops_the_comparison(code):
    results = made_up_class(10)
    results.rows[0].answers = {name: code for name in [*STYLES, "why"]}
    assert similar(results, EXERCISES) == []
    assert len(normal_form(code, "").runs) <= max(0, len(code) - RUN + 1)


# ------------------------------------------------------------------------------------------------- what the class shows


def test_one_word_again_and_again_does_not_hold_up_the_comparison():
    """Two who copied a passage and fill it up: looking for the passage would take the square of it."""
    passage = " ".join(f"word{i}" for i in range(300))
    between = similarity._Words("essay", [passage + " a" * 8_000] * 2, Mock(source="", model=""), "")
    began = time.process_time()
    evidence, _ = between.explain(0, 1)
    assert time.process_time() - began < 2 and "in a row the same" in evidence[0]


def test_a_distribution_counts_every_mark_once():
    results = made_up_class(12)
    for i, row in enumerate(results.rows):
        row.points["check-attention_scores"] = [0.0, 1.0, 4.0][i % 3]
        row.verdicts["attention_scores"] = verdict("attention_scores", row.points["check-attention_scores"], 4.0)
    spread = distribution(results, results.columns[0])
    assert spread.bars == (("0", 4), ("1", 4), ("2", 0), ("3", 0), ("4", 4))
    assert (spread.mean, spread.full, spread.marked, spread.waiting) == (5 / 3, 4, 12, 0)
    assert spread.missed == (("output", 8),)


@pytest.mark.parametrize(("marks", "bars"), [([0.5, 3.0], 7), ([0.3, 2.9], 10), ([1.0, 2.0], 4), ([-1.0, 3.0], 10)])
def test_there_is_a_bar_for_each_mark_there_can_be_or_for_each_tenth(marks, bars):
    results = made_up_class(2)
    for row, mark in zip(results.rows, marks, strict=True):
        row.points["why"] = mark
    spread = distribution(results, results.columns[-1])
    assert len(spread.bars) == bars and sum(count for _, count in spread.bars) == 2


def test_extra_credit_is_out_of_what_the_exercise_gives():
    results = made_up_class(3)
    column = Column("nb", "check-attention_scores", 0, False)
    assert distribution(results, column).out_of == 4
    assert distribution(results, column).full == 3


def test_answers_that_were_not_written_miss_no_aspect():
    results = made_up_class(2)
    results.rows[0].verdicts["attention_scores"] = verdict("attention_scores", 0.0, 4.0, problem="not written")
    spread = distribution(results, results.columns[0])
    assert spread.missed == () and spread.unwritten == 1


def test_misconceptions_come_by_frequency():
    results = made_up_class(5)
    for row, names in zip(results.rows, (["rare"], ["often"], ["often", "often"], [], []), strict=True):
        row.verdicts["attention_scores"] = verdict("attention_scores", 1.0, 4.0, names)
    assert [(m.name, len(m.rows)) for m in mistakes(results)] == [("often", 2), ("rare", 1)]


@pytest.fixture
def ranked():
    """A class of five, of whom four were measured, two alike."""
    results = made_up_class(5)
    for row, value in zip(results.rows, [80.0, 97.5, None, 80.0, 12.25], strict=True):
        metric = {} if value is None else {"metric": {"name": "right, of 100", "value": value}}
        row.verdicts["attention_scores"] = {**verdict("attention_scores", 4.0, 4.0), **metric}
    return results


def test_a_leaderboard_has_the_best_first_and_equals_share_a_place(ranked):
    (board,) = leaderboards(ranked)
    assert (board.exercise, board.metric) == ("attention_scores", "right, of 100")
    seen = [(place.number, place.value, [row.student for row in place.rows]) for place in board.places]
    assert seen == [(1, 97.5, ["s001"]), (2, 80.0, ["s000", "s003"]), (4, 12.25, ["s004"])]
    assert leaderboards(made_up_class(3)) == []


def test_a_leaderboard_says_who_is_where_only_if_it_is_asked_to(ranked, tmp_path):
    for named in (False, True):
        console = Console(file=StringIO(), width=200)
        report.show_class(ranked, EXERCISES, [], console, named=named)
        printed = console.file.getvalue()
        board = printed[printed.index("leaderboard: attention_scores (right, of 100)") :].partition("\n\n")[0]
        assert board.index("1.  97.5") < board.index("2.  80") < board.index("4.  12.25")
        text = Page(page(ranked, EXERCISES, [], tmp_path, named=named)).text
        on_page = text[text.rindex("place right, of 100 students") :]
        assert ("Student 001" in board, "1 97.5 Student 001" in on_page) == (named, named)
        assert ("1 97.5 1 2 80 2 4 12.25 1" in on_page) == (not named)


@pytest.mark.parametrize("metric", [7, {"name": "right", "value": "97"}, {"name": "right", "value": float("nan")}, {}])
def test_a_metric_that_is_odd_is_none(metric):
    assert _well_formed({**verdict("attention_scores", 4.0, 4.0), "metric": metric})["metric"] is None


def test_time_and_memory_far_beyond_the_class_are_outliers():
    results = made_up_class(30)
    results.rows[7].log = RunLog(seconds=29.0, peak_mb=301.0, cells=(("a", 1.0), ("check-attention_scores", 27.5)))
    results.rows[8].log = RunLog(seconds=0.1, peak_mb=900.0)
    results.rows[9].log = RunLog(seconds=0.9, peak_mb=350.0)  # far out by the quartiles, and nothing to talk about
    found = [(o.what, o.row.student, o.where) for o in outliers(results)]
    assert found == [("time", "s007", "(27.5 s of it in check-attention_scores)"), ("memory", "s008", "")]


def test_a_tiny_class_has_no_outliers():
    results = made_up_class(9)
    results.rows[0].log = RunLog(seconds=1000.0)
    assert outliers(results) == []


def test_flags_stand_in_the_order_in_which_a_person_looks():
    results = made_up_class(4)
    results.rows[0].repairs = ["a cell was there twice"]
    results.rows[1].unreadable = "the submitted file is empty"
    results.rows[2].log = RunLog(ended="out of memory")
    results.rows[3].tampering = ["replaced torch.allclose"]
    assert [flag.row.student for flag in flags(results)] == ["s003", "s002", "s001", "s000"]


def own(source):
    """A cell that a learner has added, as a job has it."""
    return {"source": source, "grade_id": None, "exercise": None, "skip": False}


def test_a_cell_far_too_long_is_said_to_be_and_not_read(monkeypatch):
    monkeypatch.setattr(run_log, "ast", Mock())
    long = "sys._getframe()\n" + "#" * run_log.MAX_SOURCE
    assert run_log.suspicious_names([own(long)], lessons) == [f"a cell of {len(long)} characters"]
    assert not run_log.ast.mock_calls


def test_a_name_of_a_thousand_parts_is_one_note_and_a_short_one():
    (note,) = run_log.suspicious_names([own("sys.modules" + ".modules" * 1000)], lessons)
    assert note.startswith("uses `sys.modules.modules") and len(note) < 200


@pytest.mark.parametrize("name", ["sys.modules.get", "nn.MultiheadAttention.forward"])
def test_a_name_is_seen_whatever_is_asked_of_it(name):
    checked = {**own(""), "exercise": "attention_scores"}
    assert run_log.suspicious_names([own(f"{name}(1)"), checked], lessons) == [f"uses `{name}` in `a cell of its own`"]


WAYS_AROUND = {
    "getattr": 'getattr(F, "scaled_dot_" + "product_attention")(x)',
    "F.softmax": 'getattr(F, "softmax")(x)',
    "concurrent.futures.ThreadPoolExecutor": "from concurrent.futures import ThreadPoolExecutor",
    "check.__self__.objects": "check.__self__.objects[0].guard.targets.clear()",
    "check.__self__": "type(check.__self__)._begin = None",
    "eval": 'eval("torch" + ".softmax")',
    "F.__dict__": 'F.__dict__["softmax"](x)',
    "globals": 'globals()["F"]',
    "subprocess.run": 'subprocess.run(["python", "-c", code])',
    "os.fork": "if os.fork() == 0: pass",
    "pickle.loads": "pickle.loads(data)",
    "pkgutil.resolve_name": 'pkgutil.resolve_name("torch:soft" + "max")',
    "inspect.getattr_static": 'inspect.getattr_static(F, "soft" + "max")',
    "string.Formatter.get_field": "string.Formatter.get_field(formatter, name, (F,), {})",
    "cProfile.Profile": "cProfile.Profile().enable()",
    "asyncio.to_thread": "await asyncio.to_thread(work)",
    "get_ipython": "get_ipython().ev(text)",
    "softmax": "match F:\n    case object(softmax=found):\n        found(x)",
    "threading": "files = !ls\nimport threading",
    "sys.setprofile": "x = [\n!ls\n]\n%%time\nsys.setprofile(None",
}


@pytest.mark.parametrize("name", WAYS_AROUND)
def test_a_way_around_the_watch_on_forbidden_calls_is_seen(name):
    checked = {**own(""), "exercise": "softmax"}
    found = run_log.suspicious_names([own(WAYS_AROUND[name]), checked], lessons)
    assert found == [f"uses `{name}` in `a cell of its own`"]


def test_what_answers_need_is_no_way_around():
    code = 'model.eval()\ncheck.case("softmax")\nsize = getattr(model, "d_model", 3)\nq, k = model.compile(), 2'
    code += "\ncode, trace, profile = 1, x.trace(), 3"
    assert run_log.suspicious_names([own(code)], lessons) == []


def test_names_in_code_that_is_too_deep_to_be_written_again_are_seen():
    (note,) = run_log.suspicious_names([own("getattr(x" + ".a" * 600 + ", '__globals__')")], lessons)
    assert note == "uses `getattr.__globals__` in `a cell of its own`"


def test_a_word_in_code_that_cannot_run_is_no_name():
    checked = {**own(""), "exercise": "softmax"}
    assert run_log.suspicious_names([own("x = (  # eval, softmax"), checked], lessons) == []


def test_a_given_cell_that_imports_of_its_own_lesson_is_not_the_learners_own():
    (notebook,) = (Path(__file__).parents[2] / "solutions" / "a08").glob("*.ipynb")
    cells = [cell.source for cell in nbformat.read(notebook, 4).cells if cell.cell_type == "code"]
    (given,) = [source for source in cells if ".faults import" in source]
    checked = {**own(""), "exercise": "repair_the_block"}
    assert "TransformerEncoderLayer" in given
    assert run_log.suspicious_names([own(given), checked], lessons) == []


def test_a_cell_that_stands_as_it_was_given_is_not_the_learners_own():
    checked = {**own(""), "exercise": "softmax"}
    text = (lessons.lesson("a00").folder / "assignment.py").read_text(encoding="utf-8")
    cells = re.split(r"^# %%.*$", text, flags=re.MULTILINE)
    (given,) = [cell for cell in cells if 'if solved("softmax"):\n    products' in cell]
    assert "softmax(" in given
    assert run_log.suspicious_names([own(given.strip()), checked], lessons) == []
    assert run_log.suspicious_names([own(given.strip() + "\nscores.softmax(-1)"), checked], lessons)


def test_of_very_many_names_the_first_are_said():
    many = "\n".join(f"x{i}.ctypes" for i in range(1000))
    found = run_log.suspicious_names([own(many), own(many.replace("x", "y"))], lessons)
    assert len(found) == run_log.MAX_NOTES and "`x0.ctypes`" in found[0]


def test_names_beside_ipythons_own_lines_are_seen_without_ipythons_slow_way(monkeypatch):
    slow = []
    monkeypatch.setattr(TransformerManager, "transform_cell", lambda *given: slow.append(given) or given[-1])
    code = "%matplotlib inline\n!ls\nif True:\n    %time 1\n    sys._getframe()"
    assert run_log.suspicious_names([own(code)], lessons) == ["uses `sys._getframe` in `a cell of its own`"]
    assert not slow


ODD_LOG = {"seconds": "fast", "repairs": 3, "cells": [1, {"seconds": None}]}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"notebooks": {}}', json.dumps({"notebooks": {"n": ODD_LOG}})])
def test_a_record_that_is_torn_or_odd_is_no_record(tmp_path, text):
    records = Records(tmp_path)
    (tmp_path / "ada.json").write_text(text)
    assert records.of("ada") == records.of("bob") and read_log(records.of("ada")) is None
    assert read_log({**records.of("ada"), "notebooks": {"n": ODD_LOG}}) is None


def test_the_log_of_a_students_notebooks_is_read_as_one(tmp_path):
    noted = {
        "seconds": 1.5,
        "peak_mb": 400,
        "ended": "stopped after 30 seconds",
        "repairs": ["r"],
        "flags": ["f"],
        "suspicious": ["u"],
        "sandbox": "bubblewrap",
        "cells": [{"grade_id": None, "seconds": 1.0}, {"grade_id": "check-a", "seconds": 0.5}],
    }
    with Records(tmp_path).changing("ada") as record:
        record["notebooks"]["one"] = noted
    cells = (("cell 1", 1.0), ("check-a", 0.5))
    expected = RunLog(1.5, 400, "stopped after 30 seconds", ("r",), ("f",), ("u",), "bubblewrap", cells)
    assert read_log(Records(tmp_path).of("ada")) == expected
    with Records(tmp_path).changing("ada") as record:
        record["notebooks"]["two"] = {**noted, "seconds": 2.0, "peak_mb": 300, "ended": None, "sandbox": "none"}
    both = read_log(Records(tmp_path).of("ada"))
    assert (both.seconds, both.peak_mb, both.ended, both.flags) == (3.5, 400, "stopped after 30 seconds", ("f",))
    assert both.sandbox == "none" and len(both.cells) == 4


# ------------------------------------------------------------------------------------------------------------- the page


class Page(HTMLParser):
    """Collects what the tests ask about, and checks that every element is closed."""

    VOID = ("meta", "rect", "line", "br", "wbr", "link", "img", "input")

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


EVIL = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>\u202eevil\x1b[31m\ud800"


@pytest.fixture(scope="module")
def lively():
    """A class with something in every part of the report, and markup wherever a student could put it."""
    results = made_up_class(30, ada={"AttentionDecoderStep": ODD}, bob={"AttentionDecoderStep": ODD + f"\n# {EVIL}"})
    rows = results.rows
    rows[0].name = EVIL
    rows[1].submitted, rows[1].points, rows[1].verdicts, rows[1].answers, rows[1].log = False, {}, {}, {}, None
    hinted = lessons.exercise("attention_scores").misconceptions[0].name
    for row, name in zip(rows[2:8], [hinted, hinted, hinted, EVIL, "a/b [bold]", hinted], strict=True):
        row.points["check-attention_scores"], row.total = 1.0, 9.0
        row.verdicts["attention_scores"] = verdict("attention_scores", 1.0, 4.0, [name])
    rows[8].verdicts["attention_scores"] = verdict("attention_scores", 0.0, 4.0, problem=EVIL)
    rows[9].tampering, rows[10].repairs, rows[11].unreadable = [EVIL], ["[/bold] a cell twice"], EVIL
    rows[12].log = RunLog(seconds=25.0, peak_mb=300.0, ended="stopped after 30 seconds", cells=((EVIL, 24.0),))
    rows[13].log = None
    rows[14].answers["why"] = EVIL
    return results


@pytest.fixture(scope="module")
def lively_page(lively, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    note = folder / "autograded" / "s002" / "what a name#1.ipynb"
    lively.rows[2].notebooks = [note]
    return Page(page(lively, EXERCISES, similar(lively, EXERCISES), folder / "grading" / "a03"))


def test_nothing_from_a_student_becomes_markup(lively_page):
    assert lively_page.all("script") == [{}] and lively_page.all("img") == []  # the page's own
    assert not any(name.startswith("on") for _, attributes in lively_page.elements for name in attributes)
    assert "<script>alert(1)</script>" in lively_page.text
    assert not set("\u202e\x1b\ud800") & set(lively_page.text) and "⟨U+202E⟩" in lively_page.text


def test_the_page_needs_nothing_from_elsewhere(lively, lively_page):
    assert lively_page.all("link") == []
    for _, attributes in lively_page.elements:
        assert not attributes.get("src") and not re.match("https?:|//", attributes.get("href") or "")


def test_the_page_can_be_read_by_a_screen_reader(lively_page):
    (html,) = lively_page.all("html")
    assert html["lang"] == "en" and len(lively_page.all("main")) == len(lively_page.all("h1")) == 1
    assert all(heading.get("scope") in ("col", "row") for heading in lively_page.all("th"))
    bars = lively_page.all("svg")
    assert bars and all(bar["role"] == "img" for bar in bars)
    assert "in percent of what is marked: 6 × 70–80, 25 × 90–100" in bars[0]["aria-label"]
    assert "6 × 1, " in bars[1]["aria-label"]
    ids = [attributes["id"] for _, attributes in lively_page.elements if attributes.get("id")]
    assert len(ids) == len(set(ids))
    for _, attributes in lively_page.elements:
        assert attributes.get("aria-labelledby", ids[0]) in ids
        if (attributes.get("href") or "").startswith("#"):
            assert attributes["href"][1:] in ids


def test_the_parts_stand_in_the_order_of_what_an_instructor_does_next(lively_page):
    ids = [attributes["id"] for _, attributes in lively_page.elements if attributes.get("id")]
    parts = ["todo", "class", "totals", "exercises", "misconceptions", "details", "points", "aspects", "outliers",
             "similar", "repaired", "students"]  # fmt: skip
    assert [name for name in ids if name in parts] == parts


def test_the_page_says_what_to_tell_and_whom(lively, lively_page):
    hint = lessons.exercise("attention_scores").misconceptions[0].hint
    assert hint in lively_page.text
    assert "4 students: keys from the decoder" in lively_page.text
    assert "Talk to Student 002 , Student 003 , Student 004 , Student 007" in lively_page.text


def test_students_are_linked_to_their_notebooks(lively_page):
    assert "../../autograded/s002/what%20a%20name%231.ipynb" in [a.get("href") for a in lively_page.all("a")]


def test_the_page_shows_similar_answers_side_by_side(lively_page):
    assert "heard = encoder_states[one, mask[one]]" in lively_page.text
    assert "Ada and Bob" in lively_page.text and "cheat" not in lively_page.text.lower()


def test_marks_without_a_sandbox_are_said_first(lively):
    results = made_up_class(3)
    for sandbox in ("none", "kernel"):
        results.rows[1].log = RunLog(sandbox=sandbox)
        text = Page(page(results, [], [], report.Path())).text
        assert text.index("Graded without a sandbox: Student 001") < text.index("The class")
    assert "without a sandbox" not in Page(page(made_up_class(3), [], [], report.Path())).text


def test_an_empty_class_has_a_page():
    text = Page(page(Results("a03", [], [], 0.0), [], [], report.Path())).text
    assert "handed in 0" in text


def test_a_class_graded_elsewhere_has_a_page_that_says_what_is_missing():
    results = made_up_class(12)
    for row in results.rows:
        row.log, row.answers, row.verdicts = None, {}, {}
    assert similar(results, EXERCISES) == []
    assert "Not known : time, memory" in Page(page(results, EXERCISES, [], report.Path())).text


# --------------------------------------------------------------------------------------------------------- the terminal


def printed(results, pairs=(), **options):
    console = Console(file=StringIO(), width=100, color_system=None, highlight=False, **options)
    report.warn(results, console)
    report.show(results, console)
    report.show_class(results, EXERCISES, pairs, console)
    return console.file.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_the_terminal_says_what_the_page_says(lively, terminal):
    text = " ".join(printed(lively, similar(lively, EXERCISES), force_terminal=terminal).split())
    for words in (
        "misconceptions: who to talk to 4 × keys from the decoder (attention_scores): Student 002, Student 003",
        "signs of tampering, Student 009: <script>",
        "reached a limit, Student 012: stopped after 30 seconds",
        "time, Student 012: 25 s where the median is 0.1 s (24.0 s of it in <script>",
        "Ada and Bob: AttentionDecoderStep: the same but for names",
        "repaired, Student 010: [/bold] a cell twice",
        "a/b [bold]",
    ):
        assert words in text
    assert not set("\u202e\x1b") & set(text)


def test_a_message_of_many_lines_stays_on_one():
    results = made_up_class(3)
    results.rows[1].verdicts["attention_scores"] = verdict("attention_scores", 0.0, 4.0, ["one\ntwo"])
    results.rows[2].tampering = ["three\nfour"]
    lines = printed(results).splitlines()
    assert any("one two" in line for line in lines) and any("three four" in line for line in lines)
    assert all(sum(line.startswith(row.name) for line in lines) == 1 for row in results.rows)


def test_only_what_has_something_to_say_is_printed():
    text = printed(made_up_class(12))
    assert "mean 4" in text
    for heading in ("misconceptions", "flags", "far more", "nearly identical", "not known", "without a sandbox"):
        assert heading not in text


def test_the_terminal_says_first_that_there_was_no_sandbox():
    results = made_up_class(3)
    for row in results.rows:
        row.log = RunLog(sandbox="none")
    assert printed(results).startswith("Graded without a sandbox: all submissions.")


def test_bars_are_drawn_in_what_the_output_can_show(monkeypatch):
    text = printed(made_up_class(12))
    assert "0 ····█ 4" in text
    monkeypatch.setattr(Console, "encoding", "ascii")
    assert "0 ....@ 4" in printed(made_up_class(12))


def test_a_hints_first_sentence_ends_where_a_sentence_does():
    hint = "`.item()` and 1.5 are no ends. This is the next one."
    assert report.first_sentence(hint) == "`.item()` and 1.5 are no ends."
    assert report.first_sentence("no stop") == "no stop"


def test_a_page_is_written_whole_or_not_at_all(tmp_path):
    report.write(tmp_path / "deep" / "page.html", "one \ud800")
    with pytest.raises(CommandError, match="--html"):
        report.write(tmp_path / "deep" / "page.html" / "x.html", "two")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CommandError, match="folder"):
        report.write(tmp_path / "folder", "three")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["deep", "folder", "page.html"]
    assert (tmp_path / "deep" / "page.html").read_text() == "one ?"


def test_what_a_student_wrote_is_cut_and_spelt_out():
    assert visible("a\x1b[0m\tb\nc") == "a⟨U+001B⟩[0m\tb\nc"
    assert len(visible("x" * 10_000)) < 3000
