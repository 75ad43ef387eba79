"""The benchmark of contracts: it reads those of the notebooks, and lists the sentences that no aspect looks at."""

import pytest

import benchmarks
from attncourse_lessons import course


@pytest.fixture(scope="module")
def contracts():
    return benchmarks.load("contracts")


def test_every_exercise_has_a_contract(contracts):
    found = {name: contracts.sentences(contract) for _, name, contract in contracts.contracts()}
    assert found.keys() == {e.name for a in course.assignments() for e in course.exercises_of(a)}
    assert all(found.values())
    assert "The softmax makes every *row* of the attention matrix sum to one." in found["self_attention"]


def test_a_sentence_is_seen_by_the_words_of_aspects_and_mistakes(contracts):
    contract = "# Heading\n\nA position sees itself and its past. Paint the elephants green on Sundays.\nn: (batch, n)"
    assert contracts.sentences(contract) == [
        "A position sees itself and its past.",
        "Paint the elephants green on Sundays.",
    ]
    assert contracts.unseen("causal_mask", contract, 0.35) == ["Paint the elephants green on Sundays."]
