"""What the web book costs its readers, and whether its search answers. Goals: built in 90 s, a page of 1 MB, 40 of 40.

    python benchmarks/site.py [--book build/site] [--repeats 3] [--json] [--save FILE]

Builds the book, or takes the one in `--book`. Every page is weighed as its HTML without what its widgets hold, which is
weighed apart. The start page and the lectures are opened from the folder in Chromium, each time in a fresh profile.
What they load is counted in bytes on the disk, pictures too. Times are medians: of the first paint, of the moment
when the last widget of the page is drawn and can be moved. site_questions.json has what learners type, and the sections
that answer: right is one of these among the first three. The search was written with the questions under "known" at
hand, and those under "held out" were asked once, afterwards.
"""

import argparse
import json
import re
import statistics
import tempfile
import time
from pathlib import Path
from urllib.parse import unquote, urlsplit

from chromium import chromium
from playwright.sync_api import Browser, Page
from record import about, hand_over, output_arguments

BUILD_GOAL, PAGE_GOAL = 90, 1_000_000
FIRST = 3
QUESTIONS = json.loads(Path(__file__).with_name("site_questions.json").read_text(encoding="utf-8"))
WIDGETS = re.compile(rb"<script type=\"?application/vnd.jupyter.widget-state\+json.*?</script>", re.DOTALL)
NOTE_LIVE = """new MutationObserver((_, observer) => {
  if (!document.documentElement.hasAttribute("data-ready")) return;
  window.widgetsLive = performance.now();
  observer.disconnect();
}).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-ready"] });"""
ASK = """async (queries) => {
  await bookSearch.ready();
  const start = performance.now();
  const answers = queries.map((query) => bookSearch.find(query).found.slice(0, %d).map(({ section }) => section));
  return { milliseconds: (performance.now() - start) / queries.length, answers };
}"""


def weight(page: Path) -> dict[str, int]:
    """Bytes of a page's HTML without its widgets, and of these."""
    html = page.read_bytes()
    widgets = sum(map(len, WIDGETS.findall(html)))
    return {"page_bytes": len(html) - widgets, "widget_bytes": widgets}


def opened(browser: Browser, address: str, repeats: int) -> dict[str, float | None]:
    """What opening a page loads, and the medians of its times; no time where it has no widget."""
    paints, lives, loaded = [], [], set()
    for _ in range(repeats):
        page = browser.new_page()
        page.add_init_script(NOTE_LIVE)
        page.on("requestfinished", lambda asked: loaded.add(asked.url.partition("?")[0].partition("#")[0]))
        page.goto(address, wait_until="load")
        paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime"))
        if page.locator("script[type*=widget-view]").count():
            page.wait_for_function("window.widgetsLive")
            lives.append(page.evaluate("window.widgetsLive"))
        page.close()
    files = [Path(unquote(urlsplit(url).path)) for url in loaded if url.startswith("file:")]
    return {
        "loaded_bytes": sum(file.stat().st_size for file in files),
        "first_paint_ms": statistics.median(paints),
        "widgets_live_ms": statistics.median(lives) if lives else None,
    }


def answered(page: Page, questions: list[dict]) -> dict:
    """The questions' score on a page of the book, which ones are missed and what came instead."""
    told = page.evaluate(ASK % FIRST, [each["query"] for each in questions])
    first, missed = 0, {}
    for question, sections in zip(questions, told["answers"], strict=True):
        found = [_named(section) for section in sections]
        right = [any(each.startswith(wanted) for wanted in question["sections"]) for each in found]
        first += right[:1] == [True]
        if not any(right):
            missed[question["query"]] = found
    scored = {"asked": len(questions), "right": len(questions) - len(missed), "first": first, "missed": missed}
    return scored | {"ms_a_question": told["milliseconds"]}


def _named(section: dict) -> str:
    """The lesson's name and the heading, "order: Rotary embeddings (RoPE): …"; of other pages the page."""
    lesson = re.fullmatch(r"lectures/\d+_(\w+)\.html", section["page"])
    return f"{lesson[1] if lesson else section['page']}: {section['title']}"


def measured(book: Path, repeats: int) -> dict:
    pages = sorted(path for path in book.rglob("*.html") if "_static" not in path.parts)
    result = {page.relative_to(book).as_posix(): weight(page) for page in pages}
    with chromium() as browser:
        for page in [book / "index.html", *sorted(book.glob("lectures/*.html"))]:
            result[page.relative_to(book).as_posix()] |= opened(browser, page.as_uri(), repeats)
        start = browser.new_page()
        start.goto((book / "index.html").as_uri())
        scores = {name: answered(start, questions) for name, questions in QUESTIONS.items()}
        version = browser.version
    return {"chromium": version, "pages": result, "search": scores}


def built(to: Path) -> float:
    """Seconds that building the book takes."""
    from lessonkit.authoring.checkout import open_course
    from lessonkit.authoring.site.command import site

    start = time.perf_counter()
    site(open_course(Path(__file__).resolve().parents[1]), to)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--book", type=Path, metavar="DIR", help="a book that is built already")
    parser.add_argument("--repeats", type=int, default=3, help="how often a page is opened")
    output_arguments(parser)
    args = parser.parse_args()

    result = about("site", f"python benchmarks/site.py --repeats {args.repeats}", ("sphinx", "myst-nb", "attncourse"))
    with tempfile.TemporaryDirectory() as folder:
        book = (args.book or Path(folder) / "site").resolve()
        if not args.book:
            result["build_s"] = built(book)
            print(f"{'built in':<34}{result['build_s']:>8.0f} s{BUILD_GOAL:>8}")
        result |= measured(book, args.repeats)

    pages = result["pages"]
    print(f"{'':<34}{'page kB':>10}{'widgets':>9}{'loaded':>9}{'paint ms':>10}{'live ms':>9}")
    for name, page in pages.items():
        if "loaded_bytes" in page:
            live = f"{page['widgets_live_ms']:.0f}" if page["widgets_live_ms"] else "–"
            sizes = "".join(f"{page[part] / 1000:>9.0f}" for part in ("widget_bytes", "loaded_bytes"))
            print(f"{name:<34}{page['page_bytes'] / 1000:>10.0f}{sizes}{page['first_paint_ms']:>10.0f}{live:>9}")
    sizes = {name: page["page_bytes"] for name, page in pages.items() if page["page_bytes"] > PAGE_GOAL}
    heavy = [f"{name} ({size / 1000:.0f} kB)" for name, size in sizes.items()]
    print(f"{len(pages)} pages, of which over {PAGE_GOAL / 1000:.0f} kB: {', '.join(heavy) or 'none'}")
    for name, score in result["search"].items():
        told = f"right {score['right']} of {score['asked']}, at the first place {score['first']}"
        print(f"questions, {name}: {told}; {score['ms_a_question']:.1f} ms each")
        for query, found in score["missed"].items():
            print(f"  {query}: {'; '.join(found)}")
    hand_over(result, args, depth=2)


if __name__ == "__main__":
    main()
