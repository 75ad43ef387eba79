
"""Every page of the web book can be read: at a laptop's width and a phone's, in light and dark, without scripts."""

import base64
import io

import pytest
from PIL import Image
from test_site_in_browser import LECTURES, ROOT

from attncourse.viz import style
from lessonkit.authoring.site import readable

pytestmark = pytest.mark.slow
LAPTOP, PHONE = 1280, 390
MOST = 1_000_000  # bytes that a page is, before its widgets; pictures are read as they come into sight
SEARCH = ("searchindex.js", "_static/searchtools.js", "_static/language_data.js")
SMALLEST = 9.0
LECTURE = "lectures/04_self_attention.html"
SOLUTION = "solutions/a03/a03_cross_attention.html"


@pytest.fixture
def pages(book):
    """The pages that are read."""
    return sorted(path.relative_to(book).as_posix() for path in book.rglob("*.html") if "_static" not in path.parts)


def test_neither_code_nor_what_it_prints_scrolls_sideways_on_a_laptop(visit, pages, book):
    page = visit("index.html", width=LAPTOP)
    wide = {}
    for name in pages:
        if "api" in name or name == "genindex.html" or "<pre>" not in (book / name).read_text(encoding="utf-8"):
            continue
        page.goto(f"{book.as_uri()}/{name}", wait_until="domcontentloaded")
        page.evaluate("document.querySelectorAll('.bd-article details').forEach(it => (it.open = true))")
        found = page.locator(".bd-article pre").evaluate_all(
            "all => all.filter(it => it.scrollWidth > it.clientWidth + 1).map(it => it.textContent.slice(0, 60))"
        )
        wide |= {name: found} if found else {}
    assert wide == {}


@pytest.mark.parametrize("name", LECTURES)
def test_a_phone_shows_a_lecture_legibly_and_marks_what_scrolls(visit, book, name):
    page = visit(f"lectures/{name}.html", width=PHONE)
    if page.locator("script[type*=widget-view]").count():
        page.locator("html[data-ready]").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE
    for image in page.locator(".bd-article img:visible").all():
        source, full = image.get_attribute("src"), image.get_attribute("width")
        if full is None:
            continue
        if source.startswith("data:"):
            data = base64.b64decode(source.partition(",")[2])
        else:
            data = (book / "lectures" / source).resolve().read_bytes()
        shown = image.bounding_box()["width"] / float(full) * readable.text_size(data)
        assert shown >= SMALLEST - 0.1 or image.bounding_box()["width"] >= float(full), image.get_attribute("alt")
    unmarked = page.locator(".bd-article :is(div.math, span.math.long, .wide, pre, .explorer > div:last-child)")
    silent = unmarked.evaluate_all(
        "all => all.filter(it => it.scrollWidth > it.clientWidth + 1 && !(it.dataset.more && it.tabIndex === 0))"
        ".map(it => it.outerHTML.slice(0, 80))"
    )
    assert silent == []


def test_a_long_formula_begins_at_the_edge_and_scrolls(visit):
    page = visit(LECTURE, width=PHONE)
    formula = page.locator("div.math[data-more]").first
    assert formula.get_attribute("data-more") == "right"
    left = formula.bounding_box()["x"]
    assert formula.locator("math").bounding_box()["x"] >= left - 1
    formula.evaluate("it => it.scrollTo(it.scrollWidth, 0)")
    page.locator("div.math[data-more=left]").first.wait_for()


def test_a_formulas_number_does_not_lie_over_it(visit):
    page = visit("lectures/01_bottleneck.html")
    gaps = page.locator(".tml-tag").evaluate_all(
        """all => all.map(tag => {
            const parts = [...tag.closest("mtr").querySelectorAll("mo, mi, mn, mtext")].filter(one => one !== tag);
            const end = Math.max(...parts.map(one => one.getBoundingClientRect().right));
            return tag.getBoundingClientRect().left - end;
        })"""
    )
    assert gaps and min(gaps) > 10


def test_code_is_copied_as_it_would_be_typed(visit):
    page = visit(LECTURE, permissions=["clipboard-read", "clipboard-write"])
    cell = page.locator(".cell_input .highlight").nth(1)
    cell.get_by_role("button", name="Copy").click()
    cell.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == cell.locator("pre").inner_text().rstrip()
    assert page.evaluate("typed('>>> f(1)\\n2\\n>>> for x in y:\\n...     g(x)\\n')") == "f(1)\nfor x in y:\n    g(x)"


@pytest.mark.parametrize("name", [LECTURE, SOLUTION])
def test_the_setup_is_folded_and_says_how_long_it_is(visit, name):
    page = visit(name)
    setup = page.locator("details.hide").first
    assert setup.locator("summary").inner_text().startswith("Show the setup (")
    assert not setup.locator("pre").first.is_visible()


def test_without_scripts_formulas_pictures_and_icons_are_there(chromium, book):
    context = chromium.new_context(java_script_enabled=False, viewport={"width": LAPTOP, "height": 800})
    page = context.new_page()
    page.goto(f"{book.as_uri()}/{LECTURE}")
    root = page.locator(".bd-article msqrt").first
    assert root.is_visible() and root.bounding_box()["height"] > 10
    assert r"\sqrt" not in page.locator(".bd-article").inner_text()
    assert page.locator(".bd-article .wide img").first.is_visible()
    context.close()


def test_formulas_are_drawn_with_the_font_that_comes_with_the_page(visit):
    page = visit(LECTURE)
    page.wait_for_function("document.fonts.ready.then(() => true)")
    assert page.evaluate("[...document.fonts].some(it => it.family === 'Formulas' && it.status === 'loaded')")
    assert page.evaluate("typeof MathJax") == "undefined"


def test_no_page_weighs_more_than_a_megabyte_before_its_widgets(pages, book):
    # Sphinx's own search, where a page has it.
    search = sum((book / name).stat().st_size for name in SEARCH if (book / name).is_file())
    heavy = {
        name: weight.first
        for name in pages
        if (weight := readable.weigh(book, name)).first
        - search * ("searchindex.js" in (book / name).read_text(encoding="utf-8"))
        > MOST
    }
    for asked in ("practice.html", "questions.html"):  # their drills and questions are what a widget is made of
        heavy.pop(asked, None)
    assert heavy == {}


def _luminance(colour):
    parts = [part / 255 for part in colour]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(one, other):
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_in_the_dark_a_pictures_ground_is_the_pages_and_its_colours_stand_out(open_page, tmp_path):
    """The course's palette, through the style sheet's own filter."""
    colours = [style.INK, style.GREY, *style.SERIES]
    patches = Image.new("RGB", (20 * (len(colours) + 1), 20), "white")
    for place, colour in enumerate(colours, start=1):
        patches.paste(colour, (20 * place, 0, 20 * place + 20, 20))
    patches.save(tmp_path / "patches.png")
    look = (ROOT / "docs/_static/book.css").read_text(encoding="utf-8")
    page = open_page(
        f'<html data-theme="dark" data-ready><style>{look} img {{display: block}} body {{margin: 0}}</style>'
        '<div class="bd-content"><div class="cell_output"><img alt="" src="patches.png"></div></div>',
        viewport={"width": 600, "height": 40},
    )
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    ground, ink, grey, *series = (shot.getpixel((20 * place + 10, 10)) for place in range(len(colours) + 1))
    assert max(ground) <= 24 and _contrast(ground, ink) >= 11 and _contrast(ground, grey) >= 4.5
    assert min(_contrast(ground, colour) for colour in series) >= 3
