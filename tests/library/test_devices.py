"""On a pretended GPU everything computes what the CPU computes, mixes no devices, and waits where it is said to."""

import math
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import get_args

import pytest
import torch
from pretend_gpu import DEVICE, Mixed, PretendGPU, here, send, there
from torch.func import functional_call, grad, vmap
from two_processes import CONFIG, pairs

from attncourse.beyond_text import ViT, ViTConfig, Wav2Vec2, Wav2Vec2Config
from attncourse.data import BOS, collate
from attncourse.decoding import beam_search, greedy, sample
from attncourse.positions import rope_angles_2d, rotate, sinusoidal_2d
from attncourse.recurrent import CELLS, SUMMARIES, RecurrentLanguageModel, Seq2Seq
from attncourse.training import fit, fit_texts
from attncourse.training.distributed import DistributedContext
from attncourse.training.examples import Examples, Pairs, Texts
from attncourse.training.micro_batches import micro_batches
from attncourse.training.recipe import Recipe
from attncourse.training.trainer import Trainer, recomputing
from attncourse.transformer import Encoder, EncoderDecoder, LanguageModel, Positions

SIZES = {"d_model": 12, "n_layers": 2, "n_heads": 2, "d_ff": 16, "dropout": 0.1}
BATCH = collate(pairs(9))
TEXTS = [[BOS, *pair.source, *pair.target] for pair in pairs(12)]
# A recurrent encoder: cuDNN sorts by length, and is told the lengths on the CPU.
PACKING = {"copy to the CPU": 2, "copy from the CPU": 1}
# Drawing negatives and picking out what is masked: how many frames are, the GPU alone knows.
NEGATIVES = {"nonzero": 1, "index": 2}


def encoder_decoder(**choices):
    return EncoderDecoder(replace(CONFIG, dropout=0.1, max_length=40, max_distance=5, n_buckets=8, **choices))


def language_model(**choices):
    return LanguageModel(replace(CONFIG, dropout=0.1, max_length=40, max_distance=5, n_buckets=8, **choices))


def models():
    """A name, a model, what it is given, how it is called, and how often that waits."""
    words = BATCH.target_in, BATCH.target_out
    for positions in get_args(Positions):
        grouped = {"positions": positions, "n_kv_heads": 1}
        yield f"EncoderDecoder {positions}", encoder_decoder(**grouped), BATCH, EncoderDecoder.loss, {}
        yield f"LanguageModel {positions}", language_model(**grouped), words, LanguageModel.loss, {}
    post = encoder_decoder(norm_place="post", norm="rms", activation="swiglu", bias=False, dropout_attention=0.1)
    yield "EncoderDecoder as Llama", post, BATCH, EncoderDecoder.loss, {}
    looked = lambda m, *b: m(*b, with_weights=True)[1].cross  # noqa: E731
    yield "EncoderDecoder with weights", encoder_decoder(), BATCH[:3], looked, {}
    segments = Encoder(replace(CONFIG, n_segments=2, embedding_norm=True))
    yield "Encoder", segments, (BATCH.source, BATCH.lengths), Encoder.forward, {}
    for summary in SUMMARIES:
        for cell in CELLS:
            made = Seq2Seq(20, 20, 8, 16, summary, cell=cell)
            yield f"Seq2Seq {summary} {cell}", made, BATCH[:3], Seq2Seq.forward, PACKING
    yield "RecurrentLanguageModel", RecurrentLanguageModel(20, 12), words[:1], RecurrentLanguageModel.forward, {}
    vit = ViT(ViTConfig(image_size=8, patch=4, channels=3, n_classes=5, **SIZES))
    yield "ViT", vit, (torch.randn(2, 3, 8, 8),), ViT.forward, {}
    wav = Wav2Vec2(Wav2Vec2Config(d_feature=8, d_code=12, n_entries=6, n_negatives=7, span=4, p=0.1, **SIZES))
    sound = torch.randn(2, 4000), torch.tensor([4000, 3000])
    yield "Wav2Vec2", wav, sound, Wav2Vec2.loss, NEGATIVES


