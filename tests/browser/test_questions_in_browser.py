"""The self-test as a reader meets it: opened from a file, by keyboard, on a phone, in the dark, without scripts."""

import re

import pytest

pytest.importorskip("myst_nb", reason="the extra 'site' is not installed")
from jupyter_lab import faults
from playwright.sync_api import expect

from attncourse_lessons import course as lessons
from lessonkit.authoring.questions.bank import questions
from lessonkit.authoring.site import questions as site

HEAD = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
HEAD += '<meta name="color-scheme" content="light dark"><title>Self-test</title>'
HEAD += "<style>body { background: Canvas; color: CanvasText }</style>"


@pytest.fixture(scope="module")
def bank():
    return questions(lessons, ["06"])


@pytest.fixture
def page(bank, new_page, tmp_path):
    def opened(**context):
        file = tmp_path / "page.html"
        body = f"<main><h1>Self-test</h1>{site.page(bank, {'06': 'Masks'})}</main>"
        file.write_text(f'<!doctype html><html lang="en"><head>{HEAD}</head>{body}</html>', encoding="utf-8")
        page = new_page(**context)
        page.goto(file.as_uri())
        page.locator("summary").first.click()
        return page

    return opened


def test_a_choice_is_judged_with_its_reason_and_the_first_one_counts(page, bank):
    shown = page()
    first = shown.locator(".qb").first
    right = bank[0].right
    wrong = (right + 1) % 4
    first.locator("input").nth(wrong).check()
    expect(first.locator(".qb-told")).to_contain_text("No.")
    expect(first.locator(".qb-mark").nth(wrong)).to_have_text("✗")
    expect(shown.locator(".qb-tally")).to_have_text(f"{len(bank)} questions; 0 of 1 right at the first try")
    first.locator("input").nth(wrong).focus()
    for _ in range((right - wrong) % 4):
        shown.keyboard.press("ArrowDown")  # radio buttons go by arrows, and from the last to the first
    expect(first.locator(".qb-told")).to_contain_text("Right.")
    expect(shown.locator(".qb-tally")).to_contain_text("0 of 1 right")
    shown.locator(".qb").nth(1).locator("input").nth(bank[1].right).check()
    expect(shown.locator(".qb-tally")).to_contain_text("1 of 2 right")


def test_every_question_has_its_text_its_options_and_its_answer(page, bank):
    shown = page()
    assert shown.locator(".qb").count() == len(bank)
    for place, question in enumerate(bank):
        one = shown.locator(".qb").nth(place)
        assert one.locator("label").count() == one.locator(".qb-reasons li").count() == 4
        for number, option in enumerate(question.options):
            text, shown_text = option.text.replace("```text", ""), one.locator("label").nth(number).text_content()
            assert re.sub(r"[`*\s]", "", shown_text) == re.sub(r"[`*\s]", "", text)
        assert one.locator("li strong").count() >= 1


def test_the_reasons_can_be_read_without_scripts(page):
    shown = page(java_script_enabled=False)
    reasons = shown.locator(".qb-reasons").first
    reasons.locator("summary").click()
    expect(reasons.locator("li").first).to_be_visible()
    expect(reasons).to_contain_text("right.")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_fault_and_a_phone_needs_no_scrolling_sideways(page, scheme):
    shown = page(color_scheme=scheme, viewport={"width": 390, "height": 800})
    shown.locator(".qb input").first.check()
    assert faults(shown.locator("main")) == []
    assert shown.evaluate("document.documentElement.scrollWidth") <= 390
    wide = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).length"
    assert shown.locator("pre, label").evaluate_all(wide) == 0
