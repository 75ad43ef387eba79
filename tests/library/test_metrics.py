"""Scores that can be compared with published ones, and alignments that can be held to the truth."""

import datetime
import itertools
import sys

import pytest
import sacrebleu
import torch

from attncourse.data import PAD, Pair, Tokenizer, aligned_pieces, number_words, say, say_parts
from attncourse.metrics import alignment_error, bleu, bootstrap_bleu, chrf, token_loss
from commandkit.errors import MissingExtra

# BLEU and chrF

WRITTEN, TRUE = ["the cat sat on the mat"], ["the cat sat on a mat"]


def test_bleu_is_the_geometric_mean_of_four_precisions():
    assert bleu(WRITTEN, TRUE).score == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)


def test_a_perfect_translation_scores_100():
    texts = ["A man in an orange hat.", "Two dogs, one ball!"]
    assert bleu(texts, texts).score == pytest.approx(100) and chrf(texts, texts).score == pytest.approx(100)


def test_the_signature_says_how_the_text_was_cut_and_whether_case_counts():
    assert "|case:mixed|" in bleu(WRITTEN, TRUE).signature and "|tok:13a|" in bleu(WRITTEN, TRUE).signature
    assert "|case:lc|" in bleu(WRITTEN, TRUE, lowercase=True).signature
    assert "|case:mixed|" in chrf(WRITTEN, TRUE).signature and "|nc:6|nw:0|" in chrf(WRITTEN, TRUE).signature


def test_case_counts_unless_one_asks_otherwise():
    shouted = [WRITTEN[0].upper()]
    for metric in (bleu, chrf):
        assert metric(shouted, WRITTEN).score < 10
        assert metric(shouted, WRITTEN, lowercase=True).score == pytest.approx(100)


def test_a_wrong_ending_costs_bleu_more_than_chrf():
    written, true = ["ein kleines Hund schläft auf dem Sofa"], ["ein kleiner Hund schläft auf dem Sofa"]
    assert chrf(written, true).score > 80 > 70 > bleu(written, true).score


def test_a_corpus_is_counted_as_one_and_an_empty_answer_is_just_a_bad_one():
    assert 0 < bleu([*WRITTEN, ""], [*TRUE, "a dog"]).score < bleu(WRITTEN, TRUE).score


@pytest.mark.parametrize("metric", [bleu, chrf])
def test_texts_that_cannot_be_compared_are_refused(metric):
    with pytest.raises(ValueError, match="hypotheses: got 1 for 2 references, expected one for each"):
        metric(["a"], ["a", "b"])
    with pytest.raises(ValueError, match="hypotheses: got 0 for 0 references, expected one for each, and at least one"):
        metric([], [])
    with pytest.raises(ValueError, match=r"references\[1\]: got an empty text, expected a translation"):
        metric(["a", "b"], ["a", " "])
    with pytest.raises(TypeError, match=r"references: got one text, expected a list of them, \['a'\]"):
        metric(["a"], "a")


def test_without_sacrebleu_one_line_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(MissingExtra, match=r"BLEU needs the extra 'train' \(no sacrebleu here\)"):
        bleu(WRITTEN, TRUE)


# The loss


def test_label_smoothing_gives_every_token_a_share_of_the_truth():
    logits, target = torch.randn(2, 3, 7), torch.tensor([[4, 5, 6], [4, PAD, PAD]])
    log_p = logits.log_softmax(dim=-1)[target != PAD]                                # (4, 7)
    truth = torch.nn.functional.one_hot(target[target != PAD], 7) * 0.9 + 0.1 / 7    # (4, 7)
    torch.testing.assert_close(token_loss(logits, target, label_smoothing=0.1), -(truth * log_p).sum(dim=-1).mean())
    with pytest.raises(ValueError, match=r"label_smoothing: got 1\.5, expected 0 to 1"):
        token_loss(logits, target, label_smoothing=1.5)


# What says what


def said(sentence, language):
    return [(part.text, {what for _, what in part.says}) for part in say_parts(sentence, language) if part.says]


@pytest.mark.parametrize("language", ["de", "en", "fr"])
def test_the_parts_of_every_number_are_the_number_and_only_joints_say_nothing(language):
    for number in range(1000):
        parts = say_parts(say(number, language), language)
        assert "".join(part.text for part in parts) == say(number, language)
        assert {part.text for part in parts if not part.says} <= {" ", "-", " and ", "und", " et "}, number


