"""Citations, terms and numbers of the web book, as a reader with a pointer or a keyboard meets them."""

import re

import pytest

pytest.importorskip("myst_nb", reason="the extra 'site' is not installed")


pytestmark = pytest.mark.slow
LECTURE = "lectures/04_self_attention.html"


def test_a_citation_shows_its_entry_and_leads_to_it(visit):
    page = visit(LECTURE)
    link = page.get_by_role("link", name="Xiao et al., 2024").first
    note = page.get_by_role("tooltip")
    link.hover()
    assert "Efficient streaming language models with attention sinks. ICLR, 2024." in note.inner_text()
    page.keyboard.press("Escape")
    assert note.count() == 0  # hidden
    link.click()
    page.wait_for_url("**/docs/references.html#xiao2024")
    entry = page.locator("#xiao2024")
    assert entry.get_by_role("link", name="lecture 04").count() == 1
    assert entry.get_by_role("link", name=re.compile("^Efficient")).get_attribute("href").startswith("https://arxiv")


def test_the_first_use_of_a_term_says_what_it_means_to_the_keyboard_too(visit):
    page = visit(LECTURE)
    term = page.locator("article a.term", has_text=re.compile("^attention weights?$"))
    assert term.count() == 1
    term.focus()
    note = page.get_by_role("tooltip")
    assert "the shares that the softmax makes of the scores" in note.inner_text()
    assert term.get_attribute("aria-describedby") == note.get_attribute("id")
    box = note.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 1280
    term.press("Enter")
    page.wait_for_url("**/docs/glossary.html#term-attention-weight")
    assert page.locator("#term-attention-weight").is_visible()


def test_a_formula_has_a_number_that_a_link_leads_to_also_from_another_lecture(visit):
    page = visit("lectures/12_cheap_attention.html")
    page.get_by_role("link", name="(4.3)", exact=True).click()
    page.wait_for_url(f"**/{LECTURE}#equation-4-3")
    assert page.locator("#equation-4-3 math").count() > 0


def test_a_figure_has_a_number_that_a_link_leads_to(visit):
    page = visit("lectures/03_cross_attention.html")
    link = page.locator("article").get_by_role("link", name=re.compile(r"^Figure 3\.\d+$")).first
    named = link.inner_text()
    link.click()
    caption = page.locator(f"p#{named.lower().replace(' ', '-').replace('.', '-')}")
    assert caption.inner_text().startswith(f"{named}. ")


def test_a_phone_shows_the_note_within_its_width(visit):
    page = visit(LECTURE, width=390)
    page.locator("article a.cite:visible").nth(2).focus()
    box = page.get_by_role("tooltip").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_notes_captions_and_links_have_no_fault_that_axe_finds(visit, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = visit(f"{LECTURE}#figure-4-3", color_scheme=scheme)
    page.locator("article a.cite").first.focus()
    places = {"include": [["p.caption"], ["#note-of-link"], ["p:has(a.cite)"], ["p:has(a.term)"]]}
    found = axe.Axe().run(page, context=places, options={"preload": False}).response["violations"]
    assert [(fault["id"], fault["nodes"][0]["html"]) for fault in found] == []
