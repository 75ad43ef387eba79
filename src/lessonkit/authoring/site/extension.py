"""A Sphinx extension: pictures keep their alt text, widgets their still picture, and docstrings mean what they say."""

import re

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from lessonkit.authoring import widgets
from lessonkit.authoring.site import citations, glossary

LONGEST_VALUE = 80


class Stills(SphinxPostTransform):
    """Of an output in several forms, myst-nb keeps one, and a picture without its words. This comes before that."""

    default_priority = 3

    def run(self, **kwargs) -> None:
        for output in list(self.document.findall(_in_several_forms)):
            forms = {form["mime_type"]: form for form in output.children}
            picture = forms.get("image/png")
            if picture is None:
                continue
            for image in picture.findall(nodes.image):
                image["alt"] = forms["text/plain"].astext().strip() if "text/plain" in forms else ""
            if widgets.VIEW in forms:
                still = nodes.container("", *picture.children, classes=["still"])
                forms[widgets.VIEW].insert(0, still)


class ShortValues(SphinxPostTransform):
    """A constant's value is shown where it fits a line: not thirty errata as Python writes them."""

    default_priority = 3

    def run(self, **kwargs) -> None:
        for value in list(self.document.findall(addnodes.desc_annotation)):
            if value.astext().lstrip().startswith("=") and len(value.astext()) > LONGEST_VALUE:
                value.parent.remove(value)


def _in_several_forms(node: nodes.Node) -> bool:
    return isinstance(node, nodes.container) and node.get("nb_element") == "mime_bundle"


def plain(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Our docstrings have code between backticks and lists; |A|, *batch and a_ are no markup of reStructuredText."""
    example = False
    for i, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            lines[i] = re.sub(r"`[^`]*`|^ *\* |(?P<sign>[*|]|_(?!\w))", _escaped, line)


def _escaped(found: re.Match) -> str:
    return rf"\{found[0]}" if found["sign"] else found[0]


def readable(app: Sphinx, what: str, name: str, obj: object, options: object, said: str | None, returned: str | None):
    """A dataclass's signature with <factory> in it is no Python, and Sphinx would print it as it is."""
    return said and said.replace("<factory>", "..."), returned


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(Stills)
    app.add_post_transform(ShortValues)
    for transform in (citations.Hovers, glossary.FirstUses, glossary.Meanings):
        app.add_post_transform(transform)
    app.connect("autodoc-process-docstring", plain)
    app.connect("autodoc-process-signature", readable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
