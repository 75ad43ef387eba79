"""Gossip: every question has an answer that follows from the sentence alone."""

import random

import torch

from attncourse.data.gossip import ADVERBS, MEN, NAMES, QUESTIONS, THINGS, VERBS, VOCABULARY, WOMEN, gossip, tell

TOLD = [tell(clauses, random.Random(seed)) for clauses in (1, 2, 3) for seed in range(60)]


def test_every_verb_asks_who_gave_and_who_got_and_every_pronoun_whom_it_means():
    for words, questions in TOLD:
        asked = sorted((question.asker, question.kind) for question in questions)
        verbs = [place for place, word in enumerate(words) if word in VERBS]
        pronouns = [place for place, word in enumerate(words) if word in ("he", "she")]
        wanted = [(place, kind) for place in verbs for kind in (0, 1)] + [(place, 2) for place in pronouns]
        assert asked == sorted(wanted)


def test_answers_are_names_and_who_got_comes_after_the_verb_and_before_the_thing():
    for words, questions in TOLD:
        for asker, kind, place in questions:
            assert words[place] in NAMES
            if QUESTIONS[kind] == "who got":
                assert asker < place <= asker + 2 and words[place + 1] == "the" and words[place + 2] in THINGS


def test_a_pronoun_means_the_woman_or_the_man_who_was_named_last():
    met = set()
    for words, questions in TOLD:
        for asker, kind, place in questions:
            if QUESTIONS[kind] == "he / she is":
                group = WOMEN if words[asker] == "she" else MEN
                named = [before for before in range(asker) if words[before] in group]
                assert _meant_last(words, questions, named, asker, group) == words[place]
                met.add(words[asker])
    assert met == {"he", "she"}


def _meant_last(words, questions, named, asker, group):
    """The last of the group to be named or meant by a pronoun before `asker`."""
    meant = {question.asker: question.place for question in questions if question.kind == 2}
    told = [(place, words[place]) for place in named]
    told += [(place, words[meant[place]]) for place in meant if place < asker and words[meant[place]] in group]
    return max(told)[1]


def test_a_verb_after_a_pronoun_asks_for_the_person_that_it_means():
    for words, questions in TOLD:
        by_asker = {(question.asker, question.kind): question.place for question in questions}
        for (asker, kind), place in by_asker.items():
            if kind == 0:
                before = asker - 1 if words[asker - 1] not in ADVERBS else asker - 2
                assert place == (by_asker[before, 2] if words[before] in ("he", "she") else before)
    assert any("she" in words for words, _ in TOLD)


def test_a_batch_has_its_sentences_tokens_and_padding_behind_them():
    told = gossip(40, random.Random(3))
    assert told.tokens.shape == (40, int(told.lengths.max())) and int(told.lengths.min()) < int(told.lengths.max())
    for row, length in zip(told.tokens, told.lengths.tolist(), strict=True):
        assert (row[:length] > 0).all() and not row[length:].any()
    assert {VOCABULARY[token] for token in told.tokens.unique().tolist()} == {*VOCABULARY}


def test_the_answer_is_the_name_at_its_place():
    told = gossip(40, random.Random(3))
    assert len(told.answer) == len(told.kind) > 150
    for sentence, place, answer in zip(told.sentence, told.place, told.answer, strict=True):
        assert VOCABULARY[told.tokens[sentence, place]] == NAMES[answer]
    asking = {VOCABULARY[token] for token in told.tokens[told.sentence, told.asker].tolist()}
    assert asking == {*VERBS, "he", "she"}


def test_equal_seeds_tell_equal_gossip():
    first, again = (gossip(5, random.Random(8)) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
