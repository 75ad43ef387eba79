"""Every erratum's test fails on what is printed and passes on what is right, and the lectures' boxes draw on them."""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import jupytext
import pytest
import torch

from attncourse_lessons import course
from attncourse_lessons.errata import (
    DECKS,
    ERRATA,
    FAULTS,
    ON_NO_SLIDE,
    STRUCTURAL,
    SlideModel,
    attention_as_torchs,
    erratum,
    structural,
)
from attncourse_lessons.results import MODIFICATIONS, measured
from attncourse_lessons.slides.model import SlideBlock
from attncourse_lessons.slides.transcriptions import COLUMNS, NARANG_ROWS, TRANSCRIBERS, transcriptions
from lessonkit.authoring.checkout import open_course
from lessonkit.authoring.source import read

ROOT = Path(__file__).resolve().parents[2]
figures = course.part("errata_lab", "figures")

# A slide's mistake is shown where it teaches: with the slide, or as a mistake that anybody may make.
BOX = re.compile(r"\*\*(On the slide|A common mistake)\b")


@cache
def boxes():
    """The texts of the cells that are marked with an erratum's name, by that name and the lesson's."""
    marked = defaultdict(list)
    for lesson in course.lessons:
        text = (lesson.folder / "lecture.py").read_text(encoding="utf-8")
        for cell in jupytext.reads(text, fmt="py:percent").cells:
            for name in filter(None, cell.metadata.get("erratum", "").split("; ")):
                marked[name, lesson.name].append(cell.source)
    return marked


@pytest.mark.parametrize("entry", ERRATA, ids=lambda entry: entry.name)
def test_the_test_fails_on_what_is_printed_and_passes_on_what_is_right(entry):
    printed, corrected = entry.test(entry.printed), entry.test(entry.corrected)
    assert printed.passes == (entry.kind == "no error"), printed.measured
    assert corrected.passes, corrected.measured


@pytest.mark.parametrize("entry", ERRATA, ids=lambda entry: entry.name)
def test_what_is_no_error_has_a_reading_that_goes_wrong_and_nothing_else_has(entry):
    assert (entry.misread is not None) == (entry.kind == "no error")
    assert entry.misread is None or not entry.test(entry.misread).passes
    assert entry.holds


@pytest.mark.parametrize("entry", ERRATA, ids=lambda entry: entry.name)
def test_an_erratum_says_where_it_stands_what_it_says_and_what_is_right(entry):
    assert entry.decks and set(entry.decks) <= set(DECKS)
    assert entry.place and entry.claim and entry.correction and entry.question.endswith("?")
    assert len(entry.claim) <= 100, "decks are quoted no more than a line"
    assert entry.kind in ("definite", "overclaim", "convention", "no error")
    assert entry.by in ("shapes", "limiting case", "trusted")


@pytest.mark.parametrize("entry", ERRATA, ids=lambda entry: entry.name)
def test_the_lecture_that_is_named_has_a_box_with_the_erratum(entry):
    texts = boxes().get((entry.name, entry.lesson), [])
    assert any(BOX.search(text) for text in texts), f"no box of lecture {entry.lesson} is marked with it"


def test_every_mark_in_a_lecture_is_an_erratums_name():
    assert {name for name, _ in boxes()} == {entry.name for entry in ERRATA}


# Boxes on mistakes that no deck makes: {(lesson, how the box begins): where it comes from}.
NO_DECK = {
    ("masking", "one remedy for two problems"): "a reading of two slides together; each of them is right",
    ("training", "mean of means"): "a bug of libraries",
    ("writing", "dropout left on"): "a bug of programs",
    ("beyond_text", "what is masked is masked"): "a figure of the paper, which is right with its text",
    ("writing", "Many slides copy the BLEU column"): "a caution about a column of the paper's own table",
}

# Sentences about boxes, not boxes.
ABOUT_BOXES = "which you can read without the slide", "which you need not have seen"


def test_every_box_is_marked_with_its_entry_or_says_why_it_has_none():
    found, excused = [], set()
    for lesson in course.lessons:
        text = (lesson.folder / "lecture.py").read_text(encoding="utf-8")
        for cell in jupytext.reads(text, fmt="py:percent").cells:
            if cell.metadata.get("erratum") or cell.cell_type == "raw":  # a slide, which tells what a box does
                continue
            for box in BOX.finditer(cell.source):
                words = cell.source[box.start() : box.end() + 80].replace("\n# >", "")
                why = [key for key in NO_DECK if key[0] == lesson.name and key[1] in words]
                excused |= {*why}
                if not why and not any(about in words for about in ABOUT_BOXES):
                    found.append((lesson.name, words))
    assert found == []
    assert excused == {*NO_DECK}, "one that is no longer needed"


