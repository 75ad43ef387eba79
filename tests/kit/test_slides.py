"""Slides: how they are written in a lecture, where their notes come from, what the folder and the notebook hold."""

from copy import deepcopy

import nbformat
import pytest
from nbconvert.exporters import SlidesExporter
from nbformat.v4 import new_output

pytest.importorskip("mdit_py_plugins", reason="the extra 'site' is not installed")

from attncourse_lessons import course
from commandkit.errors import CommandError
from lessonkit.authoring.deck import deck, first_slides
from lessonkit.authoring.slides import command
from lessonkit.authoring.slides.page import Page, notebook
from lessonkit.authoring.source import SourceError, read

LECTURE = """# %% [markdown]
# # Lecture 09 · Heat: where it goes
#
# *About 5 minutes.* You can
#
# * measure a **temperature**;
# * say where heat goes.

# %% [raw] slide
# ## A cup of tea
# > **Guess first.** Where does the heat go?
#
# . . .
# Into the $x_1$ air.

# %% [raw] slide
# ## The kettle
# A kettle boils.

# %% [markdown]
# A cup of tea stands on the table. It cools.
#
# A kettle is made of copper, and it boils: see [lecture](../a.ipynb).

# %%
print("21 degrees")

# %% tags=["hide-input"]
assert True

# %% [raw] slide
# ## Measured
# {code}
# |||
# {print}

# %% [markdown]
# Twenty-one degrees were measured.
"""


@pytest.fixture
def lecture(tmp_path):
    """A lecture's source and its notebook, as the build has it."""

    def made(text=LECTURE):
        path = tmp_path / "lecture.py"
        path.write_text(text, encoding="utf-8")
        source = read(path, path, course, course.lessons[0], assignment=False)
        built = deepcopy(source.notebook)
        for cell in built.cells:
            if cell.source.startswith("print("):
                cell.outputs = [new_output("stream", text="21 degrees\n")]
        return source, built

    return made


def test_a_notebook_has_no_slides_and_they_stand_where_they_were_written(lecture):
    source, _ = lecture()
    assert [cell.cell_type for cell in source.notebook.cells] == ["markdown", "markdown", "code", "code", "markdown"]
    assert [slide.before for slide in source.slides] == [1, 1, 4]
    line = LECTURE[: LECTURE.index("# A cup of tea stands")].count("\n")
    assert source.where(1).endswith(f":{line}"), "a cell's line is that of the source, slides counted"


def test_the_first_slide_is_title_and_goals_and_the_others_are_as_written(lecture):
    opening, tea, kettle, measured = deck(*lecture())
    assert opening.title == "Lecture 09 · Heat: where it goes" and "measure a **temperature**" in opening.parts[0].text
    assert [(part.kind, part.step, part.column) for part in tea.parts] == [("text", 0, 0), ("text", 1, 0)]
    assert [(part.kind, part.step, part.column) for part in measured.parts] == [("code", 0, 0), ("print", 0, 1)]
    assert measured.parts[0].cell.source == 'print("21 degrees")', "a folded cell's code is not shown"
    assert measured.parts[1].outputs[0].text == "21 degrees\n" and kettle.title == "The kettle"


def test_each_slide_gets_the_paragraphs_that_are_about_it_and_none_is_lost(lecture):
    _, tea, kettle, measured = deck(*lecture())
    assert tea.notes == ("A cup of tea stands on the table. It cools.",)
    assert [note.partition(",")[0] for note in kettle.notes] == ["A kettle is made of copper"]
    assert measured.notes == ("Twenty-one degrees were measured.",)


def test_a_section_begins_with_the_slide_before_its_heading(lecture):
    text = LECTURE.replace("# A kettle is made", "# ## Boiling\n#\n# A kettle is made")
    source, _ = lecture(text.replace("# Twenty", "# ## A number\n#\n# Twenty"))
    assert first_slides(source) == {"Boiling": 3, "A number": 4}


def test_what_only_the_page_goes_into_is_not_said(lecture):
    further = "# ## Going further: glass\n#\n# Glass is slow.\n#\n# ## A number\n#\n# Twenty"
    *_, measured = deck(*lecture(LECTURE.replace("# Twenty", further)))
    assert measured.notes == ("## A number\n\nTwenty-one degrees were measured.",)


def test_a_slide_takes_as_long_as_its_notes_are_said_and_thought_about(lecture):
    opening, tea, _, _ = deck(*lecture(LECTURE.replace("It cools.", f"{'It cools. ' * 128}<details>No.</details>")))
    assert tea.seconds == round(264 / 130 * 60) + 30, "264 words, and half a minute to guess"
    assert opening.seconds == 10, "few words: it is looked at all the same"


def test_a_paragraph_that_announces_code_is_said_with_the_slide_below_the_code_that_shows_it(lecture):
    announced = "Next, the temperature is measured in degrees."
    text = LECTURE.replace("(../a.ipynb).", f"(../a.ipynb).\n#\n# {announced}")
    text = text.replace("# ## Measured\n", "# ## Measured\n# The temperature, measured in degrees.\n")
    _, _, kettle, measured = deck(*lecture(text))
    assert measured.notes == (announced, "Twenty-one degrees were measured.")
    assert len(kettle.notes) == 1


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("# ## The kettle", "# The kettle", "begins with its title"),
        ("# {print}", "# {figure}", r"no cell before this slide has what \{figure\} asks for"),
        ("# {code}", "# {code 2}", "no cell before this slide"),
    ],
)
def test_a_slide_that_asks_for_what_is_not_there_is_refused_with_its_line(lecture, old, new, said):
    with pytest.raises(CommandError, match=rf"lecture\.py:\d+: .*{said}"):
        deck(*lecture(LECTURE.replace(old, new)))


def test_a_notebook_that_was_built_from_something_else_is_refused(lecture):
    source, built = lecture()
    built.cells[2].id = "another"
    with pytest.raises(CommandError, match="build"):
        deck(source, built)


def test_an_assignment_has_no_slides(tmp_path):
    path = tmp_path / "assignment.py"
    path.write_text("# %% [raw] slide\n# ## No\n", encoding="utf-8")
    with pytest.raises(SourceError, match="in a lecture"):
        read(path, path, course, course.lessons[0], assignment=True)


def test_the_page_escapes_what_was_printed_and_has_no_link_to_what_is_not_beside_it(lecture):
    source, built = lecture()
    built.cells[2].outputs[0].text = "a < b & c"
    html = Page(deck(source, built), {}).html()
    assert "a &lt; b &amp; c" in html and ".ipynb" not in html
    assert r"\(x_1\)" in html and html.count('<aside class="notes">') == 4
    assert 'class="text fragment" data-fragment-index="1"' in html


def test_nbconvert_shows_the_same_slides_of_the_decks_notebook(lecture):
    source, built = lecture()
    slides = deck(source, built)
    made = notebook(slides, built)
    nbformat.validate(made)
    body, _ = SlidesExporter().from_notebook_node(made)
    assert body.count("<section><section") == len(slides)
    assert body.count('class="fragment"') == 1 and "21 degrees" in body and body.count('<aside class="notes">') == 4


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(CommandError, match="something that is not slides"):
        command.slides(None, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_every_lecture_has_slides_and_every_guess_is_before_its_answer():
    for lesson in course.lessons:
        text = (lesson.folder / "lecture.py").read_text(encoding="utf-8")
        slides = text.split("# %% [raw] slide\n")[1:]
        assert 20 <= len(slides) < 40, lesson.name
        assert sum("Guess first" in slide for slide in slides) >= 5, f"{lesson.name}: predictions are steps"
        assert "# ## In short" in slides[-1]
