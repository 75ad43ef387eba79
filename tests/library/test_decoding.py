"""What is written token by token is what the model believes, whatever the batch, the cache, or the way of choosing."""

import itertools
import math

import pytest
import torch

from attncourse.data import BOS, EOS, PAD
from attncourse.decoding import beam_search, greedy, sample, warp_logits
from attncourse.recurrent import Seq2Seq
from attncourse.transformer import EncoderDecoder, LanguageModel, TransformerConfig

WORDS = 12
SMALL = {"vocab_size": WORDS, "d_model": 16, "n_layers": 2, "n_heads": 2, "max_length": 32}
SOURCE = torch.tensor([[4, 5, 6, 7, 2], [8, 2, 0, 0, 0], [9, 4, 2, 0, 0]])
LENGTHS = torch.tensor([5, 2, 3])


def spread(model):
    """Logits far enough apart that choices matter; with this seed sentences end at different times."""
    torch.manual_seed(10)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.9)
    return model.double().eval()


def encoder_decoder():
    return spread(EncoderDecoder(TransformerConfig(**SMALL, positions="learned", tie_output=False)))


def language_model():
    return spread(LanguageModel(TransformerConfig(**SMALL, positions="rope", n_kv_heads=1, tie_output=False)))


MODELS = {
    "Seq2Seq": lambda: spread(Seq2Seq(WORDS, WORDS, 8, 8)),
    "Seq2Seq, LSTM": lambda: spread(Seq2Seq(WORDS, WORDS, 8, 8, cell="lstm")),
    "EncoderDecoder": encoder_decoder,
}


@pytest.fixture(params=MODELS.values(), ids=MODELS)
def model(request):
    return request.param()


@torch.no_grad()
def logits_of(model, tokens, row=0):
    """Logits of the token after BOS + `tokens`, in one pass, without a cache."""
    n = int(LENGTHS[row])
    return model(SOURCE[row : row + 1, :n], LENGTHS[row : row + 1], torch.tensor([[BOS, *tokens]]))[0, -1]


def real(tokens):
    """A row without the padding after <eos>."""
    tokens = tokens.tolist()
    return tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens


# Greedy


def test_greedy_takes_the_most_probable_token_at_each_step(model):
    tokens = greedy(model, SOURCE, LENGTHS, max_length=9).tokens
    for row in range(len(SOURCE)):
        written = []
        while len(written) < 9 and EOS not in written:
            written.append(int(logits_of(model, written, row)[1:].argmax()) + 1)         # padding is never written
        assert real(tokens[row])[: len(written)] == written


def test_the_test_above_sees_sentences_of_different_length():
    lengths = {len(real(row)) for row in greedy(encoder_decoder(), SOURCE, LENGTHS, max_length=9).tokens}
    assert len(lengths) > 1


def test_what_is_written_for_a_source_does_not_depend_on_the_batch(model):
    together = greedy(model, SOURCE, LENGTHS, max_length=9).tokens
    for row, n in enumerate(LENGTHS.tolist()):
        alone = greedy(model, SOURCE[row : row + 1, :n], LENGTHS[row : row + 1], max_length=9).tokens[0]
        assert real(alone) == real(together[row])


def test_behind_eos_there_is_padding(model):
    model = always(model, EOS)
    assert greedy(model, SOURCE, LENGTHS, max_length=9).tokens.tolist() == [[EOS]] * 3


def test_decoding_stops_when_every_sentence_has_ended(model):
    steps = count_steps(always(model, EOS))
    greedy(model, SOURCE, LENGTHS, max_length=9)
    assert len(steps) == 1


def test_finished_sentences_leave_the_batch():
    model = encoder_decoder()
    steps = count_steps(model)
    tokens = greedy(model, SOURCE[[0, 1, 1]], LENGTHS[[0, 1, 1]], max_length=9).tokens
    assert steps[0] == 3 and steps[-1] == 1
    assert [len(real(row)) for row in tokens] == [9, 1, 1]


def test_the_weights_are_where_the_model_looked(model):
    tokens, weights = greedy(model, SOURCE, LENGTHS, max_length=9, with_weights=True)
    target_in = torch.cat([torch.full((3, 1), BOS), tokens[:, :-1]], dim=1)
    _, expected = model(SOURCE, LENGTHS, target_in, with_weights=True)
    if isinstance(model, EncoderDecoder):
        expected = expected.cross[:, -1].mean(dim=1)                              # the last block's, mean over heads
    for row in range(3):
        n = len(real(tokens[row]))
        torch.testing.assert_close(weights[row, :n], expected[row, :n], rtol=0, atol=1e-10)


