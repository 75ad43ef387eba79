"""The page of drills: made by running the checks, and again only where something that they depend on changed."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import platformdirs

from commandkit.files import write_whole
from lessonkit.course import Course, folder_of
from lessonkit.exercises import leitner
from lessonkit.exercises.drill import cards
from lessonkit.exercises.practice import SCRIPT, STYLE

MARKER = re.compile(r"^<!-- practice -->$", re.MULTILINE)  # a line of its own: elsewhere it is only spoken of
OF_A_CARD = 4  # drills of an exercise that the page has; a notebook has all
KEPT = 5  # results in the user's cache
WITHOUT_SCRIPTS = "The drills need a browser that runs scripts. In a terminal, `{} practice` asks them, too."


def filled(text: str, course: Course, titles: dict[str, str], solved: Collection[str] | None = None) -> str:
    """A page's Markdown with the drills in the place of its marker; `titles` are the assignments'.

    Drills show solved code: those of exercises are of the assignments in `solved`, or of all.
    """
    if not MARKER.search(text):
        return text
    drills = [d for d in drills_of(course) if solved is None or d.get("free") or d["assignment"] in solved]
    count = Counter(each["assignment"] for each in drills if not each.get("free"))
    lessons = [{"assignment": name, "title": titles.get(name, ""), "count": count[name]} for name in count]
    told = {"course": course.distribution, "days": leitner.DAYS, "lessons": lessons, "drills": drills}
    # "</" would end the element that it stands in.
    data = json.dumps(told, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    html = "\n".join(
        (
            f"<style>{STYLE.read_text('utf-8')}</style>",
            f'<div id="practice"><p>{WITHOUT_SCRIPTS.format(course.distribution)}</p></div>',
            f'<script type="application/json" id="practice-data">{data}</script>',
            f"<script>\n{SCRIPT.read_text('utf-8')}",
            'practice.onPage(document.getElementById("practice"), '
            'JSON.parse(document.getElementById("practice-data").textContent));\n</script>',
        )
    )
    return MARKER.sub(lambda _: f"````{{raw}} html\n{html}\n````", text)


def drills_of(course: Course) -> list[dict[str, Any]]:
    """The page's drills: some of each exercise, all of what lessons ask besides, which show no solution: `free`."""

    def made() -> Iterator[dict[str, Any]]:
        for card in cards(course, course.assignments()):
            free = card.exercise is None
            for number in range(len(card.questions) if free else min(len(card.questions), OF_A_CARD)):
                yield card.drill(number).as_dict() | ({"free": True} if free else {})

    return kept(course, "drills", lambda: list(made()))


def kept(course: Course, what: str, make: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """What `make` returns, as JSON has it; from the user's cache, where it is kept by the content of all that it could
    depend on."""
    path = cache() / f"{course.distribution}-{what}-{_content(course)}.json"
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        pass
    found = json.loads(json.dumps(make()))  # as it is read again
    try:
        write_whole(path, json.dumps(found))
        old = sorted(cache().glob(f"{course.distribution}-{what}-*.json"), key=lambda each: each.stat().st_mtime)
        for each in old[:-KEPT]:
            each.unlink(missing_ok=True)
    except OSError:  # a full disk, or a folder that may not be written to: they are made again next time
        pass
    return found


def cache() -> Path:
    return platformdirs.user_cache_path("lessonkit", appauthor=False) / "practice"


def _content(course: Course) -> str:
    """A digest of the code that drills come from: the course's, its library's, the kit's."""
    import torch

    told = hashlib.sha256(torch.__version__.encode())
    for folder in map(folder_of, (course.package, *course.library, "lessonkit")):
        for path in sorted(each for each in folder.rglob("*") if each.suffix in (".py", ".json", ".js")):
            if path.name != "lecture.py":
                told.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes())
    return told.hexdigest()[:16]
