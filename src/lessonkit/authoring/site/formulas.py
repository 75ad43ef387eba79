"""Formulas of the built pages, from TeX to MathML: drawn without a script, and read by screen readers.

Temml translates, once for the whole book, in Node; where there is no Node, the pages keep their TeX and the script that
typesets it. A mathematical font comes with the pages, because not every system has one: of it only what they show.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from html import unescape
from pathlib import Path

from commandkit.errors import CommandError
from lessonkit.authoring.site import npm

TEMML = npm.Package(
    name="temml",
    version="0.13.5",
    sha512="aPkDDgunanpLNL0ql32HbolqLep+w8DRcVXRql7rWrMt/PhczdLgL4UBYYVU3BYjCNjkGq4EqwIicu/zWr1iOg==",
    file="dist/temml.cjs",
)
FONT = npm.Package(
    name="@fontsource/stix-two-math",
    version="5.3.0",
    sha512="negoeozw6VSXjZMozwKRSm/dhCQT62csZcuea9I8KYqPaZq/8KbbBBrA02ZHF7AyuR5mVML/p+q0bwFuSIf2GQ==",
    file="files/stix-two-math-latin-400-normal.woff",
)
SUBSET = "formulas.woff"  # in _static; formulas.css there names it
LONG = 24  # signs: an inline formula of more may be wider than a phone, and scrolls there
DRAWN = "√‾¯→←⏞⏟()[]{}|‖⌊⌋⌈⌉⟨⟩"  # signs that a browser draws where MathML has an element
# Browsers draw a variable, <mi>x</mi>, with these: italic Latin and Greek letters, and Planck's h.
ITALIC = {chr(code) for code in (*range(0x1D434, 0x1D468), *range(0x1D6E2, 0x1D71C), 0x210E)}

# As Sphinx writes them: a number may stand before what is displayed.
FORMULA = re.compile(
    r'(?P<open><(?P<tag>span|div) class="math notranslate nohighlight"[^>]*>\s*'
    r'(?:<span class="eqno">.*?</span>)?)\s*'
    r"(?:\\\((?P<inline>.*?)\\\)|\\\[(?P<display>.*?)\\\])\s*(?P<close></(?P=tag)>)",
    re.DOTALL,
)
SCRIPT = re.compile(r'<script>window\.MathJax = .*?</script>\s*|<script [^>]*src="[^"]*tex-svg\.js[^"]*"></script>\s*')
TRANSLATE = """
const temml = require(process.argv[1]);
const formulas = JSON.parse(require("fs").readFileSync(0, "utf8"));
const told = formulas.map(([tex, display]) => {
  try {
    return { mathml: temml.renderToString(tex, { displayMode: display, throwOnError: true, trust: false }) };
  } catch (error) {
    return { error: error.message };
  }
});
process.stdout.write(JSON.stringify(told));
"""


def node() -> str | None:
    """The Node that translates."""
    return shutil.which("node")


def typeset(site: Path) -> int:
    """Put MathML in the place of TeX on all pages below `site`; return how many formulas there are.

    Raises CommandError, with page and TeX, for what is no formula.
    """
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(site.rglob("*.html"))}
    asked: dict[tuple[str, bool], Path] = {}  # where each stands first
    for path, page in pages.items():
        for found in FORMULA.finditer(page):
            asked.setdefault(_asked(found), path)
    made = dict(zip(asked, _translated(site, asked), strict=True))
    count = 0
    for path, page in pages.items():
        changed, here = FORMULA.subn(lambda found: _typeset(found, made[_asked(found)]), page)
        changed = SCRIPT.sub("", changed)
        count += here
        if changed != page:
            path.write_text(changed, encoding="utf-8")
    if count:
        _put_font(ITALIC.union(DRAWN, *map(_signs, made.values())), site / "_static" / SUBSET)
    return count


def _asked(found: re.Match) -> tuple[str, bool]:
    display = found["inline"] is None
    return unescape(found["display"] if display else found["inline"]).strip(), display


def _typeset(found: re.Match, mathml: str) -> str:
    start = found["open"]
    if found["inline"] is not None and len(_signs(mathml)) > LONG:
        start = start.replace('class="math ', 'class="math long ', 1)
    return f"{start}{mathml}{found['close']}"


def _signs(mathml: str) -> str:
    """What it shows, without what a browser draws."""
    return unescape(re.sub(r"<[^>]*>", "", mathml))


def _translated(site: Path, asked: dict[tuple[str, bool], Path]) -> list[str]:
    if not asked:
        return []
    npm.put(TEMML, site)
    script = site / Path(TEMML.file).name
    try:
        command = [node() or "node", "-e", TRANSLATE, str(script.resolve())]
        done = subprocess.run(command, input=json.dumps([*asked]), capture_output=True, encoding="utf-8")
    finally:
        script.unlink()
    if done.returncode:
        raise CommandError(f"Node could not translate the formulas: {done.stderr.strip()[-300:]}")
    told = json.loads(done.stdout)
    for ((tex, _), path), answer in zip(asked.items(), told, strict=True):
        if "error" in answer:
            raise CommandError(f"{path.relative_to(site).as_posix()}: no formula: {tex}: {answer['error']}")
    return [answer["mathml"] for answer in told]


def _put_font(letters: Iterable[str], target: Path) -> None:
    """Write a font that has these letters, and what brackets and roots grow by."""
    from fontTools import subset

    npm.put(FONT, target.parent)
    whole = target.parent / Path(FONT.file).name
    try:
        options = subset.Options(flavor="woff")
        font = subset.load_font(str(whole), options)
        chosen = subset.Subsetter(options)
        chosen.populate(unicodes=[ord(letter) for letter in letters])
        chosen.subset(font)
        subset.save_font(font, str(target), options)
    finally:
        whole.unlink()
