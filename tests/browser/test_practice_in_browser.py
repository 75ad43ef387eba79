"""The page of drills as a reader meets it: by keyboard, on a phone, in the dark, and with a memory of its own."""

import json
import re

import pytest

pytest.importorskip("myst_nb", reason="the extra 'site' is not installed")

from attncourse_lessons import course as lessons
from lessonkit.authoring.site import practice
from lessonkit.exercises import drill, leitner

HEAD = '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
HEAD += '<meta name="color-scheme" content="light dark"><title>Practice</title>'
HEAD += "<style>body { background: Canvas; color: CanvasText }</style>"
KEPT = "practice-attncourse"


@pytest.fixture(scope="module")
def data():
    """Drills of two lessons: of a04 some of exercises, and all that show no solution."""
    made = []
    for card in drill.cards(lessons, ["a04", "a06"]):
        if not card.exercise or card.assignment == "a04":
            free = {"free": True} if not card.exercise else {}
            made += [card.drill(number).as_dict() | free for number in range(min(3, len(card.questions)))]
    return made


@pytest.fixture
def page(data, open_page, monkeypatch):
    """Open the page as a file, without a network."""
    monkeypatch.setattr(practice, "drills_of", lambda course: data)

    def opened(**context):
        made = practice.filled("<!-- practice -->", lessons, {"a04": "Self-attention"})
        html = made.removeprefix("````{raw} html\n").removesuffix("````")
        body = f"<main><h1>Practice</h1>{html}</main>"
        return open_page(f'<!doctype html><html lang="en"><head>{HEAD}</head>{body}</html>', **context)

    return opened


def asked(page, data):
    """The drill that is shown."""
    question, where = page.locator(".pr-question").inner_text(), page.locator(".pr-where").inner_text()
    options = [re.sub(r"^[✓✗ ]*\d\s+", "", text) for text in page.locator(".pr-options button").all_inner_texts()]
    code = page.locator(".pr-look pre").all_inner_texts()
    for one in data:
        plain = [option.replace("`", "") for option in one["options"]]
        same = (one["question"], one["where"], plain, one.get("code", "")) == (question, where, options, "".join(code))
        if same and (not one.get("table") or table(page) == shown(one["table"])):
            return one
    raise AssertionError(f"{where}: {question} {options}")


def table(page):
    return [row.locator("td").all_inner_texts() for row in page.locator(".pr-grid tbody tr").all()]


def shown(rows):
    return [[("✓" if x else "") if isinstance(x, bool) else f"{x:.2f}" for x in row] for row in rows]


def kept(page):
    return json.loads(page.evaluate(f"localStorage.getItem('{KEPT}')") or "{}")


def test_solved_code_is_shown_only_where_somebody_says_that_they_have_solved_it(page, data):
    page = page()
    for _ in range(9):
        assert asked(page, data)["free"] and page.locator("pre").count() == 0
        page.get_by_role("button", name="next").click()
    page.get_by_label("a04 Self-attention").check()
    for _ in range(9):
        page.get_by_role("button", name="next").click()
        if page.locator("pre").count():
            break
    assert "def self_attention_loop(x, W_Q, W_K, W_V):" in page.locator("pre").inner_text()


def test_a_right_and_a_wrong_answer_are_told_with_the_verdict_and_moved_by_leitners_rule(page, data):
    page = page()
    page.get_by_label("a04").check()
    boxes = {}
    for turn in range(8):
        now = asked(page, data)
        right = turn % 2 == 0
        place = now["right"] if right else (now["right"] + 1) % len(now["options"])
        options = page.locator(".pr-options button")
        options.nth(place).click()
        options.nth((place + 1) % options.count()).click(force=True)  # the first answer counts
        said = page.locator(".pr-told").inner_text()
        assert said.startswith("Right." if right else f"No: it is number {now['right'] + 1}.")
        if "verdict" in now:
            assert f"The check gives {now['verdict']['score']}" in said
            marks = page.locator(".pr-verdict .pr-mark").all_inner_texts()
            assert marks == ["✓" if ok else "✗" for ok, *_ in now["verdict"]["aspects"]]
        day = leitner.today()
        boxes[now["card"]] = boxes.get(now["card"], leitner.Box()).after(now["key"], right, day)
        page.get_by_role("button", name="next").click()
    assert {name: leitner.Box(**box) for name, box in kept(page)["cards"].items()} == boxes
    assert "Right: 4 of 8 answered." in page.locator(".pr-count").inner_text()


