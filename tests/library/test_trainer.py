"""A run can be killed, resumed, stopped and spread over processes, and is the same run still."""

import json
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from two_processes import CONFIG, pairs

from attncourse.counting import count_training_flops
from attncourse.data import BOS, PAD, Pair, collate, epoch_batches, pad_batch
from attncourse.recurrent import RecurrentLanguageModel, Seq2Seq
from attncourse.training import checkpoints, distributed, hardware, trainer
from attncourse.training.distributed import DistributedContext
from attncourse.training.examples import Examples, Pairs, Texts
from attncourse.training.micro_batches import plan
from attncourse.training.recipe import Recipe, cosine, inverse_sqrt
from attncourse.training.trainer import NonFiniteLoss, make_optimizer, recomputing, train
from attncourse.transformer import EncoderDecoder, LanguageModel
from commandkit.errors import CommandError

RECIPE = Recipe(steps=20, batch_tokens=40, warmup=4, lr=1e-2, evaluate_every=8, save_every=3, ema=0.9)


def build(**changes):
    torch.manual_seed(0)
    return EncoderDecoder(replace(CONFIG, **changes))


def sum_of_weights(model):
    return {"bleu": float(sum(p.abs().sum() for p in model.parameters()))}


def what_a_run_is(losses):
    """The columns that do not depend on how fast the machine was."""
    lines = [line.split(",")[:4] for line in losses.read_text().splitlines()]
    assert lines[0] == ["step", "loss", "lr", "gradient"]
    return lines


class Killed(Exception):
    pass


def kill_at(step):
    def listen(progress):
        if progress.step == step:
            raise Killed

    return listen


# A run that was cut off


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    return train(build(dropout=0.2), pairs(), RECIPE, tmp_path_factory.mktemp("run"), sum_of_weights)


@pytest.mark.parametrize("step", [3, 4, 8, 17])
def test_a_killed_run_goes_on_with_the_losses_of_an_unbroken_one_to_the_last_bit(step, unbroken, tmp_path):
    with pytest.raises(Killed):
        train(build(dropout=0.2), pairs(), RECIPE, tmp_path, sum_of_weights, listeners=[kill_at(step)])
    resumed = train(build(dropout=0.2), pairs(), RECIPE, tmp_path, sum_of_weights, resume=True)
    assert resumed.steps == unbroken.steps
    assert resumed.scores == unbroken.scores and resumed.best == unbroken.best
    assert resumed.tokens == unbroken.tokens


