"""How fast our training is beside a plain loop and transformers' Trainer, and how good what it trains becomes.

    python benchmarks/training.py [--profile cpu|gpu|base] [--data multi30k|number-words] [--source de --target en]
                                  [--only step|speed|quality] [--rung attention] [--steps 40] [--rounds 3]
                                  [--no-compile] [--length STEPS] [--save FILE] [--json]

Step: where the milliseconds of one of our steps go. The same steps with their batches already on the device (so that
what making and moving them costs is the difference to the speed), in the profile's precision and in float32 (on a GPU
TF32), without a compiler; how many operations of torch it calls; and from torch's profiler the kernels that a GPU was
given and the milliseconds in which it computed at all: where these are few beside the step, the step waits for the CPU
that launches them.

Speed: `attncourse train`'s own loop, torch.nn.Transformer in a loop of ten lines, and transformers' Marian in its
Trainer: the same shape, the same micro-batches in the same order, the same precision, fused AdamW, dropout as the
profile says; all compiled where the profile says so. They take turns; the first steps of each turn are not timed.
Model FLOPs utilisation counts three times the matrix products of a forward pass over the real tokens, against the peak
that the device's data sheet promises for the run's precision, or where none is known (a CPU) against its speed in one
large product of that precision.

Quality: a run of the profile to its end, in a folder that is thrown away; BLEU on test2016 at each evaluation, with the
seconds of training until then, and with all that is reported at the end; on a GPU the most memory that the steps took.
What is kept is chosen by the validation set. --length gives the run another number of steps than the profile.
--rung trains one of lecture 03's recurrent models on the same batches by the same recipe instead (and no speed).

Goals: 1.5 times the tokens a second of the fastest peer; on an H100 45 % utilisation for the base preset and 36.5 BLEU
(de→en, test2016) within 60 s; at least 40 in the end (en→de 42) with at most 12 M parameters; on two CPU cores number
words to 99 % exactly right in 60 s, captions to 25 BLEU in 20 min.
"""

import argparse
import contextlib
import itertools
import json
import os
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import torch
from model import Marian, Torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from attncourse.counting import count_training_flops
from attncourse.data import PAD, Batch, EncodedPair, collate, encode_pairs, epoch_batches
from attncourse.decoding import beam_translate
from attncourse.metrics import bleu
from attncourse.recurrent import SUMMARIES, Seq2Seq
from attncourse.training import hardware
from attncourse.training.evaluation import BEST_BY, final_metrics, make_evaluate
from attncourse.training.examples import as_examples
from attncourse.training.micro_batches import micro_batches as micro_batches_of
from attncourse.training.profiles import DATA, PROFILES, load_corpora, make_run_config, settings, train_tokenizers
from attncourse.training.progress import LOOK_EVERY, LOOK_EVERY_ELSEWHERE, Progress
from attncourse.training.recipe import Recipe
from attncourse.training.trainer import Trainer, train
from attncourse.transformer import EncoderDecoder, TransformerConfig

SPEED_GOAL, MFU_GOAL, FAST_BLEU, SECONDS_GOAL = 1.5, 0.45, 36.5, 60
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
UNTIMED = 10


def micro_batches(pairs: Sequence[EncodedPair], recipe: Recipe, steps: int) -> list[Batch]:
    """Those of the first epochs, in the order in which `train` takes them."""
    epochs = (epoch_batches(pairs, recipe.batch_tokens, recipe.seed, epoch) for epoch in itertools.count())
    chosen = itertools.islice(itertools.chain.from_iterable(epochs), steps)
    return [collate([pairs[i] for i in batch]) for batch in chosen]


def shape(config: TransformerConfig) -> dict[str, int]:
    """What the peers are told, in the words of benchmarks/model.py."""
    return {"vocab_size": config.vocab_size, "d_model": config.d_model, "n_layers": config.n_layers,
            "n_heads": config.n_heads, "d_ff": config.width_ff}  # fmt: skip


def note(stamps: dict[int, float], step: int, steps: int, device: str) -> None:
    """The time, as often as `train` looks: on a GPU a look waits for all that is under way."""
    if step % LOOK_EVERY.get(device, LOOK_EVERY_ELSEWHERE) == 0 or step == steps:
        _wait(device)
        stamps[step] = time.perf_counter()


