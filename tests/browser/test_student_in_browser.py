"""A student opens assignment 03 from the start page in JupyterLab, errs, reads why, mends it, and checks all of it."""

import json
import re
import shutil
from io import BytesIO
from pathlib import Path

import nbformat
import pytest
from jupyter_lab import cell, expect, faults, run, running, write
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image

from attncourse_lessons import course as lessons
from lessonkit.exercises.drill import shown
from lessonkit.grading.submission.answers import answer, solutions
from lessonkit.learner.folder import Folder
from lessonkit.learner.lab import command

COURSE = Path(__file__).parents[2]
ASSIGNMENT, NOTEBOOK = "a03", "a03_cross_attention.ipynb"
EXERCISE = lessons.exercises_of(ASSIGNMENT)[0]
MISTAKE, RIGHT = EXERCISE.misconceptions[0], EXERCISE.alternatives[0]


@pytest.fixture(scope="module")
def notebooks():
    """The assignment with its solutions, and as released."""
    folders = ("solutions", "assignments")
    return [nbformat.read(COURSE / folder / ASSIGNMENT / NOTEBOOK, as_version=4) for folder in folders]


@pytest.fixture(scope="module")
def lab(chromium, notebooks, tmp_path_factory):
    """JupyterLab as `attncourse lab` starts it: the start page is there, and all of the assignment answered."""
    source, release = notebooks
    home = tmp_path_factory.mktemp("student")
    folder = Folder(home / "course")
    shutil.copytree(COURSE / "assignments" / ASSIGNMENT, folder.root / "assignments" / ASSIGNMENT)
    (folder.root / "lectures").mkdir()
    shutil.copy(COURSE / "START.md", folder.root)
    folder.prepare()
    nbformat.write(answer(source, release, solutions(source)), folder.work / "answered.ipynb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LESSONKIT_COURSE", lessons.package)
        with running(folder.work, home, command(folder)[3:]) as lab:
            yield lab


@pytest.fixture
def folder(tmp_path_factory, lab):
    """The student's folder."""
    return Folder(tmp_path_factory.getbasetemp() / "student0" / "course")


@pytest.fixture
def page(lab, folder, new_page):
    """The assignment as released, open, its imports run."""
    mine = f"assignments/{ASSIGNMENT}/{NOTEBOOK}"
    if (folder.work / mine).is_file():  # with what another test has written
        shutil.copy(folder.root / mine, folder.work / mine)
    page = lab.open(new_page(), mine)
    run(cell(page, "from attncourse import check, hint"))
    return page


@pytest.fixture
def attempt(page, notebooks):
    """Write an answer to the first exercise and run its check: the card."""

    def of(body):
        written = cell(page, f"def {EXERCISE.name}(")
        filled = answer(*notebooks, {EXERCISE.name: body}).cells
        write(written, next(one.source for one in filled if one.source.startswith(f"def {EXERCISE.name}(")))
        assert run(written).inner_text() == ""
        return run(cell(page, f'check("{EXERCISE.name}"')).locator(".jp-RenderedHTML")

    return of


def save(page):
    """Save the notebook, and wait until it is."""
    page.keyboard.press("ControlOrMeta+s")
    expect(page.locator(".lm-TabBar-tab.jp-mod-dirty")).to_have_count(0)


def validate(page):
    """What *Validate* says."""
    page.get_by_role("button", name="Validate").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Validation Results")
    return dialog.inner_text()


def plain(text):
    """As it is read: the signs that set code and emphasis are not shown."""
    return re.sub("[`*]", "", text)


def test_a_mistake_is_named_explained_mended_and_validated(page, attempt):
    card = attempt(MISTAKE.body)
    expect(card).to_contain_text(f"This is what “{MISTAKE.name}” gives.")
    expect(card).to_contain_text(plain(MISTAKE.hint))
    expect(card).not_to_contain_text(f"{EXERCISE.out_of:g} of {EXERCISE.out_of:g}")
    card = attempt(RIGHT.body)
    expect(card).to_contain_text(f"{EXERCISE.out_of:g} of {EXERCISE.out_of:g} points")
    expect(card).not_to_contain_text("✗")
    save(page)
    said = validate(page)
    for exercise in lessons.exercises_of(ASSIGNMENT):
        missing = exercise is not EXERCISE and not exercise.extra
        assert (f"{exercise.name}: 0 of {exercise.out_of:g}" in said) == missing
    assert said.count("not written yet") == 4 and "not answered" in said
    assert f"{EXERCISE.out_of:g} of 32 by checks, 3 by hand" in said


