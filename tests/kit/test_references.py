"""What a course cites, figures and formulas with numbers, the glossary: from a source to notebook and book."""

from pathlib import Path

import pytest

pytest.importorskip("jupytext", reason="the extra 'dev' is not installed")

from commandkit.errors import CommandError
from lessonkit.authoring import numbering, references
from lessonkit.authoring.numbering import Place
from lessonkit.authoring.source import Citable, SourceError, read
from lessonkit.course import Course, Lesson

BIB = """% a comment
@article{gu2023,
  author = {Gu, Albert and Dao, Tri},
  title = {Mamba},
  journal = {arXiv},
  year = {2023},
  url = {https://example.org/mamba},
}

@misc{vaswani2017,
  author = {Vaswani, Ashish and others},
  title = {Attention is all you need},
  year = {2017},
  url = {https://example.org/attention},
}

@book{firth1957,
  author = {Firth, John},
  title = {What company?},
  publisher = {A house},
  year = {1957},
}
"""


@pytest.fixture
def bib(tmp_path):
    path = tmp_path / "references.bib"
    path.write_text(BIB, encoding="utf-8")
    return references.read(path)


class TwoLessons(Course):
    def __init__(self, root):
        super().__init__("toy")
        self.folder = root


@pytest.fixture
def course(tmp_path):
    root = tmp_path / "src"
    (root / "l03_first").mkdir(parents=True)
    (root / "l04_second").mkdir()
    (root / "l03_first/lecture.py").write_text(
        "# %% [markdown]\n# # First\n\n# %%\nshow()\n#| caption: Rows ask,\n#|   columns answer.\n\n"
        "# %%\nshow(2)\n#| caption: Another, [@vaswani2017].\n#| label: other\n\n"
        "# %% [markdown]\n# So\n#\n# $$a =\n# b$$ (eq:sum)\n#\n# holds, [@fig:other].\n",
        encoding="utf-8",
    )
    (root / "l04_second/lecture.py").write_text(
        "# %% [markdown]\n# # Second\n#\n# See [@eq:sum] and [@gu2023, section 2], `[@gu2023]`, [first](@first).\n"
        "#\n# ```\n# [@gu2023]\n# ```\n",
        encoding="utf-8",
    )
    return TwoLessons(root)


def built(course, number, bib):
    lesson = course.lessons[number]
    path = lesson.folder / "lecture.py"
    return read(path, Path(path.name), course, lesson, False, Citable(bib, numbering.places(course)))


# Citations


@pytest.mark.parametrize(
    ("source", "made"),
    [
        ("so [@gu2023].", "so [Gu and Dao, 2023](https://example.org/mamba)."),
        ("[@vaswani2017, section 3.2]", "[Vaswani et al., 2017](https://example.org/attention), section 3.2"),
        ("Gu and Dao ([-@gu2023])", "Gu and Dao ([2023](https://example.org/mamba))"),
        ("[+@gu2023]: all", "Gu and Dao, [*Mamba*](https://example.org/mamba) (2023): all"),
        ("[@firth1957]; [-@firth1957]; [+@firth1957]", "Firth, 1957; 1957; Firth, *What company?* (1957)"),
        ("[@masking](@masking) and [04](@masking)", "[@masking](@masking) and [04](@masking)"),
        ("a@masking, @masking", "a@masking, @masking"),
    ],
)
def test_a_citation_becomes_a_plain_link(bib, source, made):
    assert references.cited(source, bib) == made


