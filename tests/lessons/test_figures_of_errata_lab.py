"""Pictures of errata: a column of findings, and a table of who catches what."""

from types import SimpleNamespace

from drawn import axes, cells, places, texts
from proven import proven

from attncourse.viz.style import BLUE, ORANGE
from attncourse_lessons import course

figures = course.part("errata_lab", "figures")


def measure(version):
    return SimpleNamespace(passes=version == "right", measured=f"it is {version}")


ENTRY = SimpleNamespace(
    name="sum", found_in="Slides", place="page 3", slip=True, claim="it sums to two", correction="it sums to one",
    question="What does it sum to?", printed="wrong", corrected="right", test=measure,
)  # fmt: skip


@proven
def test_an_erratum_is_read_from_claim_to_correction_to_what_each_gives():
    (ax,) = axes(figures.erratum_frame, ENTRY, loss="shows nothing")
    lines = [
        ("", "sum"),
        ("", "Slides. page 3  (it may be a slip of the transcription)"),
        ("says", "it sums to two"),
        ("right", "it sums to one"),
        ("asked", "What does it sum to?"),
        ("printed", "✗ it is wrong"),
        ("corrected", "✓ it is right"),
        ("the loss", "shows nothing"),
    ]
    at = places(ax)
    heights = [at[said][1] for _, said in lines]
    assert heights == sorted(heights) and ax.yaxis_inverted()
    assert [at[label][1] for label, _ in lines if label] == heights[2:]
    assert all(at[label][0] < at[said][0] for label, said in lines if label)
    assert len(at) == len(lines) + 6
    colours = {text.get_text(): text.get_color() for text in ax.texts}
    assert colours["✗ it is wrong"] == ORANGE and colours["✓ it is right"] == BLUE


@proven
def test_a_test_that_catches_a_fault_is_dark_and_marked_in_its_row():
    rows = {"no mask": {"one": (True, "0.3"), "two": (False, "")}, "no scale": {"one": (False, ""), "two": (True, "")},
            "none": {"one": (False, ""), "two": (False, "")}}  # fmt: skip
    (ax,) = axes(figures.caught_table, rows)
    assert ax.yaxis_inverted()
    dark = {place for place, (colour, _) in cells(ax).items() if colour != "#ffffff"}
    assert dark == {(0, 0, 1, 1), (1, 1, 1, 1)} and len(cells(ax)) == 6
    at = {(x, y): words for words, x, y in texts(ax)}
    assert [at[-0.1, y] for y in (0.5, 1.5, 2.5)] == ["no mask", "no scale", "none"]
    assert [at[x, -0.25] for x in (0.5, 1.5)] == ["one", "two"]
    assert [[at[x, y] for x in (0.5, 1.5)] for y in (0.5, 1.5, 2.5)] == [["● 0.3", "·"], ["·", "●"], ["·", "·"]]