def test_every_language_says_the_same_things():
    days = [datetime.date(1800, 1, 1) + datetime.timedelta(days=997 * n) for n in range(100)]
    for item in [*range(1000), *days]:
        de, en, fr = (set().union(*(what for _, what in said(say(item, lang), lang))) for lang in ("de", "en", "fr"))
        assert de == en == fr, item


def test_tens_and_units_change_places_between_english_and_german():
    assert said("ninety-one", "en") == [("ninety", {"tens"}), ("one", {"units"})]
    assert said("einundneunzig", "de") == [("ein", {"units"}), ("neunzig", {"tens"})]


def test_french_counts_in_twenties_and_its_teens_say_tens_and_units_in_one():
    assert said("quatre-vingt-onze", "fr") == [("quatre-vingt", {"tens"}), ("onze", {"tens", "units"})]
    assert said("quatre-vingt-un", "fr") == [("quatre-vingt", {"tens"}), ("un", {"units"})]
    assert said("soixante-dix", "fr") == [("soixante", {"tens"}), ("dix", {"tens"})]
    assert said("soixante et onze", "fr") == [("soixante", {"tens"}), ("onze", {"tens", "units"})]
    assert said("deux cents", "fr") == [("deux", {"hundreds"}), ("cents", {"hundred"})]
    assert said("cent quatre-vingts", "fr") == [("cent", {"hundreds", "hundred"}), ("quatre-vingts", {"tens"})]


def test_a_date_has_a_weekday_a_day_a_month_and_a_year():
    day = datetime.date(2021, 3, 31)
    for language, first in (("de", "Mittwoch"), ("en", "Wednesday"), ("fr", "mercredi")):
        parts = say_parts(f"{say(7, language)}, {say(day, language)}, {say(8, language)}", language)
        names = [what for part in parts for what in part.says]
        assert sorted({name for k, name in names if k == 1}) == ["comma", "day", "month", "weekday", "year"]
        assert next(part.text for part in parts if (1, "weekday") in part.says) == first
        assert parts[-1].says == {(2, "units")}


def test_what_number_words_never_writes_is_refused():
    with pytest.raises(ValueError, match="sentence: got 'ninety-ten' in it, expected what number_words writes in 'en'"):
        say_parts("one, ninety-ten", "en")
    with pytest.raises(ValueError, match="language: got 'xx', expected one of 'de', 'en', 'fr'"):
        say_parts("one", "xx")


# The true alignment of pieces


def pieces_of(*, true):
    """Target piece: the source pieces that it belongs with."""
    return lambda rows, columns: {
        row: [column for column, here in zip(columns, line, strict=True) if here]
        for row, line in zip(rows, true(rows, columns).tolist(), strict=True)
    }


def test_the_truth_crosses_where_the_languages_do():
    pair = Pair("twenty-one, four hundred", "einundzwanzig, vierhundert")
    align = pieces_of(true=lambda rows, columns: aligned_pieces(pair, columns, rows))
    english = ["twenty-", "one", ",", "f", "our", "hundred"]
    assert align(["ein", "und", "zw", "anzig", ",", "vier", "hundert", "<eos>"], english) == {
        "ein": ["one"], "und": [], "zw": ["twenty-"], "anzig": ["twenty-"], ",": [","],
        "vier": ["f", "our"], "hundert": ["hundred"], "<eos>": [],
    }  # fmt: skip


def test_a_piece_over_several_parts_belongs_with_the_partners_of_all():
    pair = Pair("quatre-vingt-onze", "einundneunzig")
    align = pieces_of(true=lambda rows, columns: aligned_pieces(pair, columns, rows, "fr", "de"))
    assert align(["einund", "neunzig"], ["quatre-", "vingt-", "on", "ze"]) == {
        "einund": ["on", "ze"],
        "neunzig": ["quatre-", "vingt-", "on", "ze"],
    }


def test_pieces_that_do_not_spell_the_sentence_are_refused():
    with pytest.raises(ValueError, match="pieces: got 'zwei <eos>', expected the pieces of 'drei'"):
        aligned_pieces(Pair("three", "drei"), ["three"], ["zwei", "<eos>"])