def test_an_unknown_key_is_refused_with_its_place(course, bib):
    path = course.lessons[0].folder / "lecture.py"
    path.write_text("# %% [markdown]\n# # It\n\n# %% [markdown]\n# [@nobody1999]\n", encoding="utf-8")
    with pytest.raises(SourceError, match=r"lecture.py:4: \[@nobody1999\] is no entry"):
        built(course, 0, bib)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("  year = {2023},\n", "", r"references.bib:2: gu2023 has no year"),
        ("gu2023", "vaswani2017", r":10: a second vaswani2017"),
        ("gu2023", "gu", r":2: gu cannot be cited"),
        ("@misc{vaswani2017,\n", "@misc{vaswani2017, month = {6},\n", "an entry that is not understood"),
    ],
)
def test_a_bibliography_that_cannot_be_read_is_refused(tmp_path, old, new, problem):
    path = tmp_path / "references.bib"
    path.write_text(BIB.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(CommandError, match=problem):
        references.read(path)


def test_an_entry_is_a_line_of_text(bib):
    assert bib["gu2023"].entry == "Gu, Dao. Mamba. arXiv, 2023."
    assert bib["firth1957"].entry == "Firth. What company? A house, 1957."


# Numbers


def test_a_caption_becomes_a_text_cell_below_its_figure(course, bib):
    source = built(course, 0, bib)
    cells = source.notebook.cells
    assert [cell.cell_type for cell in cells] == ["markdown", "code", "markdown", "code", "markdown", "markdown"]
    assert cells[1].source == "show()"
    assert cells[2].source == '<a id="figure-3-1"></a>**Figure 3.1.** Rows ask, columns answer.'
    assert cells[2].metadata == {"tags": ["caption"]}
    assert "**Figure 3.2.** Another, [Vaswani et al., 2017](https://example.org/attention)." in cells[4].source
    assert source.where(4).endswith("lecture.py:9") and source.where(5).endswith("lecture.py:14")


def test_a_formula_with_a_name_has_a_number_and_can_be_referred_to(course, bib):
    text = built(course, 0, bib).notebook.cells[-1].source
    assert '<a id="equation-3-1"></a>\n\n$$a =\nb \\tag{3.1}$$' in text
    assert "holds, [Figure 3.2](#figure-3-2)." in text
    other = built(course, 1, bib).notebook.cells[0].source
    assert "See [(3.1)](03_first.ipynb#equation-3-1) and [Gu and Dao, 2023](https://example.org/mamba)," in other
    assert "`[@gu2023]`" in other and "```\n[@gu2023]\n```" in other and "[first](03_first.ipynb)" in other


def test_an_assignment_refers_to_a_lecture_by_the_way_between_the_folders():
    here = Lesson("04", "second", Path("l04_second"))
    known = {"eq:sum": Place("eq", here, 2)}
    assert numbering.referred("[@eq:sum]", known, here, "../../lectures/") == (
        "[(4.2)](../../lectures/04_second.ipynb#equation-4-2)"
    )


def test_a_reference_to_no_figure_and_a_second_name_are_refused(course, bib):
    path = course.lessons[1].folder / "lecture.py"
    path.write_text("# %% [markdown]\n# # Second [@fig:gone]\n", encoding="utf-8")
    with pytest.raises(SourceError, match=r"\[@fig:gone\] is no figure"):
        built(course, 1, bib)
    path.write_text("# %% [markdown]\n# $$a$$ (eq:sum)\n", encoding="utf-8")
    with pytest.raises(CommandError, match="a second eq:sum; the first is in lesson 03"):
        numbering.places(course)


# The book


def test_in_the_book_citations_lead_to_its_page_and_titles_to_the_paper(bib):
    pytest.importorskip("myst_nb", reason="the extra 'site' is not installed")
    from lessonkit.authoring.site import citations

    text = references.cited("[@gu2023], [-@gu2023], [+@gu2023], [@firth1957], [x](https://example.org)", bib)
    assert citations.led(text, bib, "../docs/references.md") == (
        "[Gu and Dao, 2023](../docs/references.md#gu2023), [2023](../docs/references.md#gu2023), "
        "Gu and Dao, [*Mamba*](https://example.org/mamba) (2023), [Firth, 1957](../docs/references.md#firth1957), "
        "[x](https://example.org)"
    )
    lectures = {"../lectures/03_first.ipynb": text, "../lectures/04_second.ipynb": "nothing of Gu"}
    page = citations.filled("# References\n\n<!-- references -->\n", bib, lectures)
    assert page.index("{#firth1957") < page.index("{#gu2023") < page.index("{#vaswani2017")
    assert "Gu, Dao. [Mamba](https://example.org/mamba). arXiv, 2023. Cited in [lecture 03]" in page
    assert "lecture 04" not in page and page.count("Cited in") == 2


def test_a_glossary_is_a_table_in_the_folder_and_definitions_in_the_book(tmp_path):
    pytest.importorskip("myst_nb", reason="the extra 'site' is not installed")
    from lessonkit.authoring.site import glossary

    row = "| query; asker | what asks | a hand | [lecture 02](../lectures/02_x.ipynb) |"
    table = f"# Glossary\n\n| term; other names | what it means | our image | lecture |\n|---|---|---|---|\n{row}\n"
    (term,) = glossary.terms(table)
    assert term.names == ("query", "asker") and term.lecture == "[lecture 02](../lectures/02_x.ipynb)"
    page = glossary.page(table)
    assert ":::{glossary}\nquery\nasker\n  what asks. *Our image:* a hand. Introduced in [lecture 02]" in page
    assert "|" not in page
