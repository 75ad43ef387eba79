"""Texts, the models that guess their next token by counting or by recurrence, and the number that compares them."""

import math
import subprocess
import sys
from itertools import pairwise, product

import pytest
import torch
from torch import nn

from attncourse.data import BOS, EOS, PAD, Tokenizer, docstrings, encode_texts, text_batches
from attncourse.data.docstrings import prose
from attncourse.decoding import greedy, sample
from attncourse.metrics import perplexity, text_log_probabilities, token_loss
from attncourse.ngram import NGram, WindowLanguageModel
from attncourse.recurrent import CELLS, RecurrentLanguageModel
from attncourse.training import descend, fit_texts

# Ids 4..7 are the words; every text begins with <bos> and ends with <eos>.
TEXTS = [[BOS, 4, 5, 6, EOS], [BOS, 4, 5, 5, 6, EOS], [BOS, 7, 5, 6, EOS], [BOS, 4, EOS]]
VOCABULARY = 8


@pytest.fixture(scope="module")
def corpus():
    return docstrings(limit=300)


@pytest.fixture(scope="module")
def encoded(corpus):
    tokenizer = Tokenizer.train(corpus.train, size=200)
    return encode_texts(corpus.train, tokenizer), len(tokenizer)


# Docstrings


def test_docstrings_are_lines_of_prose_none_twice_and_none_on_both_sides(corpus):
    texts = corpus.train + corpus.test
    assert len(texts) == len(set(texts)) == 300 and len(corpus.test) >= 30
    assert all(len(text) >= 20 and "\n" not in text and ">>>" not in text for text in texts)


