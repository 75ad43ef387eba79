"""The loop trains, repeats itself from a seed, and lets go of nothing on Ctrl-C."""

import pytest
import torch

from attncourse.data import PAD, EncodedPair, Tokenizer, collate, encode_pairs, number_words
from attncourse.decoding import beam_translate, greedy, translate
from attncourse.metrics import accuracy_by_length, exact_match, token_loss
from attncourse.recurrent import Seq2Seq
from attncourse.training import fit
from attncourse.training.profiles import load_corpora
from attncourse.transformer import EncoderDecoder, TransformerConfig


@pytest.fixture(scope="module")
def corpus():
    pairs = number_words("en", "de", train=300, test=20, max_items=1, dates=0, seed=0).train
    english = Tokenizer.train((pair.source for pair in pairs), size=80)
    german = Tokenizer.train((pair.target for pair in pairs), size=80)
    return pairs, english, german, encode_pairs(pairs, english, german)


def build(corpus):
    torch.manual_seed(0)
    return Seq2Seq(len(corpus[1]), len(corpus[2]), d_embedding=16, d_hidden=32)


def build_transformer(corpus):
    torch.manual_seed(0)
    words = {"vocab_size": len(corpus[1]), "target_vocab_size": len(corpus[2])}
    return EncoderDecoder(TransformerConfig(**words, d_model=32, n_layers=2, dropout=0.0))


@pytest.mark.parametrize("build, lr", [(build, 1e-2), (build_transformer, 5e-3)], ids=["Seq2Seq", "EncoderDecoder"])
def test_training_lowers_the_loss_and_the_model_learns_to_translate_what_it_saw(build, lr, corpus):
    pairs, english, german, encoded = corpus
    model = build(corpus)
    history = fit(model, encoded, steps=150, batch_size=32, lr=lr, progress=False)
    assert history.losses[-1] < history.losses[0] / 4
    written = translate(model, [pair.source for pair in pairs[:50]], english, german)
    assert sum(exact_match([w.text for w in written], [pair.target for pair in pairs[:50]])) >= 15


def test_the_same_seed_gives_the_same_losses_and_another_seed_others(corpus):
    runs = [fit(build(corpus), corpus[3], steps=8, seed=seed, progress=False).losses for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("steps", range(1, 8))
def test_a_run_may_be_as_short_as_one_step(steps, corpus):
    assert len(fit(build(corpus), corpus[3], steps=steps, progress=False).losses) == steps


def test_an_interrupted_run_keeps_what_it_learned_and_says_so(corpus):
    class Impatient(Seq2Seq):
        steps = 0

        def forward(self, *args):
            self.steps += 1
            if self.steps > 5:
                raise KeyboardInterrupt
            return super().forward(*args)

    model = Impatient(len(corpus[1]), len(corpus[2]), 16, 32)
    before = model.decoder.output.weight.clone()
    history = fit(model, corpus[3], steps=50, progress=False)
    assert history.interrupted and len(history.losses) == 5 and "interrupted" in str(history)
    assert not torch.equal(before, model.decoder.output.weight)
    assert not model.training


def test_what_cannot_be_trained_on_is_refused(corpus):
    with pytest.raises(ValueError, match="pairs: got none"):
        fit(build(corpus), [], steps=3)
    with pytest.raises(ValueError, match="steps: got 0, expected at least 1"):
        fit(build(corpus), corpus[3], steps=0)
    with pytest.raises(TypeError, match="pairs: got Pair, expected EncodedPair"):
        fit(build(corpus), corpus[0], steps=1)
    with pytest.raises(TypeError, match="texts: got one text"):
        translate(build(corpus), "twenty", corpus[1], corpus[2])
    with pytest.raises(ValueError, match=r"target: got shape \(2, 4\), expected \(2, 3\)"):
        token_loss(torch.zeros(2, 3, 7), torch.ones(2, 4, dtype=torch.long))


def test_the_loss_is_a_mean_over_real_tokens_alone():
    logits = torch.randn(2, 3, 7)
    target = torch.tensor([[4, 5, 6], [4, PAD, PAD]])
    each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none")
    torch.testing.assert_close(token_loss(logits, target), each[:4].mean())


def test_translations_come_in_the_order_given_with_an_alignment_of_their_own_lengths(corpus):
    _, english, german, _ = corpus
    long, short = translate(build(corpus), ["nine hundred and ninety-nine", "one"], english, german)
    assert long.source_pieces == english.pieces("nine hundred and ninety-nine")
    for translation in (long, short):
        assert translation.weights.shape == (len(translation.target_pieces), len(translation.source_pieces))


def test_beams_translate_in_the_order_given_and_one_beam_is_greedy(corpus):
    pairs, english, german, encoded = corpus
    model = build_transformer(corpus)
    fit(model, encoded, steps=60, batch_size=32, lr=5e-3, progress=False)
    texts = [pair.source for pair in pairs[:30]]
    greedily = beam_translate(model, texts, english, german, n_beams=1, batch_size=2)
    assert greedily == [translation.text for translation in translate(model, texts, english, german)]
    assert beam_translate(model, texts[::-1], english, german, n_beams=3) == (
        beam_translate(model, texts, english, german, n_beams=3)[::-1]
    )
    with pytest.raises(TypeError, match="texts: got one text"):
        beam_translate(model, "twenty", english, german)


def test_a_translation_that_does_not_end_is_cut_off_by_the_length_of_its_source(corpus):
    _, english, german, _ = corpus
    model = build_transformer(corpus)                             # it has learned nothing, and does not end
    batch = collate([EncodedPair(english.encode("one"), [])])
    most = 2 * batch.source.shape[1] + 10
    tokens = greedy(model, batch.source, batch.lengths, most).tokens[0]
    assert len(tokens) == most
    assert beam_translate(model, ["one"], english, german, n_beams=1) == [german.decode(tokens.tolist())]


def test_exact_match_wants_every_letter():
    assert exact_match(["ein", "zwe"], ["ein", "zwei"]) == [True, False]
    with pytest.raises(ValueError, match="got 1 for 2 truths"):
        exact_match(["ein"], ["ein", "zwei"])


def test_accuracy_is_counted_bucket_by_bucket_and_empty_buckets_are_left_out():
    accuracy = accuracy_by_length([True, False, True], [1, 4, 12], edges=(4, 8, 12))
    assert accuracy == {(1, 4): 0.5, (9, 12): 1.0}
    with pytest.raises(ValueError, match="longest length, 12"):
        accuracy_by_length([True], [12], edges=(4, 8))


def test_each_part_of_the_number_words_has_its_share_of_short_lists():
    parts = load_corpora(
        {"name": "number-words", "source": "de", "target": "en", "train": 2000, "test": 500, "dates": 0}
    )
    assert [len(part) for part in parts] == [2000, 500, 500]
    assert len({pair.source for part in parts for pair in part}) == 3000
    single = [sum("," not in pair.source for pair in part) / len(part) for part in parts]
    assert max(single) < 1.5 * min(single)
