"""The records of heads hold what lecture 07 says of them, and their measures read what they name."""

import random

import pytest
import torch

import benchmarks
from attncourse.data.gossip import ADVERBS, NAMES, VOCABULARY, WOMEN, Gossip, gossip, tell
from attncourse_lessons.l07_many_heads.low_rank import fitted
from attncourse_lessons.l07_many_heads.patching import (
    Reader,
    answers_with,
    beyond_the_sum,
    givers,
    guessing,
    mean_ablated,
    renamed,
    rows_at,
)
from attncourse_lessons.results import measured


@pytest.fixture(scope="module")
def benchmark():
    return benchmarks.load("induction")


@pytest.fixture(scope="module")
def readers():
    return benchmarks.load("gossip_heads")


def test_the_record_has_the_same_seeds_for_one_block_for_two_and_for_one_of_two_heads():
    record = measured("induction")
    seeds = {}
    for run in record["runs"]:
        seeds.setdefault((run["layers"], run["heads"]), []).append(run["seed"])
    assert [*seeds] == [(1, 1), (2, 1), (1, 2)]
    assert seeds[1, 1] == seeds[2, 1] == record["seeds"] and seeds[1, 2] == record["seeds"][:3]


def test_a_text_repeats_after_its_period(benchmark):
    texts, period = benchmark.repeating(20, torch.Generator().manual_seed(0))
    for text, n in zip(texts, period[:, 0].tolist(), strict=True):
        assert benchmark.SHORTEST <= n <= benchmark.LONGEST
        assert torch.equal(text[n:], text[:-n])


def test_only_letters_that_can_be_known_count_as_repeated(benchmark):
    period = torch.tensor([[10]])
    losses = torch.zeros(1, benchmark.N - 1)
    losses[0, :10] = 1.0  # of letters 1 to 9, and of letter 10, the first of the repetition
    assert benchmark.on_repeated(losses, period) == 0
    losses[0, 10] = 1.0
    assert benchmark.on_repeated(losses, period) > 0


def test_a_head_that_attends_to_the_letter_that_followed_has_a_weight_of_one(benchmark):
    texts, period = benchmark.repeating(5, torch.Generator().manual_seed(0))

    def model(tokens, with_weights):
        n = tokens.shape[1]
        followed = (torch.arange(1, n + 1) - period).clamp(min=0)                # (batch, n)
        return None, torch.nn.functional.one_hot(followed, n).float()[:, None, None]

    assert benchmark.induction(model, texts, period) == 1


def test_of_several_heads_the_one_that_attends_most_counts(benchmark):
    texts, period = benchmark.repeating(5, torch.Generator().manual_seed(0))

    def model(tokens, with_weights):
        n = tokens.shape[1]
        followed = (torch.arange(1, n + 1) - period).clamp(min=0)                # (batch, n)
        weights = torch.nn.functional.one_hot(followed, n).float()               # (batch, n, n)
        return None, torch.stack([torch.zeros_like(weights), weights], dim=1)[:, None]

    assert benchmark.induction(model, texts, period) == 1


def test_silencing_a_block_leaves_the_other_as_it_was(benchmark):
    torch.manual_seed(0)
    config = benchmark.TransformerConfig(vocab_size=benchmark.LETTERS, d_model=8, n_layers=2, n_heads=1)
    model = benchmark.LanguageModel(config)
    changed = {
        name for name, tensor in benchmark.silenced(model, 0).state_dict().items()
        if not torch.equal(tensor, model.state_dict()[name])
    }  # fmt: skip
    assert changed == {"decoder.stack.blocks.0.attention.sublayer.output.weight"}


def test_in_thirty_seeds_a_head_attends_and_is_not_missed_and_pronouns_need_the_first_layer():
    runs = measured("gossip_heads")["runs"]
    assert len({run["seed"] for run in runs}) == 30
    assert all(run["unmissed"] and run["by_pronoun"] < 0.9 < 0.99 < run["by_name"] for run in runs)
    assert all(len(pair["control"]) == 6 for run in runs for pair in run["unmissed"])


def test_silencing_heads_zeroes_their_columns_alone(readers, monkeypatch):
    torch.manual_seed(0)
    model, seen = readers.Reader(8), []
    monkeypatch.setattr(readers, "right", lambda silenced, told: seen.append(silenced) or torch.ones(len(told.kind)))
    readers.without(model, [(0, 1), (1, 3)], readers.gossip(2, random.Random(0)))
    for layer, head in readers.HEADS:
        before, after = (m.encoder.stack.blocks[layer].attention.sublayer.output.weight for m in (model, seen[0]))
        block = slice(2 * head, 2 * head + 2)
        expected = torch.zeros(8, 2) if (layer, head) in ((0, 1), (1, 3)) else before[:, block]
        assert torch.equal(after[:, block], expected)


