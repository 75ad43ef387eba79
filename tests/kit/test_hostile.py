"""Submissions against the checks: answers that lie, peek, tamper or are strange. None gets what it has not earned.

Each is told why, its bytes stay as they were, and everybody else's grade is what it would be without it.
"""

import json
import warnings

import pytest
from hostile_class import (
    ASSIGNMENT,
    FORCING,
    FULL,
    HONEST,
    LOCAL,
    NOTEBOOK,
    OUTPUT,
    SCORES,
    STEP,
    WEIGHTS,
    Class,
    Trouble,
)
from nbgrader.api import Gradebook

from lessonkit.grading.sandbox import linux as walls
from lessonkit.mimetype import VERDICT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(walls.why_not() is not None, reason=str(walls.why_not())),
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SAWarning"),  # nbgrader's way with it
]

WRONG_SCORES = "return torch.zeros(decoder_states.shape[0], decoder_states.shape[1], encoder_states.shape[1])"
NO_VERDICT = "gave no verdict"
# The weighted average by torch's attention: without queries and keys, the logarithms of the weights are the scores.
READY_MADE = "states = weights[..., :1] * 0, encoder_states[..., :1] * 0, encoder_states\nscores = weights.log()\n"
NOTHING = dict.fromkeys(FULL, 0.0)
SCORED = Trouble().points()


def cheats(first="", body=WRONG_SCORES, says="", gets=0.0, **more):
    """A wrong first answer, and above it what is to make it pass."""
    return Trouble({SCORES: body}, (first,) if first else (), gets={SCORES: gets}, says={SCORES: says}, **more)


def silences(first, *, says=NO_VERDICT, body=WRONG_SCORES):
    """What keeps every check from being made: nothing for any exercise."""
    return Trouble({SCORES: body}, (first,), gets=NOTHING, says=dict.fromkeys(FULL, says))


def right(body, where=OUTPUT, *first):
    return Trouble({where: body}, first)


def wrong(body, says, where=OUTPUT, gets=0.0, first=()):
    return Trouble({where: body}, first, gets={where: gets}, says={where: says})


