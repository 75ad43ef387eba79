"""The web book as its readers meet it: opened from a folder in Chromium, with the network cut."""

import io
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("myst_nb", reason="the extra 'site' is not installed")

from attncourse_lessons import course

ROOT = Path(__file__).resolve().parents[2]
LECTURES = sorted(path.stem for path in (ROOT / "lectures").glob("*.ipynb"))
WITH_WIDGETS = [name for name in LECTURES if "widget-view+json" in (ROOT / f"lectures/{name}.ipynb").read_text()]
LECTURE = "lectures/03_cross_attention.html"
BUTTONS = "lectures/00_getting_ready.html"
PAD = "lectures/12_cheap_attention.html"
FIGURE_1 = "lectures/09_transformer.html"
ASSIGNMENT = "assignments/a03.html"
SOLUTION = "solutions/a03/a03_cross_attention.html"
API = "api/attncourse.attention.html"
PRACTICE = "practice.html"
LONG_NAME = "api/attncourse.transformer.html"

pytestmark = pytest.mark.slow


def test_a_reader_comes_from_the_start_page_to_a_lecture_and_on_to_the_next(visit):
    page = visit("index.html")
    page.locator("table").get_by_role("link", name="Cross-attention", exact=True).click()
    page.wait_for_url(f"**/{LECTURE}")
    page.locator(".prev-next-area a.right-next").click()
    page.wait_for_url("**/lectures/04_self_attention.html")


def test_math_is_typeset_also_in_boxes(visit):
    page = visit(LECTURE)
    untouched = page.locator(".math").evaluate_all("all => all.filter(one => !one.querySelector('math')).length")
    assert untouched == 0
    assert page.locator("blockquote.erratum math").count() > 0


def test_a_slider_moves_without_a_kernel(visit):
    page = visit(LECTURE)
    slider = page.get_by_role("slider", name="Target token")
    table = page.locator(".explorer table:visible")
    first = table.inner_text()
    slider.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext").startswith("2: ")
    assert table.count() == 1 and table.inner_text() != first


def test_buttons_choose_among_pictures(visit):
    page = visit(BUTTONS)
    explorer = page.locator(".explorer").filter(has=page.get_by_role("group", name="a", exact=True)).first
    picture = explorer.locator("img:visible")
    before = picture.get_attribute("alt")
    button = explorer.get_by_role("group", name="a", exact=True).get_by_role("button", name="(3,)", exact=True)
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert picture.count() == 1 and picture.get_attribute("alt") != before


def test_each_box_of_figure_1_can_be_hit_and_leads_to_the_lecture_that_built_it(visit):
    page = visit(FIGURE_1)
    built_in = course.part("transformer", "figures").BUILT_IN
    stems = {lesson.name: Path(lesson.lecture_notebook).stem for lesson in course.lessons}
    pages = {part: f"{stems[name]}.html" for part, name in built_in.items()}
    for drawn in page.locator("div:has(> img[alt^='The Transformer.'])").all():
        drawn.scroll_into_view_if_needed()
        assert {link.inner_text() for link in drawn.locator("a").all()} == set(built_in)
        for link in drawn.locator("a").all():
            assert link.get_attribute("href") == pages[link.inner_text()]
            link.click(trial=True)  # it lies in sight, and nothing lies over it
    for lecture, part in {page: part for part, page in pages.items()}.items():
        page.locator("div:has(> img[alt^='The Transformer.'])").first.get_by_text(part, exact=True).first.click()
        page.wait_for_url(f"**/lectures/{lecture}")
        page.go_back()


def test_the_pattern_pad_counts_what_is_drawn(visit):
    page = visit(PAD)
    numbers = page.locator(".pattern-pad .pp-numbers")
    before = numbers.inner_text()
    page.locator(".pattern-pad").get_by_role("button", name="causal").click()
    assert numbers.inner_text() != before and "136 of 256" in numbers.inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_WIDGETS)
def test_every_widget_of_a_lecture_draws_something_else_when_it_is_moved(visit, name):
    page = visit(f"lectures/{name}.html")
    page.locator("html[data-ready]").wait_for()
    widgets = page.locator(".widget")
    assert widgets.count() == page.locator("script[type*=widget-view]").count()
    for widget in widgets.all():
        drawing = widget.locator("img:visible, table:visible, .pp-grid, .av-lines, .av-grid, .sd-board, .review-game")
        before = drawing.evaluate("it => it.outerHTML")
        controls = widget.locator(
            "input[type=range], select, button[aria-pressed=false], button.av-cell, .review-game button"
        ).and_(page.locator(":enabled:not([aria-disabled=true])"))
        move(controls.locator("visible=true").first)
        assert drawing.evaluate("it => it.outerHTML") != before


def move(control):
    """Press a button; let a slider or a list go on by one, or back where it ends."""
    if control.evaluate("it => it.tagName") == "BUTTON":
        control.click()
    else:
        at_end = control.evaluate("it => it.options ? it.selectedIndex === it.options.length - 1 : it.value === it.max")
        control.press("ArrowLeft" if at_end else "ArrowRight")


