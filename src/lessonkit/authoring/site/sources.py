"""What Sphinx reads: the course's notebooks and pages, at the places that they have in the course's folder."""

import os
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from commandkit.commands import typed
from commandkit.errors import CommandError, require_extra
from lessonkit.authoring import widgets
from lessonkit.mimetype import VERDICT

with require_extra(typed("site"), "site"):
    import nbformat
    from nbformat.notebooknode import NotebookNode

    from lessonkit.authoring import references
    from lessonkit.authoring.checkout import Checkout
    from lessonkit.authoring.pages import Unit, units
    from lessonkit.authoring.release import release
    from lessonkit.authoring.site import (
        bar,
        citations,
        glossary,
        practice,
        questions,
        readable,
        search,
        shown,
        tasks,
    )
    from lessonkit.authoring.source import MARKERS
    from lessonkit.course import Course, Lesson, folder_of

# Pages that stand elsewhere in the site than in the folder, or whose like is there.
MOVED = {
    "README.md": "index.md",
    "START.md": "assignments.md",
    "docs/index.md": "index.md",
    "docs/practice.md": "practice.md",
    "docs/questions.md": "questions.md",
    "docs/api/index.md": "api/index.md",
}
# A released notebook, to be downloaded; beside it, the page that shows it.
ASSIGNMENT = re.compile(r"assignments/(?P<name>[^/]+)/[^/]+\.ipynb")
# A link in Markdown, whatever its words are: [words](target) or [words](target "title").
LINK = re.compile(r"(?<=\]\()(?P<path>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?=[)\s])")
# A link to a notebook of the course in an output: the site has a page of that name beside it.
NOTEBOOK_IN_HTML = re.compile(r"""(<a [^>]*href="[^":]+)\.ipynb(?=["#])""")
ANSWERS = """
```{{important}}
This page holds the answers, folded away. Try it yourself first: [assignment {number}](path:{assignment}) is the
notebook without them.
```
"""
ASSIGNMENTS = """# Assignments

One for each lecture. Read it here, with its hints folded. To do it, download its notebook, open it in JupyterLab where
the course is installed, and run the check under each exercise: it says what was expected, what was found, and often
what you were thinking. Minutes are our estimate; minutes and points leave out an assignment's extensions, which are for
extra points.

| | to read | minutes | points | its lecture | | |
|---|---|---|---|---|---|---|
"""


class BrokenLink(CommandError):
    """A link to something that the course does not have."""


