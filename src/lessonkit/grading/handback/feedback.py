"""Pages made of a submission: what they must not show, and what they must not do.

nbgrader_config.py gives `SafePage` and `safe_markdown` to every HTMLExporter. So they also reach the formgrader's view
of a submission, which is served from the instructor's own Jupyter, where a script could do all that the instructor can.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import bleach
from bleach.css_sanitizer import CSSSanitizer
from jinja2 import pass_context
from nbconvert.exporters import HTMLExporter
from nbconvert.filters.ansi import strip_ansi
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.api import Gradebook
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import ClearHiddenTests, GetGrades, NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution
from traitlets import List

from lessonkit.grading.report.results import waits
from lessonkit.grading.submission.check_cells import PREFIX
from lessonkit.grading.submission.lateness import Times, duration, extensions_of, times, written

Step = tuple[NotebookNode, Any]

# Of one piece of HTML, pictures not counted: the time to make it safe grows with the square of them.
MOST_CHARACTERS, MOST_TAGS = 100_000, 5_000
# What a page may take at worst, in seconds, and what a piece takes of it: these squares were measured on pieces made to
# be slow ("a." again and again, `\\[` that nothing closes, tags in tags). What grows with the piece itself is that
# nbconvert parses the whole page once more, in which a word of code, an emphasis and a colour are a tag each.
PAGE_SECONDS = 5.0
PER_CODE, PER_MARKDOWN, PER_TAGS = 1e-8, 1e-8, 4e-8
PER_CHARACTER, PER_TAG, PER_COPIED = 1e-5, 1e-4, 1e-10
STILL_SHOWN = 2_000  # characters of what is too long
# Characters of pictures attached to text: each is in the page as often as it is shown, and counted as often.
MOST_ATTACHED = 20_000_000

TAGS = (
    "p div span pre br hr h1 h2 h3 h4 h5 h6 img sub sup del s small kbd mark dl dt dd details summary "
    "table caption colgroup col thead tbody tfoot tr th td"
)
ATTRIBUTES = "style title alt width height align border start colspan rowspan scope"
STYLES = (
    "background background-color border border-collapse border-bottom border-left border-right border-top color "
    "font-family font-size font-style font-weight margin margin-bottom margin-left margin-right margin-top max-width "
    "opacity padding padding-bottom padding-left padding-right padding-top text-align text-decoration vertical-align "
    "white-space width"
)
# No id, and no class but those of coloured code and of tables: the formgrader finds its buttons and fields by them.
CLASS = re.compile(r"[a-z0-9]{1,3}|highlight|dataframe")
LINK = re.compile(r"(https?:|mailto:|#)|[\w./%-]*([?#]|$)", re.IGNORECASE)
# Within the page only: fetching a picture from elsewhere would tell its owner who reads the page, and when.
PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp|svg\+xml);base64,[\w+/=\s]*")
SHOWN = ("text/html", "text/markdown", "text/latex", "text/plain", "image/svg+xml", "image/png", "image/jpeg")


def safe_html(html: str) -> str:
    """HTML without what can run, load from elsewhere, or reach out of its own place in the page.

    Where it is too much to be made safe, its source, as text.
    """
    # bleach keeps the text of what it takes out: of a script or a style sheet, nobody wants to read it.
    html = re.sub(r"<(script|style)\b.*?(</\1\s*>|\Z)", "", html, flags=re.IGNORECASE | re.DOTALL)
    if html.count("<") > MOST_TAGS or len(_without_pictures(html)) > MOST_CHARACTERS:
        return f"<pre>{escape(html)}</pre>"
    styles = _Styles(allowed_css_properties=STYLES.split())
    protocols = {"http", "https", "mailto", "data"}
    tags = {*bleach.ALLOWED_TAGS, *TAGS.split()}
    return bleach.clean(html, tags, _allowed, protocols, strip=True, css_sanitizer=styles)


@pass_context
def safe_markdown(context: Any, source: str) -> str:
    """nbconvert's filter `markdown2html`, then `safe_html`."""
    # Not nbconvert's `sanitize_html`: nbgrader's templates do not ask for it, and it drops pictures and styles. Nor its
    # SanitizeHTML: that cleans the source, which breaks `>` and code, and lets [a link](javascript:...) through.
    attachments = (context.get("cell") or {}).get("attachments") or {}
    renderer = _Renderer(escape=False, attachments=attachments, exclude_anchor_links=True)
    return safe_html(MarkdownWithMath(renderer=renderer).render(source))