def test_a_partner_is_the_other_head_that_attends_to_the_name_most(readers, monkeypatch):
    weights = torch.zeros(8, 3)
    weights[2, 0], weights[5, 0] = 0.9, 0.3
    monkeypatch.setattr(readers, "weight_on_name", lambda model, told: weights)
    shares = {0: 1.0, 1: 0.99, 2: 0.6}
    monkeypatch.setattr(readers, "without", lambda model, heads, told: torch.full((3,), shares[len(heads)]))
    (found,) = readers.unmissed(None, None, None)
    assert found["heads"] == [(0, 2), (1, 1)] and found["question"] == readers.QUESTIONS[0]
    assert found["lost"] == pytest.approx([0.01, 0.01, 0.4]) and found["control"] == pytest.approx([0.38] * 6)


# The questions of a sentence, and vectors that are put into another run


@pytest.fixture
def told():
    return gossip(40, random.Random(3))


def test_givers_are_sorted_by_what_stands_at_the_verb_as_the_giver(told):
    name, pronoun, means = givers(told)
    words = [[VOCABULARY[token] for token in row] for row in told.tokens.tolist()]
    assert len(name) + len(pronoun) == int((told.kind == 0).sum()) and len(name) and len(pronoun)
    for question, of_pronoun in zip(pronoun.tolist(), means.tolist(), strict=True):
        assert words[told.sentence[of_pronoun]][told.asker[of_pronoun]] in ("he", "she")
        assert told.answer[question] == told.answer[of_pronoun] and told.sentence[question] == told.sentence[of_pronoun]
        assert told.asker[of_pronoun] < told.asker[question]
    between = [words[told.sentence[i]][told.place[i] + 1 : told.asker[i]] for i in name.tolist()]
    assert all({*found} <= {*ADVERBS} for found in between)                      # the name stands before its verb


def test_a_sentence_and_its_renamed_one_differ_in_the_one_whom_the_pronoun_means(told):
    here, other, pronoun = renamed(told)
    assert len(pronoun) and here.sentence.tolist() == list(range(len(pronoun)))
    for i, place in enumerate(pronoun.tolist()):
        apart = (here.tokens[i] != other.tokens[i]).nonzero()[:, 0].tolist()
        assert apart == [here.place[i]] and VOCABULARY[here.tokens[i, place]] in ("he", "she")
        old, new = NAMES[here.answer[i]], NAMES[other.answer[i]]
        assert (old in WOMEN) == (new in WOMEN) and VOCABULARY.index(new) not in here.tokens[i]


def test_what_is_put_into_a_run_is_what_the_other_run_had_there(readers, told):
    torch.manual_seed(0)
    model, (here, other, pronoun) = readers.Reader(8), renamed(told)
    block = model.encoder.stack.blocks[0]
    rows = rows_at(model, block, other, pronoun)
    with torch.no_grad():
        usual = model(here).argmax(dim=-1)
    own = rows_at(model, block, here, pronoun)
    assert torch.equal(answers_with(model, here, block, pronoun, own), usual)    # its own vectors change nothing
    seen = []
    hook = model.encoder.stack.blocks[1].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    answers_with(model, here, block, pronoun, rows)
    hook.remove()
    assert torch.equal(seen[0][here.sentence, pronoun], rows)
    assert not any(module._forward_hooks for module in model.modules())          # none is left behind


def test_a_guess_is_among_the_names_before_the_pronoun():
    words, questions = tell(2, random.Random(26))                                # Ida showed Anna … because she …
    tokens = torch.tensor([[VOCABULARY.index(word) for word in words]])
    (verb,) = [i for i, question in enumerate(questions) if words[question.asker] == "sold" and question.kind == 0]
    told = Gossip(tokens, torch.tensor([len(words)]), torch.zeros(len(questions), dtype=torch.long),
                  *torch.tensor([tuple(question) for question in questions]).unbind(dim=1))  # fmt: skip
    assert guessing(told, torch.tensor([verb]), torch.tensor([words.index("she")])) == {"all": 0.5, "of that sex": 0.5}


def test_a_mean_ablation_makes_a_head_say_one_thing_everywhere_and_ends_with_its_block():
    torch.manual_seed(0)
    model, told = Reader().eval(), gossip(6, random.Random(0))
    seen = []
    output = model.encoder.stack.blocks[1].attention.sublayer.output
    before = model(told)
    with mean_ablated(model, told, 1, 2):
        watch = output.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
        assert not torch.allclose(model(told), before)
        watch.remove()
    (x,) = seen
    assert torch.equal(x[..., 32:48], x[:1, :1, 32:48].expand_as(x[..., 32:48])) and x[..., :32].std(dim=1).min() > 0
    assert torch.equal(model(told), before)


def test_what_is_lost_beyond_the_sum_is_counted_by_case_and_by_seed():
    pairs = [{"lost": [0.1, 0.2, 0.5], "control": [0.0, 0.2]}, {"lost": [0.0, 0.01, 0.11], "control": [0.3, 0.3]}]
    found = beyond_the_sum([{"seed": 4, "unmissed": pairs}])
    assert [pytest.approx(case) for case in found.cases] == [(0.2, 0.1, 0.2, 0.2), (0.1, 0.3, 0.3, 0.01)]
    assert found.seeds == {"4": pytest.approx((0.15, 0.2))}


def test_weights_of_one_column_cannot_find_seven_days_and_two_can():
    wanted = torch.eye(7).roll(1, dims=1)[None]
    assert fitted(wanted, 1).item() < 0.8 < 0.95 < fitted(wanted, 2).item()