def test_the_start_page_opens_a_copy_and_leaves_the_courses_own_alone(lab, folder, new_page):
    page = lab.visit(new_page(), "lab/tree/START.md")
    given = folder.root / "assignments" / ASSIGNMENT / NOTEBOOK
    before = given.read_bytes()
    page.locator(".jp-MarkdownViewer a", has_text="Cross-attention").last.click()
    expect(page.locator("#jp-main-statusbar")).to_contain_text("Python 3 (ipykernel) | Idle")
    run(cell(page, "from attncourse import check, hint"))
    save(page)
    mine = folder.work / "assignments" / ASSIGNMENT / NOTEBOOK
    assert nbformat.read(mine, 4).cells[1].execution_count and given.read_bytes() == before


def test_lab_opens_on_the_start_page_without_the_teachers_tools(lab, new_page):
    page = lab.visit(new_page(), "lab/workspaces/nothing-open-yet")
    expect(page.locator(".jp-MarkdownViewer h1")).to_contain_text("Start here")
    expect(page.locator("#jp-main-dock-panel .lm-TabBar-tab")).to_have_text(["START.md"])
    menus = ["File", "Edit", "View", "Run", "Kernel", "Tabs", "Settings", "Help"]  # without nbgrader's
    expect(page.locator(".lm-MenuBar-item")).to_have_text(menus)
    expect(page.get_by_role("tab", name="Create Assignment")).to_have_count(0)
    lab.open(page, f"assignments/{ASSIGNMENT}/{NOTEBOOK}")  # what is asked for comes alone
    expect(page.locator("#jp-main-dock-panel .lm-TabBar-tab")).to_have_text([NOTEBOOK])


PICTURES = """
from attncourse.viz.style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, figure, show, stage
from IPython.display import Image, display
from attncourse.viz.style import png

drawn, ax = figure(7, 1)
drawn.set_layout_engine(None)
drawn.subplots_adjust(0, 0, 1, 1)
stage(ax, (0, 7), (0, 1))
for i, colour in enumerate((INK, GREY, BLUE, ORANGE, GREEN, PURPLE)):
    ax.axvspan(i, i + 1, color=colour, linewidth=0)
show(drawn, "Six inks, side by side.")
display(Image(png(drawn)))
"""


