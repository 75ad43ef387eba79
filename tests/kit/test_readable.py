"""Pages that can be read: formulas without scripts, pictures that are not shown too small, folded setups."""

import base64
import io
import json
import shutil

import pytest

pytest.importorskip("myst_nb", reason="the extra 'site' is not installed")

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from commandkit.errors import CommandError
from lessonkit.authoring.site import formulas, npm, readable


def png(letters=None, width=640):
    """A picture that notes how high its letters are."""
    note = PngInfo()
    if letters:
        note.add_text(readable.TEXT_OF_PNG, f"{letters}")
    Image.new("P", (width, 10)).save(to := io.BytesIO(), "png", pnginfo=note)
    return to.getvalue()


def page_of(tmp_path, body, name="lectures/x.html"):
    """The page with this body, as it is after all changes."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(body, encoding="utf-8")
    readable.finish(tmp_path)
    return path.read_text(encoding="utf-8")


# Pictures


@pytest.mark.parametrize(("letters", "least"), [(18.0, 320), (12.0, 480), (9.0, 640), (6.0, 640), (None, 540)])
def test_a_picture_is_as_wide_as_its_smallest_letters_need(tmp_path, letters, least):
    (tmp_path / "a.png").write_bytes(png(letters))
    changed = page_of(tmp_path, '<img alt="a" src="../a.png" width="640" />')
    assert changed.startswith('<span class="wide"><img ') and f"min-width:{least}px" in changed
    assert 'loading="lazy"' in changed and 'alt="a"' in changed


def test_a_picture_with_links_over_it_keeps_them_and_becomes_a_file(tmp_path):
    data = base64.b64encode(png(12.0)).decode()
    image = f'<img src="data:image/png;base64,{data}" alt="b" width="640" style="max-width:100%;height:auto">'
    frame = '<div style="position:relative;max-width:640px">'
    changed = page_of(tmp_path, f"{frame}{image}\n<a href='x'>x</a></div>")
    assert changed.startswith('<div style="position:relative;min-width:480px;max-width:640px"><img ')
    assert "data:" not in changed and 'style="min-width:480px;max-width:100%' in changed and "wide" not in changed
    twin, file = sorted((tmp_path / "_images").iterdir())
    assert f'src="../_images/{file.name}"' in changed and file.read_bytes() == png(12.0)
    assert f'src="../_images/{twin.name}"' in changed and twin.name == f"{file.stem}.dark.png"


def test_the_frames_of_a_widget_have_their_least_width_too(tmp_path):
    data = base64.b64encode(png(12.0)).decode()
    frame = f'<img src="data:image/png;base64,{data}" width="640" height="10" alt="c">'
    state = json.dumps({"state": {"m": {"state": {"frames": [frame]}}}})
    changed = page_of(tmp_path, f'<p><script type="application/vnd.jupyter.widget-state+json">{state}</script>')
    kept = json.loads(changed.partition("json\">")[2].partition("</script>")[0])
    assert kept["state"]["m"]["state"]["frames"] == [frame.replace(' height', ' style="min-width:480px" height')]


def test_the_page_needs_no_script_for_icons_and_no_rules_for_icons_that_it_has_not(tmp_path):
    styles = tmp_path / readable.STYLES
    styles.parent.mkdir(parents=True)
    styles.write_text('a{b:c}.fa-bars,.fa-navicon{--fa:"\\f0c9"}.fa-ghost{--fa:"\\f6e2"}')
    script = '<script defer src="../_static/scripts/fontawesome.js?digest=1"></script>'
    assert "script" not in page_of(tmp_path, f'{script}<i class="fa-solid fa-bars"></i>')
    assert styles.read_text() == 'a{b:c}.fa-bars,.fa-navicon{--fa:"\\f0c9"}'


def test_an_empty_cell_at_the_head_of_a_table_is_no_header(tmp_path):
    changed = page_of(tmp_path, '<tr><th class="head"></th><th class="head"><p>shape</p></th></tr>')
    assert changed == '<tr><td class="head"></td><th class="head"><p>shape</p></th></tr>'


def test_the_weight_of_a_page_counts_what_it_loads_and_keeps_widgets_and_pictures_apart(tmp_path):
    for name, size in (("a.css", 10), ("b.js", 200), ("d.png", 5000)):
        (tmp_path / name).write_bytes(b"x" * size)
    widgets = '<script type="application/vnd.jupyter.widget-state+json">{}</script>'
    rest = '<link rel="stylesheet" href="a.css?v=1" /><link rel="next" href="d.png"><script src="b.js"></script>'
    (tmp_path / "x.html").write_text(f'{rest}<img alt="" src="d.png">{widgets}', encoding="utf-8")
    weight = readable.weigh(tmp_path, "x.html")
    assert weight == (len(f'{rest}<img alt="" src="d.png">') + 210, 5000, len(widgets))


# The setup


def test_the_first_cell_is_folded_where_it_imports_and_says_how_long_it_is():
    first, second = new_code_cell("import torch\n\nx = 1\n"), new_code_cell("import math")
    readable.fold_setup(new_notebook(cells=[new_markdown_cell("# A"), first, second]))
    assert first.metadata["tags"] == ["hide-input"] and "tags" not in second.metadata
    assert first.metadata["mystnb"]["code_prompt_show"] == "Show the setup (3 lines)"


def test_a_first_cell_that_shows_something_stays_open():
    readable.fold_setup(new_notebook(cells=[cell := new_code_cell("x = 1\nimported = 2")]))
    assert "tags" not in cell.metadata
    readable.fold_setup(new_notebook())


# Formulas


@pytest.fixture
def translator():
    if formulas.node() is None:
        pytest.skip("no Node")
    try:
        npm.keep(formulas.TEMML)
        npm.keep(formulas.FONT)
    except npm.NoPackage as error:
        pytest.skip(str(error))


def typeset(tmp_path, body):
    (tmp_path / "_static").mkdir(exist_ok=True)
    (tmp_path / "x.html").write_text(body, encoding="utf-8")
    count = formulas.typeset(tmp_path)
    return count, (tmp_path / "x.html").read_text(encoding="utf-8")


def test_formulas_become_mathml_which_no_script_draws(tmp_path, translator):
    inline = r'<span class="math notranslate nohighlight">\(a &lt; \sqrt{d_k}\)</span>'
    display = '<div class="math notranslate nohighlight" id="e">\n<span class="eqno">(4.1)</span>\\[x\\]</div>'
    scripts = '<script>window.MathJax = {"a": 1}</script><script defer src="_static/tex-svg.js?v=1"></script>'
    count, changed = typeset(tmp_path, f"{scripts}<p>{inline}{display}<code>\\(kept\\)</code>")
    assert count == 2 and "script" not in changed and r"\(a" not in changed and "<code>\\(kept\\)</code>" in changed
    assert '<span class="math notranslate nohighlight"><math>' in changed and "<msqrt>" in changed
    assert '<span class="eqno">(4.1)</span><math display="block"' in changed


def test_a_long_inline_formula_may_scroll_on_a_phone(tmp_path, translator):
    _, changed = typeset(tmp_path, rf'<span class="math notranslate nohighlight">\({"a+" * 20}b\)</span>')
    assert '<span class="math long notranslate' in changed


def test_the_font_has_what_the_pages_show_and_little_else(tmp_path, translator):
    from fontTools.ttLib import TTFont

    typeset(tmp_path, r'<span class="math notranslate nohighlight">\(\alpha x\)</span>')
    font = TTFont(tmp_path / "_static" / formulas.SUBSET)
    assert {ord("√"), 0x1D465, 0x1D6FC} <= {*font.getBestCmap()}
    assert "MATH" in font and len(font.getBestCmap()) < 200
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [formulas.SUBSET, "x.html"]


def test_what_is_no_formula_is_refused_with_its_page(tmp_path, translator):
    with pytest.raises(CommandError, match=r"x\.html: no formula: \\frac"):
        typeset(tmp_path, r'<span class="math notranslate nohighlight">\(\frac{1\)</span>')


def test_a_book_without_formulas_needs_no_translator(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert typeset(tmp_path, "<p>words") == (0, "<p>words")
