"""What a learner's kernel knows: which answer a check looks at, and errors that take one sentence."""

import json
import os
import time

import pytest
from learners_kernel import learners_kernel

from lessonkit import kernel as here

STABLE = """def softmax(scores):
    shifted = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return shifted / shifted.sum(dim=-1, keepdim=True)"""
NAIVE = "def softmax(scores):\n    return scores.exp() / scores.exp().sum(dim=-1, keepdim=True)"
BROKEN = "def softmax(scores):\n    return scores.exp( / scores"
CHECK = 'check("softmax", softmax)'
IMPORTS = "import torch\nfrom attncourse import check, check_all, hint, progress, solved"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    with learners_kernel(tmp_path_factory.mktemp("learner")) as kernel:
        kernel.first = kernel(CHECK)
        assert kernel(IMPORTS).all == ""
        yield kernel


def kept(kernel, name="softmax"):
    """What the learner's machine remembers of an exercise."""
    file = kernel.notebook.parent / "progress" / f"{name}.json"
    return json.loads(file.read_text()) if file.is_file() else None


def test_in_a_fresh_kernel_a_check_says_to_run_the_cells_above(kernel):
    assert kernel.first.error == f"NameError: `check` is not defined yet: {ABOVE}."


# The check knows what it judges.


def test_after_a_syntax_error_the_card_says_that_it_is_about_an_earlier_answer_and_keeps_nothing(kernel):
    kernel.notebook.unlink(missing_ok=True)
    kernel(NAIVE, "answer")
    assert "4 of 7" in kernel(CHECK).value and kept(kernel)["last"] == 4
    kernel(STABLE.replace("amax(", "amax(("), "answer")
    shown = kernel(CHECK)
    first = " ".join(shown.value.splitlines()[1:4])
    assert first.startswith("The cell that defines `softmax` stopped with SyntaxError (line 2: ")
    assert "so this is about what you ran before" in first and "4 of 7" in shown.value
    assert shown.html.index("SyntaxError") < shown.html.index("4 of 7")
    assert kept(kernel) == {"last": 4.0, "best": 4.0}
    assert "It waits until" in kernel('solved("softmax")').printed


def test_an_answer_that_is_mended_and_run_is_judged_without_a_word_of_it(kernel):
    kernel.notebook.unlink(missing_ok=True)
    kernel(BROKEN, "answer")
    kernel(STABLE, "answer")
    shown = kernel(CHECK)
    assert "stopped with" not in shown.value and "7 of 7" in shown.value and kept(kernel)["best"] == 7
    assert kernel('solved("softmax")').value == "True"


def test_an_error_below_the_definition_does_not_make_it_an_earlier_one(kernel):
    kernel.notebook.unlink(missing_ok=True)
    kernel(STABLE + "\nsoftmax(3)", "answer")
    assert "stopped with" not in kernel(CHECK).value


def test_an_error_above_the_definition_leaves_the_earlier_one_and_is_told(kernel):
    kernel.notebook.unlink(missing_ok=True)
    kernel(NAIVE, "answer")
    kernel("1 / 0\n" + STABLE, "answer")
    assert "stopped with ZeroDivisionError: division by zero" in kernel(CHECK).value


def test_a_cell_that_was_changed_after_it_ran_is_told_where_the_notebook_is_saved(kernel):
    kernel(NAIVE, "answer")
    kernel.save(NAIVE, CHECK, ids=("answer", "check"))
    assert "was changed after it ran" not in kernel(CHECK, "check").value
    before = kept(kernel)
    kernel.save(STABLE, CHECK, ids=("answer", "check"))
    shown = kernel(CHECK, "check").value
    assert "was changed after it ran, so this is about what you" in shown and "4 of 7" in shown
    assert kept(kernel) == before
    kernel(STABLE, "answer")
    assert "was changed after it ran" not in kernel(CHECK, "check").value


def test_a_notebook_that_was_saved_before_the_answer_ran_says_nothing_of_it(kernel):
    kernel.save(NAIVE, CHECK, ids=("answer", "check"))
    time.sleep(0.05)
    kernel(STABLE, "answer")
    shown = kernel(CHECK, "check").value
    assert "was changed" not in shown and "7 of 7" in shown