def test_where_scripts_do_not_run_a_picture_with_words_stands_for_a_widget(visit, chromium, book):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{book.as_uri()}/{LECTURE}")
    picture = page.locator(".still img:visible")  # one of its two palettes
    assert picture.count() == 1
    assert "most at" in picture.get_attribute("alt")
    context.close()
    with_scripts = visit(LECTURE)
    with_scripts.locator(".widget").first.wait_for()
    assert with_scripts.locator(".still").count() == 0


def test_answers_are_folded_until_they_are_asked_for(visit, book):
    page = visit(SOLUTION)
    assert page.get_by_text("This page holds the answers").is_visible()
    answer = page.locator("details.hide").first
    assert not answer.locator("pre").first.is_visible()
    answer.locator("summary").click()
    assert answer.locator("pre").first.is_visible()
    download = page.locator("article a.download").first.get_attribute("href")
    released = (ROOT / "assignments/a03/a03_cross_attention.ipynb").read_bytes()
    assert (book / SOLUTION).parent.joinpath(download).read_bytes() == released


def test_an_assignment_is_read_with_its_hints_folded_and_downloaded(visit, book):
    page = visit("assignments.html")
    page.locator("table").get_by_role("link", name="Cross-attention", exact=True).first.click()
    page.wait_for_url(f"**/{ASSIGNMENT}")
    hint = page.locator("details.hint").first
    said = hint.locator("p").first
    assert not said.is_visible()
    hint.locator("summary").click()
    assert said.is_visible() and "BEGIN SOLUTION" not in page.content()
    download = page.get_by_role("link", name="download its notebook").get_attribute("href")
    released = (ROOT / "assignments/a03/a03_cross_attention.ipynb").read_bytes()
    assert (book / ASSIGNMENT).parent.joinpath(download).read_bytes() == released


def test_a_drill_is_answered_in_the_book_and_what_is_kept_lasts_to_the_next_visit(visit):
    page = visit(PRACTICE)
    page.get_by_label("a04 Self-attention").check()
    assert page.locator(".pr-lessons input").count() == len(LECTURES)
    page.locator(".practice .pr-options button").first.click()
    assert page.locator(".pr-told").inner_text().startswith(("Right.", "No: it is number"))
    page.reload()
    assert page.get_by_label("a04 Self-attention").is_checked()
    shapes = page.get_by_role("link", name="lecture 00", exact=True)
    assert shapes.get_attribute("href").endswith("00_getting_ready.html")


def test_dark_is_dark_and_light_is_light(visit):
    def brightness(scheme):
        page = visit(LECTURE, color_scheme=scheme)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.strip("rgb()").split(","))

    assert brightness("dark") < 100 < 700 < brightness("light")


def test_a_pictures_dark_twin_lies_on_the_dark_page_without_a_frame_and_in_its_own_colours(visit):
    page = visit(LECTURE, color_scheme="dark")
    picture = page.locator(".cell_output img.in-dark:visible").first
    picture.scroll_into_view_if_needed()
    shot = Image.open(io.BytesIO(picture.screenshot())).convert("RGB")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert f"rgb{shot.getpixel((1, 1))}" == ground
    assert picture.evaluate("e => getComputedStyle(e).filter") == "none"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["index.html", LECTURE, PAD, ASSIGNMENT, SOLUTION, PRACTICE, "CONTRIBUTING.html", LONG_NAME]
)
def test_a_phone_scrolls_down_only(visit, name):
    page = visit(name, width=360)
    page.wait_for_load_state("load")
    if page.locator("script[type*=widget-view]").count():
        page.locator(".widget").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_paper_gets_the_text_alone(visit):
    page = visit(LECTURE)
    page.emulate_media(media="print")
    assert page.locator(".bd-article h1").first.is_visible() or page.locator("#jb-print-docs-body h1").is_visible()
    assert not page.locator(".bd-sidebar-primary").is_visible()


def test_paper_gets_the_answers_unfolded_and_the_screen_keeps_them_folded(visit):
    page = visit(LECTURE)
    folded = page.locator(".bd-article details:not([open])")
    before = folded.count()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert before > 0 and folded.count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert folded.count() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("index.html", "light"),
        ("index.html", "dark"),
        (LECTURE, "light"),
        (BUTTONS, "dark"),
        (ASSIGNMENT, "light"),
        (ASSIGNMENT, "dark"),
        (API, "light"),
        (PRACTICE, "light"),
        (PRACTICE, "dark"),
    ],
)
def test_nothing_serious_stands_in_the_way_of_anybody(visit, name, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = visit(name, color_scheme=scheme, reduced_motion="reduce")
    page.wait_for_load_state("load")
    page.wait_for_function("document.getAnimations().length === 0")  # a colour on its way to another is neither
    # Without a preload: from a folder axe may not read style sheets.
    found = axe.Axe().run(page, options={"preload": False, "resultTypes": ["violations"]}).response["violations"]
    grave = [(fault["id"], fault["nodes"][0]["html"]) for fault in found if fault["impact"] in ("serious", "critical")]
    assert grave == []