def as_it_is(text: str) -> str:
    """In place of nbconvert's filter `strip_files_prefix`, for links of IPython 0.x: it takes minutes for "[[[[[…"."""
    return text


class SafePage(NbGraderPreprocessor):
    """Leave of each output what can be shown without running anything. The verdict's card stays as it is.

    What would hold up the pages of a whole class, because it is too long to be made a page of, is shown in part, as it
    was written.
    """

    display_data_priority: List = List().tag(config=True)  # the HTML exporter sets it for every step

    def preprocess(self, nb: NotebookNode, resources: Any) -> Step:
        budget = _Budget()
        for cell in nb.cells:
            if cell.cell_type == "code":
                if not budget.allows(PER_CODE * len(cell.source) ** 2 + PER_CHARACTER * len(cell.source)):
                    cell.source = _beginning(cell.source, "# ", "# Too long for this page. It begins so:")
                count = cell.get("execution_count")  # says the kernel, which is the student's
                cell.execution_count = count if isinstance(count, int) else None
                cell.outputs = [safe for output in cell.outputs if (safe := _safe_output(output, budget))]
            elif cell.cell_type == "markdown":
                cell.source = _affordable_markdown(cell.source, budget)
                if not budget.holds(_attached(cell)):
                    cell.attachments = {}
            else:  # nbconvert's filter for these takes minutes for tags in tags
                cell.source = escape(cell.source[:STILL_SHOWN])
        for name in {"student", "first_name", "last_name"} & set(resources):  # in the formgrader's heading
            resources[name] = escape(resources[name]) if resources[name] else resources[name]
        return nb, resources


class FeedbackPage(HTMLExporter):
    """nbgrader's feedback page, from a template of ours that stands on its own: see `templates`."""

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        # After the config, in which nbgrader names its template for all HTML exporters.
        ours = str(Path(__file__).parent / "templates")
        self.extra_template_basedirs = [ours, *self.extra_template_basedirs]
        self.extra_template_paths = [*self.extra_template_paths, *self.extra_template_basedirs]
        self.template_name = "lessonkit_feedback"
        self.template_paths = self._template_paths()


class Marks(GetGrades):
    """nbgrader's GetGrades, which also tells what waits for a person's marks, and when the work was handed in and due.

    What waits counts for nothing, neither in the points nor in what they are out of.
    """

    def preprocess(self, nb: NotebookNode, resources: Any) -> Step:
        self.unmarked: list[tuple[str, float]] = []
        nb, resources = super().preprocess(nb, resources)
        where, coursedir = resources["nbgrader"], CourseDirectory(config=self.config)
        with Gradebook(where["db_url"], coursedir.course_id) as gradebook:
            submission = gradebook.find_submission(where["assignment"], where["student"])
            found = times(submission, extensions_of(coursedir, gradebook))
        points = sum(worth for _, worth in self.unmarked)
        where |= {
            "score": max(0.0, where["score"]),
            "max_score": where["max_score"] - points,
            "waiting": [name for name, _ in self.unmarked],
            "waiting_points": points,
            "times": when(found),
            "late": bool(found.late),
        }
        return nb, resources

    def _get_score(self, cell: NotebookNode, resources: Any) -> None:
        graded = cell.metadata.nbgrader
        grade = self.gradebook.find_grade(graded["grade_id"], self.notebook_id, self.assignment_id, self.student_id)
        graded |= {"score": grade.score, "points": grade.max_score, "waiting": waits(grade)}
        graded["name"] = graded["grade_id"].removeprefix(PREFIX)
        if graded["waiting"]:
            self.unmarked.append((graded["name"], grade.max_score))


def when(found: Times) -> str:
    """When a submission was handed in, and when it was due, in words; nothing where there is no due date."""
    if found.due is None:
        return ""
    due = f"due {written(found.due)}" + (f", with {duration(found.extended)} of extension" if found.extended else "")
    if found.handed_in is None:
        return f"It was {due}. When it was handed in is not known."
    late = f"{duration(found.late)} late" if found.late else "in time"
    return f"Handed in {written(found.handed_in)}, {late}: it was {due}."


