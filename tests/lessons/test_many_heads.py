"""The records of heads hold what lecture 07 says of them, and their measures read what they name."""

import random
from statistics import mean, stdev

import pytest
import torch

import benchmarks
from attncourse.data.gossip import ADVERBS, NAMES, VOCABULARY, WOMEN, gossip
from attncourse.transformer import Weights
from attncourse_lessons.l07_many_heads.patching import (
    Reader,
    answers_with,
    answers_with_heads,
    beyond_the_sum,
    givers,
    mean_ablated,
    renamed,
    renamed_receivers,
    rows_at,
    weight_on,
    weight_on_name,
)
from attncourse_lessons.l07_many_heads.timing import milliseconds
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


def test_one_block_of_one_head_or_two_does_not_learn_to_repeat_and_two_blocks_do_by_a_stripe_that_needs_the_first():
    runs = measured("induction")["runs"]
    one, two = ([run for run in runs if run["layers"] == n] for n in (1, 2))
    assert runs[5:10] == two and min(run["repeated"] for run in one) > 2.1
    solved = [run for run in two if run["induction"] > 0.5]
    assert [run["seed"] for run in two if run not in solved] == [3] and max(run["repeated"] for run in solved) < 0.06
    assert max(run["cut"] for run in solved) < 0.05 and min(run["without"][0] for run in solved) > 3.2


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


def test_two_to_five_heads_can_go_and_never_all_that_can_each_go_alone():
    runs = measured("gossip_heads")["runs"]
    assert {sum(share >= 0.9 for share in run["worst"][1:]) for run in runs} == {2, 3, 4, 5}
    assert max(run["together"] for run in runs) < 0.9


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


def test_the_weight_on_a_name_is_each_heads_mean_over_a_question(told):
    torch.manual_seed(0)
    model, seen = Reader().eval(), Weights()
    with torch.no_grad():
        model.encoder(told.tokens, told.lengths, weights=seen)
    found = weight_on_name(model, told)
    assert found.shape == (8, 3)
    for row, (layer, head) in enumerate((layer, head) for layer in range(2) for head in range(4)):
        for kind in range(3):
            asked = [i for i in range(len(told.kind)) if told.kind[i] == kind]
            each = [seen.self_attn[layer][told.sentence[i], head, told.asker[i], told.place[i]].item() for i in asked]
            assert found[row, kind].item() == pytest.approx(mean(each), abs=1e-6)


def test_the_time_of_attention_is_that_of_three_steps():
    taken = milliseconds(*torch.randn(3, 1, 2, 64, 8))
    assert len(taken) == 3 and min(taken) >= 0


def test_the_weight_on_a_place_is_each_heads_and_follows_a_key_that_is_exchanged(told):
    torch.manual_seed(0)
    model, (here, _, pronoun) = Reader().eval(), renamed(told)
    seen = Weights()
    with torch.no_grad():
        model.encoder(here.tokens, here.lengths, weights=seen)
    usual = weight_on(model, here, pronoun)
    for head in range(4):
        each = [seen.self_attn[1][i, head, int(here.asker[i]), int(pronoun[i])] for i in range(len(pronoun))]
        assert usual[head].item() == pytest.approx(torch.stack(each).mean().item(), abs=1e-6)
    key = model.encoder.stack.blocks[1].attention.sublayer.key
    own = rows_at(model, key, here, pronoun)
    assert torch.allclose(weight_on(model, here, pronoun, key, own), usual)
    assert (weight_on(model, here, pronoun, key, 100 * own) - usual).abs().min() > 1e-3
    assert not key._forward_hooks


def test_what_is_lost_beyond_the_sum_is_counted_by_case_and_by_seed():
    pairs = [{"lost": [0.1, 0.2, 0.5], "control": [0.0, 0.2]}, {"lost": [0.0, 0.01, 0.11], "control": [0.3, 0.3]}]
    found = beyond_the_sum([{"seed": 4, "unmissed": pairs}])
    assert [pytest.approx(case) for case in found.cases] == [(0.2, 0.1, 0.2), (0.1, 0.3, 0.3)]
    assert found.seeds == {"4": pytest.approx((0.15, 0.2))}


def test_a_partner_costs_more_than_another_head_in_nearly_every_seed_and_than_each_of_six_in_half_of_the_cases():
    cases, seeds = beyond_the_sum(measured("gossip_heads")["runs"])
    gaps = [partner - another for partner, another in seeds.values()]
    assert len(gaps) == 30 and sum(gap > 0 for gap in gaps) == 29 and mean(gaps) > 2.05 * stdev(gaps) / 30**0.5
    assert len(cases) == 137 and sum(case[0] > case[2] for case in cases) == 76


def test_a_receiver_has_another_name_of_the_same_sex_that_the_sentence_did_not_have(told):
    here, other = renamed_receivers(told)
    assert len(here.kind) and set(here.kind.tolist()) == {1} and here.sentence.tolist() == list(range(len(here.kind)))
    for i, place in enumerate(here.place.tolist()):
        assert (here.tokens[i] != other.tokens[i]).nonzero()[:, 0].tolist() == [place]
        old, new = (VOCABULARY[int(text.tokens[i, place])] for text in (here, other))
        assert (old in WOMEN) == (new in WOMEN) and VOCABULARY.index(new) not in here.tokens[i].tolist()


def test_heads_of_another_run_change_the_answers_as_if_the_verbs_vector_were_exchanged_and_no_hook_stays(told):
    torch.manual_seed(0)
    model, (here, other) = Reader().eval(), renamed_receivers(told)
    attention = model.encoder.stack.blocks[1].attention.sublayer
    with torch.no_grad():
        usual, changed = model(here).argmax(dim=-1), model(other)
    assert torch.equal(answers_with_heads(model, here, here, 1, [0, 1, 2, 3]), usual)
    all_heads = answers_with_heads(model, here, other, 1, [0, 1, 2, 3])
    rows = rows_at(model, attention, other, here.asker)                          # what all heads write at the verbs
    assert torch.equal(all_heads, answers_with(model, here, attention, here.asker, rows))
    assert changed.shape[0] == len(rows)
    assert not attention.output._forward_pre_hooks