def test_docstrings_come_in_the_same_order_in_another_process(corpus):
    code = "from attncourse.data import docstrings; print(hash(tuple(docstrings(limit=40).train)))"
    runs = [
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": "0"}, capture_output=True, text=True).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1] and runs[0].strip()


def test_reading_docstrings_imports_no_module():
    code = (
        "import sys; from attncourse.data import docstrings; old = {*sys.modules}; docstrings(limit=300); "
        "print({*sys.modules} - old)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "set()", result.stdout + result.stderr


def test_a_larger_share_makes_a_larger_test_set():
    assert len(docstrings(limit=300, test_share=0.5).test) > len(docstrings(limit=300).test)


def test_a_packages_docstrings_join_the_training_set_alone(corpus, monkeypatch, tmp_path):
    (tmp_path / "herbs").mkdir()
    (tmp_path / "herbs/__init__.py").write_text(f'"""Thyme grows in the sun."""\ndef f():\n    {corpus.test[0]!r}\n')
    monkeypatch.syspath_prepend(tmp_path)
    more = docstrings(limit=300, packages=["herbs"])
    assert more.train == ["Thyme grows in the sun.", *corpus.train] and more.test == corpus.test
    assert "herbs" not in sys.modules


def test_a_package_that_is_not_there_is_told():
    with pytest.raises(ModuleNotFoundError, match="packages: got 'no_such_package'"):
        docstrings(limit=300, packages=["no_such_package"])


def test_a_python_without_sources_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no sources of the standard library"):
        docstrings()


@pytest.mark.parametrize("wrong", [{"limit": 1}, {"limit": True}, {"test_share": 0.0}, {"test_share": 1.0}])
def test_an_impossible_corpus_is_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        docstrings(**wrong)


def test_code_tables_and_indented_paragraphs_are_no_prose():
    assert prose("One.\n\n  indented\n\nName  Size\n----  ----\n\nTwo,\nthree.\n\n>>> 1 + 1\n2") == "One. Two, three."


# Batches of texts


def test_an_epoch_predicts_every_token_but_the_first_of_each_text_once(encoded):
    texts, _ = encoded
    seen = [int(t) for batch in text_batches(texts, 256, max_length=20, seed=0) for t in batch.tokens_out.flatten()]
    assert sorted(t for t in seen if t != PAD) == sorted(t for text in texts for t in text[1:])


def test_what_goes_in_is_what_must_come_out_one_step_later(encoded):
    for batch in text_batches(encoded[0], 128, max_length=20, seed=0):
        assert torch.equal(batch.tokens_in[:, 1:][batch.tokens_out[:, 1:] != PAD],
                           batch.tokens_out[:, :-1][batch.tokens_out[:, 1:] != PAD])  # fmt: skip


def test_batches_keep_to_their_size_and_hold_little_padding(encoded):
    batches = list(text_batches(encoded[0], 256, max_length=40, seed=0))
    assert max(batch.tokens_in.numel() for batch in batches) <= 256
    assert sum((b.tokens_out == PAD).sum() for b in batches) < 0.1 * sum(b.tokens_out.numel() for b in batches)


def test_a_piece_longer_than_a_batch_gets_one_of_its_own():
    [batch] = text_batches([[BOS, *range(4, 34)]], batch_tokens=8, max_length=100, seed=0)
    assert batch.tokens_in.shape == (1, 30)


def test_the_seed_decides_the_order_of_the_batches(encoded):
    first, again, other = (next(text_batches(encoded[0], 256, 40, seed=seed)).tokens_in for seed in (0, 0, 1))
    assert torch.equal(first, again) and not (first.shape == other.shape and torch.equal(first, other))


# Counting


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_the_probabilities_after_any_context_sum_to_one_and_none_is_zero(order):
    model = NGram(TEXTS, order, VOCABULARY)
    for context in ([], [BOS], [BOS, 4], [4, 5], [3, 3, 3], [BOS, 4, 5, 5]):
        p = model.distribution(context)
        assert p.min() > 0 and torch.isclose(p.sum(), torch.tensor(1.0))


def test_a_bigram_follows_the_formula():
    model = NGram(TEXTS, 2, VOCABULARY)
    pairs = [pair for text in TEXTS for pair in pairwise(text)]
    once, twice = (sum(pairs.count(pair) == k for pair in set(pairs)) for k in (1, 2))
    d = once / (once + 2 * twice)
    shorter = model.probability(6, [])
    assert math.isclose(model.probability(6, [5]), (pairs.count((5, 6)) - d) / 4 + d * 2 / 4 * shorter)


def test_a_token_that_follows_one_word_only_is_a_bad_bet_in_a_new_context():
    # 6 is as frequent as 7, but always after 5.
    texts = [[BOS, 5, 6, EOS]] * 6 + [[BOS, first, 7, EOS] for first in (4, 5, 6, 8, 9, 10)]
    model = NGram(texts, 2, 12)
    assert model.probability(7, [11]) > 2 * model.probability(6, [11])


def test_what_begins_a_text_keeps_its_occurrences():
    model = NGram([[BOS, 4, 5, EOS]] * 9 + [[BOS, 6, 5, EOS]], order=3, vocab_size=VOCABULARY)
    assert model.probability(4, [BOS]) > 4 * model.probability(6, [BOS])


def test_a_new_context_is_left_to_the_shorter_one():
    model = NGram(TEXTS, 3, VOCABULARY)
    assert model.probability(6, [7, 6, 5]) == model.probability(6, [5])
    assert model.probability(6, [2, 2]) == model.probability(6, [])


def test_known_counts_how_far_back_the_context_was_seen():
    model = NGram(TEXTS, 3, VOCABULARY)
    assert [model.known(context) for context in ([BOS, 4], [7, 4], [4, 3], [])] == [2, 1, 0, 0]


def test_the_log_probability_of_a_text_is_that_of_its_tokens_one_by_one():
    model = NGram(TEXTS, 3, VOCABULARY)
    text = [BOS, 4, 5, 7, EOS]
    expected = [math.log(model.probability(text[i], text[:i])) for i in range(1, 5)]
    torch.testing.assert_close(model.log_probabilities(text), torch.tensor(expected, dtype=torch.float64))


def test_all_texts_of_a_length_together_have_the_probability_one():
    model = NGram(TEXTS, 3, VOCABULARY)
    total = sum(
        model.log_probabilities([BOS, *rest]).sum().exp().item() for rest in product(range(VOCABULARY), repeat=3)
    )
    assert math.isclose(total, 1.0, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([], 2, 8), "got no token"),
        (([[BOS]], 2, 8), "got no token"),
        (([[BOS, 9]], 2, 8), r"got tokens 9\.\.9, expected each within 0\.\.7"),
        ((TEXTS, 0, 8), "order: got 0"),
    ],
)
def test_what_cannot_be_counted_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        NGram(*arguments)