class Ours:
    def __init__(self, config: TransformerConfig, pairs: Sequence[EncodedPair], recipe: Recipe, device: str):
        self.model, self.pairs, self.recipe = EncoderDecoder(config).to(device), pairs, recipe
        self.device = device

    def run(self) -> dict[int, float]:
        """The time at the end of each step (or of as many as are looked at together)."""
        stamps: dict[int, float] = {}

        def stamp(progress: Progress) -> None:
            _wait(self.device)
            stamps[progress.step] = time.perf_counter()

        train(self.model, self.pairs, self.recipe, listeners=[stamp])
        return stamps


class PlainLoop:
    """What one writes by hand."""

    def __init__(self, config: TransformerConfig, pairs: Sequence[EncodedPair], recipe: Recipe, device: str):
        self.model = _with_dropout(Torch(shape(config)), config.dropout).to(device)
        self.call = torch.compile(self.model, dynamic=True) if recipe.compile else self.model
        self.pairs, self.recipe, self.device = pairs, recipe, device

    def run(self) -> dict[int, float]:
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        stamps: dict[int, float] = {}
        for step, batch in enumerate(micro_batches(self.pairs, self.recipe, self.recipe.steps), start=1):
            batch = Batch(*(x.to(self.device) for x in batch))
            with _autocast(self.recipe, self.device):
                loss = self.call(*batch)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            note(stamps, step, self.recipe.steps, self.device)
        return stamps