def test_what_is_no_answer_is_not_kept(kernel):
    kernel(STABLE, "answer")
    kernel(CHECK)
    before = kept(kernel)
    assert "0 of 7" in kernel('check("softmax", softmax(torch.zeros(2, 3)))').value
    assert kept(kernel) == before == {"last": 7.0, "best": 7.0}


def test_a_check_in_a_script_knows_of_no_notebook(monkeypatch):
    monkeypatch.setenv("JPY_SESSION_NAME", "nowhere.ipynb")
    assert here.kernel_shell() is None and here.notebook() is None and here.stale("softmax", len) is None


# Forty misuses, and what each is told. The notebook holds the imports, the answer and a stub.

STUB = "def merge_heads(heads):\n    # Your code here.\n    raise NotImplementedError()"
ABOVE = "run the cells above first (menu Run, Run All Above Selected Cell)"
MISUSES = [
    # the call's name is not there, or is another one
    ("del hint\nhint('softmax')", f"`hint` is not defined yet: {ABOVE}."),
    ("pad_batch", f"`pad_batch` is not defined yet: {ABOVE}."),
    ('check("pad_batch", pad_batch)', f"`pad_batch` is not defined yet: {ABOVE}."),
    ('check("pad_batch")', f"`pad_batch` is not defined yet: {ABOVE}."),
    ("sofmax(torch.zeros(3))", "`sofmax` is not defined. Did you mean `softmax`?"),
    ("chekc('softmax', softmax)", "`chekc` is not defined. Did you mean `check`?"),
    ("prnit(3)", "`prnit` is not defined. Did you mean `print`?"),
    ("from attncourse import chekc", "`attncourse` has no `chekc`. Did you mean `check`?"),
    ("import attncourse\nattncourse.chek_all()", "`attncourse` has no `chek_all`. Did you mean `check_all`?"),
    ("def helper():\n    return sofmax\nhelper()", "`sofmax` is not defined (in `helper`, line 2). Did you mean"),
    ("query", "`query` is not defined here: it lives inside `asked` alone, and only while that runs."),
    ("np.zeros(3)", "`np` is not defined: run `import numpy as np` first."),
    ("globals().pop('attncourse', 0)\nattncourse.progress()", "`attncourse` is not defined: run `import attncourse`"),
    ("check('softmax', softmax)()", "nothing comes after the check's brackets"),
    ("hint", "hint is there to be called, with brackets: hint()"),
    ("check_all", "check_all is there to be called, with brackets: check_all()"),
    # check
    ("check()", 'say what to check: check("name", name)'),
    ('check("softmaks", softmax)', "there is no exercise 'softmaks'. Did you mean `softmax`?"),
    ('check("softmaks")', "there is no exercise 'softmaks'. Did you mean `softmax`?"),
    ('check("nothing like it", 3)', "there is no exercise 'nothing like it'. The name of an exercise stands in"),
    ("check(3)", "3 names no exercise"),
    ("check(None, softmax)", "None names no exercise"),
    ("check(lambda scores: scores)", "there is no exercise '<lambda>'"),
    ('check("softmax", 3)', "got an int where the function itself is wanted"),
    ('check("softmax", None)', "got None where the function itself is wanted"),
    ('check("softmax", softmax(torch.zeros(2)))', "got a Tensor where the function itself is wanted"),
    ('check("softmax", softmax())', 'without brackets after its name: `check("softmax", softmax)`'),
    ('check("softmax", len)', "0 of 7"),
    ('check("softmax", lambda: 3)', "takes 0 positional arguments but 1 was given"),
    ('check["softmax"]', 'round brackets call a check: check("softmax")'),
    ("check.cases('softmax')", "`check` has no `cases`. Did you mean `case`?"),
    ("merge_heads(3)", "`merge_heads` is not written yet: put your code where its cell says"),
    ('check("merge_heads", merge_heads)', "Not written yet."),
    ('check("merge_heads", merge_heads(torch.zeros(2)))', "`merge_heads` is not written yet"),
    # hint
    ('hint("softmaks")', "there is no exercise 'softmaks'. Did you mean `softmax`?"),
    ('hint("softmax", 9)', "softmax has hints 1 to 3, got 9"),
    ('hint("softmax", 0)', "softmax has hints 1 to 3, got 0"),
    ('hint("softmax", "line")', "softmax has hints 1 to 3, got 'line'; \"where\" looks for the line"),
    ("hint(softmax, 1.5)", "softmax has hints 1 to 3, got 1.5"),
    ('hint("pad_batch", "where")', 'pad_batch has not been checked in this notebook: run check('),
    # check.case, solved, progress, check_all
    ('check.case("pad_batch")', "pad_batch has not been checked in this notebook"),
    ('check.case("softmax", "speed")', "softmax has no aspect 'speed'; its aspects are: weights"),
    ('solved("softmaks")', "there is no exercise 'softmaks'. Did you mean `softmax`?"),
    ("solved(7)", "7 names no exercise"),
    ('progress("a99")', "there is no assignment 'a99'. The assignments are: a00, a01"),
    ("progress([])", "there is no assignment '[]'"),
    ('check_all("elsewhere.ipynb")', "there is no file elsewhere.ipynb here"),
    ('import nbformat\nnbformat.write(nbformat.v4.new_notebook(), "empty.ipynb")\ncheck_all("empty.ipynb")',
     "empty.ipynb holds no check: it is none of the course's assignments"),
]  # fmt: skip


