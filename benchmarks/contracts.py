"""Does every sentence of a contract have an aspect that looks? Prints those that share few words with any.

    python benchmarks/contracts.py [--only a03 ...] [--share 0.35] [--json]

A contract is what stands in a notebook before an exercise, from its heading on, and the docstring of what is to be
written. A sentence of it is *seen* if enough of its words stand in what the exercise's aspects and known mistakes say:
each mistake fails an aspect, so what it is about is looked at. Which of the others promise something is for a person to
say; lines of shapes are left out, for every aspect looks at those.
"""

import argparse
import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from attncourse_lessons import course as lessons
from lessonkit.authoring.checkout import Checkout

ROOT = Path(__file__).parents[1]
STEM = 5  # letters: "queries" and "query" are one word
COMMON = """also among another because been before being both cannot comes does each else every from gives given goes
    have here into itself just know last left like made make makes many more most must need never next nothing once only
    other others over same should show some such take takes than that their them then there these they thing this those
    three through under upon used very want were what when where which while whole whom whose will with without would
    write yours lecture exercise return returns tensor tensors answer notebook above below"""


def contracts() -> Iterator[tuple[str, str, str]]:
    """Of every exercise its assignment, its name and its contract."""
    for target in Checkout(ROOT, lessons).targets():
        if not target.is_assignment or target.assignment is None:
            continue
        text = ""
        for cell in target.source.notebook.cells:
            if cell.cell_type == "markdown":
                heading = (
                    cell.source.rfind("\n#") if "\n#" in cell.source else 0 if cell.source.startswith("#") else None
                )
                text = cell.source[heading:] if heading is not None else f"{text}\n\n{cell.source}"
                continue
            called = re.search(r'^check\("(\w+)", (\w+)\)', cell.source, re.MULTILINE)
            if called:
                yield target.assignment, called[1], text
                text = ""
            for node in ast.parse(re.sub(r"^\s*[%!].*$", "", cell.source, flags=re.MULTILINE)).body:
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    inner = [node, *(n for n in node.body if isinstance(n, ast.FunctionDef))]
                    text += "".join(f"\n\n{ast.get_docstring(n) or ''}" for n in inner)


def sentences(text: str) -> list[str]:
    """The sentences of a contract: without headings, formulas, code and lines that only give shapes."""
    text = re.sub(r"```.*?```|\$\$.*?\$\$", "", text, flags=re.DOTALL)
    text = re.sub(r"^(#|\||[^\n]*: \().*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    parts = re.split(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*[*-] ", text)
    return [" ".join(part.split()) for part in parts if len(part.split()) > 3 and words(part)]


def words(text: str) -> set[str]:
    """The stems of its longer words."""
    return {word[:STEM] for word in re.findall(r"[a-z]{4,}", text.lower()) if word not in COMMON.split()}


def unseen(name: str, contract: str, share: float) -> list[str]:
    """The sentences of which no more than this share of words stands in what the exercise looks at."""
    exercise = lessons.exercise(name)
    looked_at = words(" ".join(f"{aspect.name} {aspect.meaning}" for aspect in exercise.aspects))
    for code in exercise.misconceptions:
        looked_at |= words(f"{code.name} {code.hint}")
    return [s for s in sentences(contract) if len(words(s) & looked_at) <= share * len(words(s))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = lessons.assignments()
    parser.add_argument("--only", nargs="+", default=known, choices=known, metavar="aNN", help="these alone")
    parser.add_argument("--share", type=float, default=0.35, help="of its words that a sentence must have in common")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()

    found, total = {}, 0
    for assignment, name, contract in contracts():
        if assignment in args.only:
            total += len(sentences(contract))
            found[name] = unseen(name, contract, args.share)
            if found[name]:
                print(f"{assignment} {name}", *found[name], sep="\n      ")
    print(f"{sum(map(len, found.values()))} of {total} sentences of {len(found)} contracts")
    if args.json:
        print(json.dumps({"sentences": total, "unseen": found}, ensure_ascii=False))


if __name__ == "__main__":
    main()