def test_the_browsers_order_is_the_kernels(page):
    page = page()
    groups = {"a": "1", "b": "1", "c": "2", "d": "2", "e": "1"}
    boxes = {"a": leitner.Box(2, 0, {"x": True}), "e": leitner.Box(1, 0, {"x": False}),
             "d": leitner.Box(3, 9, {"x": True})}  # fmt: skip
    told = {name: {"box": box.box, "due": box.due, "asked": box.asked} for name, box in boxes.items()}
    script = "([names, groups, kept]) => practice.inOrder(names, groups, kept, 3)"
    assert page.evaluate(script, [[*groups], groups, told]) == leitner.in_order(groups, boxes, day=3)
    box = leitner.Box().after("a", True, 0).after("b", True, 0).after("c", False, 0).after("a", True, 0)
    script = "([keys, card]) => practice.nextDrill(keys.map((key) => ({ key })), card).key"
    first = leitner.in_turn(["a", "b", "c", "d"], box)[0]
    assert page.evaluate(script, [["a", "b", "c", "d"], {"box": 1, "due": 0, "asked": box.asked}]) == "abcd"[first]


def test_what_went_well_rests_and_the_browser_can_be_made_to_forget_it(page, data):
    page = page()
    page.get_by_label("a04").check()
    first = asked(page, data)
    page.locator(".pr-options button").nth(first["right"]).click()
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.get_by_label("a04").is_checked() and asked(page, data)["card"] != first["card"]
    assert not page.locator(".pr-lessons").evaluate("it => it.open")
    page.get_by_role("button", name="Forget how it went").click()
    assert kept(page) == {} and page.locator(".pr-count").inner_text().startswith("Forgotten.")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert not page.get_by_label("a04").is_checked()


@pytest.mark.parametrize("junk", ["no JSON", '{"cards": {}}', "[]"])
def test_what_a_browser_has_kept_that_is_not_ours_does_no_harm(page, junk, data):
    page = page()
    page.evaluate("([name, junk]) => localStorage.setItem(name, junk)", [KEPT, junk])
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert asked(page, data)


def test_the_keyboard_alone_will_do(page, data):
    page = page()
    page.locator(".pr-lessons summary").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.get_by_label("a04").is_checked()
    while page.evaluate("document.activeElement.textContent") != "next →":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.className") == "pr-question"
    now = asked(page, data)
    page.keyboard.press(str(now["right"] + 1))  # a number chooses
    assert page.locator(".pr-told").inner_text().startswith("Right.")
    assert page.locator(".pr-options button[aria-pressed=true]").count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.parentElement.className") == "pr-options"


def test_roles_say_what_a_screen_reader_needs(page):
    page = page()
    question = page.locator(".pr-question").inner_text()
    group = page.get_by_role("group", name=question)
    assert group.get_by_role("button").count() >= 3
    told = page.locator(".pr-told")
    assert told.get_attribute("role") == "status"
    assert page.get_by_role("table", name="a row for each query, a column for each key").count() == 1
    assert page.get_by_role("rowheader").count() == len(table(page))


@pytest.mark.parametrize("width", [390, 1280])
def test_a_phone_scrolls_down_only(page, data, width):
    page = page(viewport={"width": width, "height": 844})
    page.get_by_label("a04").check()
    for _ in range(10):
        page.locator(".pr-options button").first.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for node in page.locator(".pr-options button, .pr-steps button, .pr-note button").all():
            assert node.bounding_box()["height"] >= 24
        page.get_by_role("button", name="next").click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_stands_in_the_way_of_anybody(page, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = page(color_scheme=scheme)
    page.get_by_label("a04").check()
    for _ in range(6):
        page.locator(".pr-options button").first.click()
        found = axe.Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
        grave = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
        assert grave == []
        page.get_by_role("button", name="next").click()