STRANGE = {
    "warnings and noise cost nothing": right(
        "import logging, sys, warnings\nwarnings.warn('careful')\nprint('noise', file=sys.stderr)\n"
        "logging.error('more noise')\n{model}"
    ),
    "float64 costs nothing": right("return weights.double() @ encoder_states.double()"),
    "a transposed view costs nothing": right("return (encoder_states.mT @ weights.mT).mT"),
    "float16 is told so": wrong("return weights.half() @ encoder_states.half()", "computed in float16", gets=1.0),
    "bfloat16 is told so": wrong(
        "return weights.bfloat16() @ encoder_states.bfloat16()", "computed in bfloat16", gets=1.0
    ),
    "NaN is told so": wrong("return weights @ encoder_states * float('nan')", "NaN"),
    "infinity is no answer": wrong("return weights @ encoder_states + torch.inf", "got inf", gets=1.0),
    "writing into the inputs is told so": wrong(
        "return scores.masked_fill_(~mask, -torch.inf).softmax(-1).nan_to_num()",
        "writes into `scores`",
        WEIGHTS,
        gets=6.0,
    ),
    "looking for a GPU where there is none is told so": wrong("return weights.cuda() @ encoder_states", "CUDA"),
    "random numbers are no answer": wrong(
        "return torch.randn(*weights.shape[:2], encoder_states.shape[-1])", "expected"
    ),
    "drawing random numbers on the way costs nothing": right("torch.manual_seed(1)\ntorch.rand(9)\n{model}"),
    "complex numbers are told so": wrong("return torch.zeros(2, 2) * 1j", "a tensor of complex64"),
    "a tensor on no device is told so": wrong("return torch.zeros(2, 2, device='meta')", "on meta"),
    "a sparse tensor counts as what it holds": right("return (weights @ encoder_states).to_sparse()"),
    "a number too long for JSON is told so": wrong("return 10**10_000", "4300 digits"),
    "lists within lists are told so": wrong("x = 1\nfor _ in range(10**4): x = [x]\nreturn x", "recursion"),
    "a list that contains itself is told so": wrong("x = []\nx.append(x)\nreturn x", "recursion"),
    "endless recursion is told so": wrong("return attention_output(weights, encoder_states)", "RecursionError"),
    "SystemExit in an answer is told so": wrong("raise SystemExit", "SystemExit"),
    "exit() in an answer is told so": wrong("exit()", "exit"),
    "KeyboardInterrupt in an answer is told so": wrong("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "a check called by the answer that is checked is told so": wrong(
        "check('attention_output', attention_output)\n{model}", "check() must not be called from an answer"
    ),
    "a check called in a thread is told so": wrong(
        "import threading\nsaid = []\ndef work():\n    try:\n        check('attention_output', attention_output)\n"
        "    except RuntimeError as error:\n        said.append(error)\n"
        "thread = threading.Thread(target=work)\nthread.start()\nthread.join()\nraise said[0]",
        "check() must be called from the notebook's own cell",
    ),
    "an error whose text is an error is told so": wrong(
        "class Mute(Exception):\n    def __str__(self):\n        raise ValueError('no words')\nraise Mute", "no words"
    ),
    "an error in Hebrew, emoji and half a character is told": wrong(
        "raise ValueError('שלום 🎓 \\ud83d \\u202e')", "שלום 🎓"
    ),
    "Hebrew, emoji and half a character in code and outputs cost nothing": right(
        "שלום = 'a\\u202e\\ud83d🎓\\x00\\x1b[31m'\nprint(שלום)\n{model}", OUTPUT, "'\\ud83d \\u202e 🎓'", "x = '\ud83d'"
    ),
    "sys.exit in a cell ends that cell": right("{model}", OUTPUT, "import sys\nsys.exit(1)", "exit()", "quit()"),
    "an event loop runs as in a kernel": right(
        "import asyncio\nasync def later():\n    return weights @ encoder_states\n"
        "return asyncio.new_event_loop().run_until_complete(later())",
        OUTPUT,
        "import asyncio\nawait asyncio.sleep(0)",
    ),
    "magics work as in a kernel": Trouble(
        first=(
            "%%writefile mine.py\nthree = 3", "from mine import three\nprint('imported', three)", "%run mine.py",
            "%load mine.py", "%%bash\necho hello from bash", "%%capture caught\nprint(1)", "%timeit -n1 -r1 1",
        ),
        shows="imported 3",
    ),
    "a cell that runs itself ends in an error": right(
        "{model}", OUTPUT, "def again():\n    get_ipython().run_cell('again()')\nagain()"
    ),
    "a check cell that is tagged to be skipped is run": Trouble(tags=("skip-execution", "raises-exception")),
    "plots by the dozen cost nothing": right(
        "{model}",
        OUTPUT,
        "import matplotlib.pyplot as plt\nfor i in range(30):\n    plt.figure(figsize=(1, 1), dpi=20)\nplt.show()",
    ),
}  # fmt: skip
LEAKS = {
    "a seed set above reaches no check": right("{model}", OUTPUT, "torch.manual_seed(0)", "torch.seed()"),
    "deterministic algorithms switched on above cost nothing": right(
        "{model}", OUTPUT, "torch.use_deterministic_algorithms(True)\ntorch.set_num_threads(4)"
    ),
    "a default dtype set above is in force, as it is for the student": Trouble(
        first=("torch.set_default_dtype(torch.float64)",), gets={STEP: 0.0}, says={STEP: "dtype"}
    ),
    "a default device set above is in force, as it is for the student": Trouble(
        first=("torch.set_default_device('meta')",),
        gets={STEP: 0.0, LOCAL: 0.0}, says={STEP: "", LOCAL: "meta"},
    ),
    "gradients switched off above are missed, as they are for the student": Trouble(
        first=("torch.set_grad_enabled(False)",),
        gets={SCORES: 3.0, WEIGHTS: 6.0, OUTPUT: 3.0, STEP: 9.0, FORCING: 6.0, LOCAL: 2.0},
        says=dict.fromkeys((SCORES, WEIGHTS, OUTPUT, STEP, FORCING), "gradient"),
    ),
}  # fmt: skip
LIES = {
    "an object that equals everything is no tensor": cheats(
        "class Equal:\n    def __getattr__(self, name):\n        return Equal()\n"
        "    def __eq__(self, other):\n        return True\n    def __call__(self, *a, **k):\n        return True\n"
        "    shape = dtype = property(lambda self: Equal())\n    __bool__ = __call__",
        "return Equal()",
        "expected a tensor",
    ),
    "a tensor that lies about itself is taken for its numbers": cheats(
        "class Liar(torch.Tensor):\n    @classmethod\n"
        "    def __torch_function__(cls, function, types, arguments=(), named=None):\n"
        "        return super().__torch_function__(function, types, arguments, named or {})\n"
        "    def __eq__(self, other):\n        return torch.tensor(True)\n"
        "    def allclose(self, *a, **k):\n        return True",
        "return torch.zeros(1, 1, 1).as_subclass(Liar)",
        "shape",
    ),
    "patched comparisons compare nothing here": cheats(
        "import numpy, torch.testing, unittest\nyes = lambda *a, **k: True\n"
        "torch.allclose = torch.equal = torch.isclose = torch.testing.assert_close = yes\n"
        "torch.Tensor.allclose = torch.Tensor.equal = torch.Tensor.__eq__ = torch.Tensor.__ne__ = yes\n"
        "numpy.allclose = numpy.testing.assert_allclose = numpy.array_equal = yes\nunittest.TestCase.assertEqual = yes",
        says="expected",
    ),
    "numbers printed as scores are no scores": Trouble(
        {SCORES: "import sys\nfor score in (2, -5, 999, 4.0):\n    sys.displayhook(score)\n    print(score)\n{model}"},
        ("999", "print(4)", "from IPython.display import display\ndisplay(999)"),
    ),
    "numbers printed by a wrong answer are no scores": cheats(
        body="import sys\nsys.displayhook(4)\nprint(999)\nreturn 4"
    ),
    "an answer that is right once only is wrong": wrong(
        "attention_output.calls = getattr(attention_output, 'calls', 0) + 1\n"
        "return weights @ encoder_states if attention_output.calls == 1 else weights @ encoder_states + 1",
        "expected",
        gets=1.0,
    ),
    "an answer that remembers gives yesterday's result": wrong(
        "kept = attention_output.__dict__\nif 'first' not in kept:\n    kept['first'] = weights @ encoder_states\n"
        "return kept['first']",
        "shape",
    ),
    "an answer fitted to the visible check is wrong on other numbers": wrong(
        "torch.manual_seed(0)\nif torch.initial_seed() in (0, 1, 2):\n    pass\n"
        "return (weights @ encoder_states) if weights.sum() == 12.0 else encoder_states[:, :1].expand("
        "-1, weights.shape[1], -1)",
        "expected",
    ),
}
PATCHES = {
    "a check replaced in the notebook is put back": cheats("check = lambda *a, **k: 4", says="expected"),
    "a check replaced by one that shows a verdict is put back": cheats(
        "class Fake:\n    def _repr_mimebundle_(self, **_):\n        return {'text/plain': '4', '" + VERDICT + "': "
        "{'exercise': 'attention_scores', 'points': 4, 'out_of': 4, 'aspects': [], 'problem': None}}\n"
        "check = lambda *a, **k: Fake()",
        says="expected",
    ),
    "a verdict shown is none": cheats(
        "from IPython.display import display",
        "display({'" + VERDICT + "': {'exercise': 'attention_scores', 'points': 4, 'out_of': 4}, 'text/plain': '4'}, "
        "raw=True)\n" + WRONG_SCORES,
    ),
    "a check replaced in its module judges nothing": cheats(
        "import attncourse_lessons, builtins, sys\n"
        "attncourse_lessons.check = builtins.check = lambda *a, **k: 4\n"
        "sys.modules['attncourse_lessons'].hidden_seeds = lambda name: (0, 1, 2)",
        says="expected",
    ),
    "a check replaced at the last moment judges nothing": silences(
        "get_ipython().events.register(\n"
        "    'pre_run_cell', lambda info: get_ipython().user_ns.update(check=lambda *a, **k: 4))"
    ),
    "a check wrapped to look at another function is put back": cheats(
        "true_check = check\ndef check(name, answer, seeds=None):\n"
        "    return true_check(name, lambda a, b: a @ b.mT if name == 'attention_scores' else answer(a, b))",
        says="expected",
    ),
    "a replaced showtraceback hides no error from the points": cheats(
        "shell = type(get_ipython())\nshell.showtraceback = shell._showtraceback = lambda *a, **k: None\n"
        "get_ipython().set_custom_exc((Exception,), lambda *a, **k: None)",
        "raise ValueError('wrong')",
        "ValueError: wrong",
    ),
    "a transformer of syntax trees judges nothing": silences(
        "import ast\nclass Four(ast.NodeTransformer):\n    def visit_Call(self, node):\n"
        "        name = getattr(node.func, 'id', '')\n"
        "        return ast.copy_location(ast.Constant(4), node) if name == 'check' else node\n"
        "get_ipython().ast_transformers.append(Four())"
    ),
    "a transformer of inputs judges nothing": silences(
        "get_ipython().input_transformers_post.append("
        "lambda lines: ['4'] if any('check(' in line for line in lines) else lines)"
    ),
    "a hook on imports and modules judges nothing": cheats(
        "import importlib.abc, sys, types\nfake = types.ModuleType('attncourse')\n"
        "fake.check = fake.hint = lambda *a, **k: 4\nsys.modules['attncourse'] = fake\nsys.meta_path.clear()",
        says="expected",
    ),
    "patched tensor methods record inputs and earn nothing": Trouble(
        {SCORES: "return recorded(decoder_states, encoder_states)"},
        ("seen = []\nold = torch.Tensor.__matmul__\n"
         "def recorded(a, b):\n    seen.append((a, b))\n    return old(a, b.mT)\ntorch.Tensor.__matmul__ = recorded",),
        gets={OUTPUT: 0.0, STEP: 0.0}, says={OUTPUT: "", STEP: ""},
    ),
    "a mode that records every call of torch earns and costs nothing": right(
        "{model}", OUTPUT,
        "seen = []\nclass Recorder(torch.overrides.TorchFunctionMode):\n"
        "    def __torch_function__(self, function, types, arguments=(), named=None):\n"
        "        seen.append(function)\n        return function(*arguments, **(named or {}))\nRecorder().__enter__()",
    ),
    "a parameter list that lies is told so": Trouble(
        code={STEP: "class AttentionDecoderStep(nn.Module):\n    def __init__(self, *sizes):\n"
              "        super().__init__()\n"
              "    def named_parameters(self, *a, **k):\n        return [('output.weight', 3), (4, None)]\n"
              "    def forward(self, *inputs):\n        return (inputs[1],) * 4"},
        gets={STEP: 0.0}, says={STEP: ""},
    ),
}  # fmt: skip
PEEKS = {
    "walking the frames finds no expected value": cheats(
        "import gc, sys\nfound = []\n",
        "frame = sys._getframe()\nwhile frame:\n"
        "    found.extend(v for v in frame.f_locals.values() if isinstance(v, torch.Tensor))\n"
        "    frame = frame.f_back\n"
        "return found[-1]",
        "shape",
    ),
    "searching the memory finds no reference": Trouble(
        first=(
            "import gc, inspect, types\n"
            "secrets = ('dot_score', 'masked_softmax', 'Exercise', 'Code', 'Aspect')\n"
            "kinds = (types.FunctionType, type)\n"
            "things = [o for o in gc.get_objects() if isinstance(o, kinds) and o.__name__ in secrets[:2]]\n"
            "things += [o for o in gc.get_objects() if type(o).__name__ in secrets[2:]]\n"
            "cells = inspect.getclosurevars(type(check).__call__).nonlocals\n"
            "print('references:', things, 'closure:', cells)",
        ),
        shows="references: [] closure: {}",
    ),
    "the history of inputs holds no seed that counts": Trouble(
        {LOCAL: "print('history', In[-1], list(get_ipython().history_manager.input_hist_raw))\n{model}"},
        shows="history",
    ),
    "the forbidden modules are not there": wrong(
        "from attncourse.attention import masked_softmax\nreturn masked_softmax(scores, mask)",
        "attncourse.attention may not be used in this assignment",
        WEIGHTS,
    ),
    "torch's own attention is refused": wrong(
        READY_MADE + "return nn.functional.scaled_dot_product_attention(*states, attn_mask=scores)",
        "uses torch.nn.functional.scaled_dot_product_attention",
    ),
    "torch's own attention is refused, too, where the refusal is caught": wrong(
        READY_MADE + "try:\n    nn.functional.scaled_dot_product_attention(*states, attn_mask=scores)\n"
        "except PermissionError:\n    {model}",
        "uses torch.nn.functional.scaled_dot_product_attention",
    ),
}
# The guard against ready-made functions runs in the student's own process. Numbers cannot be wrong behind its back, but
# whoever wants to can use torch's attention and get what its numbers earn: here all but the gradient.
BEHIND_THE_GUARD = {
    "torch's own attention, called with the guard switched off,": "import sys\nsys.setprofile(None)\n"
    "return nn.functional.scaled_dot_product_attention(*states, attn_mask=scores)",
    "torch's own attention, called by another name,": "return torch.ops.aten.scaled_dot_product_attention("
    "*states, attn_mask=scores)",
    "torch's own attention, called by compiled code,": "import functools\n"
    "return functools.partial(nn.functional.scaled_dot_product_attention, attn_mask=scores)(*states)",
    "torch's own attention, called in another thread,": "import threading\nfound = []\ndef work():\n"
    "    found.append(nn.functional.scaled_dot_product_attention(*states, attn_mask=scores))\n"
    "thread = threading.Thread(target=work)\nthread.start()\nthread.join()\nreturn found[0]",
}
ALL = STRANGE | LEAKS | LIES | PATCHES | PEEKS