def test_a_compiled_step_writes_the_same():
    model = encoder_decoder()
    expected = greedy(model, SOURCE[[0, 1, 1]], LENGTHS[[0, 1, 1]], max_length=9).tokens
    torch._dynamo.reset()
    model.step = torch.compile(model.step, dynamic=True, backend="eager")
    assert torch.equal(greedy(model, SOURCE[[0, 1, 1]], LENGTHS[[0, 1, 1]], max_length=9).tokens, expected)


def test_decoding_leaves_the_mode_of_the_model_alone(model):
    for mode in (True, False):
        model.train(mode)
        greedy(model, SOURCE, LENGTHS, max_length=2)
        beam_search(model, SOURCE, LENGTHS, max_length=2)
        assert model.training is mode


def test_a_frozen_part_stays_frozen():
    model = encoder_decoder().train()
    model.encoder.eval()
    greedy(model, SOURCE, LENGTHS, max_length=2)
    assert model.decoder.training and not model.encoder.training and not model.encoder.stack.training


def test_whole_numbers_of_any_size_will_do(model):
    for search in (greedy, beam_search):
        narrow, wide = (search(model, SOURCE.to(t), LENGTHS.to(t), max_length=4)[0] for t in (torch.int32, torch.int64))
        assert torch.equal(narrow, wide)


def test_decoding_ends_where_the_positions_end():
    model = always(EncoderDecoder(TransformerConfig(**SMALL)), 5)
    assert greedy(model, SOURCE, LENGTHS, max_length=1000).tokens.shape == (3, SMALL["max_length"])


# Language models


def continuation(model, prompt, n):
    """The greedy continuation of one prompt, all read anew for each token."""
    written = []
    while len(written) < n and EOS not in written:
        written.append(int(model(torch.tensor([prompt + written]))[0, -1, 1:].argmax()) + 1)
    return written


def test_a_language_model_continues_prompts_of_different_length_together():
    model = language_model()
    prompts = [[4, 5, 6, 7, 8], [9], [10, 11, 4]]
    padded = torch.tensor([prompt + [PAD] * (5 - len(prompt)) for prompt in prompts])
    tokens = greedy(model, padded, torch.tensor([5, 1, 3]), max_length=7).tokens
    for prompt, row in zip(prompts, tokens, strict=True):
        assert real(row)[:7] == continuation(model, prompt, 7)


def test_an_eos_inside_of_a_prompt_ends_nothing():
    model = always(language_model(), 5)
    prompts = torch.tensor([[4, EOS, 6], [4, PAD, PAD]])
    assert greedy(model, prompts, torch.tensor([3, 1]), max_length=2).tokens.tolist() == [[5, 5], [5, 5]]


def test_a_prompt_longer_than_the_positions_is_refused():
    model = language_model()
    assert greedy(model, torch.full((1, 32), 4), torch.tensor([32])).tokens.shape == (1, 1)
    for n in (33, 50):
        with pytest.raises(ValueError, match=f"source: got a prompt of {n} tokens, expected at most 32"):
            greedy(model, torch.full((1, n), 4), torch.tensor([n]))


class Bigrams(torch.nn.Module):
    """Somebody's own language model: what comes next depends on the last token alone."""

    max_positions = None

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(WORDS, WORDS)

    def start(self):
        return Remembers()

    def read(self, tokens, state):
        return self.table(tokens[:, -1])

    def step(self, token, state, with_weights=False):
        return self.table(token), state, None


class Remembers:
    def select(self, rows):
        return self


def test_anybodys_language_model_can_be_decoded():
    model = spread(Bigrams())
    tokens = greedy(model, torch.tensor([[4, 5, 6], [7, PAD, PAD]]), torch.tensor([3, 1]), max_length=4).tokens
    for last, row in zip((6, 7), tokens.tolist(), strict=True):
        written = []
        while len(written) < 4 and EOS not in written:
            last = int(model.table.weight[last, 1:].argmax()) + 1
            written.append(last)
        assert row[: len(written)] == written


def test_lengths_for_another_batch_are_refused():
    with pytest.raises(ValueError, match=r"lengths: got shape \(1,\), expected \(batch = 2\)"):
        greedy(language_model(), torch.full((2, 2), 4), torch.tensor([2]))


def test_an_empty_prompt_is_refused():
    with pytest.raises(ValueError, match=r"lengths: got \[2, 0\], expected each within 1..2"):
        greedy(language_model(), torch.full((2, 2), 4), torch.tensor([2, 0]))


