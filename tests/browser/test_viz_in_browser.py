"""A reader moves the explorers by mouse and by keyboard, and every control says what it is."""

import pytest
import torch

from attncourse import viz
from attncourse_lessons import course
from attncourse_lessons.errata import erratum

pattern_pad = course.part("cheap_attention", "pattern_pad")
game = course.part("errata_lab", "review_game")

WORDS = ["ninety", "-", "one"]
QUESTIONS = [
    viz.Question({"x": (2, 3, 4)}, "x.mean(dim=1)", ["(2, 3)", "(3, 4)"], "dim goes."),
    viz.Question({"a": (3,), "b": (3, 4)}, "a - b", ["(3, 4)", "(3,)"], "Flush right."),
]


def draw(height, colour="blue"):
    figure, ax = viz.figure(6, 2)
    ax.plot([0, height], color=colour)
    return figure, f"a {colour} line that rises to {height}"


EXPLORERS = {
    "explore": lambda: viz.explore(draw, height=[1, 2, 3], colour=["blue", "red"]),
    "step_through": lambda: viz.step_through(torch.eye(3), WORDS, ["eins", "und", "neunzig"]),
    "pattern_pad": pattern_pad.pattern_pad,
    "shape_drill": lambda: viz.shape_drill(QUESTIONS),
    "review_game": lambda: game.review_game([erratum("i > i"), erratum("keys and queries")]),
}


def test_a_slider_and_buttons_choose_the_picture(open_page):
    page = open_page(EXPLORERS["explore"]().page())
    picture, height = page.get_by_role("img"), page.get_by_role("slider", name="height")
    assert picture.get_attribute("alt") == "a red line that rises to 2"
    height.focus()
    page.keyboard.press("ArrowRight")
    assert picture.get_attribute("alt") == "a red line that rises to 3"
    assert height.get_attribute("aria-valuetext") == "3"
    colours = page.get_by_role("group", name="colour")
    colours.get_by_role("button", name="blue").click()
    assert picture.get_attribute("alt") == "a blue line that rises to 3"
    pressed = [button.get_attribute("aria-pressed") for button in colours.get_by_role("button").all()]
    assert pressed == ["true", "false"]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Home")
    assert picture.get_attribute("alt") == "a blue line that rises to 1"


def test_a_step_shows_what_is_written_and_where_it_looks(open_page):
    page = open_page(EXPLORERS["step_through"]().page())
    page.get_by_role("slider", name="Target token").focus()
    page.keyboard.press("End")
    rows = page.get_by_role("table", name="Weights of step 3, neunzig").get_by_role("row").all_inner_texts()
    assert [row.split() for row in rows] == [["ninety", "0.00"], ["-", "0.00"], ["one", "1.00"]]
    assert page.locator("p:visible").inner_text() == "eins und neunzig looks at"


def test_the_pad_is_drawn_on_by_mouse_and_by_keyboard(open_page):
    page = open_page(pattern_pad.pattern_pad("itself alone", n=6, asking=0).page())
    page.get_by_role("gridcell", name="query 2, key 5: forbidden").click()
    page.keyboard.press("ArrowRight")
    page.keyboard.press(" ")
    assert page.get_by_role("gridcell", name="allowed").count() == 8
    page.keyboard.press("a")
    assert "Position 2 has a receptive field of 3 after 1" in page.locator(".pp-reach").get_attribute("aria-label")


def test_a_cell_of_the_pad_that_a_screen_reader_focuses_is_the_one_that_keys_change(open_page):
    page = open_page(pattern_pad.pattern_pad("itself alone", n=6, asking=0).page())
    page.get_by_role("gridcell", name="query 2, key 5: forbidden").focus()
    page.keyboard.press(" ")
    assert page.get_by_role("gridcell", name="query 2, key 5: allowed").count() == 1


def test_the_drill_checks_an_answer_draws_the_result_and_keeps_score(open_page):
    page = open_page(viz.shape_drill(QUESTIONS).page())
    said, score = page.get_by_role("status"), page.locator(".sd-count")
    assert page.get_by_role("img", name="x: shape (2, 3, 4)", exact=True).locator("rect").count() == 24
    assert page.get_by_role("img", name="result").count() == 0
    page.get_by_role("button", name="(2, 4)").click()
    assert said.inner_text() == "Right. dim goes." and "1 right of 1" in score.inner_text()
    assert page.get_by_role("img", name="result: shape (2, 4)").locator("rect").count() == 8
    page.get_by_role("button", name="(2, 3)").click(force=True)      # the first answer counts
    assert "1 right of 1" in score.inner_text()
    page.get_by_role("button", name="next").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="(3,)").focus()
    page.keyboard.press("Enter")
    assert said.inner_text() == "No: it is an error. Flush right." and "1 right of 2" in score.inner_text()
    assert page.get_by_role("img", name="result").count() == 0
    page.get_by_role("button", name="start again").click()
    assert score.inner_text() == "Question 1 of 2. Score: 0 right of 0 answered."


def test_the_game_takes_a_question_then_a_judgement_and_then_tells(open_page):
    page = open_page(EXPLORERS["review_game"]().page())
    said, score = page.get_by_role("status"), page.locator(".rg-count")
    page.get_by_role("button", name="overclaim").click(force=True)      # nothing has been asked yet
    assert "0 judged" in score.inner_text() and "corrected" not in said.inner_text()
    page.get_by_role("button", name="Does the loss show it?").focus()
    page.keyboard.press("Enter")
    assert "0 right of 0" in score.inner_text()                         # a question has no score
    assert "✗ as printed" in said.inner_text() and "corrected" not in said.inner_text()
    page.get_by_role("button", name="definite").click()
    assert "1 right of 1" in score.inner_text() and "✓ corrected" in said.inner_text()
    page.get_by_role("button", name="definite").focus()
    page.get_by_role("button", name="next").click()
    assert "Line 2 of 2" in score.inner_text() and "keys and queries" in page.locator(".rg-claim").inner_text()
    page.get_by_role("button", name="begin anew").click()
    assert score.inner_text() == "Line 1 of 2. Score: 0 right of 0 judged."


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", EXPLORERS)
def test_axe_finds_no_fault(open_page, name, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = open_page(EXPLORERS[name]().page(), color_scheme=scheme)
    found = axe.Axe().run(page).response["violations"]
    # A page of its own has a heading above it; the widget alone has none.
    assert [(fault["id"], fault["nodes"][0]["html"]) for fault in found if fault["id"] != "page-has-heading-one"] == []


@pytest.mark.parametrize("name", EXPLORERS)
def test_no_explorer_is_wider_than_a_phone(open_page, name):
    page = open_page(EXPLORERS[name]().page(), viewport={"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
