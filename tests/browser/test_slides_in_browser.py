"""The slides as a lecturer meets them: opened from a folder in Chromium, with the network cut."""

import os
from pathlib import Path

import pytest

pytest.importorskip("mdit_py_plugins", reason="the extra 'site' is not installed")

from attncourse_lessons import course
from lessonkit.authoring.checkout import open_course
from lessonkit.authoring.site.npm import NoPackage
from lessonkit.authoring.slides.command import slides

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = [lesson.number for lesson in course.lessons]
MODEL = "04"      # the lesson that is tried in detail: it has a widget
VIEWER = "07"     # and the one with the attention viewer
DRAWING = "img:visible, table:visible, .pp-grid, .av-lines, .av-grid, .sd-board, .review-game"
MOST = 40         # slides of a lesson
KINDS = (1, 4, 5, 12, 16, 25)  # of that lesson: title, code, formula and box, widget, picture and text, a long print

# What of the slide that is shown is cut off, lies outside of it or over its number, or is too small to read.
FAULTS = """() => {
  const slide = Reveal.getCurrentSlide().querySelector(".slide"), page = slide.getBoundingClientRect(), found = [];
  for (const box of slide.querySelectorAll(".body, .column, .row, .fit, .picture"))
    if (box.scrollWidth > box.clientWidth + 2 || box.scrollHeight > box.clientHeight + 2)
      found.push(`${box.className} cut: ${[box.scrollWidth, box.scrollHeight, box.clientWidth, box.clientHeight]}`);
  for (const part of slide.querySelectorAll("h1, h2, p, li, tr, pre, img, mjx-container, .live *")) {
    const at = part.getBoundingClientRect();
    if (part.closest("script, mjx-assistive-mml") || !at.width || !part.checkVisibility()) continue;
    if (at.left < page.left - 1 || at.right > page.right + 1 || at.top < page.top - 1 || at.bottom > page.bottom - 36)
      found.push(`${part.tagName} outside: ${[at.left, at.top, at.right, at.bottom].map(Math.round)}`);
  }
  for (const image of slide.querySelectorAll(".picture img")) {
    const [wide, high] = ["--w", "--h"].map((name) => parseFloat(image.style.getPropertyValue(name)));
    const at = image.getBoundingClientRect(), scale = Math.min(at.width / wide, at.height / high);
    if (scale < 0.6) found.push(`a picture at ${scale.toFixed(2)} of its size`);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def decks(chromium, tmp_path_factory):
    """A folder with the deck of a lesson, made when it is first asked for: nothing is executed."""
    checkout, to = open_course(ROOT), tmp_path_factory.mktemp("slides") / "slides"

    def folder(number):
        if not (to / number).is_dir():
            try:
                slides(checkout, to, [number])
            except NoPackage as error:
                (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))
        return to

    return folder


@pytest.fixture
def present(new_page, decks):
    """Open a lesson's deck at 1280 by 720; it must neither complain nor ask for something elsewhere."""
    elsewhere = []

    def opened(number, query="", **context):
        page = new_page(viewport={"width": 1280, "height": 720}, **context)
        page.context.set_offline(True)
        page.set_default_timeout(60_000)
        page.on("request", lambda asked: elsewhere.append(asked.url) if asked.url.startswith("http") else None)
        page.goto(f"{decks(number).as_uri()}/{number}/index.html{query}")
        page.wait_for_selector("html[data-deck=ready]")
        return page

    yield opened
    assert elsewhere == []


def each_slide(page):
    """Go from slide to slide, each with all that it reveals; their numbers."""
    for number in range(page.evaluate("Reveal.getTotalSlides()")):
        page.evaluate("number => Reveal.slide(number)", number)
        page.evaluate("() => { while (Reveal.availableFragments().next) Reveal.nextFragment() }")
        yield number + 1


def faults(page):
    return {number: found for number in each_slide(page) if (found := page.evaluate(FAULTS))}


@pytest.mark.parametrize("number", [pytest.param(n, marks=() if n == MODEL else pytest.mark.slow) for n in NUMBERS])
def test_every_slide_fits_its_page_and_a_lesson_has_forty_at_most(present, number):
    page = present(number)
    assert 20 <= page.evaluate("Reveal.getTotalSlides()") <= MOST
    assert faults(page) == {}
    untouched = page.locator(".math").evaluate_all("all => all.filter(one => !one.querySelector('svg')).length")
    assert untouched == 0 and page.locator("mjx-merror, [data-mml-node=merror]").count() == 0