# Sampling


def test_sampled_tokens_come_as_often_as_the_model_believes():
    model = encoder_decoder()
    n = 20_000
    source, lengths = SOURCE[:1].expand(n, -1), LENGTHS[:1].expand(n)
    chance = torch.Generator().manual_seed(0)
    tokens = sample(model, source, lengths, max_length=1, temperature=2.0, generator=chance).tokens
    logits = logits_of(model, [])
    logits[PAD] = -math.inf
    expected = (logits / 2).softmax(dim=-1)
    torch.testing.assert_close(tokens.flatten().bincount(minlength=WORDS) / n, expected.float(), rtol=0, atol=0.01)


def test_equal_generators_draw_equal_texts(model):
    draws = [sample(model, SOURCE, LENGTHS, 9, generator=torch.Generator().manual_seed(s)).tokens for s in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-3}], ids=str)
def test_a_choice_narrowed_to_one_token_is_greedy(model, options):
    drawn = sample(model, SOURCE, LENGTHS, 9, generator=torch.Generator().manual_seed(0), **options).tokens
    assert torch.equal(drawn, greedy(model, SOURCE, LENGTHS, 9).tokens)


PROBABILITIES = torch.tensor([[0.1, 0.4, 0.2, 0.3]])


@pytest.mark.parametrize(
    "options, left",
    [
        ({"top_k": 2}, [1, 3]),
        ({"top_k": 9}, [0, 1, 2, 3]),
        ({"top_p": 0.4}, [1]),
        ({"top_p": 0.5}, [1, 3]),
        ({"top_p": 0.75}, [1, 2, 3]),
        ({"top_p": 1.0}, [0, 1, 2, 3]),
        ({"top_k": 2, "top_p": 0.5}, [1]),
    ],
    ids=str,
)
def test_warp_logits_leaves_the_likeliest_tokens(options, left):
    logits = warp_logits(PROBABILITIES.log(), **options)
    assert logits.isfinite()[0].nonzero().flatten().tolist() == left
    torch.testing.assert_close(logits[0, left], (PROBABILITIES / PROBABILITIES.max()).log()[0, left])


def test_ties_do_not_widen_top_k():
    assert int(warp_logits(torch.zeros(1, 6), top_k=2).isfinite().sum()) == 2


@pytest.mark.parametrize(
    "name, value", [("temperature", 0.0), ("temperature", -1.0), ("top_k", 0), ("top_p", 0.0), ("top_p", 1.1)]
)
def test_warp_logits_refuses_what_it_cannot_mean(name, value):
    with pytest.raises(ValueError, match=f"{name}: got {value}"):
        warp_logits(PROBABILITIES.log(), **{name: value})


# Beams


def hypotheses(model, row, n):
    """Every text of at most n tokens, and its log-probability."""
    words = range(1, WORDS)
    for length in range(1, n + 1):
        for tokens in itertools.product([w for w in words if w != EOS], repeat=length - 1):
            last = [EOS] if length < n else words
            log_p = sum(float(logits_of(model, tokens[:i], row).log_softmax(-1)[tokens[i]]) for i in range(length - 1))
            end = logits_of(model, tokens, row).log_softmax(-1)
            for word in last:
                yield [*tokens, word], log_p + float(end[word])


@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("name", ["Seq2Seq", "EncoderDecoder"])
def test_with_enough_beams_the_search_is_exhaustive(name, penalty):
    model, n = MODELS[name](), 2
    beams = beam_search(model, SOURCE, LENGTHS, n_beams=WORDS - 1, length_penalty=penalty, max_length=n)
    for row in range(3):
        scored = [(log_p / ((5 + len(y)) / 6) ** penalty, y) for y, log_p in hypotheses(model, row, n)]
        expected = sorted(scored, reverse=True)
        assert real(beams.tokens[row, 0]) == expected[0][1]
        assert math.isclose(float(beams.scores[row, 0]), expected[0][0], abs_tol=1e-10)


def test_a_hypothesis_scores_its_normalised_log_probability(model):
    beams = beam_search(model, SOURCE, LENGTHS, n_beams=3, length_penalty=0.6, max_length=6)
    for row in range(3):
        for tokens, score in zip(beams.tokens[row], beams.scores[row].tolist(), strict=True):
            tokens = real(tokens)
            beliefs = [logits_of(model, tokens[:i], row).log_softmax(-1) for i in range(len(tokens))]
            log_p = sum(float(belief[word]) for belief, word in zip(beliefs, tokens, strict=True))
            assert math.isclose(score, log_p / ((5 + len(tokens)) / 6) ** 0.6, abs_tol=1e-10)