def test_a_text_shorter_than_the_context_counts_as_far_as_it_goes():
    model = NGram([[BOS, 4], [BOS, 4, 5, 6, 7, EOS]], order=5, vocab_size=VOCABULARY)
    assert model.probability(4, [BOS]) > 0.5


# A window of learned vectors


def test_a_window_model_is_its_equation():
    torch.manual_seed(0)
    model, tokens = WindowLanguageModel(9, order=4, d_hidden=5), torch.randint(9, (2, 6))
    E, W, b = model.embedding.weight, model.hidden.weight, model.hidden.bias
    for t in range(6):
        window = [E[tokens[:, i]] if i >= 0 else torch.zeros(2, 5) for i in (t - 2, t - 1, t)]
        h = torch.tanh(torch.cat(window, dim=-1) @ W.mT + b)
        torch.testing.assert_close(model(tokens)[:, t], h @ E.mT + model.output.bias)


def test_a_window_model_sees_as_many_tokens_as_its_order_says_and_none_of_the_future():
    torch.manual_seed(0)
    model, tokens = WindowLanguageModel(9, order=4, d_hidden=5), torch.randint(8, (1, 9))
    changed = tokens.clone()
    changed[0, 3] = 8
    differs = (model(tokens) - model(changed)).abs().amax(dim=-1)[0] > 1e-6
    assert differs.nonzero().flatten().tolist() == [3, 4, 5]


def test_a_window_model_learns_what_follows_what(encoded):
    texts, vocab_size = encoded
    torch.manual_seed(0)
    history = fit_texts(WindowLanguageModel(vocab_size, order=3, d_hidden=16), texts, 100, progress=False)
    assert sum(history.losses[-10:]) < 0.85 * sum(history.losses[:10])


def test_a_window_of_nothing_and_a_token_out_of_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match="order: got 1"):
        WindowLanguageModel(9, order=1, d_hidden=5)
    with pytest.raises(ValueError, match=r"tokens: got .*9"):
        WindowLanguageModel(9, order=2, d_hidden=5)(torch.tensor([[9]]))


# Recurrence


@pytest.fixture(params=CELLS)
def model(request):
    torch.manual_seed(0)
    return RecurrentLanguageModel(VOCABULARY, d_hidden=6, cell=request.param).eval()


def test_changing_the_future_leaves_the_past_alone(model):
    tokens = torch.tensor([[1, 4, 5, 6, 7]])
    other = torch.tensor([[1, 4, 5, 7, 4]])
    torch.testing.assert_close(model(tokens)[:, :3], model(other)[:, :3])
    assert not torch.allclose(model(tokens)[:, 3], model(other)[:, 3])


def test_reading_step_by_step_gives_what_reading_at_once_gives(model):
    tokens = torch.tensor([[1, 4, 5, 6], [1, 7, 7, 4]])
    state = model.start()
    logits = [model.read(tokens[:, :2], state), model.step(tokens[:, 2], state)[0], model.step(tokens[:, 3], state)[0]]
    torch.testing.assert_close(torch.stack(logits, dim=1), model(tokens)[:, 1:])


def test_a_state_can_be_cut_down_to_some_rows(model):
    tokens = torch.tensor([[1, 4, 5], [1, 7, 7]])
    state = model.start()
    model.read(tokens, state)
    logits, _, looked = model.step(torch.tensor([6]), state.select(torch.tensor([1])))
    torch.testing.assert_close(logits, model(torch.tensor([[1, 7, 7, 6]]))[:, -1])
    assert looked is None


def test_it_is_torchs_own_network_between_one_table(model):
    tokens = torch.tensor([[1, 4, 5]])
    states, _ = model.network(model.embedding(tokens))
    torch.testing.assert_close(model(tokens), states @ model.embedding.weight.mT + model.output.bias)
    assert model.output.weight is model.embedding.weight


def test_it_writes_on_from_a_prompt(model):
    prompt, lengths = torch.tensor([[BOS, 4, 5], [BOS, 7, PAD]]), torch.tensor([3, 2])
    assert greedy(model, prompt, lengths, max_length=4).tokens.shape[0] == 2
    drawn = [sample(model, prompt, lengths, 4, generator=torch.Generator().manual_seed(0)).tokens for _ in range(2)]
    assert torch.equal(*drawn)


