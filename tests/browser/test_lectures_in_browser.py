"""A reader opens lectures in JupyterLab: as they are saved, and then moves their widgets by keyboard."""

import shutil

import nbformat
import pytest
from jupyter_lab import COURSE, cell, expect, faults, run, running
from nbformat.v4 import new_code_cell, new_notebook

from attncourse_lessons import course

pattern_pad = course.part("cheap_attention", "pattern_pad")

pytestmark = pytest.mark.slow
LECTURES = ("02_lookup", "03_cross_attention", "09_transformer", "12_cheap_attention")


@pytest.fixture(scope="module")
def lab(chromium, tmp_path_factory):
    home = tmp_path_factory.mktemp("reader")
    (home / "course/lectures").mkdir(parents=True)
    for name in LECTURES:
        shutil.copy(COURSE / "lectures" / f"{name}.ipynb", home / "course/lectures")
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)"}
    cells = [new_code_cell(f"from {pattern_pad.__name__} import pattern_pad\npattern_pad(\"window\")")]
    own = new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(own, home / "course/lectures/own.ipynb")
    with running(home / "course", home) as lab:
        yield lab


@pytest.fixture
def read(lab, new_page):
    return lambda name: lab.open(new_page(), f"lectures/{name}.ipynb")


@pytest.mark.parametrize("name", LECTURES)
def test_a_lecture_opens_with_its_pictures_and_without_an_error(read, name):
    saved = nbformat.read(COURSE / "lectures" / f"{name}.ipynb", as_version=4)
    shown = [cell for cell in saved.cells if not cell.metadata.get("jupyter", {}).get("outputs_hidden")]
    outputs = [output for one in shown for output in one.get("outputs", ())]
    page = read(name)
    pictures = page.locator(".jp-OutputArea-output img")
    expect(pictures).to_have_count(sum("image/png" in output.get("data", ()) for output in outputs))
    page.wait_for_function("[...document.querySelectorAll('.jp-OutputArea-output img')].every(i => i.naturalWidth)")
    kinds = page.locator(".jp-OutputArea-output").evaluate_all("all => all.map(one => one.dataset.mimeType)")
    assert len(kinds) == len(outputs) and not [kind for kind in kinds if kind.endswith(("error", "stderr"))]


def test_a_box_of_figure_1_opens_the_lecture_that_built_it_beside_this_one(read):
    page = read("09_transformer")
    picture = page.locator("div:has(> img[alt^='The Transformer.'])").first
    links = picture.get_by_role("link")
    assert links.count() == picture.locator("a").count() > 20
    for link in links.all():
        link.click(trial=True)  # it lies in sight, and nothing lies over it
    links.get_by_text("cross-attention").click()
    expect(page.locator(".lm-DockPanel-tabBar .lm-TabBar-tabLabel", has_text="03_cross_attention")).to_have_count(1)


def test_a_slider_moves_the_picture_by_keyboard(read):
    page = read("02_lookup")
    code = cell(page, "def soft_lookup(")
    code.locator(".cm-content").click()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Above Selected Cell").click()
    output = run(code)
    slider, picture = output.get_by_role("slider", name="temperature"), output.locator("img:visible")
    said = picture.get_attribute("alt")
    slider.press("ArrowRight")
    expect(picture).not_to_have_attribute("alt", said)
    slider.press("ArrowLeft")
    expect(picture).to_have_attribute("alt", said)
    assert faults(output) == []


def test_a_pattern_is_drawn_on_the_pad_by_keyboard(read):
    output = run(cell(read("own"), 'pattern_pad("window")'))
    expect(output).to_contain_text("74 of 256 pairs")
    output.locator("[role=gridcell][tabindex='0']").focus()  # the pad's one stop for the Tab key
    for key in (*["ArrowRight"] * 3, " "):
        output.page.keyboard.press(key)
    expect(output.get_by_role("gridcell", name="query 9, key 4: allowed")).to_be_focused()
    expect(output).to_contain_text("75 of 256 pairs")
    assert faults(output) == []


def test_a_widget_is_as_it_was_saved_when_the_reader_comes_back_to_another_kernel(read):
    page = read("own")
    button = run(cell(page, 'pattern_pad("window")')).get_by_role("button", name="strided")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    with page.expect_response(lambda answer: answer.request.method == "PUT" and "own.ipynb" in answer.url):
        page.keyboard.press("ControlOrMeta+s")
    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.get_by_role("menuitem", name="Shut Down Kernel", exact=True).click()
    expect(page.locator("#jp-main-statusbar")).to_contain_text("No Kernel")
    pad = read("own").locator(".pattern-pad")
    expect(pad.get_by_role("button", name="strided")).to_have_attribute("aria-pressed", "true")