@pytest.fixture(scope="module")
def misused(kernel):
    """What the kernel shows of each misuse."""
    kernel.save(IMPORTS, STABLE, STUB)
    kernel("def asked(query):\n    return query")
    shown = []
    for code, _ in MISUSES:
        for source in (IMPORTS, STABLE, STUB):
            kernel(source)
        shown.append(kernel(code))
    return shown


def test_forty_misuses_are_listed():
    assert len({code for code, _ in MISUSES}) >= 40


@pytest.mark.parametrize("number", range(len(MISUSES)), ids=[code.splitlines()[-1] for code, _ in MISUSES])
def test_a_misuse_is_told_in_a_sentence_and_without_a_traceback(misused, number):
    said = misused[number].all
    assert "Traceback" not in said and "Cell In[" not in said, said
    assert " ".join(MISUSES[number][1].split()) in " ".join(said.split())


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("check(softmax)", "7 of 7"),
        ('check("softmax")', "7 of 7"),
        ('check(softmax, "softmax")', "7 of 7"),
        ('check("softmax", "softmax")', "7 of 7"),
        ("hint()", "Hint 1 of 3."),
        ("hint(2)", "Hint 2 of 3."),
        ('hint("softmax", "3")', "Hint 3 of 3."),
        ("hint(softmax)", "Hint 1 of 3."),
        ("check.case()", "softmax: nothing to show."),
        ("progress(0)", "a00"),
        ("progress('A00')", "a00"),
        ("check", 'Call it: check("name", name)'),
    ],
)
def test_what_is_clear_is_done(kernel, code, said):
    kernel(STABLE)
    kernel(CHECK)
    shown = kernel(code)
    assert said in shown.all and shown.error == ""


def test_an_error_that_is_no_misuse_keeps_its_traceback(kernel):
    for code in ("1 / 0", "len(3)", "torch.zeros(2) @ torch.zeros(3)", "[].nothing", "raise NameError('x')"):
        assert "Traceback" in kernel(code).error, code


def test_an_answer_that_never_was_defined_because_of_a_syntax_error_is_told_so(kernel):
    kernel("def pad_batch(rows)\n    return rows")
    said = kernel('check("pad_batch", pad_batch)').error
    assert said.startswith("NameError: `pad_batch` is not defined, because the cell that defines it stopped with Synt")


def test_a_cell_that_ran_too_early_is_to_be_run_again_and_not_mended(kernel):
    kernel("def pad_batch(rows: Rows):\n    return rows", "early")
    kernel("Rows = list")
    said = kernel('check("pad_batch", pad_batch)').error
    assert said.endswith("name 'Rows' is not defined, which is there now: run that cell, then this one.")