def luminance(pixel):
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in pixel))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrasts(image):
    """How the inks of PICTURES stand out from the picture's ground, and that ground."""
    drawn = Image.open(BytesIO(image.screenshot())).convert("RGB")
    *inks, ground = (drawn.getpixel((drawn.width * (2 * i + 1) // 14, drawn.height // 2)) for i in range(7))
    pairs = [sorted((luminance(ink), luminance(ground))) for ink in inks]
    return [(high + 0.05) / (low + 0.05) for low, high in pairs], ground


def test_pictures_have_words_and_suit_a_dark_page(lab, folder, notebooks, new_page):
    kernel = {"kernelspec": notebooks[1].metadata.kernelspec}
    nbformat.write(new_notebook(cells=[new_code_cell(PICTURES)], metadata=kernel), folder.work / "inks.ipynb")
    page = lab.open(new_page(), "inks.ipynb")
    run(cell(page, "Six inks"))
    ours, another = page.locator(".jp-RenderedImage img").all()
    expect(ours).to_have_attribute("alt", "Six inks, side by side.")
    light, ground = contrasts(ours)
    assert ground == (255, 255, 255) == contrasts(another)[1]
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    dark, ground = contrasts(ours)
    assert max(ground) < 24 and contrasts(another)[1] == (255, 255, 255)  # what is no picture of ours stays as it is
    assert min(dark[:2]) > 4.5 and all(on_dark > 3 for on_dark in dark)  # of text, and of what is drawn (WCAG 2.2)
    assert all(on_dark > on_light for on_dark, on_light in zip(dark[1:], light[1:], strict=True))


@pytest.mark.slow
def test_validate_stands_above_an_assignment_and_not_above_a_lecture(lab, folder, notebooks, new_page):
    kernel = {"kernelspec": notebooks[1].metadata.kernelspec}
    nbformat.write(new_notebook(cells=[new_code_cell("1 + 1")], metadata=kernel), folder.work / "lecture.ipynb")
    page = lab.open(new_page(), "lecture.ipynb")
    button = page.locator(".jp-NotebookPanel-toolbar").get_by_text("Validate")
    expect(button).to_have_count(1)
    expect(button).to_be_hidden()
    lab.open(page, "answered.ipynb")
    expect(button).to_be_visible()


@pytest.mark.slow
def test_what_goes_wrong_before_a_check_is_told_and_the_last_cell_checks_all(page, attempt):
    """A syntax error, an edit that did not run, a copied check cell, and then all of it at once."""
    attempt(RIGHT.body)
    written, check = cell(page, f"def {EXERCISE.name}("), cell(page, f'check("{EXERCISE.name}"')
    right = written.locator(".cm-content").inner_text()
    write(written, right.replace("-> Tensor:", "-> Tensor", 1))
    expect(run(written)).to_contain_text("SyntaxError")
    card = run(check).locator(".jp-RenderedHTML")
    expect(card).to_contain_text(f"The cell that defines {EXERCISE.name} stopped with SyntaxError")
    write(written, right)
    run(written)
    expect(run(check).locator(".jp-RenderedHTML")).not_to_contain_text("stopped with")
    write(written, right + "\n    # a thought")  # not saved: the check knows what stands there
    expect(run(check).locator(".jp-RenderedHTML")).to_contain_text("was changed after it ran")
    run(written)
    check.locator(".jp-InputPrompt").click()
    for key in ("Escape", "c", "v"):
        page.keyboard.press(key)
    card = run(cell(page, "check_all()")).locator(".jp-RenderedHTML")
    expect(card).to_contain_text(f"{EXERCISE.out_of:g} of 32 by checks, 3 by hand")
    expect(card).to_contain_text("was there twice")
    assert faults(card) == []
    card.get_by_role("link", name=EXERCISE.name).click()
    expect(written).to_be_in_viewport()


@pytest.mark.slow
def test_a_hint_nudges_and_progress_shows_the_points_of_the_checks(page, attempt):
    attempt(RIGHT.body)
    page.keyboard.press("b")  # a new cell, below
    asked = f'import attncourse\nhint("{EXERCISE.name}", 1)\nattncourse.progress("{ASSIGNMENT}")'
    write(page.locator(".jp-CodeCell.jp-mod-active"), asked)
    said = run(cell(page, "attncourse.progress("))
    expect(said).to_contain_text(f"Hint 1 of {len(EXERCISE.hints)}. {EXERCISE.hints[0]}")
    total = sum(exercise.out_of for exercise in lessons.exercises_of(ASSIGNMENT) if not exercise.extra)
    counted = f"{ASSIGNMENT} █░░░░░░░░░ {EXERCISE.out_of:g} of {total:g} by checks"
    expect(said.locator("summary")).to_contain_text(counted)
    expect(said.get_by_role("row").filter(has_text=EXERCISE.name)).to_contain_text(f"{EXERCISE.out_of:g} of")
    assert faults(said) == []


@pytest.mark.slow
def test_a_drill_is_answered_repaired_and_checked_by_keyboard_alone(page, folder, attempt):
    attempt(RIGHT.body)
    page.keyboard.press("b")  # a new cell, below
    write(page.locator(".jp-CodeCell.jp-mod-active"), f'import attncourse\nattncourse.practice("{ASSIGNMENT}")')
    card = run(cell(page, "attncourse.practice(")).locator(".practice")
    question, options = card.locator(".pr-question"), card.locator(".pr-options button")
    expect(card.locator(".pr-where")).to_have_text(f"{ASSIGNMENT}, {EXERCISE.name}")
    expect(card.locator(".pr-note")).to_contain_text("5 exercises wait")
    while card.locator(".pr-code").count() == 0:  # one that shows code to repair
        options.first.focus()
        page.keyboard.press("2")
        if card.locator(".pr-code").count() == 0:
            card.get_by_role("button", name="next").press("Enter")
    expect(question).to_be_visible()
    expect(card.locator(".pr-told")).to_contain_text("The check gives")
    kept = folder.root.parent / "progress" / "practice" / f"{EXERCISE.name}.json"
    for _ in range(100):
        if kept.is_file():
            break
        page.wait_for_timeout(100)
    assert len(json.loads(kept.read_text())["asked"]) == 1
    code = card.get_by_role("textbox", name="The code, to repair")
    code.focus()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text("def broken(:")
    card.get_by_role("button", name="Check").press("Enter")
    expect(card.locator(".pr-card")).to_contain_text("SyntaxError in line 1")
    code.focus()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.insert_text(shown(EXERCISE, EXERCISE.solution_body))
    card.get_by_role("button", name="Check").press("Enter")
    expect(card.locator(".pr-card")).to_contain_text(f"{EXERCISE.out_of:g} of {EXERCISE.out_of:g} points")
    assert faults(card) == []


@pytest.mark.parametrize("colours", ["#fff; color:#212121", "#111; color:#e0e0e0"])  # JupyterLab's: light, dark
@pytest.mark.parametrize("body", [MISTAKE, RIGHT])
def test_axe_finds_no_serious_fault_in_a_verdict(open_page, body, colours):
    # In a page of its own: within JupyterLab axe-core does not look at the contrast of colours.
    card = lessons.check(EXERCISE.name, body.answer)._repr_mimebundle_()["text/html"]
    page = open_page(f"<!doctype html><html data-ready><body style='background:{colours}'><main>{card}</main></body>")
    assert faults(page.locator("main")) == []


@pytest.mark.slow
def test_an_assignment_that_is_answered_validates(lab, new_page):
    said = validate(lab.open(new_page(), "answered.ipynb"))
    assert "Success! Your notebook passes all the tests." in said