@pytest.fixture(scope="module")
def everybody(tmp_path_factory):
    """The graded class, and what the honest students had got before the others were there."""
    room = Class(tmp_path_factory.mktemp("hostile") / "course", "\nc.ExecuteOrReplay.timeout = 20\n")
    room.grade_honest_alone()
    for student, trouble in ALL.items():
        room.hand_in(student, trouble)
    for student, body in BEHIND_THE_GUARD.items():
        room.hand_in(student, Trouble({OUTPUT: READY_MADE + body}))
    room.outcome = room.grade(force=True, n_workers=2)
    return room


@pytest.mark.parametrize("student", ALL)
def test_the_right_points_and_the_reason(everybody, student):
    everybody.check(student, ALL[student])


@pytest.mark.parametrize("student", BEHIND_THE_GUARD)
def test_is_refused_or_a_person_is_told_to_look(everybody, student):
    assert everybody.points(student)[OUTPUT] == 0 or everybody.rows[student].log.suspicious


@pytest.mark.parametrize("student", HONEST)
def test_an_honest_answer_is_nothing_to_look_at(everybody, student):
    assert everybody.rows[student].log.suspicious == ()


@pytest.mark.parametrize("student", HONEST)
def test_an_honest_students_grade_is_what_it_is_without_the_others(everybody, student):
    assert (everybody.points(student), everybody.rows[student].verdicts) == everybody.alone[student]
    assert everybody.bytes_kept(student)


def test_every_submission_has_a_row_and_none_failed(everybody):
    assert everybody.outcome.failed == {}
    assert {*everybody.handed_in} == {row.student for row in everybody.rows.values() if row.submitted}


def test_the_gradebook_holds_what_the_verdicts_say(everybody):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Gradebook(f"sqlite:///{everybody.root / 'gradebook.db'}") as gradebook:
            for student, trouble in ALL.items():
                submission = gradebook.find_submission(ASSIGNMENT, student)
                assert submission.score == sum(trouble.points().values()), student


def test_the_seeds_that_count_are_in_no_graded_notebook(everybody):
    seeds = json.loads((everybody.root / "grading" / ASSIGNMENT / "seeds.json").read_text())
    numbers = {str(seed) for some in seeds.values() for seed in some}
    for student in everybody.handed_in:
        assert not [number for number in numbers if number in everybody.shown(student)], (student, NOTEBOOK)