@dataclass(frozen=True)
class Sources:
    """The sources of the course at `root`, to be written into the empty folder `to`.

    Of the solutions those of the assignments in `solved`; all where it is None. `slides` is a folder with one for each
    lesson, slides/04/index.html, or None.
    """

    root: Path
    to: Path
    course: Course
    solved: Collection[str] | None = None
    slides: Path | None = None

    @cached_property
    def units(self) -> list[Unit]:
        return units(Checkout(self.root, self.course))

    def assemble(self) -> None:
        """Raises BrokenLink, with page and target, and CommandError for a widget that the pages cannot show."""
        for path in sorted(self.root.glob("assignments/*/*.ipynb")):
            self._copy(path)
        pages = [*sorted(self.root.glob("docs/*.md")), *sorted(self.root.glob("docs/api/*.md"))]
        for path in [*pages, self.root / "CONTRIBUTING.md"]:
            name = path.relative_to(self.root).as_posix()
            text = self.relink(path.read_text(encoding="utf-8"), name)
            if practice.MARKER.search(text):
                titles = {unit.lesson.assignment: unit.task for unit in self.units}
                text = practice.filled(text, self.course, titles, self.solved)
            if citations.MARKER.search(text):
                text = citations.filled(text, self.references, self._cited_from(name))
            if path.name == "glossary.md":
                glossary.keep(text, self.to)
                text = glossary.page(text)
            text = shown.filled(text, os.path.relpath("_static", PurePosixPath(self.place(name)).parent))
            if questions.MARKER.search(text):
                lectures = {unit.number: unit.title for unit in self.units}
                text = questions.filled(text, self.course, lectures, self.solved)
            self._write(self.place(name), text)
        solutions = [p for p in sorted(self.root.glob("solutions/*/*.ipynb")) if self._shown(p.parent.name)]
        released = sorted(self.root.glob("assignments/*/*.ipynb"))
        for path in [*sorted(self.root.glob("lectures/*.ipynb")), *released, *solutions]:
            name = path.relative_to(self.root).as_posix()
            self._write(self.place(name), nbformat.writes(self.notebook(name)))
        self._copy(self.root / "README.md")  # the start page includes its table of lectures
        self._write("assignments.md", self.assignments())
        shutil.copyfile(self.root / "docs/conf.py", self.to / "conf.py")
        if self.references:
            shutil.copyfile(self.root / citations.FILE, self.to / citations.FILE)
        if (names := self.root / "docs" / search.SYNONYMS).is_file():
            shutil.copyfile(names, self.to / search.SYNONYMS)
        for folder in ("_static", "_templates"):
            shutil.copytree(self.root / "docs" / folder, self.to / folder)
        if self.course.widgets:
            package, name = self.course.widgets
            shutil.copyfile(folder_of(package) / name, self.to / "_static/widgets.js")

    def relink(self, text: str, page: str) -> str:
        """`text` of the page `page` (its path in the folder), its links leading to where the site has their targets.

        A module's source becomes its page of the reference. A file that the site has no page for is copied, and Sphinx
        offers it as a download. A zip file called like the course is what a student gets: it is made. Raises
        BrokenLink.
        """
        here = PurePosixPath(page).parent

        def lead(link: re.Match) -> str:
            target = os.path.normpath(here / link["path"]).replace(os.sep, "/")
            if target == f"{self.course.distribution}.zip":
                self._release(self.to / target)
                return f"path:{os.path.relpath(target, PurePosixPath(self.place(page)).parent)}"
            if target.startswith("..") or not (self.root / target).is_file():
                raise BrokenLink(f"{page}: a link to {link['path']}, which is no file of the course")
            place = self.place(target)
            path = os.path.relpath(place, PurePosixPath(self.place(page)).parent).replace(os.sep, "/")
            if target.startswith("assignments/") and place == target:
                return f"path:{path}"                                # a download, and no page
            if place != target:
                return path                                          # the anchor was another page's
            if not target.endswith((".md", ".ipynb")):
                self._copy(self.root / target)
            return path + (link["anchor"] or "")

        # What stands in code is no link.
        parts = re.split(r"(^```.*?^```|`[^`\n]+`)", text, flags=re.DOTALL | re.MULTILINE)
        return "".join(part if i % 2 else LINK.sub(lead, part) for i, part in enumerate(parts))

    def place(self, name: str) -> str:
        """Where the site has what the folder has at `name`: of an assignment, its page."""
        if assignment := ASSIGNMENT.fullmatch(name):
            return f"assignments/{assignment['name']}.ipynb"
        module = re.sub(r"/__init__$", "", name.removeprefix("src/").removesuffix(".py")).replace("/", ".")
        return f"api/{module}.rst" if module in self._reference else MOVED.get(name, name)

    @cached_property
    def _reference(self) -> set[str]:
        """The modules that have a page."""
        listed = (self.root / "docs/api/index.md").read_text(encoding="utf-8")
        ours = "|".join((*self.course.library, self.course.package, "lessonkit"))
        return set(re.findall(rf"^ +((?:{ours})[\w.]*)$", listed, re.MULTILINE))

    @cached_property
    def references(self) -> dict[str, references.Reference]:
        path = self.root / citations.FILE
        return references.read(path) if path.is_file() else {}

    def _cited_from(self, page: str) -> dict[str, str]:
        """The text of each lecture, by the link from a page to it."""
        here = PurePosixPath(self.place(page)).parent
        found = {}
        for path in sorted(self.root.glob("lectures/*.ipynb")):
            link = os.path.relpath(path.relative_to(self.root), here).replace(os.sep, "/")
            cells = nbformat.read(path, as_version=4).cells
            found[link] = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        return found

    def notebook(self, name: str) -> NotebookNode:
        """The notebook of a lecture, an assignment or a solution as the site shows it."""
        notebook = nbformat.read(self.root / name, as_version=4)
        state = widgets.saved(notebook)
        kinds = {widget["model_name"] for widget in state.values()}
        if others := sorted(kinds - {"AnyModel", "LayoutModel"}):
            raise CommandError(f"{name}: the site shows the course's own widgets (anywidget's) alone, not {others[0]}")
        lesson = next((each for each in self.course.lessons if each.lecture_notebook == name), None)
        if lesson is not None:
            self._offer(lesson, notebook)
        for cell in notebook.cells:
            cell.source = re.sub(r"\A<!-- Built from .*? -->\n", "", cell.source)
            if cell.cell_type == "markdown":
                cell.source = boxes(self.relink(anchored(self._led(cell.source, name)), name))
            for output in cell.get("outputs", []):
                data = output.get("data", {})
                data.pop(VERDICT, None)  # for graders; beside it stands the card
                if "text/html" in data:
                    data["text/html"] = NOTEBOOK_IN_HTML.sub(r"\g<1>.html", data["text/html"])
        readable.fold_setup(notebook)
        if name.startswith("solutions/"):
            fold(notebook, name)
        if assignment := ASSIGNMENT.fullmatch(name):
            download = os.path.relpath(name, "assignments").replace(os.sep, "/")
            notebook = tasks.for_reading(notebook, self.course.exercises_of(assignment["name"]), download)
        return notebook

    def _led(self, text: str, name: str) -> str:
        """Markdown whose citations lead to the book's page of references."""
        if not self.references:
            return text
        page = os.path.relpath(citations.PAGE, PurePosixPath(name).parent).replace(os.sep, "/")
        return citations.led(text, self.references, page)

    def _offer(self, lesson: Lesson, notebook: NotebookNode) -> None:
        """Put the bar below a lecture's title, and its notebook where the bar leads."""
        (self.to / "notebooks").mkdir(exist_ok=True, parents=True)
        path = self.root / lesson.lecture_notebook
        shutil.copyfile(path, self.to / "notebooks" / path.name)
        title = re.search(r"^# (.*)$", notebook.cells[0].source, re.MULTILINE)
        assert title is not None, f"{lesson.lecture_notebook} has no title"
        slides = self.slides is not None and (self.slides / lesson.number / "index.html").is_file()
        offered = bar.markdown(self.course, lesson, title[1], slides, (self.root / bar.REPORT).is_file())
        notebook.cells[0].source = notebook.cells[0].source.replace(title[0], f"{title[0]}\n\n{offered}", 1)

    def _release(self, to: Path) -> None:
        if not to.exists():
            release(Checkout(self.root, self.course), to)

    def assignments(self) -> str:
        """The page that offers the assignments, each with lecture, minutes, points, notebook and solution."""
        rows = "".join(
            f"| {unit.number} | [{unit.task}]({self.place(unit.assignment)}) "
            f"| {unit.working} | {unit.checked + unit.marked:g} | [{unit.title}]({unit.lecture}) "
            f"| [notebook](path:{unit.assignment}) | {self._solution(unit.assignment)} |\n"
            for unit in self.units
        )
        # A list that names no page is a fault to Sphinx. The solutions come last.
        listed = ["assignments/*", *(["solutions/*/*"] if "[solution]" in rows else [])]
        return "\n".join([f"{ASSIGNMENTS}{rows}", "```{toctree}", ":hidden:", ":glob:", *listed, "```", ""])

    def _solution(self, notebook: str) -> str:
        shown = self._shown(PurePosixPath(notebook).parent.name)
        return f"[solution]({notebook.replace('assignments', 'solutions')})" if shown else ""

    def _shown(self, assignment: str) -> bool:
        return self.solved is None or assignment in self.solved

    def _copy(self, path: Path) -> None:
        copied = self.to / path.relative_to(self.root)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copied)

    def _write(self, name: str, text: str) -> None:
        (self.to / name).parent.mkdir(parents=True, exist_ok=True)
        (self.to / name).write_text(text, encoding="utf-8")