def test_the_table_of_the_modifications_is_transcribed_with_all_its_rows():
    names, readings = transcriptions()
    assert {*names} <= {*NARANG_ROWS} and {row.name for row in MODIFICATIONS} <= {*NARANG_ROWS}
    assert readings.shape == (len(TRANSCRIBERS), len(names), len(COLUMNS))
    vanilla = MODIFICATIONS[0]
    assert readings[:, 0, 1].tolist() == [vanilla.early_loss] * 3
    disputed = (readings != readings[0]).any(dim=0)
    assert 10 < disputed.sum() < 20 and disputed.any(dim=1).sum() == 8


def test_no_two_errata_have_one_name():
    assert len({entry.name for entry in ERRATA}) == len(ERRATA)


# What each deck has definitely wrong, by the slide's own words; lines that one erratum covers together stand together.
DEFINITE = (
    "o_i = Σ_i", "where i > i", "j < i, −∞ where j ≥ i", "μ = Σ x_j", "(x_j μ)²", "(√σ + ε)", "unit mean", "R^(T×T)",
    "x_i ∈ R^d",
    "Encoder: Cross-attention", "q_i = Qz", "10000^(2·d/d)", "x³ = x² + x¹", "x_l = LayerNorm(x_l⁵)",
    "LayerNorm(x_{l+1})", "self.ln1(x)", "x.size(0)", "max_len stays 128", "row 2: ReLU",
    "Resero", "d_ff = 4096", "d_ff = 1044", "24 heads of 128", "5140", "Absolute: e_ij", "(Shaw+ 2018)",
    "ends with ConvS2S", "BertVis", "does not increase sequence length",
)  # fmt: skip


@pytest.mark.parametrize("words", DEFINITE)
def test_everything_that_is_definitely_wrong_is_in_the_list(words):
    assert [entry.name for entry in ERRATA if entry.kind == "definite" and words in entry.claim]


def test_the_definite_ones_are_these_and_no_others():
    definite = [entry for entry in ERRATA if entry.kind == "definite"]
    assert len(definite) == len(DEFINITE)
    assert all(any(words in entry.claim for words in DEFINITE) for entry in definite)


# Lines that a hasty reviewer would report, and that are right as their slides have them.
NO_ERROR = {
    "√|k|", "weights set to 0", "positions after the projections", "outputs 2 and 5",
    "keys and queries", "projected twice", "no final norm", "each other word",
    "the one thing everyone agrees on",
}  # fmt: skip


def test_overclaims_and_conventions_are_in_the_list():
    kinds = [entry.kind for entry in ERRATA]
    assert kinds.count("overclaim") >= 12 and kinds.count("convention") >= 10
    assert {entry.name for entry in ERRATA if entry.kind == "no error"} == NO_ERROR


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="name: got 'typo', expected one of a star for a matrix product, "):
        erratum("typo")


def test_a_test_leaves_the_random_numbers_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    for entry in ERRATA:
        entry.test(entry.corrected)
    structural("no final norm")
    assert torch.equal(torch.rand(3), expected)


def test_an_implementation_that_crashes_fails_and_the_error_is_what_was_measured():
    found = erratum("Y on the left").test(erratum("Y on the left").printed)
    assert not found.passes and found.measured.startswith("RuntimeError: mat1 and mat2 shapes cannot be multiplied")


def test_an_erratum_prints_as_a_card():
    lines = str(erratum("i > i")).splitlines()
    assert lines[0].startswith("i > i") and "transcription" in lines[0]
    assert any(line.strip().startswith("✗") for line in lines) and any(line.strip().startswith("✓") for line in lines)


# The code slide's model


def test_the_repaired_model_passes_every_structural_test():
    assert all(found.passes for found in structural().values())


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_an_erratum_and_some_structural_test_catches_it(fault):
    assert erratum(fault)
    found = structural(fault)
    assert list(found) == list(STRUCTURAL) and not all(finding.passes for finding in found.values())


def test_positions_by_the_batch_are_killed_by_a_wrong_value_and_not_by_a_crash():
    found = structural("positions by the batch")["batch invariance"]
    assert not found.passes and "differ by" in found.measured and "nan" not in found.measured


def test_a_finding_that_is_not_a_number_says_so():
    found = structural("not even itself")
    silent = [name for name, finding in found.items() if not finding.passes and "nan" not in finding.measured]
    assert silent == [] and "nan" not in structural()["200 tokens"].measured


def test_a_mistake_on_no_slide_may_pass_every_structural_test_and_a_peer_finds_it():
    found = {name: structural(block=block).values() for name, block in ON_NO_SLIDE.items()}
    killed = {name for name, findings in found.items() if not all(finding.passes for finding in findings)}
    unlike = {name for name, block in ON_NO_SLIDE.items() if not attention_as_torchs(block).passes}
    assert attention_as_torchs().passes
    assert set(ON_NO_SLIDE) - killed == {"no 1/√d_k", "keys in place of values"}
    assert set(ON_NO_SLIDE) - unlike == {"no residual around the network"}