def test_an_unknown_cell_and_a_token_out_of_the_vocabulary_are_refused():
    with pytest.raises(ValueError, match="cell: got 'elman', expected one of"):
        RecurrentLanguageModel(8, 6, cell="elman")
    with pytest.raises(ValueError, match="tokens: got tokens 8"):
        RecurrentLanguageModel(8, 6)(torch.tensor([[8]]))


def test_a_language_model_learns_what_follows_what(encoded):
    texts, vocab_size = encoded
    torch.manual_seed(0)
    model = RecurrentLanguageModel(vocab_size, d_hidden=32)
    history = fit_texts(model, texts, steps=60, batch_tokens=256, progress=False)
    assert len(history.losses) == 60 and sum(history.losses[-5:]) < 0.9 * sum(history.losses[:5])
    assert not model.training


def test_training_repeats_itself_from_a_seed(encoded):
    runs = []
    for seed in (0, 0, 1):
        torch.manual_seed(0)
        model = RecurrentLanguageModel(encoded[1], d_hidden=8)
        runs.append(fit_texts(model, encoded[0], steps=4, seed=seed, progress=False).losses)
    assert runs[0] == runs[1] != runs[2]


def test_each_loss_is_computed_only_when_its_step_is_due():
    parameter = nn.Linear(1, 1, bias=False)
    asked = []

    def losses():
        while True:
            asked.append(parameter.weight.item())
            yield (parameter.weight - 3).square().sum()

    history = descend(parameter, losses(), steps=5, lr=0.1, progress=False)
    assert len(asked) == len(history.losses) == 5 and len(set(asked)) == 5


def test_no_texts_and_no_steps_are_refused(encoded):
    with pytest.raises(ValueError, match="texts: got none"):
        fit_texts(RecurrentLanguageModel(8, 6), [], steps=3)
    with pytest.raises(ValueError, match="steps: got 0"):
        fit_texts(RecurrentLanguageModel(encoded[1], 6), encoded[0], steps=0)


# Perplexity


def test_a_fair_die_has_as_much_perplexity_as_sides():
    assert math.isclose(perplexity(torch.full((3, 4), -math.log(6))), 6, rel_tol=1e-6)


def test_padding_changes_no_perplexity():
    log_p, mask = torch.tensor([[-1.0, -2.0], [-3.0, -50.0]]), torch.tensor([[True, True], [True, False]])
    assert math.isclose(perplexity(log_p, mask), math.exp(2), rel_tol=1e-6)


def test_the_perplexity_of_a_model_is_e_to_its_token_loss(model):
    texts = [[BOS, 4, 5, 6, EOS], [BOS, 7, EOS]]
    scores = text_log_probabilities(model, texts, batch_size=1)
    assert [len(row) for row in scores] == [4, 2]
    tokens = torch.tensor([[BOS, 4, 5, 6, EOS], [BOS, 7, EOS, PAD, PAD]])
    loss = token_loss(model(tokens[:, :-1]), tokens[:, 1:]).item()
    assert math.isclose(perplexity(torch.cat(scores)), math.exp(loss), rel_tol=1e-5)


def test_scores_come_in_the_order_of_the_texts_whatever_the_batches(model):
    texts = [[BOS, *[4] * n, EOS] for n in (5, 1, 3, 2)]
    alone = [text_log_probabilities(model, [text])[0] for text in texts]
    for together, one in zip(text_log_probabilities(model, texts, batch_size=3), alone, strict=True):
        torch.testing.assert_close(together, one)


def test_what_has_no_perplexity_is_refused(model):
    with pytest.raises(ValueError, match="got no token"):
        perplexity(torch.zeros(2, 0))
    with pytest.raises(ValueError, match=r"mask: got shape \(2,\), expected \(2, 3\)"):
        perplexity(torch.zeros(2, 3), torch.ones(2, dtype=torch.bool))
    with pytest.raises(TypeError, match=r"mask: got torch\.float32"):
        perplexity(torch.zeros(2, 3), torch.ones(2, 3))
    with pytest.raises(ValueError, match="texts: got one without a token"):
        text_log_probabilities(model, [[BOS]])