def test_scores_of_a_half_precision_model_are_sums_in_full_precision():
    model = encoder_decoder().bfloat16()
    beams = beam_search(model, SOURCE, LENGTHS, n_beams=3, length_penalty=0.0, max_length=20)
    with torch.no_grad():
        state, token, log_p = model.start(SOURCE, LENGTHS), torch.full((3,), BOS), 0.0
        for word in real(beams.tokens[0, 0]):
            logits, state, _ = model.step(token, state)
            log_p += float(logits[0].float().log_softmax(-1)[word])
            token = torch.full((3,), word)
    assert math.isclose(float(beams.scores[0, 0]), log_p, abs_tol=1e-4)


def test_where_there_are_fewer_hypotheses_than_beams_the_rest_are_empty():
    beams = beam_search(encoder_decoder(), SOURCE, LENGTHS, n_beams=2 * WORDS, max_length=1)
    found = beams.scores.isfinite()
    assert found.sum(dim=-1).tolist() == [WORDS - 1] * 3
    assert (beams.tokens[~found] == PAD).all() and (beams.tokens[found][:, 0] != PAD).all()


def test_beams_come_best_first_and_each_is_another_text(model):
    beams = beam_search(model, SOURCE, LENGTHS, n_beams=4, max_length=6)
    assert (beams.scores.diff(dim=-1) <= 0).all()
    for row in beams.tokens.tolist():
        assert len({tuple(tokens) for tokens in row}) == 4


def test_one_beam_without_penalty_is_greedy(model):
    beams = beam_search(model, SOURCE, LENGTHS, n_beams=1, length_penalty=0.0, max_length=9).tokens[:, 0]
    expected = greedy(model, SOURCE, LENGTHS, max_length=9).tokens
    assert [real(row) for row in beams] == [real(row) for row in expected]


def test_a_larger_penalty_prefers_longer_texts():
    model = encoder_decoder()

    def length(penalty):
        best = beam_search(model, SOURCE, LENGTHS, 4, penalty, max_length=8).tokens[:, 0]
        return sum(len(real(row)) for row in best)

    assert length(0.0) < length(3.0)


def test_beams_of_a_source_do_not_depend_on_the_batch(model):
    together = beam_search(model, SOURCE, LENGTHS, 3, max_length=6)
    for row, n in enumerate(LENGTHS.tolist()):
        alone = beam_search(model, SOURCE[row : row + 1, :n], LENGTHS[row : row + 1], 3, max_length=6)
        assert [real(t) for t in alone.tokens[0]] == [real(t) for t in together.tokens[row]]


def test_a_finished_source_leaves_the_beam():
    model = encoder_decoder()
    steps = count_steps(model)
    beam_search(model, SOURCE, LENGTHS, 2, length_penalty=0.0, max_length=9)
    assert steps[0] == 3 * 2 and steps[-1] < 3 * 2


def test_beam_search_continues_a_prompt():
    model = language_model()
    beams = beam_search(model, torch.tensor([[4, 5, 6]]), torch.tensor([3]), 1, 0.0, max_length=5)
    assert real(beams.tokens[0, 0]) == continuation(model, [4, 5, 6], 5)


def test_beam_search_refuses_what_it_cannot_mean():
    model = encoder_decoder()
    with pytest.raises(ValueError, match="n_beams: got 0"):
        beam_search(model, SOURCE, LENGTHS, 0)
    with pytest.raises(ValueError, match="length_penalty: got -1"):
        beam_search(model, SOURCE, LENGTHS, 2, -1.0)
    with pytest.raises(ValueError, match="expected prompts of one length"):
        beam_search(language_model(), SOURCE, LENGTHS, 2)
    with pytest.raises(ValueError, match="max_length: got 0, expected at least 1"):
        greedy(model, SOURCE, LENGTHS, max_length=0)


# Standing in for a model


def always(model, token):
    """The model, saying one token for ever."""
    head = model.decoder.output if isinstance(model, Seq2Seq) else model.output
    torch.nn.init.zeros_(head.weight)
    if head.bias is None:
        head.bias = torch.nn.Parameter(torch.zeros(WORDS, dtype=head.weight.dtype))
    torch.nn.init.zeros_(head.bias)
    head.bias.data[token] = 9.0
    return model


def count_steps(model):
    """A list that grows by the number of rows with each step."""
    steps, step = [], model.step

    def counting(token, *rest):
        steps.append(len(token))
        return step(token, *rest)

    model.step = counting
    return steps