class HuggingFace:
    """Marian in transformers' Trainer, fed with our micro-batches one by one."""

    def __init__(self, config: TransformerConfig, pairs: Sequence[EncodedPair], recipe: Recipe, device: str):
        self.model = _with_dropout(Marian(shape(config)), config.dropout).model
        self.pairs, self.recipe, self.device = pairs, recipe, device

    def run(self) -> dict[int, float]:
        from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

        stamps: dict[int, float] = {}
        device = self.device

        class Stamp(TrainerCallback):
            def on_step_end(self, args, state, control, **rest) -> None:
                note(stamps, state.global_step, args.max_steps, device)

        batches = [
            {
                "input_ids": batch.source,
                "attention_mask": (torch.arange(batch.source.shape[1]) < batch.lengths[:, None]).long(),
                "decoder_input_ids": batch.target_in,
                "labels": batch.target_out.masked_fill(batch.target_out == PAD, -100),
            }
            for batch in micro_batches(self.pairs, self.recipe, self.recipe.steps)
        ]

        class InOrder(Trainer):
            def _get_train_sampler(self, *args):
                return torch.utils.data.SequentialSampler(self.train_dataset)

        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder, per_device_train_batch_size=1, max_steps=len(batches), optim="adamw_torch_fused",
                bf16=self.recipe.precision == "bf16", fp16=self.recipe.precision == "fp16",
                torch_compile=self.recipe.compile, max_grad_norm=1.0,
                learning_rate=1e-4, report_to=[], save_strategy="no", logging_strategy="no", disable_tqdm=True,
                use_cpu=self.device == "cpu",
            )  # fmt: skip
            trainer = InOrder(
                self.model, arguments, train_dataset=batches, data_collator=lambda one: one[0], callbacks=[Stamp()]
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train()
        return stamps


CONTENDERS = {"attncourse": Ours, "torch, plain loop": PlainLoop, "transformers, Trainer": HuggingFace}


def speed(
    config: TransformerConfig, pairs: Sequence[EncodedPair], recipe: Recipe, device: str, rounds: int
) -> dict[str, dict[str, float]]:
    """Target tokens and steps a second of each: medians over the rounds."""
    batches = micro_batches(pairs, recipe, recipe.steps)
    tokens = [int((batch.target_out != PAD).sum()) for batch in batches]
    contenders = {name: make(config, pairs, recipe, device) for name, make in CONTENDERS.items()}
    rates: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for _ in range(rounds + 1):                                   # the first round compiles
        for name, contender in contenders.items():
            stamps = contender.run()
            first = min(step for step in stamps if step >= UNTIMED)
            last = max(stamps)
            seconds = stamps[last] - stamps[first]
            rates[name].append((sum(tokens[first:last]) / seconds, (last - first) / seconds))
    return {
        name: {
            "tokens_per_second": statistics.median(t for t, _ in measured[1:]),
            "steps_per_second": statistics.median(s for _, s in measured[1:]),
            "parameters": sum(p.numel() for p in contenders[name].model.parameters() if p.requires_grad),
        }
        for name, measured in rates.items()
    }


class CountOperations(TorchDispatchMode):
    """Calls of torch's operations that compute something; a view, the same numbers in another shape, is none."""

    n = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.n += not function.is_view
        return function(*args, **(kwargs or {}))


def where_a_step_goes(
    config: TransformerConfig, pairs: Sequence[EncodedPair], recipe: Recipe, device: str, rounds: int
) -> dict[str, dict[str, float]]:
    """Milliseconds of a step by precision, with no reader of data and no compiler, medians over rounds in which the
    precisions take turns; how many operations a step calls; on a GPU also its kernels."""
    found: dict[str, dict[str, float]] = {}
    trainers, steps = {}, {}
    for precision in dict.fromkeys([recipe.precision, "float32"]):
        model = EncoderDecoder(config).to(device).train()
        run = replace(recipe, precision=precision, compile=False)
        trainers[precision] = trainer = Trainer(model, as_examples(pairs, model), run)
        stream = micro_batches_of(trainer.data, run, trainer.processes, 0)
        steps[precision] = [list(itertools.islice(stream, run.accumulate)) for _ in range(run.steps)]
    took: dict[str, list[float]] = {precision: [] for precision in trainers}
    with hardware.fast_float32(torch.device(device)):
        for _ in range(rounds + 1):                               # the first warms up
            for precision, trainer in trainers.items():
                _wait(device)
                begun = time.perf_counter()
                for number, step in enumerate(steps[precision], start=1):
                    trainer.update(number, step)
                _wait(device)
                took[precision].append(1000 * (time.perf_counter() - begun) / recipe.steps)
        for precision, trainer in trainers.items():
            few = steps[precision][:UNTIMED]
            with CountOperations() as operations:
                trainer.update(1, few[0])
            found[precision] = {"ms": statistics.median(took[precision][1:]), "operations": operations.n}
            found[precision] |= _kernels(trainer, few) if device == "cuda" else {}
    return found


def _kernels(trainer: Trainer, steps: list) -> dict[str, float]:
    """How many kernels a step launches, and for how many milliseconds the GPU is busy with them."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for number, step in enumerate(steps):
            trainer.update(number + 1, step)
        torch.cuda.synchronize()
    ran = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    busy = sum(event.self_device_time_total for event in ran) / 1000
    return {"kernels": len(ran) / len(steps), "gpu_busy_ms": busy / len(steps)}


def peak_flops(device: str, precision: hardware.Precision) -> tuple[float, str]:
    """Floating-point operations a second at best, and where the number is from: printed by the maker, or measured."""
    printed = hardware.peak_flops(torch.device(device), precision)
    if printed is not None:
        return printed, "printed peak"
    a = torch.randn(2048, 2048, device=device, dtype=AUTOCAST.get(precision, torch.float32))
    seconds = []
    for _ in range(9):
        _wait(device)
        begun = time.perf_counter()
        a @ a
        _wait(device)
        seconds.append(time.perf_counter() - begun)
    return 2 * 2048**3 / min(seconds), "speed in one large matrix product"


def utilisation(
    config: TransformerConfig, pairs: Sequence[EncodedPair], recipe: Recipe, steps_per_second: float, peak: float
) -> float:
    """Three forward passes' worth of matrix products over the real tokens, as a share of what the device could do."""
    some = epoch_batches(pairs, recipe.batch_tokens, recipe.seed, epoch=0)[:20]
    real = [[(len(pairs[i].source), len(pairs[i].target) + 1) for i in batch] for batch in some]
    flops = [sum(count_training_flops(config, EncoderDecoder, 1, n, m) for n, m in lengths) for lengths in real]
    return statistics.mean(flops) * steps_per_second / peak


def recurrent(config: TransformerConfig, summary: str) -> Seq2Seq:
    """A rung of the ladder below the Transformer: as wide, and with embeddings so narrow that it is about as large."""
    return Seq2Seq(config.vocab_size, config.decoder_vocab_size, config.d_model // 2, config.d_model, summary)


def quality(run_config, corpora, tokenizers, device: str, rung: str | None = None) -> dict:
    """A whole run: the final metrics, and the test's score against the seconds of training."""
    name = run_config.data["name"]
    torch.manual_seed(run_config.recipe.seed)
    model = (recurrent(run_config.model, rung) if rung else EncoderDecoder(run_config.model)).to(device)
    evaluate = make_evaluate(name, corpora.val, *tokenizers)
    pairs = encode_pairs(corpora.train, *tokenizers)
    curve: list[dict[str, float]] = []
    lost = 0.0                                                    # seconds of evaluation
    memory: list[int] = []                                        # before the first evaluation, on a GPU
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()

    def watch(model) -> dict[str, float]:
        nonlocal lost
        _wait(device)
        if device == "cuda" and not memory:
            memory.append(torch.cuda.max_memory_allocated())
        begun = time.perf_counter()
        scores = dict(evaluate(model))
        if name == "multi30k":
            texts, truths = zip(*corpora.test, strict=True)
            written = beam_translate(model, list(texts), *tokenizers, n_beams=1)
            scores |= {"test": bleu(written, truths).score, "test_lowercase": bleu(written, truths, True).score}
        trained = begun - started - lost
        lost += time.perf_counter() - begun
        curve.append({"seconds": trained, **scores})
        print("  " + "  ".join(f"{key} {value:.3f}" for key, value in curve[-1].items()), flush=True)
        return scores

    with tempfile.TemporaryDirectory() as folder:
        progress = train(model, pairs, run_config.recipe, folder, evaluate=watch, best_by=BEST_BY[name])
    measured, _ = final_metrics(model, name, corpora.test, *tokenizers)
    reached = [at["seconds"] for at in curve if at.get("test", 0) >= FAST_BLEU]
    return {
        "measured": measured, "curve": curve, "training_seconds": curve[-1]["seconds"],
        "seconds_with_evaluation": progress.seconds, "steps": progress.step, "ended": progress.ended,
        "seconds_to_bleu_36_5": reached[0] if reached else None,
        "training_memory_bytes": memory[0] if memory else None,
    }  # fmt: skip


def _with_dropout(model: nn.Module, p: float) -> nn.Module:
    """The models of benchmarks/model.py have none."""
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = p
        elif hasattr(part, "dropout") and isinstance(part.dropout, float):
            part.dropout = p
    return model


def _autocast(recipe: Recipe, device: str):
    dtype = AUTOCAST.get(recipe.precision)
    return contextlib.nullcontext() if dtype is None else torch.autocast(device, dtype)


def _wait(device: str) -> None:
    hardware.synchronize(torch.device(device))


def main() -> None:
    device = str(hardware.best_device())
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", choices=PROFILES, default="cpu" if device == "cpu" else "gpu")
    parser.add_argument("--data", choices=DATA, default="multi30k")
    parser.add_argument("--source", default="de")
    parser.add_argument("--target", default="en")
    parser.add_argument("--only", choices=["step", "speed", "quality"])
    parser.add_argument("--rung", choices=SUMMARIES, help="a recurrent model of lecture 03 in place of the Transformer")
    parser.add_argument("--steps", type=int, default=40 if device == "cpu" else 300, help="of each turn, for the speed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile, whatever the profile says")
    parser.add_argument("--length", type=int, metavar="STEPS", help="of the whole run, not the profile's")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep the JSON object in this file, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="enable_nested_tensor")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    data, _, _ = settings(args.profile, args.data)
    languages = {"source": args.source, "target": args.target}
    data |= languages
    if device == "cuda":                                          # TF32 for the peers, too
        torch.set_float32_matmul_precision("high")
    corpora = load_corpora(data)
    tokenizers = train_tokenizers(data, corpora.train)
    run_config = make_run_config(args.profile, args.data, tokenizers, languages)
    precision = hardware.settle_precision(run_config.recipe.precision, torch.device(device))
    whole = replace(run_config.recipe, precision=precision, steps=args.length or run_config.recipe.steps)
    run_config = run_config._replace(recipe=replace(whole, compile=whole.compile and not args.no_compile))
    threads = f"{platform.machine()}, {torch.get_num_threads()} threads"
    where = torch.cuda.get_device_name() if device == "cuda" else threads
    kind = f"recurrent, {args.rung}" if args.rung else "Transformer"
    built = recurrent(run_config.model, args.rung) if args.rung else EncoderDecoder(run_config.model)
    size = sum(p.numel() for p in built.parameters())
    print(f"{kind}, {args.profile}, {args.data} {args.source} → {args.target}; {size:,} parameters, {where}")
    result: dict = {
        "benchmark": "training", "model": kind, "profile": args.profile, "data": data, "parameters": size,
        "device": device, "device_name": where,
        "precision": precision, "compiled": run_config.recipe.compile,
        "date": time.strftime("%Y-%m-%d"),
        "command": f"python benchmarks/training.py --profile {args.profile} --data {args.data} "
                   f"--source {args.source} --target {args.target}" + f" --rung '{args.rung}'" * bool(args.rung)
                   + " --no-compile" * args.no_compile + f" --length {args.length}" * bool(args.length),
        "versions": {name: version(name) for name in ("torch", "transformers", "sacrebleu", "attncourse")}
        | {"python": platform.python_version()},
    }  # fmt: skip

    recipe = replace(run_config.recipe, steps=args.steps, label_smoothing=0.0, ema=0.0)
    pairs = encode_pairs(corpora.train, *tokenizers)
    if args.only in (None, "step") and not args.rung:
        result["step"] = where_a_step_goes(run_config.model, pairs, recipe, device, args.rounds)
        for name, at in result["step"].items():
            of_gpu = "; {kernels:,.0f} kernels, GPU busy {gpu_busy_ms:.1f} ms".format(**at) if "kernels" in at else ""
            print(f"a step in {name}, batches at hand: {at['ms']:.1f} ms, {at['operations']:,} operations{of_gpu}")
    if args.only in (None, "speed") and not args.rung:
        rates = speed(run_config.model, pairs, recipe, device, args.rounds)
        print(f"{'':<24}{'tokens/s':>12}{'steps/s':>10}{'parameters':>13}")
        for name, rate in rates.items():
            print(f"{name:<24}{rate['tokens_per_second']:>12,.0f}{rate['steps_per_second']:>10.2f}{rate['parameters']:>13,}")
        ours = rates["attncourse"]
        fastest = max(rate["tokens_per_second"] for name, rate in rates.items() if name != "attncourse")
        ratio = ours["tokens_per_second"] / fastest
        peak, peak_is = peak_flops(device, precision)
        mfu = utilisation(run_config.model, pairs, recipe, ours["steps_per_second"], peak)
        print(f"{ratio:.2f} times the fastest peer (goal {SPEED_GOAL}); {mfu:.0%} of the device's {peak_is}, "
              f"{peak / 1e12:.2f} TFLOP/s (goal for the base preset {MFU_GOAL:.0%})")  # fmt: skip
        result |= {"rates": rates, "tokens_per_second_ratio": ratio, "mfu": mfu, "peak_flops": peak, "peak_is": peak_is}
    if args.only in (None, "quality"):
        trained = quality(run_config, corpora, tokenizers, device, args.rung)
        measured = trained["measured"]
        result |= trained | {key: measured.get(key) for key in ("bleu", "bleu_signature", "exact")}
        print(f"after {trained['training_seconds']:.0f} s of training:")
        if "bleu" in measured:
            print(f"BLEU {measured['bleu_lowercase']:.1f}  {measured['bleu_lowercase_signature']}")
            print(f"BLEU {measured['bleu']:.1f}  {measured['bleu_signature']}")
            print(f"seconds to {FAST_BLEU}: {trained['seconds_to_bleu_36_5'] or 'not reached'} (goal {SECONDS_GOAL})")
        else:
            print(f"exactly right {measured['exact']:.1%}")
    if args.save:
        args.save.parent.mkdir(parents=True, exist_ok=True)
        args.save.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if args.json:
        print(json.dumps(result, ensure_ascii=False))


if __name__ == "__main__":
    main()
