"""Lecture and assignment 02: the lookups, and the pictures of them."""

import ast
import math

import pytest
import torch

from attncourse import check, viz
from attncourse.attention import AdditiveScore, BilinearScore, attend, dot_score
from attncourse.data.bridge import days
from attncourse_lessons import course

figures = course.part("lookup", "figures")


def reference(name):
    return course.exercise(name).reference


@pytest.fixture
def table():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(*shape, generator=generator) for shape in ((4, 3), (6, 3), (6, 5))]


def test_the_soft_lookup_is_attend_with_a_dot_product_over_the_temperature(table):
    output, weights = reference("soft_lookup")(*table, 0.3)
    same = attend(*table, score=lambda query, key: dot_score(query, key) / 0.3)
    assert torch.allclose(output, same[0]) and torch.allclose(weights, same[1])


def test_near_temperature_zero_the_soft_lookup_is_the_hard_one_and_far_above_it_is_the_mean(table):
    values = table[2]
    assert torch.allclose(reference("soft_lookup")(*table, 1e-4)[0], reference("hard_lookup")(*table))
    hot = reference("soft_lookup")(*table, 1e5)[0]
    assert torch.allclose(hot, values.mean(dim=0).expand(4, -1), atol=1e-3)


def test_the_k_best_are_the_hard_lookup_for_one_and_the_scaled_soft_one_for_all(table):
    top_k = reference("top_k_lookup")
    assert torch.allclose(top_k(*table, 1), reference("hard_lookup")(*table))
    assert torch.allclose(top_k(*table, 6), reference("soft_lookup")(*table, math.sqrt(3))[0], atol=1e-6)


def test_the_scores_of_the_assignment_are_the_packages():
    torch.manual_seed(0)
    query, key = torch.randn(2, 4, 3), torch.randn(2, 6, 5)
    by_matrix, by_network = BilinearScore(3, 5), AdditiveScore(3, 5, 7)
    assert torch.allclose(reference("bilinear_score")(query, key, by_matrix.weight), by_matrix(query, key))
    W = torch.cat([by_network.query.weight.mT, by_network.key.weight.mT])
    found = reference("additive_score")(query, key, W, by_network.v.weight[0])
    assert torch.allclose(found, by_network(query, key), atol=1e-6)


def test_equal_shares_for_all_earn_nothing():
    def answer(query, keys, values, temperature):
        return values.mean(dim=0).expand(len(query), -1), torch.full((len(query), len(keys)), 1 / len(keys))

    assert check("soft_lookup", answer).points == 0


def test_a_shape_or_a_scale_costs_its_own_points_alone():
    assert check("scaled_dot_score", lambda query, key: query @ key.mT / math.sqrt(2 * key.shape[-1])).points == 3
    assert check("hard_lookup", lambda query, keys, values: values[torch.cdist(query, keys).argmin(-1)]).points == 3


@pytest.fixture
def shown(monkeypatch):
    displayed = []
    monkeypatch.setattr("attncourse.viz.style.display", lambda data, metadata, raw: displayed.append(data))
    return displayed


XS = torch.linspace(0, 24, 25)
FIGURES = {
    "two lookups": (
        lambda: figures.two_lookups({5: 45, 8: 310, 12: 120}, 2 * torch.tensor([0.25, 0.5, 0.25]).log(), 2.0, asked=7),
        "5:00 0.25, 8:00 0.50, 12:00 0.25; the values, so weighted, add up to 196",
    ),
    "runs": (
        lambda: figures.losses_by_width({"dot": {8: [1.0, 2.0]}}, 0.5),
        "dot: 1.00 to 2.00 at 8; equal weights have 0.50.",
    ),
    "worlds": (
        lambda: figures.worlds({w: {"dot": [0.5, 0.75]} for w in "ab"}, chance=0.125),
        "a: dot 0.50 to 0.75. b: dot 0.50 to 0.75. Guessing gives 0.12.",
    ),
    "clock": (lambda: figures.clock_keys([2, 8], torch.tensor([-0.5, 0.9]), asked=7), "2:00 −0.50, 8:00 0.90"),
    "curves": (
        lambda: viz.function_curves({"a": XS}, XS, points=(XS, XS), x_name="x", y_name="y"),
        "a lies between 0 and 24",
    ),
    "bars": (lambda: viz.grouped_bars({"dot": {"one": 0.25}}, chance=0.125), "dot: 0.25 for one. Guessing gives 0.12."),
    "table": (lambda: figures.lookup_table(torch.tensor([[0.9, 0.1]]), ["q"], ["a", "b"]), "q: most at a (0.90)"),
}


@pytest.mark.parametrize(("draw", "words"), FIGURES.values(), ids=FIGURES)
def test_a_picture_of_a_lookup_says_in_words_what_it_shows(draw, words, shown):
    draw()
    draw()
    assert words in shown[0]["text/plain"] and shown[0] == shown[1]


def test_the_frames_of_the_explorers_come_with_words():
    weights = torch.tensor([0.25, 0.75])
    _, words = figures.lookup_frame([2, 8], torch.tensor([10.0, 50.0]), weights, 7, XS, 2 * XS, "temperature 1")
    assert "2:00 0.25, 8:00 0.75" in words and "the answer is 14" in words
    query, keys = torch.tensor([1.0, 0.0]), torch.tensor([[1.0, 0.0], [2.0, 0.0]])
    _, words = figures.score_landscapes(dict.fromkeys(("dot", "b", "c", "d"), dot_score), query, keys, ["A", "B"])
    assert "dot: scores from -2.0 to 2.0; weights A 0.27, B 0.73" in words


def test_a_table_whose_shape_does_not_fit_its_labels_is_refused():
    with pytest.raises(ValueError, match=r"got shape \(1, 2\), expected \(1, 3\)"):
        figures.lookup_table(torch.tensor([[0.9, 0.1]]), ["q"], ["a", "b", "c"])


def lectures_definitions():
    lesson = next(lesson for lesson in course.lessons if lesson.name == "lookup")
    tree = ast.parse((lesson.folder / "lecture.py").read_text(encoding="utf-8"))
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def lectures_functions(*names, **known):
    """Functions of the lecture, by name, as they stand in its source; `known` is what they use beside torch."""
    found = [node for node in lectures_definitions() if node.name in names]
    scope = {"torch": torch, "nn": torch.nn, "math": math} | known
    exec(compile(ast.Module(found, []), "lecture", "exec"), scope)
    return [scope[name] for name in names]


def test_the_lecture_does_not_print_the_answers():
    """It asks one query at a time; the assignment asks for many at once."""
    (soft_lookup,) = lectures_functions("soft_lookup")
    assert check("soft_lookup", soft_lookup).points == 0
    exercises = {exercise.name for exercise in course.part("lookup", "exercises").EXERCISES}
    assert {node.name for node in lectures_definitions()} & exercises == {"soft_lookup"}


def test_where_days_repeat_after_twelve_hours_the_learned_keys_go_round_twice():
    _, learn = lectures_functions("error_in_hidden_hours", "learn", days=days)
    vectors = learn(seed=0, waves=(2, 4))[-1]
    assert abs(figures.turns(vectors)) == pytest.approx(2, abs=1e-3)
    assert (vectors[:12] - vectors[12:]).norm(dim=-1).max() < 0.3 < (vectors[:6] - vectors[6:12]).norm(dim=-1).min()
