"""A reader moves the attention viewer by mouse and by keyboard, reads the numbers, and takes the picture away."""

import math
import re
import statistics
import time
from xml.etree import ElementTree

import pytest
import torch
from PIL import Image

from attncourse import viz
from attncourse.transformer import AttentionWeights

SOURCE, TARGET, WRITTEN = ["ninety", "-", "one", "!"], ["<bos>", "ein", "und"], ["ein", "und", "neunzig"]
CROSS = torch.tensor(
    [
        [[[0.09, 0.0, 0.91, 0.0], [0.25, 0.25, 0.25, 0.25], [0.8, 0.15, 0.049, 0.001]], [[0.25] * 4] * 3],
        [[[0.0, 0.0, 0.0, 1.0]] * 3, [[1.0, 0.0, 0.0, 0.0]] * 3],
    ]
)


def weights():
    encoder = torch.eye(4).expand(2, 2, 4, 4)
    decoder = torch.ones(3, 3).tril() / torch.arange(1, 4)[:, None]
    return AttentionWeights(encoder, decoder.expand(2, 2, 3, 3), CROSS)


def viewer(**start):
    return viz.attention_viewer(weights(), SOURCE, TARGET, WRITTEN, title="Ninety-one", **start)


def compared(**start):
    both = {"recurrent": CROSS[0, 0], "Transformer": weights()}
    return viz.attention_viewer(both, SOURCE, TARGET, WRITTEN, title="Two", **start)


def option(page, name, panel=0):
    return page.locator(".av-panel").nth(panel).get_by_role("option", name=name, exact=True)


def shares(page, side, panel=0):
    return page.locator(".av-panel").nth(panel).locator(f".av-{side} .av-share").all_inner_texts()


def said(page):
    return page.get_by_role("status").inner_text()


@pytest.fixture
def page(open_page):
    return open_page(viewer().page())


# Pointing


def test_pointing_at_a_query_shows_where_it_looks(page):
    option(page, "neunzig, 3 of 3").hover()
    assert shares(page, "keys") == ["80\u00a0%", "15\u00a0%", "5\u00a0%", "<1\u00a0%"]
    assert shares(page, "queries") == ["", "", ""]
    assert said(page) == "“neunzig” looks at “ninety” 80 %, “-” 15 %, “one” 5 %.".replace(" %", "\u00a0%")
    assert page.locator("line").count() == 3  # what is shown as 5 % counts as that, and 4.9 % is


def test_pointing_at_a_key_shows_who_looks_at_it(page):
    option(page, "one, 3 of 4").hover()
    assert shares(page, "queries") == ["91\u00a0%", "25\u00a0%", "5\u00a0%"]
    assert said(page) == "“one” is looked at by “ein” 91 %, “und” 25 %, “neunzig” 5 %.".replace(" %", "\u00a0%")


def test_lines_are_as_wide_and_as_dark_as_the_weight(page):
    option(page, "ein, 1 of 3").hover()
    light, heavy = (
        [float(line.get_attribute(name)) for name in ("stroke-width", "stroke-opacity")]
        for line in page.locator("line").all()
    )
    assert heavy[0] > 3 * light[0] and heavy[1] > 1.5 * light[1]


@pytest.mark.parametrize("width", [360, 1200])
def test_a_line_goes_from_its_query_on_the_left_to_its_key_on_the_right(open_page, width):
    page = open_page(viewer(layer=1).page(), viewport={"width": width, "height": 700})
    query, key = option(page, "und, 2 of 3"), option(page, "!, 4 of 4")
    query.hover()
    (drawn,) = page.locator("line").all()
    line, left, right = drawn.bounding_box(), query.bounding_box(), key.bounding_box()
    assert left["x"] + left["width"] <= line["x"] + 4 and line["x"] + line["width"] <= right["x"] + 4
    assert line["width"] > 40
    ends = [line["y"], line["y"] + line["height"]]
    assert ends == pytest.approx([box["y"] + box["height"] / 2 for box in (left, right)], abs=4)


