"""A reader searches the book: what is found, in which order, by keyboard and by mouse, from a folder."""

import re

import pytest

pytest.importorskip("myst_nb", reason="the extra 'site' is not installed")

from jupyter_lab import expect
from test_site_in_browser import LECTURE, SOLUTION

import benchmarks

pytestmark = pytest.mark.slow

GQA = "lectures/07_many_heads.html#mha-gqa-mqa-query-heads-that-share-keys-and-values"


@pytest.fixture
def measure():
    return benchmarks.load("site")


def ask(page, query, key="/"):
    """Open the search by a key, and type."""
    page.keyboard.press(key)
    page.keyboard.type(query)
    expect(page.locator("#pst-search-dialog .found-said")).to_have_text(re.compile("section|Nothing"))
    return page.locator("#pst-search-dialog .found-list a")


def answers(page, query, part):
    """A part of each section that is found, such as its title."""
    found = "bookSearch.ready().then(() => bookSearch.find(query).found.map(({ section }) => section[part]))"
    return page.evaluate(f"([query, part]) => {found}", [query, part])


def test_forty_questions_find_their_section_among_the_first_three(visit, measure):
    scored = measure.answered(visit("index.html"), measure.QUESTIONS["known"])
    assert scored["missed"] == {} and scored["asked"] == 40


def test_questions_that_it_was_not_written_for_do_so_too(visit, measure):
    scored = measure.answered(visit("index.html"), measure.QUESTIONS["held out"])
    assert scored["right"] >= 18 and scored["asked"] == 20


def test_every_section_that_is_asked_for_is_in_the_book(visit, measure):
    page = visit("index.html")
    sections = page.evaluate("bookSearch.ready().then(({ sections }) => sections)")
    named = [measure._named(section) for section in sections]
    questions = [each for group in measure.QUESTIONS.values() for each in group]
    wanted = {section for question in questions for section in question["sections"]}
    assert [each for each in wanted if not any(name.startswith(each) for name in named)] == []


@pytest.mark.parametrize("key", ["/", "Control+k"])
def test_a_key_opens_the_search_and_enter_the_best_section(visit, book, key):
    page = visit(LECTURE)
    found = ask(page, "grouped query attention", key)
    expect(found.first.locator(".found-where")).to_contain_text("Lecture 07 · Multi-head attention")
    expect(found.first.locator("mark").first).to_be_visible()
    title, where, text = (found.first.locator(f".found-{part}").bounding_box() for part in ("title", "where", "text"))
    assert title["y"] + title["height"] <= where["y"] < where["y"] + where["height"] <= text["y"]
    page.keyboard.press("Enter")
    page.wait_for_url(f"{book.as_uri()}/{GQA}")


def test_arrows_choose_a_section_letters_go_on_with_the_question_and_escape_closes(visit):
    page = visit(LECTURE)
    found = ask(page, "softmax")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(found.nth(1)).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(found.first).to_be_focused()
    page.keyboard.type(" nan")
    expect(page.locator("#pst-search-dialog input")).to_have_value("softmax nan")
    page.keyboard.press("Escape")
    expect(page.locator("#pst-search-dialog")).not_to_be_visible()


def test_a_section_of_the_page_itself_is_scrolled_to_and_the_dialog_goes(visit):
    page = visit(GQA.partition("#")[0])
    ask(page, "GQA").first.click()
    expect(page.locator("#pst-search-dialog")).not_to_be_visible()
    expect(page.locator(f"#{GQA.partition('#')[2]} h2")).to_be_in_viewport()


def test_a_slash_in_a_field_is_a_slash(visit):
    page = visit("search.html")
    page.get_by_role("searchbox", name="Search the course").first.press("/")
    expect(page.locator(".bd-search-container input")).to_have_value("/")
    expect(page.locator("#pst-search-dialog")).not_to_be_visible()


def test_lessons_come_before_the_reference_and_solutions_after_all_else(visit):
    page = visit("index.html")
    for query in ("causal mask", "RMSNorm", "beam search", "KV cache"):
        found = answers(page, query, "kind")
        assert found[0] == "lecture" and "api" in found
        solutions = [kind == "solution" for kind in found]
        assert any(solutions) and solutions == sorted(solutions)


TYPED = {
    "transfomer": "Transformer",
    "brodcasting": "Broadcasting",
    "self atention": "Self-attention",
    "sinusiodal": "Sinusoidal",
    "layer normalization": "Layer normalisation",
    "prenorm": "pre-norm",
    "warm up": "warm-up",
    "softm": "Softmax",
}


def test_a_typing_error_another_spelling_and_half_a_word_find_the_same(visit):
    page = visit("index.html")
    for typed, meant in TYPED.items():
        first = answers(page, typed, "title")[:3]
        assert any(meant.casefold() in title.casefold() for title in first), (typed, first)


def test_where_nothing_is_found_it_says_so(visit):
    page = visit("index.html")
    assert ask(page, "qzxjkw").count() == 0
    expect(page.locator("#pst-search-dialog .found-said")).to_contain_text("Nothing has “qzxjkw”")


def test_the_page_of_all_results_keeps_its_question_in_the_address(visit):
    page = visit("search.html?q=padding")
    found = page.locator(".bd-search-container .found-list a")
    expect(found.first).to_have_attribute("href", re.compile("lectures/"))
    assert found.count() > 8
    page.keyboard.type(" mask")
    page.reload()
    expect(page.locator(".bd-search-container input")).to_have_value("padding mask")


def test_markup_in_a_question_stays_text(visit):
    page = visit("search.html?q=%3Cimg%20src=x%3Eqzxj")
    expect(page.locator(".bd-search-container .found-said")).to_contain_text("section")
    assert page.locator(".found img").count() == 0


def test_a_page_that_nobody_searches_loads_no_index(visit):
    page = visit(LECTURE)
    index = page.locator("script[src*=search-index]")
    assert index.count() == 0
    ask(page, "mask")
    assert index.count() == 1


@pytest.mark.parametrize(
    ("where", "scheme", "width"),
    [
        (SOLUTION, "light", 1280),
        (SOLUTION, "dark", 390),
        ("search.html?q=attention", "dark", 1280),
        ("search.html?q=attention", "light", 390),
    ],
)
def test_nothing_serious_stands_in_the_way_of_who_searches(visit, scheme, width, where):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = visit(where, width=width, color_scheme=scheme, reduced_motion="reduce")
    if where == SOLUTION:
        ask(page, "attention").first.wait_for()
    else:
        page.locator(".found-list a").first.wait_for()
    page.wait_for_function("document.getAnimations().length === 0")
    found = axe.Axe().run(page, options={"preload": False, "resultTypes": ["violations"]}).response["violations"]
    grave = [(fault["id"], fault["nodes"][0]["html"]) for fault in found if fault["impact"] in ("serious", "critical")]
    assert grave == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
