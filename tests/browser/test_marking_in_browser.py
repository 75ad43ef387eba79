"""An instructor marks a written question in Chromium, by keyboard: what the page shows is in nbgrader's gradebook."""

import sqlite3
import time
from contextlib import closing

import pytest
from jupyter_lab import expect, faults
from marked_class import ANSWERS, QUESTION, copied, hand_in, kept, make_course, served

pytestmark = pytest.mark.slow
WIDTHS = (1280, 900)


@pytest.fixture(scope="module")
def course(chromium, tmp_path_factory):
    course = make_course(tmp_path_factory.mktemp("marking") / "course")
    hand_in(course, ANSWERS)
    return course


@pytest.fixture(scope="module")
def address(course):
    with served(course, "--port=0") as (address, _):
        yield address


@pytest.fixture
def visit(course, address, new_page):
    """Open the page, of a class in which nobody is marked yet; it must ask for nothing elsewhere."""
    take_marks_away(course)
    asked = []

    def opened(**context):
        page = new_page(**context)
        page.on("request", lambda request: asked.append(request.url))
        return ready(page, address)

    yield opened
    assert asked and not [url for url in asked if not url.startswith((address.partition("?")[0], "data:"))]


def ready(page, address):
    page.set_default_timeout(20_000)
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    return page


def take_marks_away(course):
    execute(course, "UPDATE grade SET manual_score = NULL, needs_manual_grade = (auto_score IS NULL)")
    execute(course, "UPDATE comment SET manual_comment = NULL")


def execute(course, words):
    with closing(sqlite3.connect(course / "gradebook.db", timeout=20)) as book, book:
        book.execute(words)


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def student(page):
    """Whose answer is shown."""
    return page.locator("#who bdi").inner_text().split()[0].lower()


def to(page, whose):
    """Go to a student's answer, by the keyboard."""
    for _ in ANSWERS:
        if student(page) == whose:
            return
        press(page, "ArrowRight")
    raise AssertionError(f"no answer of {whose}")


def said(page):
    return page.locator("#said")


def wait_until(is_so):
    for _ in range(200):
        if is_so():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come")


def test_three_students_are_marked_by_the_keyboard_alone(course, visit):
    page = visit()
    expect(page.locator("#counted")).to_have_text("0 of 5 marked (1 empty: 0 by itself)")
    expect(page.locator("aside")).to_contain_text("Mark scheme. One point for each.")
    walked = []
    for keys, comment in ((["2", "."], ""), (["0"], "Why?\nAnd how?"), (["3", "1"], "é – “ok”")):
        walked.append(student(page))
        press(page, *keys)
        if comment:
            press(page, "c")
            page.keyboard.insert_text(comment)
            press(page, "Escape")
        expect(said(page)).to_contain_text("saved.")
        press(page, "u")
    assert len({*walked, student(page)}) == 4
    expect(page.locator("#counted")).to_have_text("3 of 5 marked (1 empty: 0 by itself)")
    assert [kept(course, one) for one in walked] == [
        (2.5, None, False),
        (0, "Why?\nAnd how?", False),
        (1, "é – “ok”", False),
    ]
    press(page, "ArrowLeft")
    assert student(page) == walked[2]
    expect(page.locator("#comment")).to_have_value("é – “ok”")
    press(page, "x")
    expect(said(page)).to_have_text("Not marked; the comment is saved.")
    assert kept(course, walked[2]) == (None, "é – “ok”", True)


def test_with_auto_advance_digits_alone_mark_the_class(course, visit):
    page = visit()
    press(page, "a", "1", "2", "3", "0", "2")
    expect(page.locator("#counted")).to_have_text("5 of 5 marked (1 empty: 0 by itself)")
    wanted = ["0.0", "1.0", "2.0", "2.0", "3.0", "None"]
    wait_until(lambda: sorted(str(kept(course, one)[0]) for one in ANSWERS) == wanted)
    assert kept(course, "finn") == (None, None, False)


def test_similar_answers_get_the_same_after_a_question(course, visit):
    page, alike = visit(), {"ada", "ben", "dora"}
    while student(page) not in alike:  # the order is drawn: whose of the three comes first is marked
        press(page, "ArrowRight")
    one, another = alike - {student(page)}
    press(page, "2", "c")
    page.keyboard.insert_text("See (b).")
    press(page, "Escape", "g")
    expect(page.locator("#ask p")).to_contain_text("2 points for 2 similar answers that are not marked")
    expect(page.locator("#ask p")).to_contain_text("You have not opened")
    press(page, "Escape")
    assert kept(course, one)[0] is None
    press(page, "g", "Enter")
    wait_until(lambda: kept(course, one) == kept(course, another) == (2, "See (b).", False))
    assert kept(course, "cleo") == (None, None, True)