class HideHiddenTests(ClearHiddenTests):
    """In feedback: the card of a hidden check without its call, whose seeds would let an answer be made to measure.

    What the notebook's outputs quote of a hidden check goes as well.
    """

    display_data_priority: List = List().tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: Any) -> Step:
        hidden: set[str] = set()
        for cell in nb.cells:
            if not is_grade(cell) or is_solution(cell):
                continue  # what looks like a hidden check in the student's own text is theirs
            cell.source, lines = self._split(cell.source)
            hidden |= lines
            for output in cell.get("outputs", []) if lines else []:
                if output.output_type == "error":  # its traceback quotes the cell
                    output.traceback = [f"{output.ename}: {output.evalue}"]
        # A line that is shown elsewhere is no secret; one of a few characters is in every other text.
        shown = "\n".join(cell.source for cell in nb.cells)
        secrets = [line for line in hidden if len(line) >= 8 and line not in shown]
        # As it is, in HTML, and in a notebook's history of inputs.
        forms = {form for line in secrets for form in (line, escape(line, quote=False), repr(line)[1:-1])}
        if forms:
            pattern = re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)))
            _rewrite(nb, lambda text: pattern.sub("…", text))
        return nb, resources

    def _split(self, source: str) -> tuple[str, set[str]]:
        """A cell's source without its hidden regions, and the lines of those."""
        shown: list[str] = []
        hidden: list[str] = []
        inside = False
        for line in source.split("\n"):
            begin, end = self.begin_test_delimeter in line, self.end_test_delimeter in line
            (hidden if inside or begin or end else shown).append(line)
            inside = begin or (inside and not end)
        return "\n".join(shown), {line.strip() for line in hidden}


class HidePaths(NbGraderPreprocessor):
    """In feedback: "…" for the folders of the machine that graded, which tracebacks and warnings name."""

    display_data_priority: List = List().tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: Any) -> Step:
        named = [sys.prefix, sys.base_prefix, tempfile.gettempdir()]
        known = [*map(Path, named), Path.home(), Path.cwd(), Path(__file__).parents[3]]
        folders = {str(form) for path in known for form in (path, path.resolve())} - {Path.cwd().anchor}
        ours = "|".join(re.escape(folder) for folder in sorted(folders, key=len, reverse=True))
        # The second part is for workers on other machines: the folders of a Python file. What stands before it may be
        # the "m" that ends a colour's escape sequence.
        folder = re.compile(rf"(?:{ours})(?=[/\\]|[^\w.-]|$)")
        _rewrite(nb, lambda text: WORD.sub(_without_folders, folder.sub("…", text)))
        return nb, resources


WORD = re.compile(r"[^\s'\"<>:]+")
# Where a path may begin in it. Before it may stand the "m" that ends a colour's escape sequence.
BEGINNING = re.compile(r"(?<![A-Za-ln-z0-9_./~])~?/(?=[^/])")
PYTHON_FILE = re.compile(r"[^/]+\.(?:pyx?|so|ipynb)\b.*", re.DOTALL)


def _without_folders(word: re.Match[str]) -> str:
    """A word with "…" for the folders of a Python file in it: of any machine, as workers may be elsewhere."""
    text = word[0]
    begins = BEGINNING.search(text, 1 if word.start() and word.string[word.start() - 1] == ":" else 0)
    if begins is None:
        return text
    parts = text[begins.end() :].split("/")
    for last in range(len(parts) - 1, 0, -1):
        if PYTHON_FILE.fullmatch(parts[last]) and all(parts[:last]):
            return "/".join([text[: begins.start()] + "…", *parts[last:]])
    return text


class _Styles(CSSSanitizer):
    def sanitize_css(self, style: str) -> str:
        # url(...) loads from elsewhere; a negative margin can lay an output over the page's own scores.
        return "" if re.search(r"\(|-[\d.]", style) else super().sanitize_css(style)


class _Renderer(IPythonRenderer):
    def image(self, text: str, url: str, title: str | None = None) -> str:
        try:
            return super().image(text, url, title)
        except Exception:  # an attachment that is missing, or is none, would cost the whole page
            return escape(text)


