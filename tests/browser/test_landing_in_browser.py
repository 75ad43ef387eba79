"""The start page's translator in Chromium: it plays once, stops when the reader points, and lets choose a sentence."""

import re
from pathlib import Path

import pytest

pytest.importorskip("myst_nb", reason="the extra 'site' is not installed")

from jupyter_lab import faults

from attncourse.viz.live_widget import HOST
from lessonkit.authoring.site import shown

STATIC = Path(__file__).resolve().parents[2] / "docs/_static"


@pytest.fixture(scope="module")
def html():
    """The start page's two showpieces, without the rest of the book."""
    asked = "".join(f"<!-- show: attncourse_lessons.landing:{each} -->\n" for each in ("translator", "verdict"))
    body = re.sub(r"^````.*$|<script src=.*?</script>", "", shown.filled(asked, "_static"), flags=re.MULTILINE)
    style, script = ((STATIC / f"landing.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Start</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{style}</style></head><body><main><h1>Start</h1>{body}</main>"
        f"<script>{HOST.read_text(encoding='utf-8')}</script><script>{script}</script></body></html>"
    )


def test_it_plays_by_itself_and_stops_where_the_reader_points(open_page, html):
    page = open_page(html)
    stop = page.get_by_role("button", name="Stop", exact=True)
    stop.wait_for()
    here = page.locator(".is-chosen .av-here")
    page.wait_for_function("document.querySelector('.is-chosen .av-here')?.dataset.index > 0")
    page.locator(".is-chosen .av-keys [role=option]").first.hover()
    page.get_by_role("button", name="Play", exact=True).wait_for()
    assert here.get_attribute("data-side") == "key"


def test_it_does_not_move_where_the_reader_prefers_that(open_page, html):
    page = open_page(html, reduced_motion="reduce")
    play = page.get_by_role("button", name="Play", exact=True)
    play.wait_for()
    assert page.locator(".av-here").count() == 0
    play.click()
    page.locator(".is-chosen .av-here").wait_for()


def test_another_sentence_is_shown_in_place_of_the_first_and_the_live_region_is_quiet_while_it_plays(open_page, html):
    page = open_page(html, reduced_motion="reduce")
    other = page.get_by_role("button", name=re.compile("blauen Helm"))
    assert other.get_attribute("aria-pressed") == "false"
    other.press("Enter")
    assert other.get_attribute("aria-pressed") == "true"
    status = page.locator(".av-status:visible")
    assert page.locator(".attention-viewer:visible").count() == 1 and status.get_attribute("aria-live") == "off"
    page.get_by_role("button", name="Stop", exact=True).click()
    assert status.get_attribute("aria-live") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_is_accessible_and_fits(open_page, html, width, scheme):
    page = open_page(html, reduced_motion="reduce", color_scheme=scheme, viewport={"width": width, "height": 800})
    assert faults(page.locator("main")) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_scripts_there_is_one_picture_and_the_card(new_page, html, tmp_path):
    (file := tmp_path / "page.html").write_text(html, encoding="utf-8")
    page = new_page(java_script_enabled=False)
    page.goto(file.as_uri())
    assert page.locator(".still img:visible").count() == 1
    assert page.get_by_text("masks after the softmax").is_visible()