def test_names_can_be_hidden(visit):
    page = visit()
    press(page, "h")
    expect(page.locator("#who bdi")).to_have_text("Answer 1")
    assert "Example" not in page.locator("body").inner_text()
    page.reload()
    page.wait_for_selector("html[data-ready]")
    expect(page.locator("#who bdi")).to_have_text("Answer 1")


def test_what_a_student_wrote_does_nothing(visit):
    page = visit()
    to(page, "emil")
    answer = page.locator("#answer")
    expect(answer).to_contain_text("over")
    link = answer.get_by_text("elsewhere", exact=True)
    assert (link.get_attribute("target"), link.get_attribute("rel")) == ("_blank", "noopener noreferrer")
    assert answer.get_by_text("click", exact=True).get_attribute("href") is None
    assert page.title().endswith(f"marking {QUESTION}")
    if page.evaluate("document.body.dataset.mathjax") == "yes":  # a link in a formula is none, and can be read
        expect(answer.locator("mjx-container")).to_contain_text("\\href")
        assert answer.locator("mjx-container a").count() == 0
    assert answer.locator("form, input, script, [onerror]").count() == 0


def test_two_tabs_do_not_overwrite_each_other_in_silence(course, visit):
    first, second = visit(), visit()
    for page in (first, second):
        to(page, "ada")
    press(first, "3")
    expect(said(first)).to_have_text("3 points, saved.")
    press(second, "1")
    expect(second.locator("#changed")).to_contain_text("There it is: 3 points. Yours, not saved: 1 point.")
    assert kept(course, "ada")[0] == 3
    second.get_by_role("button", name="Keep what is there").press("Enter")
    expect(said(second)).to_have_text("3 points, saved.")
    press(first, "2")
    expect(said(first)).to_have_text("2 points, saved.")
    press(second, "0")
    expect(second.locator("#changed")).to_be_visible()
    second.get_by_role("button", name="Put mine in its place").press("Enter")
    expect(said(second)).to_have_text("0 points, saved.")
    assert kept(course, "ada")[0] == 0
    first.evaluate("look()")
    expect(said(first)).to_have_text("0 points, saved.")


def test_a_comment_is_kept_when_the_page_is_closed_while_it_is_written(course, visit):
    page = visit()
    whose = student(page)
    press(page, "c")
    page.keyboard.insert_text("Half a")
    page.close()
    wait_until(lambda: kept(course, whose)[1] == "Half a")


def test_more_points_than_a_digit_are_typed(course, new_page, tmp_path):
    course = copied(course, tmp_path / "course")
    cell = f"SELECT id FROM base_cell WHERE name = '{QUESTION}'"
    execute(course, f"UPDATE grade_cells SET max_score = 20 WHERE id IN ({cell})")
    with served(course, "--port=0") as (address, _):
        page = ready(new_page(), address)
        whose = student(page)
        press(page, "1", "7", ".", "5", "Enter")
        expect(said(page)).to_have_text("17.5 points, saved.")
        assert kept(course, whose)[0] == 17.5
        press(page, "2", "1", "Enter")
        expect(said(page)).to_have_text("There are 0 to 20 points.")
        assert kept(course, whose)[0] == 17.5
        page.close()


def test_what_is_marked_while_the_server_is_away_is_saved_when_it_is_back(course, chromium, tmp_path):
    course = copied(course, tmp_path / "course")
    take_marks_away(course)
    context = chromium.new_context()
    with served(course, "--port=0") as (address, _):
        page = ready(context.new_page(), address)
        whose = student(page)
    press(page, "2", "c")
    page.keyboard.insert_text("Not lost.")
    press(page, "Escape")
    expect(said(page)).to_have_text("Not saved yet, kept in this browser: The server does not answer.")
    page.close()
    port = address.split(":")[2].partition("/")[0]
    with served(course, f"--port={port}") as (address, _):
        page = ready(context.new_page(), address)
        wait_until(lambda: kept(course, whose)[:2] == (2, "Not lost."))
        assert page.evaluate("Object.keys(localStorage).filter((key) => key.startsWith('lessonkit-mark:'))") == []
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_can_be_read_by_all(visit, width, scheme):
    page = visit(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.locator("summary").click()
    press(page, "2")
    assert faults(page.locator("body")) == []
    press(page, "?")
    assert faults(page.locator("#keys")) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    smallest = """[...document.querySelectorAll('body *')].filter(node => !node.closest('mjx-container')
        && [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim()))
        .map(node => parseFloat(getComputedStyle(node).fontSize))"""
    assert min(page.evaluate(smallest)) >= 12  # 9 pt
