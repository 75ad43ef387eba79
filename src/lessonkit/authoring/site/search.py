"""A Sphinx extension: the book's search, by section, in the place of Sphinx's own, which knows pages alone.

It writes one script, which a page loads when somebody begins to search: a page that was opened from a folder may load a
script, and may not read another page. The script holds the words of every section; docs/_static/search.js finds in it.
"""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.search import IndexBuilder

from commandkit.files import write_whole

INDEX = "_static/search-index.js"
SYNONYMS = "synonyms.txt"  # beside conf.py; a course need not have it
# What a page is, by the folder that it stands in.
KINDS = {"lectures": "lecture", "assignments": "assignment", "solutions": "solution", "api": "api"}
NO_PROSE = (
    nodes.section, addnodes.desc, addnodes.glossary, nodes.title, nodes.raw, nodes.comment, nodes.math_block,
    addnodes.toctree,
)  # fmt: skip
CODE_WORD = re.compile(r"[A-Za-z_]\w{2,}")
GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "theta": "θ", "lambda": "λ", "mu": "μ",
    "pi": "π", "sigma": "σ", "tau": "τ", "phi": "φ", "omega": "ω",
}  # fmt: skip
LATEX: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\\([a-z]+)(?![A-Za-z])"), lambda found: GREEK.get(found[1], found[0])),
    (re.compile(r"\\(?:text|mathrm|mathbf|operatorname)\{([^{}]*)\}"), r"\1"),
    (re.compile(r"\\sqrt\s*\{?(\w(?:_\{?\w+\}?)?)\}?"), r"√\1"),
    (re.compile(r"\\[,;:! ]|[{}$]|\\(?:left|right)(?![A-Za-z])"), ""),
    (re.compile(r"\\(exp|log|ln|max|min|argmax|sin|cos|tanh)(?![A-Za-z])"), r"\1"),
    (re.compile(r"\\[A-Za-z]+\s*"), " "),
)


def entries(env: BuildEnvironment) -> Iterator[dict[str, Any]]:
    """What can be found: each section, each name of the reference, each term of a glossary, in the order of the book.

    `page` is the document, `id` the place in it, `title` its heading and `under` the headings above, `kind` what the
    page is, `text` the prose that stands there and in no section below, `code` the names that its code uses.
    """
    for page in sorted(env.found_docs):
        kind = KINDS.get(page.partition("/")[0], "guide")
        for entry in _of(env.get_doctree(page), ()):
            yield {"page": page, "kind": kind} | entry


def _of(node: nodes.Element, above: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """The entries of a node's parts; `above` are the headings over it."""
    for part in node.children:
        if isinstance(part, nodes.section):
            title = _words(part.next_node(nodes.title))
            # The page's own heading is its first: the link leads to its top.
            yield {"id": part["ids"][0] if above else "", "title": title, "under": list(above)} | _content(part)
            yield from _of(part, (*above, title))
        elif isinstance(part, addnodes.desc):
            yield from _described(part, above)
        elif isinstance(part, addnodes.glossary):
            for item in part.findall(nodes.definition_list_item):
                terms = list(item.findall(nodes.term))
                title = ", ".join(_words(term) for term in terms)
                entry = {"id": terms[0]["ids"][0], "title": title, "under": list(above), "kind": "term"}
                yield entry | _content(item.next_node(nodes.definition))
        elif isinstance(part, nodes.Element):
            yield from _of(part, above)


def _described(described: addnodes.desc, above: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """A function, class or method of the reference, and what is in it."""
    signature, content = described.next_node(addnodes.desc_signature), described.next_node(addnodes.desc_content)
    if signature["ids"]:
        title = "".join(part.astext() for part in signature.findall(addnodes.desc_name))
        yield {"id": signature["ids"][0], "title": title, "under": list(above)} | _content(content)
        above = (*above, title)
    yield from _of(content, above)


def _content(node: nodes.Element) -> dict[str, str]:
    """Text and code of a node without those of the entries in it."""
    text: list[str] = []
    code: dict[str, None] = {}

    def gather(node: nodes.Node) -> None:
        for part in node.children:
            if isinstance(part, NO_PROSE) or _is_output(part):
                continue
            if isinstance(part, nodes.literal_block):
                code.update(dict.fromkeys(CODE_WORD.findall(part.astext())))
            elif isinstance(part, nodes.TextElement):
                text.append(_words(part))
            else:
                gather(part)

    gather(node)
    return {"text": " ".join(filter(None, text)), "code": " ".join(code)}


def _is_output(node: nodes.Node) -> bool:
    return isinstance(node, nodes.container) and node.get("nb_element") == "cell_code_output"


def _words(node: nodes.Node | None) -> str:
    """The text of a heading or a paragraph on one line, its formulas in a form that can be read and typed."""
    if node is None:
        return ""
    parts = []
    for leaf in node.findall(lambda each: isinstance(each, (nodes.Text, nodes.math))):
        if isinstance(leaf, nodes.math):
            parts.append(_formula(leaf.astext()))
        elif not isinstance(leaf.parent, (nodes.math, nodes.raw)):
            parts.append(leaf.astext())
    return " ".join("".join(parts).split())


def _formula(latex: str) -> str:
    for pattern, plain in LATEX:
        latex = pattern.sub(plain, latex)
    return " ".join(latex.split())


def synonyms(file: Path) -> list[list[str]]:
    """The groups of names for one thing: a line each, separated by commas; a line that starts with # is a remark."""
    if not file.is_file():
        return []
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    return [[name.strip() for name in line.split(",")] for line in lines if line and not line.startswith("#")]


def write_index(app: Sphinx, exception: Exception | None) -> None:
    if exception or app.builder.format != "html":
        return
    english = IndexBuilder(app.env, "en", {}, "")
    found = [entry | {"page": app.builder.get_target_uri(entry["page"])} for entry in entries(app.env)]
    told = {
        "entries": found,
        "synonyms": synonyms(Path(app.confdir, SYNONYMS)),
        "stopwords": sorted(english.lang.stopwords),
    }
    stemmer = [Path(file).read_text(encoding="utf-8") for file in english.get_js_stemmer_rawcodes()]
    data = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    write_whole(Path(app.outdir, INDEX), "\n".join((*stemmer, f"const bookIndex = {data};")))


def instead_of_sphinx(app: Sphinx) -> None:
    """Sphinx makes no index of its own; docs/_templates/search.html is the page that it would make."""
    app.builder.search = False  # type: ignore[attr-defined]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", instead_of_sphinx)
    app.connect("build-finished", write_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