@pytest.mark.parametrize("languages", [*itertools.permutations(["de", "en", "fr"], 2)])
def test_every_pair_of_number_words_can_be_aligned_and_its_pieces_have_partners(languages):
    split = number_words(*languages, train=300, test=100, seed=1)
    source, target = (Tokenizer.train((pair[side] for pair in split.train), size=112) for side in (0, 1))
    for pair in split.test:
        truth = aligned_pieces(pair, source.pieces(pair.source), target.pieces(pair.target), *languages)
        assert truth.any(dim=1).float().mean() > 0.5 and truth.any(dim=0).float().mean() > 0.5


# The alignment error


def test_a_largest_weight_on_a_partner_is_right_and_anywhere_else_wrong():
    weights = torch.tensor([[0.4, 0.6, 0.0], [0.1, 0.2, 0.7], [0.8, 0.1, 0.1], [0.3, 0.3, 0.4]])
    truth = torch.tensor([[True, True, False], [False, False, True], [False, True, False], [False] * 3])
    assert alignment_error([weights], [truth]) == pytest.approx(1 / 3), "the last piece has no partner, and no say"


def test_pieces_of_all_sentences_count_alike():
    right, wrong = torch.eye(3), torch.tensor([[0.0, 1.0]])
    truths = [torch.eye(3) > 0, torch.tensor([[True, False]])]
    assert alignment_error([right, wrong], truths) == pytest.approx(1 / 4)


def test_with_one_partner_each_it_is_och_and_neys_rate_whether_links_are_sure_or_possible():
    weights, partner = torch.rand(20, 9), torch.randint(9, (20,))
    found = {(t, s) for t, s in enumerate(weights.argmax(dim=1).tolist())}
    true = {(t, s) for t, s in enumerate(partner.tolist())}
    truth = torch.nn.functional.one_hot(partner, 9).bool()
    for sure in (true, set()):
        rate = 1 - (len(found & sure) + len(found & true)) / (len(found) + len(sure))
        assert alignment_error([weights], [truth]) == pytest.approx(rate)


def test_tables_that_do_not_fit_the_truth_are_refused():
    table, truth = torch.rand(2, 3), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="weights: got 1 tables for 2 of the truth"):
        alignment_error([table], [truth, truth])
    with pytest.raises(ValueError, match=r"weights\[0\]: got shape \(2, 3\), expected \(2, 2\), as truth\[0\]"):
        alignment_error([table], [truth[:, :2]])
    with pytest.raises(TypeError, match=r"truth\[0\]: got torch\.float32, expected torch\.bool"):
        alignment_error([table], [table])
    with pytest.raises(ValueError, match="truth: got no piece with a partner"):
        alignment_error([table], [~truth])


def test_a_bootstrap_scores_corpora_that_are_drawn_from_these_sentences():
    sentences = [
        ("a boy runs along the beach .", "a boy is running along the beach ."),
        ("two dogs play in the snow today .", "two dogs play in the deep snow ."),
        ("the the the woman sells ice cream at the lake .", "a woman sells ice cream at the lake ."),
    ]
    single = [sacrebleu.BLEU(effective_order=True).sentence_score(ours, [theirs]) for ours, theirs in sentences]
    statistics = (
        torch.tensor([score.counts for score in single]),
        torch.tensor([score.sys_len for score in single]),
        torch.tensor([score.ref_len for score in single]),
    )
    possible = set()
    for chosen in itertools.combinations_with_replacement(sentences, 3):
        hypotheses, references = zip(*chosen, strict=True)
        possible.add(round(bleu(hypotheses, references).score, 6))
    scores = bootstrap_bleu(*statistics, samples=300, seed=1)
    assert {round(score, 6) for score in scores.tolist()} == possible and len(possible) == 10
    assert torch.equal(scores, bootstrap_bleu(*statistics, samples=300, seed=1))
    assert not torch.equal(scores, bootstrap_bleu(*statistics, samples=300, seed=2))


def test_a_bootstrap_refuses_counts_that_do_not_fit():
    matches, words = torch.ones(3, 4, dtype=torch.long), torch.full((3,), 5)
    with pytest.raises(ValueError, match=r"words: got shape \(2,\), expected \(3,\)"):
        bootstrap_bleu(matches, words[:2], words)
    with pytest.raises(ValueError, match="samples: got 0"):
        bootstrap_bleu(matches, words, words, samples=0)