MODELS = {name: rest for name, *rest in models()}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_on_another_device_gives_the_same_loss_and_gradients_and_waits_no_more_than_is_said(name):
    model, batch, call, waits = MODELS[name]
    sent, given = send(model), there(*batch)
    values, gpu = [], PretendGPU()
    torch.manual_seed(0)
    values.append(call(model, *batch))
    values[0].sum().backward()
    torch.manual_seed(0)
    with gpu:
        values.append(call(sent, *given))
        values[1].sum().backward()
    torch.testing.assert_close(here(values[1]), values[0], atol=1e-4, rtol=1e-4)
    for there_, here_ in zip(sent.parameters(), model.parameters(), strict=True):
        assert (there_.grad is None) == (here_.grad is None)
        if here_.grad is not None:
            torch.testing.assert_close(here(there_.grad), here_.grad, atol=1e-2, rtol=1e-3)
    assert gpu.waits == Counter(waits) and not set(gpu.made) - {"empty"} and (waits or not gpu.made)


def decodings():
    sources = BATCH.source, BATCH.lengths
    prompts = torch.tensor([[BOS, 5, 6], [BOS, 7, 8]]), torch.tensor([3, 3])
    for name, model, given in (
        ("EncoderDecoder", encoder_decoder(), sources), ("rope", encoder_decoder(positions="rope"), sources),
        ("Seq2Seq", Seq2Seq(20, 20, 8, 16), sources), ("LanguageModel", language_model(), prompts),
        ("RecurrentLanguageModel", RecurrentLanguageModel(20, 12), prompts),
    ):  # fmt: skip
        for how in (greedy, sample, beam_search):
            yield f"{name} {how.__name__}", (model, given, how)


DECODINGS = dict(decodings())


@pytest.mark.parametrize("name", DECODINGS)
def test_decoding_on_another_device_writes_the_same_and_waits_once_a_token(name):
    model, given, how = DECODINGS[name]
    torch.manual_seed(0)
    expected = how(model, *given, max_length=6)
    torch.manual_seed(0)
    with PretendGPU() as short:
        written = how(send(model), *there(*given), max_length=6)
    assert torch.equal(here(written.tokens), expected.tokens)
    with PretendGPU() as long:
        how(send(model), *there(*given), max_length=7)
    a_token = long.waits.total() - short.waits.total()
    assert a_token <= 2, "how many are unfinished, and which, where half of them are"
    assert not set(short.made) - {"empty"}


# A step of training