def test_a_slide_that_does_not_fit_is_found(present):
    page = present(MODEL)
    page.evaluate("Reveal.slide(4)")
    assert page.evaluate(FAULTS) == []
    page.evaluate("Reveal.getCurrentSlide().querySelector('.text').append(...Array.from({length: 30}, () => "
                  "Object.assign(document.createElement('p'), {textContent: 'one line more'})))")  # fmt: skip
    assert page.evaluate(FAULTS) != []


@pytest.mark.parametrize("number", [pytest.param(n, marks=() if n == VIEWER else pytest.mark.slow) for n in NUMBERS])
def test_every_widget_draws_something_else_when_it_is_moved(present, number):
    page = present(number)
    sections = page.locator("section")
    places = sections.evaluate_all("all => all.map((it, i) => (it.querySelector('.widget') ? i : -1))")
    widgets = page.locator("script[type*=widget-view]").count()
    moved = 0
    for place in (place for place in places if place >= 0):
        page.evaluate("place => Reveal.slide(place)", place)
        for widget in page.locator("section.present .widget").all():
            drawing = widget.locator(DRAWING)
            before = drawing.evaluate("it => it.outerHTML")
            control = widget.locator(
                "input[type=range], select, button[aria-pressed=false], button.av-cell, .sd-answers button, button"
            ).and_(page.locator(":enabled:not([aria-disabled=true])")).locator("visible=true").first  # fmt: skip
            if control.evaluate("it => it.tagName") == "BUTTON":
                control.click()
            else:
                control.press(
                    control.evaluate(
                        "it => (it.options ? it.selectedIndex === it.options.length - 1 : it.value === it.max)"
                        " ? 'ArrowLeft' : 'ArrowRight'"
                    )
                )
            assert drawing.evaluate("it => it.outerHTML") != before
            assert page.evaluate("Reveal.getIndices().h") == place, "the widget's key turned the page"
            moved += 1
    assert moved == widgets


def test_keys_step_reveal_and_show_the_overview(present):
    page = present(MODEL)
    page.keyboard.press("ArrowRight")
    hidden = page.locator("section.present .fragment:not(.visible)")
    assert hidden.count() == 1
    page.keyboard.press("ArrowRight")
    assert hidden.count() == 0 and page.evaluate("Reveal.getIndices().h") == 1, "the step is revealed on its slide"
    assert page.locator(".slide-number").inner_text().startswith("2")
    page.keyboard.press("o")
    assert page.evaluate("Reveal.isOverview()")


def test_dark_is_dark_light_is_light_and_a_key_changes_them(present):
    def brightness(page):
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.strip("rgb()").split(","))

    assert brightness(present(MODEL, color_scheme="light")) > 700
    page = present(MODEL, color_scheme="dark")
    assert brightness(page) < 100
    page.keyboard.press("d")
    assert brightness(page) > 700


def test_the_speakers_window_shows_the_notes_and_keeps_the_time(present):
    page = present(MODEL)
    page.keyboard.press("ArrowRight")
    with page.context.expect_page() as waiting:
        page.keyboard.press("s")
    speaker = waiting.value
    speaker.locator(".speaker-controls-notes .value").get_by_text("coreference").wait_for()
    speaker.get_by_text("Pacing", exact=False).first.wait_for()  # reveal.js shows it where slides have their seconds


def test_paper_gets_a_page_a_slide_and_one_for_its_notes(present):
    page = present(MODEL, "?print-pdf&showNotes=separate-page")
    page.locator(".pdf-page").first.wait_for()
    total = page.evaluate("document.querySelectorAll('section').length")
    with_notes = page.evaluate("[...document.querySelectorAll('aside')].filter(it => it.textContent.trim()).length")
    pdf = page.pdf(prefer_css_page_size=True, print_background=True)
    assert total < total + with_notes <= pdf.count(b"/Type /Page\n") <= total + 2 * with_notes  # long notes take two


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_stands_in_the_way_of_anybody(present, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = present(MODEL, color_scheme=scheme, reduced_motion="reduce")
    grave = {}
    for number in each_slide(page):
        if number not in KINDS:
            continue
        page.wait_for_function("document.getAnimations().length === 0")
        options = {"preload": False, "resultTypes": ["violations"]}
        for fault in axe.Axe().run(page, options=options).response["violations"]:
            if fault["impact"] in ("serious", "critical"):
                grave[fault["id"], fault["nodes"][0]["html"]] = number
    assert grave == {}


def test_the_list_of_decks_leads_to_each(decks, new_page):
    page = new_page()
    decks(VIEWER)
    page.goto(f"{decks(MODEL).as_uri()}/index.html")
    assert page.locator("li a").count() >= 2
    page.get_by_role("link", name="Self-attention", exact=False).first.click()
    page.wait_for_selector("html[data-deck=ready]")