def anchored(text: str) -> str:
    """Markdown in which the places that the build numbered are places to Sphinx, too, and captions have a class."""
    text = re.sub(r'\A<a id="(figure-[\d-]+)"></a>', r"{#\1 .caption}\n", text)
    return re.sub(r'<a id="(equation-[\d-]+)"></a>\n\n(?=\$\$)', r"\n\n(\1)=\n", text)


def boxes(text: str) -> str:
    """Markdown whose boxes have a class for the style sheet: errata, and questions to check oneself by."""
    looks = (("On the slide", "erratum"), ("A common mistake", "erratum"), ("Check yourself", "check-yourself"))
    for words, look in looks:
        text = re.sub(rf"^(?=> \*\*{words})", f"{{.{look}}}\n", text, flags=re.MULTILINE)
    # In raw HTML MathJax looks only where it is told to.
    return text.replace("<details>", '<details class="mathjax_process">')


def fold(notebook: NotebookNode, name: str) -> None:
    """Fold the answers of a solution, take out what is for the graders alone, and say so under the title."""
    title, _, rest = notebook.cells[0].source.partition("\n")
    answers = ANSWERS.format(
        number=PurePosixPath(name).parent.name[1:], assignment=f"../../{name.replace('solutions', 'assignments')}"
    )
    notebook.cells[0].source = title.replace("# Assignment", "# Solution") + answers + rest
    for cell in notebook.cells:
        cell.source = re.sub(r"\n?### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS", "", cell.source, flags=re.DOTALL)
        cell.source = MARKERS.sub("", cell.source)
        if not cell.metadata.get("nbgrader", {}).get("solution"):
            continue
        if cell.cell_type == "code":
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-input"]
            cell.metadata["mystnb"] = {"code_prompt_show": "Show the answer", "code_prompt_hide": "Hide the answer"}
        else:
            cell.source = f'<details class="answer"><summary>Show the answer</summary>\n\n{cell.source}\n\n</details>'