def test_leaving_brings_back_all_lines_and_a_click_keeps_a_token_in_focus(page):
    everything = page.locator("line").count()
    option(page, "ein, 1 of 3").hover()
    page.mouse.move(5, 5)
    assert page.locator("line").count() == everything == 9 and said(page).startswith("Point at a token")
    option(page, "ein, 1 of 3").click()
    page.mouse.move(5, 5)
    assert page.locator("line").count() == 2 and option(page, "ein, 1 of 3").get_attribute("aria-selected") == "true"
    option(page, "ein, 1 of 3").click()
    page.mouse.move(5, 5)
    assert page.locator("line").count() == everything


# Keyboard


def test_arrow_keys_move_among_tokens_and_across(page):
    page.get_by_role("slider").focus()
    for _ in range(3):  # past the two buttons
        page.keyboard.press("Tab")
    focused = page.locator(":focus")
    walked = []
    for key in ("ArrowDown", "End", "ArrowDown", "ArrowRight", "Home", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
        walked.append(focused.get_attribute("aria-label"))
    down = ["und, 2 of 3", "neunzig, 3 of 3", "neunzig, 3 of 3"]
    assert walked == [*down, "one, 3 of 4", "ninety, 1 of 4", "ein, 1 of 3", "ein, 1 of 3"]
    assert said(page).startswith("“ein” looks at “one” 91")


def test_each_list_is_one_stop_for_the_tab_key(page):
    for index in (2, 0, 1):
        page.get_by_role("option").nth(index).focus()
        page.keyboard.press("ArrowDown")
    for box in page.get_by_role("listbox").all():
        assert box.locator("[tabindex='0']").count() == 1


def test_enter_keeps_a_token_and_escape_lets_it_go(page):
    option(page, "und, 2 of 3").focus()
    page.keyboard.press("Enter")
    assert option(page, "und, 2 of 3").get_attribute("aria-selected") == "true"
    page.get_by_label("Layer", exact=True).select_option("1")
    assert said(page) == "“und” looks at “!” 100\u00a0%."  # a pinned token stays in focus in another layer
    option(page, "und, 2 of 3").focus()
    page.keyboard.press("Escape")
    assert option(page, "und, 2 of 3").get_attribute("aria-selected") == "false"


def test_keys_do_not_reach_the_notebook_but_its_shortcuts_do(page):
    page.evaluate("window.heard = []; document.addEventListener('keydown', (e) => heard.push(e.key))")
    option(page, "ein, 1 of 3").focus()
    page.keyboard.press("ArrowDown")
    page.get_by_label("Layer", exact=True).focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Control+s")
    assert page.evaluate("heard") == ["Control", "s"]


def test_what_has_the_focus_shows_it(page):
    option(page, "ein, 1 of 3").focus()
    page.keyboard.press("ArrowDown")
    style = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(style) == "solid"


# Controls


def test_layer_head_and_kind_are_chosen_by_name(page):
    page.get_by_label("Head", exact=True).select_option("1")
    option(page, "ein, 1 of 3").hover()
    assert shares(page, "keys") == ["25\u00a0%"] * 4
    page.get_by_label("Head", exact=True).select_option("mean")
    option(page, "ein, 1 of 3").hover()
    assert shares(page, "keys") == ["17\u00a0%", "13\u00a0%", "58\u00a0%", "13\u00a0%"]
    assert page.locator(".av-name").inner_text() == "layer 0, mean of the heads"
    page.get_by_label("Attention", exact=True).select_option("decoder self-attention")
    assert (
        page.locator(".av-queries .av-word").all_inner_texts()
        == TARGET
        == page.locator(".av-keys .av-word").all_inner_texts()
    )
    option(page, "und, 3 of 3").first.hover()
    assert shares(page, "keys") == ["33\u00a0%"] * 3


def test_the_threshold_hides_smaller_weights(page):
    slider = page.get_by_role("slider", name="Hide weights below")
    assert slider.get_attribute("aria-valuetext") == "5\u00a0%"
    slider.fill("30")
    assert page.locator("line").count() == 2
    assert "2 of 12 weights are drawn." in page.locator(".av-note").inner_text()
    option(page, "und, 2 of 3").hover()
    assert said(page) == "“und” looks at nothing with 30\u00a0% or more."


def test_the_viewer_starts_as_it_was_left(open_page):
    left = viewer(kind="cross", layer=1, head=1, threshold=0.2)
    left.pinned = ["query", 1]
    page = open_page(left.page())
    assert said(page) == "“und” looks at “ninety” 100\u00a0%."
    assert page.get_by_label("Layer", exact=True).input_value() == "1"
    assert page.get_by_label("Head", exact=True).input_value() == "1"


def test_the_numbers_stand_in_a_table(page):
    page.get_by_text("Numbers of the token in focus").click()
    option(page, "neunzig, 3 of 3").hover()
    rows = page.get_by_role("row").all_inner_texts()
    assert [row.split("\t") for row in rows[1:]] == [
        ["“ninety”", "80\u00a0%"], ["“-”", "15\u00a0%"], ["“one”", "5\u00a0%"], ["“!”", "<1\u00a0%"],
    ]  # fmt: skip
    assert page.locator("caption").inner_text() == "“neunzig” looks at"


def test_all_heads_are_shown_and_one_is_opened(page):
    page.get_by_role("button", name="All heads").click()
    cells = page.get_by_role("button", name=re.compile(r"layer \d, head \d"))
    assert cells.count() == 4 and page.get_by_role("slider").count() == 0
    cells.nth(0).focus()
    page.keyboard.press("ArrowDown")
    assert said(page).startswith("Layer 1, head 0: “ein” looks at “!” with 100")
    page.keyboard.press("Enter")
    assert page.locator(".av-name").inner_text() == "layer 1, head 0"
    page.get_by_role("button", name="All heads").click()
    assert cells.nth(2).get_attribute("aria-current") == "true"


def test_a_small_picture_is_darker_where_the_weight_is_larger(open_page):
    page = open_page(viewer(view="all").page())
    alpha = "(c) => [...c.getContext('2d').getImageData(0, 0, 4, 1).data].filter((_, i) => i % 4 === 3)"
    painted = page.locator("canvas").first.evaluate(alpha)
    assert painted[2] > painted[0] > painted[1] == painted[3] == 0


def test_two_models_are_compared_token_by_token(open_page):
    page = open_page(compared(layer=1).page())
    assert page.locator(".av-name").all_inner_texts() == ["recurrent", "Transformer · layer 1, head 0"]
    option(page, "ein, 1 of 3").hover()
    assert shares(page, "keys", 0)[2] == "91\u00a0%" and shares(page, "keys", 1)[3] == "100\u00a0%"
    expected = "“ein” looks at “one” 91 %, “ninety” 9 % (recurrent); “!” 100 % (Transformer)."
    assert said(page) == expected.replace(" %", "\u00a0%")
    page.get_by_role("button", name="All heads").click()
    assert page.locator("canvas").count() == 5


# Taking the picture away


@pytest.mark.parametrize("view", ["one", "all"])
def test_the_picture_is_saved_whole_with_its_title(open_page, tmp_path, view):
    page = open_page(compared(view=view).page())
    if view == "one":
        option(page, "ein, 1 of 3").click()
    for label in ("SVG", "PNG"):
        with page.expect_download() as download:
            page.get_by_role("button", name=f"Save as {label}").click()
        assert download.value.suggested_filename == f"two.{label.lower()}"
        download.value.save_as(tmp_path / label)
    tree = ElementTree.parse(tmp_path / "SVG").getroot()
    spoken = {node.tag.rpartition("}")[2]: node.text for node in tree if node.tag.endswith(("title", "desc"))}
    words = [node.text for node in tree.iter() if node.tag.endswith("text")]
    assert spoken["title"] == "Two" == words[0]
    assert {"recurrent", "cross-attention"} <= set(words)
    if view == "one":
        assert {"neunzig", "one", "91\u00a0%"} <= set(words) and "“ein” looks at “one” 91" in spoken["desc"]
    with Image.open(tmp_path / "PNG") as image:
        size = [math.ceil(2 * float(tree.get(name))) for name in ("width", "height")]
        grey = image.convert("L")
        assert list(image.size) == size and grey.getextrema()[0] < 60 and grey.getpixel((2, 2)) == 255


def test_a_long_title_has_room_in_the_saved_picture(open_page, tmp_path):
    title = "Two small heads under a title that is much wider than both"
    page = open_page(viz.attention_viewer(torch.full((2, 2, 2), 0.5), ["a", "b"], title=title, view="all").page())
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as SVG").click()
    download.value.save_as(tmp_path / "SVG")
    (written,) = (node for node in ElementTree.parse(tmp_path / "SVG").iter() if node.text == title and node.get("x"))
    fits = "([title, size]) => { const c = document.createElement('canvas').getContext('2d'); c.font = size; " \
        "return c.measureText(title).width; }"
    wide = page.evaluate(fits, [title, f"600 {written.get('font-size')}px system-ui, sans-serif"])
    assert 20 + wide < float(ElementTree.parse(tmp_path / "SVG").getroot().get("width"))


# Everybody


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("make", "start"), [(viewer, {}), (compared, {}), (compared, {"view": "all"})])
def test_axe_finds_no_fault(open_page, make, start, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = open_page(make(**start).page(), color_scheme=scheme)
    if not start:
        page.get_by_text("Numbers of the token in focus").click()
        option(page, "ein, 1 of 3").hover()
    found = axe.Axe().run(page).response["violations"]
    # A page of its own has a heading above it; the viewer alone has none.
    assert [(fault["id"], fault["nodes"][0]["html"]) for fault in found if fault["id"] != "page-has-heading-one"] == []


@pytest.mark.parametrize("width", [320, 360, 1200])
@pytest.mark.parametrize("start", [{}, {"view": "all"}])
def test_no_page_is_wider_than_the_screen(open_page, width, start):
    page = open_page(compared(**start).page(), viewport={"width": width, "height": 700})
    if not start:
        option(page, "ein, 1 of 3").hover()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_two_thousand_tokens_do_not_freeze_the_page(open_page):
    weights = torch.ones(2000, 2000).tril() / torch.arange(1, 2001)[:, None]
    html = viz.attention_viewer(weights, [f"w{i}" for i in range(2000)], threshold=0.0).page()
    start = time.perf_counter()
    page = open_page(html)
    assert time.perf_counter() - start < 8
    assert "the strongest 1000 of 7875 of 15625 weights are drawn." in page.locator(".av-note").inner_text()
    assert "they stand in blocks of 16" in page.locator(".av-note").inner_text()
    assert hover_milliseconds(page) < 100


HOVER = """() => {
  const times = [];
  for (const option of document.querySelectorAll("[role=option]")) {
    const start = performance.now();
    option.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
    document.body.getBoundingClientRect();  // until it is laid out
    times.push(performance.now() - start);
  }
  return times;
}"""


def hover_milliseconds(page):
    return statistics.median(page.evaluate(HOVER))


def test_pointing_answers_within_50_milliseconds(open_page):
    weights = (3 * torch.randn(6, 8, 64, 64)).softmax(dim=-1)
    page = open_page(viz.attention_viewer(weights, [f"token{i}" for i in range(64)]).page())
    assert hover_milliseconds(page) < 50