def _allowed(tag: str, name: str, value: str) -> bool:
    if name == "class":
        return CLASS.fullmatch(value) is not None
    if name == "href":
        return tag == "a" and LINK.match(value) is not None
    if name == "src":
        return tag == "img" and PICTURE.fullmatch(value) is not None
    return name in ATTRIBUTES.split()


class _Budget:
    """What is left of the seconds that a page may take, and of the pictures that it may hold."""

    def __init__(self) -> None:
        self.left, self.room = PAGE_SECONDS, MOST_ATTACHED

    def holds(self, characters: int) -> bool:
        if characters > self.room:
            return False
        self.room -= characters
        return True

    def allows(self, worst: float) -> bool:
        if worst > self.left:
            return False
        self.left -= worst
        return True


def _beginning(text: str, before: str, said: str) -> str:
    return "\n".join([said, *(before + line for line in text[:STILL_SHOWN].splitlines())])


def _affordable_markdown(text: str, budget: _Budget) -> str:
    plain = _without_pictures(text)
    tags = min(plain.count("<"), MOST_TAGS)
    if budget.allows(PER_MARKDOWN * len(plain) ** 2 + PER_CHARACTER * len(plain) + PER_TAGS * tags**2):
        return text
    return _beginning(text, "    ", "*Too long for this page. It begins so:*\n")


def _affordable_colours(text: str, budget: _Budget) -> str:
    colours = text.count("\x1b")  # after each of them nbconvert copies the rest of the text
    return text if budget.allows(PER_TAG * colours + PER_COPIED * colours * len(text)) else strip_ansi(text)


def _attached(cell: NotebookNode) -> int:
    """Characters of a cell's attachments, each as often as the cell names it."""
    attachments = cell.get("attachments") or {}
    return sum(len(str(content)) * max(1, cell.source.count(name)) for name, content in attachments.items())


def _without_pictures(text: str) -> str:
    return re.sub(r";base64,[\w+/=]+", "", text)


def _safe_output(output: NotebookNode, budget: _Budget) -> NotebookNode | None:
    """The output made anew of what is known to be harmless; None where nothing is left of it."""
    if output.output_type == "stream":
        text = _affordable_colours(str(output.text), budget)
        return new_output("stream", name="stderr" if output.name == "stderr" else "stdout", text=text)
    if output.output_type == "error":
        lines = [_affordable_colours(str(line), budget) for line in output.traceback]
        return new_output("error", ename=str(output.ename), evalue=str(output.evalue), traceback=lines)
    data = {kind: output.data[kind] for kind in SHOWN if isinstance(output.data.get(kind), str)}
    if "text/plain" in data:
        data["text/plain"] = _affordable_colours(data["text/plain"], budget)
    if "text/markdown" in data:
        data["text/markdown"] = _affordable_markdown(data["text/markdown"], budget)
    if html := data.get("text/html"):
        tags = min(html.count("<"), MOST_TAGS)
        affordable = budget.allows(PER_TAGS * tags**2 + PER_TAG * tags)
        data["text/html"] = safe_html(html) if affordable else f"<pre>{escape(html[:STILL_SHOWN])}…</pre>"
    if not data:
        return None
    # The template writes width and height into the page as they come, without quotes.
    metadata = {kind: _safe_size(output.metadata.get(kind)) for kind in ("image/png", "image/jpeg")}
    return new_output(output.output_type, data, metadata={kind: size for kind, size in metadata.items() if size})


def _safe_size(metadata: Any) -> dict[str, int | str]:
    metadata = metadata if isinstance(metadata, dict) else {}
    kinds = {"width": int, "height": int, "alt": str}
    return {name: metadata[name] for name, kind in kinds.items() if isinstance(metadata.get(name), kind)}


def _rewrite(nb: NotebookNode, change: Callable[[str], str]) -> None:
    """Change every text in the outputs, in place."""
    for cell in nb.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                output.text = change(output.text)
            elif output.output_type == "error":
                output.evalue = change(output.evalue)
                output.traceback = [change(line) for line in output.traceback]
            else:
                texts = {kind: text for kind, text in output.data.items() if kind.startswith("text/")}
                output.data |= {kind: change(text) for kind, text in texts.items() if isinstance(text, str)}