def test_what_is_resumed_has_the_weights_of_the_unbroken_run(unbroken, tmp_path):
    whole = build(dropout=0.2)
    train(whole, pairs(), RECIPE, tmp_path / "whole", sum_of_weights)
    with pytest.raises(Killed):
        train(build(dropout=0.2), pairs(), RECIPE, tmp_path / "cut", sum_of_weights, listeners=[kill_at(10)])
    resumed = build(dropout=0.2)
    train(resumed, pairs(), RECIPE, tmp_path / "cut", sum_of_weights, resume=True)
    for ours, theirs in zip(resumed.parameters(), whole.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.slow
def test_a_process_that_is_killed_outright_leaves_a_run_to_resume(tmp_path):
    command = [sys.executable, str(Path(__file__).with_name("two_processes.py")), str(tmp_path), "1", "ddp"]
    with subprocess.Popen([*command, "100000"], stdout=subprocess.PIPE) as process:
        while not (tmp_path / "scores.csv").exists() or "10" not in (tmp_path / "scores.csv").read_text():
            assert process.poll() is None
        process.kill()
    done = checkpoints.load_tensors(tmp_path / "checkpoint.safetensors").notes["step"]
    resumed = json.loads(subprocess.run([*command, str(done + 4)], capture_output=True, check=True).stdout)
    fresh = [*command[:2], str(tmp_path / "fresh"), *command[3:], str(done + 4)]
    unbroken = json.loads(subprocess.run(fresh, capture_output=True, check=True).stdout)
    assert resumed["losses"] == unbroken["losses"]


def test_ctrl_c_ends_the_run_behind_the_step_under_way_and_nothing_is_lost(unbroken, tmp_path):
    def interrupt(progress):
        if progress.step == 10:
            os.kill(os.getpid(), signal.SIGINT)

    stopped = train(build(dropout=0.2), pairs(), RECIPE, tmp_path, sum_of_weights, listeners=[interrupt])
    assert stopped.ended == "interrupted" and stopped.step == 11
    resumed = train(build(dropout=0.2), pairs(), RECIPE, tmp_path, sum_of_weights, resume=True)
    assert resumed.ended == "steps" and resumed.steps == unbroken.steps


def test_ctrl_c_ends_an_evaluation_at_once_and_it_is_made_up_for(unbroken, tmp_path):
    def interrupted(model):
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("the evaluation went on")

    progress = train(build(dropout=0.2), pairs(), RECIPE, tmp_path, interrupted)
    assert progress.ended == "interrupted" and progress.step == 8 and not progress.scores
    resumed = train(build(dropout=0.2), pairs(), RECIPE, tmp_path, sum_of_weights, resume=True)
    assert resumed.scores == unbroken.scores and resumed.steps == unbroken.steps


def test_a_run_that_was_stopped_in_its_last_evaluation_only_evaluates_when_it_is_resumed(unbroken, tmp_path):
    def interrupted(model):
        if (tmp_path / "scores.csv").exists() and "16" in (tmp_path / "scores.csv").read_text():
            os.kill(os.getpid(), signal.SIGINT)
        return sum_of_weights(model)

    assert train(build(dropout=0.2), pairs(), RECIPE, tmp_path, interrupted).ended == "interrupted"
    resumed = train(build(dropout=0.2), pairs(), RECIPE, tmp_path, sum_of_weights, resume=True)
    assert resumed.ended == "steps" and resumed.scores == unbroken.scores and resumed.steps == unbroken.steps


def test_a_run_that_was_stopped_before_its_first_evaluation_has_weights_to_use(tmp_path):
    def interrupt(progress):
        if progress.step == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    train(build(), pairs(), RECIPE, tmp_path, sum_of_weights, listeners=[interrupt])
    checkpoints.restore(build(), checkpoints.load_tensors(tmp_path / "weights.safetensors").tensors, "weights")


def test_a_run_that_ended_for_want_of_progress_takes_no_step_more_when_it_is_resumed(tmp_path):
    recipe = replace(RECIPE, evaluate_every=2, patience=2)
    ended = train(build(), pairs(), recipe, tmp_path, lambda model: {"bleu": 1.0})
    resumed = train(build(), pairs(), recipe, tmp_path, lambda model: {"bleu": 1.0}, resume=True)
    assert ended.ended == resumed.ended == "patience"
    assert resumed.step == ended.step == 6 and resumed.scores == ended.scores


def test_a_resumed_runs_tables_are_written_as_an_unbroken_ones_are(tmp_path):
    recipe = replace(RECIPE, evaluate_every=2)
    train(build(), pairs(), replace(recipe, steps=8), tmp_path / "whole", sum_of_weights)
    train(build(), pairs(), replace(recipe, steps=6), tmp_path / "cut", sum_of_weights)
    train(build(), pairs(), replace(recipe, steps=8), tmp_path / "cut", sum_of_weights, resume=True)
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    assert (cut / "scores.csv").read_bytes() == (whole / "scores.csv").read_bytes()
    assert what_a_run_is(cut / "losses.csv") == what_a_run_is(whole / "losses.csv")


def test_what_a_process_killed_while_it_wrote_left_is_taken_away(tmp_path):
    train(build(), pairs(), replace(RECIPE, steps=3), tmp_path)
    half = tmp_path / ".checkpoint.safetensors-12345.part"
    half.write_bytes(b"half")
    train(build(), pairs(), replace(RECIPE, steps=4), tmp_path, resume=True)
    assert not half.exists()


def test_a_parameter_that_never_gets_a_gradient_is_saved_and_resumed(tmp_path):
    def frozen():
        model = build()
        model.output.weight.requires_grad_(False)
        return model

    whole = train(frozen(), pairs(), RECIPE, tmp_path / "whole")
    train(frozen(), pairs(), replace(RECIPE, steps=6), tmp_path / "cut")
    assert train(frozen(), pairs(), RECIPE, tmp_path / "cut", resume=True).steps == whole.steps


def test_the_second_ctrl_c_is_let_through(tmp_path):
    def interrupt_twice(progress):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(build(), pairs(), RECIPE, tmp_path, listeners=[interrupt_twice])
    assert signal.getsignal(signal.SIGINT) is before


def test_a_new_run_in_an_old_folder_leaves_nothing_of_the_old_one(tmp_path):
    train(build(), pairs(), RECIPE, tmp_path, sum_of_weights)
    with pytest.raises(Killed):
        train(build(), pairs(), RECIPE, tmp_path, sum_of_weights, listeners=[kill_at(1)])
    assert not list(tmp_path.iterdir())


# A step


def test_micro_batches_add_up_to_the_step_of_one_large_batch():
    data = [pair for pair in pairs(100) if len(pair.target) == 5][:8]
    whole = replace(RECIPE, batch_tokens=8 * 6, steps=5)
    halves = replace(whole, batch_tokens=4 * 6, accumulate=2)
    expected, measured = (train(build(), data, recipe).steps for recipe in (whole, halves))
    assert [step.loss for step in measured] == pytest.approx([step.loss for step in expected], abs=1e-4)
    assert [step.gradient for step in measured] == pytest.approx([step.gradient for step in expected], rel=1e-3)


def test_the_tokens_of_a_run_are_those_of_its_targets_without_padding():
    data = pairs(9)
    recipe = replace(RECIPE, batch_tokens=24, steps=len(epoch_batches(data, 24, seed=0, epoch=0)))
    assert train(build(), data, recipe).tokens == sum(len(pair.target) + 1 for pair in data)


def test_the_loss_of_a_step_is_the_mean_over_its_real_tokens_label_smoothing_and_all():
    data, seen = pairs(9), []
    recipe = replace(RECIPE, batch_tokens=10_000, steps=1)
    model = build()
    expected = build()
    train(model, data, recipe, listeners=[lambda progress: seen.append(progress.steps[0].loss)])
    batch = collate(data)
    logits = expected(batch.source, batch.lengths, batch.target_in).flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(
        logits, batch.target_out.flatten(), ignore_index=PAD, label_smoothing=recipe.label_smoothing
    )
    assert seen[0] == pytest.approx(loss.item(), abs=1e-5)


def test_the_average_is_what_is_evaluated_and_kept():
    evaluated = []
    first = build()
    begun = [p.detach().clone() for p in first.parameters()]
    raw = build()
    train(raw, pairs(), replace(RECIPE, ema=0.0, steps=1, evaluate_every=1))
    averaged = build()

    def evaluate(model):
        evaluated.append([p.clone() for p in model.parameters()])
        return {"bleu": 1.0}

    train(averaged, pairs(), replace(RECIPE, ema=0.9, steps=1, evaluate_every=1), evaluate=evaluate)
    for start, step, kept, asked in zip(begun, raw.parameters(), averaged.parameters(), evaluated[0], strict=True):
        torch.testing.assert_close(kept, 0.9 * start + 0.1 * step)
        assert torch.equal(kept, asked)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_sixteen_bits_learn_as_well(precision):
    losses = [step.loss for step in train(build(), pairs(), replace(RECIPE, steps=40, precision=precision)).steps]
    assert losses[-1] < losses[0] - 0.3


def test_the_best_weights_are_kept_and_the_run_stops_when_it_gets_no_better(tmp_path):
    given = iter([1.0, 3.0, 2.0, 2.5, 99.0])
    kept = []

    def evaluate(model):
        score = next(given)
        kept.append((score, [p.clone() for p in model.parameters()]))
        return {"bleu": score}

    model = build()
    progress = train(model, pairs(), replace(RECIPE, steps=50, evaluate_every=2, patience=2), tmp_path, evaluate)
    assert progress.ended == "patience" and progress.step == 8
    assert progress.best == {"step": 4, "bleu": 3.0}
    for ours, best in zip(model.parameters(), kept[1][1], strict=True):
        assert torch.equal(ours, best)
    saved = build()
    checkpoints.restore(saved, checkpoints.load_tensors(tmp_path / "weights.safetensors").tensors, "weights")
    assert torch.equal(saved.output.weight, model.output.weight)


def test_of_losses_the_lowest_is_the_best():
    given = iter([2.0, 1.0, 3.0])
    recipe = replace(RECIPE, steps=6, evaluate_every=2)
    progress = train(build(), pairs(), recipe, evaluate=lambda model: {"loss": next(given)}, best_by="loss")
    assert progress.best == {"step": 4, "loss": 1.0}


def test_a_model_without_a_loss_of_its_own_is_trained_by_its_logits():
    torch.manual_seed(0)
    model = Seq2Seq(20, 20, d_embedding=8, d_hidden=16)
    losses = [step.loss for step in train(model, pairs(), replace(RECIPE, steps=60)).steps]
    assert losses[-1] < losses[0] - 0.3


def test_a_step_that_the_scaler_leaves_out_can_be_saved(tmp_path):
    class Steep(EncoderDecoder):
        def loss(self, *batch, **options):
            return super().loss(*batch, **options) * 1e4

    torch.manual_seed(0)
    progress = train(Steep(CONFIG), pairs(), replace(RECIPE, steps=1, precision="fp16"), tmp_path)
    assert not math.isfinite(progress.steps[0].gradient)
    saved = checkpoints.load_tensors(tmp_path / "checkpoint.safetensors").tensors
    assert all(tensor.isfinite().all() for tensor in saved.values())


# What it is trained on


def texts(n=40):
    return [[BOS, *pair.source, *pair.target] for pair in pairs(n)]


def language_model(**changes):
    torch.manual_seed(0)
    return LanguageModel(replace(CONFIG, **changes))


@pytest.mark.parametrize("build", [language_model, lambda: RecurrentLanguageModel(20, 16)], ids=["causal", "recurrent"])
def test_a_language_model_learns_from_lists_of_token_ids(build):
    torch.manual_seed(0)
    losses = [step.loss for step in train(build(), texts(), replace(RECIPE, steps=60)).steps]
    assert losses[-1] < losses[0] - 0.15


def test_a_language_models_run_goes_on_as_if_it_had_not_been_cut_off(tmp_path):
    unbroken = train(language_model(dropout=0.2), texts(), RECIPE)
    with pytest.raises(Killed):
        train(language_model(dropout=0.2), texts(), RECIPE, tmp_path, listeners=[kill_at(10)])
    assert train(language_model(dropout=0.2), texts(), RECIPE, tmp_path, resume=True).steps == unbroken.steps


def test_a_step_over_texts_is_the_mean_over_their_real_tokens():
    model, data = language_model(), texts(9)
    tokens, _ = pad_batch(data)
    logits = model(tokens[:, :-1])
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=PAD)
    recipe = replace(RECIPE, batch_tokens=10_000, steps=1, label_smoothing=0.0)
    progress = train(model, data, recipe)
    assert progress.steps[0].loss == pytest.approx(expected.item(), abs=1e-5)
    assert progress.tokens == sum(len(text) - 1 for text in data)