def test_an_answer_whose_cell_defines_another_name_now_is_told_so(kernel):
    kernel.notebook.unlink(missing_ok=True)
    kernel(STABLE, "answer")
    kernel(STABLE.replace("def softmax", "def sofmax"), "answer")
    kernel("", "another")
    shown = " ".join(kernel(CHECK, "check").value.split())
    assert "The cell that defined `softmax` defines `sofmax` now, so this is about what you ran before." in shown
    kernel(STABLE, "answer")
    assert "defines" not in kernel(CHECK, "check").value


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("scores.exp() / score.exp()", "name 'score' is not defined. Did you mean `scores`?"),
        ("torch.sofmax(scores, -1)", "module 'torch' has no attribute 'sofmax'. Did you mean `softmax`?"),
        ("scores.expp()", "'Tensor' object has no attribute 'expp'. Did you mean `exp`?"),
        ("scores.exp() / zzzzzz", "name 'zzzzzz' is not defined (line 2"),
    ],
)
def test_a_name_that_an_answer_has_not_is_guessed_on_the_card(kernel, wrong, said):
    kernel(f"def softmax(scores):\n    return {wrong}", "answer")
    assert said in " ".join(kernel(CHECK, "check").value.split())


def test_a_check_that_is_stopped_says_where_it_was(kernel):
    kernel("def softmax(scores):\n    raise KeyboardInterrupt", "answer")
    said = kernel(CHECK, "check").error
    assert said == (
        "softmax was not judged: the check was stopped in your answer, line 2: raise KeyboardInterrupt. "
        "Does what it does there end?"
    )


# What of the notebook is not saved yet.


def test_what_ran_and_is_not_in_the_file_yet_is_told_until_it_is(kernel):
    ask = "from lessonkit import kernel as k; k.not_saved()"
    kernel.save("x = 1", NAIVE, ids=("first", "answer"))
    kernel("x = 1", "first")
    assert kernel(ask, "ask").value == ""  # it ran as it stands there, and the cell that asks is none
    kernel(STABLE, "answer")
    assert kernel(ask, "ask").value == "'the cell of `softmax`'"
    kernel.save("x = 1", STABLE, ids=("first", "answer"))
    assert kernel(ask, "ask").value == ""
    kernel("y = 2", "new")
    assert kernel(ask, "ask").value == "'a cell'"


def test_another_editors_ids_say_nothing_of_what_is_saved(kernel):
    kernel.save("x = 1", ids=("another",))
    assert kernel("k.not_saved()", "ask").value == ""


def test_where_the_editor_says_what_stands_there_the_file_is_not_asked(kernel):
    kernel.save(STABLE, ids=("answer",))
    kernel(STABLE, "answer")
    edited = kernel(CHECK, "check", shown={"answer": STABLE + "\n    # edited", "check": CHECK}).value
    assert "was changed after it ran" in edited
    assert "was changed" not in kernel(CHECK, "check", shown={"answer": STABLE + "  \n", "check": CHECK}).value
    kernel.save(NAIVE, ids=("answer",))  # another window of the editor has written this
    assert "was changed" not in kernel(CHECK, "check", shown={"answer": STABLE, "check": CHECK}).value


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ({"first": "x = 1", "answer": STABLE}, ""),
        ({"first": "x = 2", "answer": STABLE}, "'a cell'"),  # also where it was not run
        ({"first": "x = 1", "answer": NAIVE}, "'the cell of `softmax`'"),
        ({"first": "x = 1"}, "'the cell of `softmax`'"),
        ({"first": "x = 1", "answer": STABLE, "new": "y = 3"}, "'a cell'"),
    ],
)
def test_all_that_stands_otherwise_in_the_file_is_not_saved(kernel, shown, said):
    kernel.save("x = 1", STABLE, "", ids=("first", "answer", "last"))  # JupyterLab adds an empty cell at the end
    assert kernel("from lessonkit import kernel as k; k.not_saved()", shown=shown).value == said


def test_torch_has_one_thread_where_the_environment_asks_for_none(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with learners_kernel(tmp_path) as kernel:
        assert kernel("import torch; torch.get_num_threads()").value == "1"


def test_the_environments_number_of_threads_stays(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    here.load_ipython_extension(None)
    assert os.environ["OMP_NUM_THREADS"] == "3"