def test_the_repaired_model_is_the_packages_own_language_model():
    """Weights copied over, the logits are equal: it is repaired, and not only otherwise wrong."""
    from attncourse.transformer import LanguageModel, TransformerConfig

    torch.manual_seed(0)
    ours = SlideModel(11, d_model=8, n_heads=2, d_ff=12, max_length=9)
    config = TransformerConfig(
        vocab_size=11, d_model=8, n_heads=2, n_layers=2, d_ff=12, max_length=9, positions="learned", dropout=0.0,
        tie_output=False, scale_embedding=False,
    )  # fmt: skip
    other = LanguageModel(config).eval()
    state = {
        "decoder.embedding.tokens.weight": ours.tokens.weight,
        "decoder.embedding.positions.table": ours.positions.weight,
        "decoder.stack.norm.weight": ours.norm.weight,
        "decoder.stack.norm.bias": ours.norm.bias,
        "output.weight": ours.logits.weight,
    }
    for i, block in enumerate(ours.blocks):
        start = f"decoder.stack.blocks.{i}"
        for part, weight, bias in zip(
            ("query", "key", "value"), block.project.weight.chunk(3), block.project.bias.chunk(3), strict=True
        ):
            state[f"{start}.attention.sublayer.{part}.weight"] = weight
            state[f"{start}.attention.sublayer.{part}.bias"] = bias
        layers = {
            "attention.sublayer.output": block.output, "attention.norm": block.norm_1,
            "ff.norm": block.norm_2, "ff.sublayer.up": block.up, "ff.sublayer.down": block.down,
        }  # fmt: skip
        for name, layer in layers.items():
            state[f"{start}.{name}.weight"], state[f"{start}.{name}.bias"] = layer.weight, layer.bias
    missing, unexpected = other.load_state_dict(state, strict=False)
    assert not unexpected and all(name == "output.bias" for name in missing), (missing, unexpected)
    with torch.no_grad():
        ours.logits.bias.zero_()
        tokens = torch.randint(11, (3, 7))
        torch.testing.assert_close(ours(tokens), other(tokens), rtol=1e-4, atol=1e-5)


def test_weights_set_to_0_are_better_in_one_call_and_worse_token_by_token():
    """The record that the errata lab prints and tells of: 0.026 nats lower, and 0.25 ± 0.04 higher, for each seed."""
    faults = measured("errata")["faults"]
    right, leaky = faults["nothing"], faults["weights set to 0"]
    assert right["token_by_token"]["losses"] == pytest.approx(right["losses"], abs=1e-4), "a causal model"
    assert leaky["difference"] == pytest.approx(-0.026, abs=5e-4)
    slower = leaky["token_by_token"]
    assert slower["difference"] == pytest.approx(0.25, abs=5e-3)
    assert 2.26 * slower["standard_error"] == pytest.approx(0.04, abs=5e-3)
    assert all(a > b for a, b in zip(slower["losses"], right["token_by_token"]["losses"], strict=True))


def test_a_peer_that_gets_the_suspects_mask_does_not_see_that_it_forbids_nothing():
    class Unmasked(SlideBlock):
        def __init__(self, d_model, n_heads, d_ff, max_length, faults):
            super().__init__(d_model, n_heads, d_ff, max_length, {*faults, "i > i"})

    assert attention_as_torchs(Unmasked).passes
    assert not structural(block=Unmasked)["the past stays"].passes


def test_unknown_faults_and_tokens_outside_of_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match="faults: got 'typo'"):
        SlideModel(11, faults=("typo",))
    with pytest.raises(ValueError, match=r"expected each within 0\.\.10"):
        SlideModel(11)(torch.tensor([[11]]))


# Figures


def test_the_table_says_which_test_caught_what(shown):
    figures.caught_table({"a": {"one": (True, ""), "two": (False, "")}, "b": {"one": (False, ""), "two": (False, "")}})
    assert shown[0] == "Which test catches which fault. a: one; b: nothing."


def test_lectures_are_marked_in_cells_that_have_a_box():
    assert all(BOX.search(text) for texts in boxes().values() for text in texts)
    assert len(boxes()) > 40


def test_a_mark_is_for_the_tests_and_does_not_stand_in_the_notebook():
    lesson = next(lesson for lesson in course.lessons if lesson.name == "self_attention")
    path = lesson.folder / "lecture.py"
    notebook = read(path, path, course, lesson, False, open_course(ROOT).citable).notebook
    assert 'erratum="' in path.read_text(encoding="utf-8")
    assert not any("erratum" in cell.metadata for cell in notebook.cells)