def test_texts_longer_than_the_positions_are_cut_and_every_token_is_predicted_once():
    data = texts(9)
    recipe = replace(RECIPE, batch_tokens=10_000, steps=1)
    progress = train(language_model(positions="learned", max_length=4), data, recipe)
    assert progress.tokens == sum(len(text) - 1 for text in data)


class Points(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


class Line(Examples):
    """Points on y = 3 x, to be found out by a model with a loss of its own."""

    def n_targets(self, example):
        return 1

    def collate(self, examples):
        return Points(*torch.tensor(examples).T)


class Slope(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros(()))

    def loss(self, x, y, label_smoothing):
        return (self.a * x - y).square().mean()


def test_anything_with_a_loss_is_trained():
    model = Slope()
    train(model, Line([(x, 3 * x) for x in torch.linspace(-1, 1, 30).tolist()]), Recipe(steps=200, lr=0.1, warmup=200))
    assert model.a.item() == pytest.approx(3, abs=0.05)


@pytest.mark.parametrize(
    "data, kind, said",
    [
        (lambda: [Pair("ein", "one")], TypeError, "data: got Pair, expected EncodedPair"),
        (lambda: ["ein", "zwei"], TypeError, "data: got str"),
        (lambda: [[1, 5, 6], [1]], ValueError, r"texts[1]: got 1 tokens, expected <bos> and at least one"),
        (lambda: Line([]), ValueError, "examples: got none"),
        (lambda: Texts([[1] * 9]), ValueError, "texts[0]: got 8 tokens, expected at most 4"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_at_the_door(data, kind, said):
    with pytest.raises(kind, match=re.escape(said)):
        train(language_model(positions="learned", max_length=4), data(), RECIPE)


# Memory and speed


def gradients_of_a_step(recompute, **choices):
    model = build(dropout=0.2, dropout_attention=0.1, dropout_ff=0.1, n_layers=2, **choices).train()
    kept = []

    def keep(tensor):
        kept.append(tensor.numel())
        return tensor

    batch = Pairs(pairs()).collate(pairs(9))
    with recomputing(model, recompute):
        torch.manual_seed(1)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = Pairs(pairs()).loss(model, compiled=False)(*batch, label_smoothing=0.1)
        loss.backward()
    return [p.grad for p in model.parameters()], sum(kept)


@pytest.mark.parametrize("positions", ["sinusoidal", "rope", "shaw", "bucketed"])
def test_activation_checkpointing_keeps_less_and_changes_no_gradient_dropout_and_all(positions):
    plain, much = gradients_of_a_step(False, positions=positions)
    again, little = gradients_of_a_step(True, positions=positions)
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))
    assert little < much / 4


def test_a_recipe_with_activation_checkpointing_takes_the_same_steps_and_may_be_turned_to(tmp_path):
    recipe = replace(RECIPE, activation_checkpointing=True)
    plain = train(build(dropout=0.2), pairs(), RECIPE)
    assert train(model := build(dropout=0.2), pairs(), recipe).steps == plain.steps
    assert not any(getattr(part, "activation_checkpointing", False) for part in model.modules())
    with pytest.raises(Killed):
        train(build(dropout=0.2), pairs(), RECIPE, tmp_path, listeners=[kill_at(10)])
    assert train(build(dropout=0.2), pairs(), recipe, tmp_path, resume=True).steps == plain.steps
    with pytest.raises(ValueError, match="activation_checkpointing: got True for a Seq2Seq"):
        train(Seq2Seq(20, 20, 8, 16), pairs(), recipe)


def test_weights_decay_in_matrices_alone():
    model = build(positions="learned", max_length=16, share_embedding=False, tie_output=False)
    optimizer = make_optimizer(model, replace(RECIPE, weight_decay=0.1), torch.device("cpu"))
    named = {parameter: name for name, parameter in model.named_parameters()}
    decayed, free = ([named[p] for p in group["params"]] for group in optimizer.param_groups)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    assert set(decayed) | set(free) == set(named.values()) and not set(decayed) & set(free)
    assert all(re.search(r"(query|key|value|output|\d|input|up|down|gate)\.weight$", name) for name in decayed)
    assert {"encoder.embedding.tokens.weight", "decoder.embedding.positions.table"} <= set(free)
    assert all(name.endswith(".bias") or "norm" in name or "embedding" in name for name in free)
    recurrent = make_optimizer(Seq2Seq(20, 20, 8, 16), replace(RECIPE, weight_decay=0.1), torch.device("cpu"))
    assert len(recurrent.param_groups[0]["params"]) >= 6


def test_a_run_with_weight_decay_goes_on_as_if_it_had_not_been_cut_off(tmp_path):
    recipe = replace(RECIPE, weight_decay=0.3)
    unbroken = train(build(), pairs(), recipe)
    assert unbroken.steps != train(build(), pairs(), RECIPE).steps
    with pytest.raises(Killed):
        train(build(), pairs(), recipe, tmp_path, listeners=[kill_at(10)])
    assert train(build(), pairs(), recipe, tmp_path, resume=True).steps == unbroken.steps


def test_each_step_says_how_fast_it_went_and_how_much_of_the_chips_peak_that_is(monkeypatch, tmp_path):
    heard = []
    plain = train(build(), pairs(), RECIPE, tmp_path, listeners=[lambda now: heard.append(now.tokens_per_second)])
    assert all(speed > 0 for speed in heard) and len(heard) == 20
    assert all(step.mfu is None and step.peak_memory is None for step in plain.steps)
    monkeypatch.setattr(trainer, "peak_flops", lambda device, precision: 1e9)
    measured = train(build(), pairs(), RECIPE)
    assert measured.steps == plain.steps                          # what a machine did is no part of what a run is
    step = measured.steps[0]
    first = next(plan(Pairs(pairs()), RECIPE, DistributedContext(0, 1, torch.device("cpu")), 0, build()))
    counted = [count_training_flops(CONFIG, EncoderDecoder, 1, len(pairs()[i].source), len(pairs()[i].target) + 1)
               for i in first.examples]  # fmt: skip
    assert first.step_flops == sum(counted)
    assert step.mfu == pytest.approx(sum(counted) / 1e9 * step.tokens_per_second / first.step_tokens)


def test_tables_of_runs_from_before_there_were_speeds_can_be_resumed(tmp_path):
    train(build(), pairs(), replace(RECIPE, steps=4), tmp_path)
    lines = [",".join(line.split(",")[:4]) for line in (tmp_path / "losses.csv").read_text().splitlines()]
    (tmp_path / "losses.csv").write_text("\n".join(lines))
    assert train(build(), pairs(), replace(RECIPE, steps=6), tmp_path, resume=True).step == 6


# The machine


def test_float32_products_are_tf32_on_a_cuda_gpu_alone_and_afterwards_as_they_were():
    before = torch.get_float32_matmul_precision()
    for device, within in (("cuda", "high"), ("cpu", before), ("mps", before)):
        with hardware.fast_float32(torch.device(device)):
            assert torch.get_float32_matmul_precision() == within
        assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize(
    "device, native, wanted, settled",
    [
        ("cuda", True, "auto", "bf16"), ("cuda", False, "auto", "fp16"), ("cpu", False, "auto", "float32"),
        ("mps", False, "auto", "float32"), ("cuda", False, "float32", "float32"), ("cpu", False, "bf16", "bf16"),
        ("cuda", True, "bf16", "bf16"), ("cuda", False, "fp16", "fp16"),
    ],
)  # fmt: skip
def test_auto_is_the_format_that_is_fast_on_the_device(device, native, wanted, settled, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native)
    assert hardware.settle_precision(wanted, torch.device(device)) == settled


def test_bf16_is_refused_where_it_would_be_emulated(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    with pytest.raises(ValueError, match="precision: got 'bf16' on Tesla T4, which would emulate it, slowly"):
        hardware.settle_precision("bf16", torch.device("cuda"))


def test_the_peak_is_that_of_the_chip_and_of_the_format(monkeypatch):
    names = {"Tesla T4": ("T4", 8.1e12, None), "NVIDIA A100-SXM4-40GB": ("A100", 156e12, 312e12)}
    for name, (chip, single, half) in names.items():
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device, name=name: name)
        device = torch.device("cuda")
        assert hardware.chip_of(device) is hardware.CHIPS[chip]
        assert (hardware.peak_flops(device, "float32"), hardware.peak_flops(device, "bf16")) == (single, half)
    assert hardware.peak_flops(torch.device("cpu"), "float32") is None


def test_without_a_word_on_it_a_run_takes_the_best_device(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(distributed, "best_device", lambda: torch.device("mps"))
    monkeypatch.setattr(distributed, "_usable", torch.device)
    with distributed.distributed_context() as processes:
        assert processes.device == torch.device("mps")


@pytest.mark.parametrize(
    "error, so",
    [
        (torch.OutOfMemoryError("CUDA out of memory."), True), (MemoryError(), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 9 GB)"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("shapes do not fit"), False), (ValueError("out of memory"), False),
    ],
)  # fmt: skip
def test_out_of_memory_is_known_whoever_says_it(error, so):
    assert hardware.is_out_of_memory(error) == so


# The learning rate


def test_the_warm_up_is_the_papers_formula_divided_by_its_highest_value():
    d_model, warmup = 512, 4000
    for step in (1, 1000, 4000, 16_000):
        paper = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert inverse_sqrt(step, warmup) == pytest.approx(paper / (d_model * warmup) ** -0.5)


def test_without_warm_up_the_first_step_has_the_highest_rate():
    assert inverse_sqrt(1, 0) == 1 and cosine(1, 0, 1000) == pytest.approx(1, abs=1e-5)


def test_a_cosine_falls_to_zero_after_the_last_step_so_that_this_one_still_moves_the_weights():
    assert cosine(20, 4, 20) > 0 and cosine(21, 4, 20) == 0
    assert [cosine(step, 4, 19) for step in (4, 12)] == pytest.approx([1, 0.5])
    recipe = replace(RECIPE, schedule="cosine", ema=0.0)
    kept = []
    for steps in (19, 20):
        model = build()

        def stop(progress, steps=steps):
            if progress.step == steps:
                raise Killed

        with pytest.raises(Killed):
            train(model, pairs(), recipe, listeners=[stop])
        kept.append(model.output.weight.detach().clone())
    assert not torch.equal(*kept)


def test_the_rates_of_a_run_are_those_of_its_schedule():
    progress = train(build(), pairs(), replace(RECIPE, schedule="cosine"))
    assert [step.lr for step in progress.steps] == [1e-2 * cosine(s, 4, 20) for s in range(1, 21)]


# Several processes


def launch(folder: Path, micro_batches: int, shard: str, processes: int, steps: int = 10, **more) -> subprocess.Popen:
    script = [str(Path(__file__).with_name("two_processes.py")), str(folder), str(micro_batches), shard, str(steps)]
    command = [sys.executable]
    if processes > 1:
        command += ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
        command += ["--nproc-per-node", str(processes)]
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    environment |= {"OMP_NUM_THREADS": "1", **more}
    return subprocess.Popen(
        [*command, *script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def measure(*run, **more) -> dict:
    with launch(*run, **more) as process:
        said, errors = process.communicate()
    assert process.returncode == 0, errors
    return json.loads(said.splitlines()[-1])


@pytest.mark.slow
def test_ctrl_c_in_an_evaluation_of_two_processes_leaves_a_checkpoint_of_its_step(tmp_path):
    started = tmp_path / "evaluating"
    with launch(tmp_path / "run", 4, "ddp", processes=2, SHOW_EVALUATION=str(started)) as process:
        while not started.exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate()
    saved = checkpoints.load_tensors(tmp_path / "run" / "checkpoint.safetensors")
    assert saved.notes["step"] == 5 and saved.notes["best"] is None


@pytest.mark.slow
@pytest.mark.parametrize("shard", ["ddp", "shard"])
def test_two_processes_take_the_steps_of_one_with_the_same_batch_and_resume_as_it_does(shard, tmp_path):
    one = measure(tmp_path / "one", 4, "ddp", 1, 14, DROPOUT="0.2")
    two = measure(tmp_path / "two", 4, shard, 2, 10, DROPOUT="0.2")
    assert two["losses"] == pytest.approx(one["losses"][:10], abs=1e-4)
    two = measure(tmp_path / "two", 4, shard, 2, 14, DROPOUT="0.2")
    assert two["losses"] == pytest.approx(one["losses"], abs=1e-4)
    assert [score["step"] for score in two["scores"]] == [5, 10, 14]
    assert two["scores"][-1]["bleu"] == pytest.approx(one["scores"][-1]["bleu"], rel=1e-3)


# What cannot be


def test_a_loss_that_is_no_number_stops_the_run_and_names_the_batch(tmp_path):
    class Fragile(EncoderDecoder):
        def loss(self, source, *rest, **options):
            poisoned = (source == 19).any()
            return super().loss(source, *rest, **options) * (math.nan if poisoned else 1.0)

    torch.manual_seed(0)
    data = [pair for pair in pairs(200) if 19 not in pair.source]
    data.append(data[0]._replace(source=[19, 5]))
    with pytest.raises(NonFiniteLoss, match=r"step \d+: the loss is nan, on a batch of \d+ pairs") as error:
        train(Fragile(CONFIG), data, replace(RECIPE, save_every=1, steps=200), tmp_path)
    assert len(data) - 1 in error.value.examples
    saved = checkpoints.load_tensors(tmp_path / "checkpoint.safetensors") if error.value.step > 1 else None
    if saved:
        assert saved.notes["step"] == error.value.step - 1
        assert all(tensor.isfinite().all() for tensor in saved.tensors.values())


def test_a_gradient_that_is_no_number_stops_the_run_before_the_weights_it_spoiled_are_saved(tmp_path):
    class Spoiled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * math.inf

    class Fragile(EncoderDecoder):
        def loss(self, source, *rest, **options):
            loss = super().loss(source, *rest, **options)
            return Spoiled.apply(loss) if (source == 19).any() else loss

    torch.manual_seed(0)
    data = [pair for pair in pairs(200) if 19 not in pair.source]
    data.append(data[0]._replace(source=[19, 5]))
    with pytest.raises(NonFiniteLoss, match=r"step \d+: the gradient of a loss of \d\S+ is (nan|inf)") as error:
        train(Fragile(CONFIG), data, replace(RECIPE, save_every=1, steps=200), tmp_path)
    assert len(data) - 1 in error.value.examples and error.value.step > 1
    saved = checkpoints.load_tensors(tmp_path / "checkpoint.safetensors")
    assert saved.notes["step"] == error.value.step - 1
    assert all(tensor.isfinite().all() for tensor in saved.tensors.values())


def test_a_checkpoint_of_another_config_is_refused_before_anything_is_copied(tmp_path):
    train(build(), pairs(), replace(RECIPE, steps=3), tmp_path)
    other = build(d_model=32)
    before = [p.clone() for p in other.parameters()]
    with pytest.raises(CommandError, match=r"from a model of another config: encoder\S+ is \(20, 16\), the model's is"):
        train(other, pairs(), replace(RECIPE, steps=5), tmp_path, resume=True)
    assert all(torch.equal(a, b) for a, b in zip(before, other.parameters(), strict=True))
    with pytest.raises(CommandError, match="another config: lacks decoder"):
        train(build(n_layers=2), pairs(), replace(RECIPE, steps=5), tmp_path, resume=True)


def test_a_checkpoint_of_another_recipe_is_refused_but_may_go_on_for_longer(tmp_path):
    train(build(), pairs(), replace(RECIPE, steps=3), tmp_path)
    with pytest.raises(CommandError, match=r"from a run with another recipe: lr was 0\.01 and is 0\.02"):
        train(build(), pairs(), replace(RECIPE, lr=2e-2), tmp_path, resume=True)
    with pytest.raises(CommandError, match="another recipe: accumulate was 1 and is 2"):
        train(build(), pairs(), replace(RECIPE, accumulate=2), tmp_path, resume=True)
    assert train(build(), pairs(), replace(RECIPE, steps=5), tmp_path, resume=True).step == 5


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_checkpoint_is_said_to_be_cut_short(share, tmp_path):
    train(build(), pairs(), replace(RECIPE, steps=3), tmp_path)
    path = tmp_path / "checkpoint.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(CommandError, match=re.escape(f"{path}: cut short")):
        train(build(), pairs(), RECIPE, tmp_path, resume=True)


@pytest.mark.parametrize("table", ["losses.csv", "scores.csv"])
def test_a_table_that_is_cut_short_is_named(table, tmp_path):
    train(build(), pairs(), replace(RECIPE, steps=4, evaluate_every=2), tmp_path, sum_of_weights)
    lines = (tmp_path / table).read_text().splitlines()
    for content in (f"{lines[0]}\n{lines[1]}\n2", "\xff", f"step,colour\n1,{lines[1]}"):
        (tmp_path / table).write_text(content, "latin-1")
        with pytest.raises(CommandError, match=rf"{table}: damaged; resuming needs it whole"):
            train(build(), pairs(), RECIPE, tmp_path, sum_of_weights, resume=True)
    (tmp_path / "losses.csv").write_text("\n".join(["step,loss,lr,gradient", "1,2,3,4"]))
    (tmp_path / "scores.csv").write_text(lines[0])
    with pytest.raises(CommandError, match=r"losses.csv: has 1 of 4 steps"):
        train(build(), pairs(), RECIPE, tmp_path, sum_of_weights, resume=True)


def test_there_must_be_something_to_resume(tmp_path):
    with pytest.raises(CommandError, match="there is no such file"):
        train(build(), pairs(), RECIPE, tmp_path, resume=True)
    with pytest.raises(ValueError, match="resume: got True without a folder"):
        train(build(), pairs(), RECIPE, resume=True)


def test_on_a_full_disk_the_last_good_file_is_intact_and_nothing_half_written_lies_about(tmp_path, monkeypatch):
    path = tmp_path / "file.safetensors"
    checkpoints.save_tensors(path, {"a": torch.ones(2)}, {"step": 1})

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("commandkit.files.os.fsync", full)
    with pytest.raises(CommandError, match=r"cannot be written \(No space left on device\); what was there before is"):
        checkpoints.save_tensors(path, {"a": torch.zeros(2)}, {"step": 2})
    saved = checkpoints.load_tensors(path)
    assert saved.notes == {"step": 1} and torch.equal(saved.tensors["a"], torch.ones(2))
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_folder_that_cannot_be_is_said_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "weights", tmp_path / "file" / "folder" / "weights"):
        with pytest.raises(CommandError, match=r"weights: cannot be written \((File exists|Not a directory)\)"):
            checkpoints.save_tensors(path, {"a": torch.ones(2)}, {})


@pytest.mark.parametrize(
    "change, said",
    [
        ({"steps": 0}, "steps: got 0, expected at least 1"),
        ({"schedule": "linear"}, "schedule: got 'linear'"),
        ({"precision": "int4"}, "precision: got 'int4'"),
        ({"lr": 0.0}, "lr: got 0.0, expected more than 0"),
        ({"ema": 1.0}, "ema: got 1.0, expected 0 or more and less than 1"),
        ({"seed": -1}, "seed: got -1"),
    ],
)
def test_a_recipe_says_at_the_door_what_is_wrong_with_it(change, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        replace(RECIPE, **change)


def test_there_must_be_pairs_and_the_score_that_decides():
    with pytest.raises(ValueError, match="data: got none"):
        train(build(), [], RECIPE)
    with pytest.raises(ValueError, match=r"pairs\[1\]: got an empty source"):
        train(build(), [pairs()[0], pairs()[0]._replace(source=[])], RECIPE)
    with pytest.raises(ValueError, match=r"pairs\[0\]: got 9 tokens, expected at most 8, the model's positions"):
        train(build(positions="learned", max_length=8), [pairs()[0]._replace(target=[5] * 8)], RECIPE)
    with pytest.raises(ValueError, match="best_by: got 'accuracy', expected one of step, bleu"):
        train(build(), pairs(), RECIPE, evaluate=sum_of_weights, best_by="accuracy")