class Vectors(torch.nn.Module):
    """Anything."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(20, 4)


class Squares(Examples):
    """Anything with a loss."""

    def n_targets(self, example):
        return len(example.source)

    def collate(self, examples):
        return collate(examples)

    def loss(self, model, compiled):
        return lambda source, *rest, label_smoothing: model.embedding(source).square().mean()


def runs():
    """A name, a model, what it is trained on, the recipe, and how often a step waits."""
    for more in ({}, {"activation_checkpointing": True}, {"ema": 0.9, "weight_decay": 0.1}):
        yield f"pairs {' '.join(more)}", encoder_decoder, Pairs(pairs()), more, {}
        yield f"texts {' '.join(more)}", language_model, Texts(TEXTS), more, {}
    three_batches = {name: 3 * n for name, n in PACKING.items()}
    yield "recurrent pairs", partial(Seq2Seq, 20, 20, 8, 16), Pairs(pairs()), {}, three_batches
    yield "recurrent texts", partial(RecurrentLanguageModel, 20, 12), Texts(TEXTS), {}, {}
    yield "anything", Vectors, Squares(pairs()), {}, {}


RUNS = {name: rest for name, *rest in runs()}


@pytest.mark.parametrize("name", RUNS)
def test_a_step_of_training_waits_for_nothing_that_is_not_said_and_does_what_it_does_on_the_cpu(name):
    build, data, more, waits = RUNS[name]
    # A large eps: without it, AdamW's first step would turn a gradient that is 0 but for rounding into ± lr.
    recipe = Recipe(steps=1, batch_tokens=60, accumulate=3, warmup=0, lr=1e-2, eps=1e-2, **more)
    torch.manual_seed(0)
    model = build()
    before, sent, gpu = [p.detach().clone() for p in model.parameters()], send(model), PretendGPU()
    for each, device in ((model, torch.device("cpu")), (sent, DEVICE)):
        trainer = Trainer(each.train(), data, recipe, processes=DistributedContext(0, 1, device))
        with recomputing(each, recipe.activation_checkpointing), gpu:
            step = list(islice(micro_batches(data, recipe, trainer.processes, 0), 3))
            gpu.waits.clear()
            trainer.update(1, step)
    for there_, here_ in zip(sent.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(here(there_.detach()), here_.detach(), atol=1e-4, rtol=1e-4)
    assert not any(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True) if p.ndim > 1)
    assert gpu.waits == Counter(waits)


@pytest.mark.parametrize(
    "train, build, data", [(fit, encoder_decoder, pairs(20)), (fit_texts, language_model, TEXTS)], ids=["fit", "texts"]
)
def test_the_short_loops_send_their_batches_where_the_model_is(train, build, data):
    model = build()
    sent = send(model)
    torch.manual_seed(0)
    losses = train(model, data, steps=2, progress=False).losses
    torch.manual_seed(0)
    with PretendGPU() as gpu:
        assert train(sent, data, steps=2, progress=False).losses == pytest.approx(losses, abs=1e-3)
    assert gpu.waits["_local_scalar_dense"] == 2, "its loss, once a step"


def test_tables_of_a_grid_go_where_they_are_asked_for_or_used():
    x = torch.randn(2, 12, 8)
    with PretendGPU():
        (a,) = there(x)
        turned = rotate(a, rope_angles_2d(3, 4, 8))
        table = sinusoidal_2d(3, 4, 8, device=a.device)
    assert turned.device == DEVICE == table.device
    torch.testing.assert_close(turned.local, rotate(x, rope_angles_2d(3, 4, 8)))


def test_gradients_of_each_example_by_torch_func():
    model = LanguageModel(replace(CONFIG, dropout=0.0))
    tokens = torch.randint(4, CONFIG.vocab_size, (3, 6))
    parameters = dict(model.named_parameters())

    def loss(parameters, row):
        return functional_call(model, parameters, (row[None, :-1],)).logsumexp(-1).mean()

    each = vmap(grad(loss), in_dims=(None, 0))(parameters, tokens)
    for i, row in enumerate(tokens):
        alone = grad(loss)(parameters, row)
        for name in parameters:
            torch.testing.assert_close(each[name][i], alone[name], rtol=1e-4, atol=1e-6)


# The pretence is worth something


def test_the_pretended_gpu_catches_what_a_real_one_would():
    x, y = torch.randn(3), torch.randn(3)
    with PretendGPU() as gpu:
        (a,) = there(x)
        with pytest.raises(Mixed):
            a + y
        assert (a * 2.0).device == DEVICE
        assert a.sum().item() == pytest.approx(x.sum().item(), abs=1e-6) and gpu.waits == {"_local_scalar_dense": 1}
        a[a > 0]
        a.cpu(), y.to(DEVICE)
        assert gpu.waits == {"_local_scalar_dense": 1, "index": 1, "copy to the CPU": 1, "copy from the CPU": 1}
        torch.zeros(2, device=a.device)
        assert not gpu.made
        torch.zeros(2)
        assert gpu.made == {"zeros": 1}


# A real one, where there is one


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("precision", ["float32", "auto"])
def test_on_a_real_gpu_a_step_waits_for_nothing_and_learns_what_it_learns_on_the_cpu(precision):
    recipe = Recipe(steps=3, batch_tokens=60, accumulate=2, warmup=0, lr=1e-2, eps=1e-2, precision=precision)
    torch.manual_seed(0)
    model = EncoderDecoder(replace(CONFIG, dropout=0.0))
    losses = []
    for device in (torch.device("cpu"), torch.device("cuda")):
        trainer = Trainer(deepcopy(model).to(device).train(), Pairs(pairs()), recipe,
                          processes=DistributedContext(0, 1, device))  # fmt: skip
        stream = micro_batches(trainer.data, recipe, trainer.processes, 0)
        steps = [list(islice(stream, 2)) for _ in range(3)]
        torch.cuda.synchronize()
        try:
            torch.cuda.set_sync_debug_mode("error")               # torch raises where it would wait
            measured = [trainer.update(step, batches) for step, batches in enumerate(steps, start=1)]
        finally:
            torch.cuda.set_sync_debug_mode("default")
        losses.append([float(sum(each.losses)) for each in measured])
    assert all(map(math.isfinite, losses[1]))
    if precision == "float32":                                    # a loss scale leaves out steps until it fits
        assert losses[1] == pytest.approx(losses[0], abs=1e-3)
