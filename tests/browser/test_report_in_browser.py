"""An instructor reads the report on a class: from a file, by keyboard, in light, in dark, in a small window."""

import pytest
from jupyter_lab import expect, faults
from made_up_class import made_up

from attncourse_lessons import course as lessons
from lessonkit.grading.report.page import page, term_page
from lessonkit.grading.report.results import RunLog
from lessonkit.grading.report.term import recurring, term_rows

EXERCISES = lessons.exercises_of("a03")
EVIL = '<script>document.title = "ran"</script><img src=x onerror="document.title = \'ran\'">"\'><b onclick=x>'


@pytest.fixture(scope="module")
def sixty(tmp_path_factory):
    return page(made_up(), EXERCISES, [], tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def term(tmp_path_factory):
    return page_of_term(60, tmp_path_factory.mktemp("term"))


def page_of_term(n, folder):
    both = [made_up(n), made_up(n, "a04", seed=1)]
    found = recurring(both, {"a03": EXERCISES, "a04": lessons.exercises_of("a04")})
    return term_page(both, term_rows(both), found, folder, {})


def column(report, number):
    """The cells of a column of the students' table that are shown."""
    return report.locator(f"#every-student tbody tr:visible > :nth-child({number})").all_inner_texts()


def numbers(texts):
    return [float(text.split()[0]) for text in texts if text[0] not in "–-…"]


def heading(report, name):
    return report.locator("#every-student").get_by_role("columnheader", name=name)


def total_column(report):
    return 1 + report.locator("#every-student thead th").all_inner_texts().index(
        next(text for text in report.locator("#every-student thead th").all_inner_texts() if text.startswith("total"))
    )


def test_a_heading_sorts_by_keyboard_up_and_down_and_those_without_a_value_stay_last(open_page, sixty):
    report = open_page(sixty)
    total = heading(report, "total")
    at = total_column(report)
    total.get_by_role("button").focus()
    report.keyboard.press("Enter")
    assert total.get_attribute("aria-sort") == "ascending"
    up = column(report, at)
    assert numbers(up) == sorted(numbers(up)) and up[-3:] == ["-"] * 3 and len(numbers(up)) == 57
    report.keyboard.press("Space")
    down = column(report, at)
    assert total.get_attribute("aria-sort") == "descending"
    assert numbers(down) == sorted(numbers(up), reverse=True) and down[-3:] == ["-"] * 3
    heading(report, "student").get_by_role("button").press("Enter")
    names = column(report, 1)
    assert names == sorted(names) and total.get_attribute("aria-sort") is None
    late = heading(report, "late")
    late.get_by_role("button").press("Enter")
    assert [text for text in column(report, at + 1) if text] == ["5 h"] * 6 == column(report, at + 1)[:6]


def test_the_table_is_filtered_by_keyboard_and_says_how_many_are_left(open_page, sixty):
    report = open_page(sixty)
    expect(report.get_by_role("status")).to_have_text("60 of 60")
    report.get_by_label("Find").focus()
    report.keyboard.type("dubois local")
    shown = report.locator("#every-student tbody tr:visible").all_inner_texts()
    assert 0 < len(shown) < 12 and all("Dubois" in text and "local" in text for text in shown)
    expect(report.get_by_role("status")).to_have_text(f"{len(shown)} of 60")
    report.keyboard.press("Enter")  # it is no form to be sent
    assert report.get_by_label("Find").input_value() == "dubois local"
    report.get_by_role("button", name="Show all").press("Enter")
    expect(report.get_by_role("status")).to_have_text("60 of 60")
    report.get_by_role("combobox", name="Show").focus()
    report.keyboard.type("late")
    expect(report.get_by_role("status")).to_have_text("6 of 60")


def test_what_there_is_to_do_leads_to_the_students(open_page, sixty):
    report = open_page(sixty)
    late = report.locator(".todo > details").filter(has_text="Late: 6")
    late.locator("summary").press("Enter")
    late.get_by_role("link", name="Show them in the table").press("Enter")
    expect(report.get_by_role("status")).to_have_text("6 of 60")
    waiting = report.locator(".todo > details").filter(has_text="To be marked")
    waiting.locator("summary").press("Enter")
    waiting.get_by_role("link", name="Efua Eriksen", exact=True).press("Enter")  # who is not among the late
    expect(report.locator("tr:target")).to_be_visible()
    expect(report.get_by_role("status")).to_have_text("60 of 60")


def test_a_link_unfolds_what_it_leads_to(open_page, sixty):
    report = open_page(sixty)
    assert not report.get_by_text("is the share of the n students").is_visible()
    report.evaluate("location.hash = '#aspects'")
    report.get_by_text("is the share of the n students").wait_for()


def test_the_first_window_says_what_to_do_and_how_the_class_did(open_page, sixty):
    for width in (1280, 900):
        report = open_page(sixty, viewport={"width": width, "height": 800})
        for words in ("Not graded: 1", "Late: 6", "To be marked: 8", "Nothing handed in: 3", "57 of 60", "median"):
            place = report.get_by_text(words).first
            assert place.is_visible() and place.bounding_box()["y"] < 800, words
        assert report.evaluate("document.documentElement.scrollWidth") <= width
        students = report.get_by_role("heading", name="Students").bounding_box()["y"]
        assert students < 2.5 * 800  # what comes before the table is two windows


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(open_page, tmp_path, scheme):
    for html in (page(made_up(12), EXERCISES, [], tmp_path), page_of_term(12, tmp_path)):  # its time is by the cell
        report = open_page(html, color_scheme=scheme)
        report.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert faults(report.locator("body")) == []


def test_nothing_that_a_student_wrote_runs(open_page, tmp_path):
    results = made_up()
    for row in results.rows:
        row.name, row.tampering, row.unreadable = row.name + EVIL, [EVIL], EVIL
        row.log = RunLog(ended=EVIL, suspicious=(EVIL,), sandbox=EVIL)
        for one in row.verdicts.values():
            one["misconceptions"], one["aspects"][0]["name"] = [EVIL], EVIL
    for html in (
        page(results, EXERCISES, [], tmp_path),
        term_page([results], term_rows([results]), recurring([results], {}), tmp_path, {}),
    ):
        report = open_page(html)
        assert report.title().endswith(": report") and report.locator("script").count() == 1
        assert report.locator("img, [onclick], [onerror]").count() == 0
        assert EVIL in report.locator("#every-student").inner_text()


def test_the_page_allows_no_script_but_its_own(new_page, tmp_path, sixty):
    """Even where text became markup, the browser would refuse it."""
    broken = sixty.replace("<main", '<script>document.title = "ran"</script><p onclick="document.title = 1">p</p><main')
    (tmp_path / "x.html").write_text(broken, encoding="utf-8")
    context = new_page().context.browser.new_context()  # whose page may complain
    report = context.new_page()
    report.goto((tmp_path / "x.html").as_uri())
    report.wait_for_selector("html[data-ready]")
    report.get_by_text("p", exact=True).first.click()
    assert report.title() == "a03: report"
    context.close()


def test_without_scripts_all_of_it_can_be_read(open_page, new_page, tmp_path, sixty):
    (tmp_path / "x.html").write_text(sixty, encoding="utf-8")
    report = new_page(java_script_enabled=False)
    report.goto((tmp_path / "x.html").as_uri())
    assert report.locator("#every-student tbody tr").count() == 60
    assert not report.locator("form.filter").is_visible()


def test_the_terms_table_is_sorted_and_filtered_too(open_page, term):
    report = open_page(term)
    heading(report, "percent").get_by_role("button").press("Enter")
    shares = [int(text.split()[0]) for text in column(report, 6) if text != "–"]
    assert shares == sorted(shares) and len(shares) == 57
    report.get_by_role("combobox", name="Show").select_option(label="without a04")
    expect(report.get_by_role("status")).to_have_text("3 of 60")
