"""How fast our encoder–decoder trains and decodes, beside torch.nn.Transformer and transformers' Marian of its size.

    python benchmarks/model.py [--size small|base] [--repeats 15] [--compile] [--only train|decode|window] [--json]

Goals: a training step at least 1.2 times as fast as the faster of the two on a CPU, 1.5 times on a GPU (bf16 and
compiled, all of them); cached greedy decoding at least twice as fast as `generate()`.

All have the same shape (nn.Transformer has one norm more, after each stack), one table of embeddings for source,
target and output, sinusoidal positions, post-norm and no dropout, and train on the same batch with fused AdamW. Lengths
are drawn like those of captions: log-normal with median 12, as Multi30k's are in pieces of an 8000-piece BPE (10th and
90th percentile 8 and 20). Who goes first changes from round to round. Beside the goals' rows stand harder ones: a batch
of one length, where leaving padding out gains nothing, and decoding in which no sentence ends before the others (most
of it are products that both must do), or is alone. A last table shows what a window does to a language model's cache:
time and memory a token, after more and more tokens, with and without it; with it, both should stay as they are.
"""

import argparse
import json
import math
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LogitsProcessorList, MarianConfig, MarianMTModel
from transformers.utils import logging

from attncourse.attention import lengths_to_mask
from attncourse.data import BOS, EOS, PAD
from attncourse.decoding import greedy
from attncourse.fast_step import fast_step
from attncourse.positions import sinusoidal
from attncourse.transformer import EncoderDecoder, LanguageModel, State, TransformerConfig
from attncourse.unpadding import unpadded_loss, unpadded_start

TRAIN_GOAL = {"cpu": 1.2, "cuda": 1.5}
DECODE_GOAL = 2.0
SIZES = {
    "small": {"vocab_size": 8000, "d_model": 256, "n_layers": 3, "n_heads": 4, "d_ff": 1024},
    "base": {"vocab_size": 16000, "d_model": 512, "n_layers": 6, "n_heads": 8, "d_ff": 2048},
}
MAX_LENGTH = 64
WINDOW, READ, AT_A_TIME = 128, (128, 1024, 2048, 4096), 16
JSON_NAMES = {
    "train, lengths of captions": "train_ratio_vs_fastest",
    "train, one length": "train_ratio_one_length",
    "decode, lengths of captions": "decode_ratio",
    "decode, 40 tokens each": "decode_ratio_one_length",
    "decode, one sentence of 40": "decode_ratio_one_sentence",
}


class Batch:
    """Random sentences of the lengths given, padded."""

    def __init__(self, lengths: Tensor, vocab_size: int, device: str):
        def padded(n: Tensor) -> Tensor:
            tokens = torch.randint(4, vocab_size, (len(n), int(n.max())))
            return tokens.masked_fill(~lengths_to_mask(n, tokens.shape[1]), PAD).to(device)

        self.source, self.lengths = padded(lengths), lengths.to(device)
        target = padded(lengths[torch.randperm(len(lengths))] + 1)
        self.target_in, self.target_out = target[:, :-1], target[:, 1:]


class Ours(nn.Module):
    def __init__(self, size: dict):
        super().__init__()
        self.model = EncoderDecoder(
            TransformerConfig(**size, norm_place="post", scale_embedding=True, max_length=MAX_LENGTH, dropout=0.0)
        )

        self.loss = unpadded_loss(self.model)

    def forward(self, batch_source, lengths, target_in, target_out):
        return self.loss(batch_source, lengths, target_in, target_out)


class Torch(nn.Module):
    """nn.Transformer, with an embedding and the causal flag that lets it choose its fast kernel."""

    def __init__(self, size: dict):
        super().__init__()
        d_model, n = size["d_model"], size["n_layers"]
        self.embedding = nn.Embedding(size["vocab_size"], d_model)
        nn.init.normal_(self.embedding.weight, std=d_model**-0.5)
        self.register_buffer("positions", sinusoidal(torch.arange(MAX_LENGTH), d_model))
        self.transformer = nn.Transformer(d_model, size["n_heads"], n, n, size["d_ff"], 0.0, batch_first=True)

    def embed(self, tokens):
        return self.embedding(tokens) * math.sqrt(self.embedding.embedding_dim) + self.positions[: tokens.shape[1]]

    def forward(self, source, lengths, target_in, target_out):
        padding = ~lengths_to_mask(lengths, source.shape[1])
        n = target_in.shape[1]
        states = self.transformer(
            self.embed(source),
            self.embed(target_in),
            tgt_mask=torch.ones(n, n, dtype=torch.bool, device=source.device).triu(1),
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        logits = F.linear(states, self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), target_out.flatten(), ignore_index=PAD)


class Marian(nn.Module):
    def __init__(self, size: dict):
        super().__init__()
        n, heads, d_ff = size["n_layers"], size["n_heads"], size["d_ff"]
        self.model = MarianMTModel(
            MarianConfig(
                vocab_size=size["vocab_size"],
                d_model=size["d_model"],
                encoder_layers=n,
                decoder_layers=n,
                encoder_attention_heads=heads,
                decoder_attention_heads=heads,
                encoder_ffn_dim=d_ff,
                decoder_ffn_dim=d_ff,
                activation_function="relu",
                dropout=0.0,
                attention_dropout=0.0,
                activation_dropout=0.0,
                scale_embedding=True,
                max_position_embeddings=MAX_LENGTH,
                pad_token_id=PAD,
                bos_token_id=BOS,
                eos_token_id=EOS,
                decoder_start_token_id=BOS,
                forced_eos_token_id=None,
            )
        )

    def forward(self, source, lengths, target_in, target_out):
        mask = lengths_to_mask(lengths, source.shape[1])
        logits = self.model(input_ids=source, attention_mask=mask, decoder_input_ids=target_in, use_cache=False).logits
        return F.cross_entropy(logits.flatten(0, 1), target_out.flatten(), ignore_index=PAD)


PEERS = {"ours": Ours, "torch.nn.Transformer": Torch, "transformers Marian": Marian}


def medians(runs: dict[str, Callable[[], None]], repeats: int, device: str) -> dict[str, float]:
    """Seconds of each, measured in turns, so that what disturbs the machine disturbs all alike."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for i in range(repeats + 3):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            start = time.perf_counter()
            runs[name]()
            if device == "cuda":
                torch.cuda.synchronize()
            if i >= 3:                                            # the first rounds compile and fill caches
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def train(models: dict[str, nn.Module], batch: Batch, repeats: int, device: str, compiled: bool) -> dict[str, float]:
    """A training step: loss, gradients, AdamW; with bf16 on a GPU."""

    def step(model: nn.Module) -> Callable[[], None]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        call = model
        if compiled:  # ours says itself how, so that it can go on leaving padding out
            call = unpadded_loss(model.model, compiled=True) if isinstance(model, Ours) else torch.compile(model)

        def run() -> None:
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = call(batch.source, batch.lengths, batch.target_in, batch.target_out)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return run

    torch._dynamo.reset()
    return medians({name: step(model.train()) for name, model in models.items()}, repeats, device)


class Ending:
    """A model that says <eos> when it is told to, so that random weights write sentences of the lengths we want."""

    def __init__(self, model: EncoderDecoder, step: Callable, ends: Tensor):
        self.model, self.model_step, self.ends = model, step, ends
        self.max_positions, self.modules, self.eval = model.max_positions, model.modules, model.eval

    def start(self, source: Tensor, lengths: Tensor) -> "EndingState":
        return EndingState(unpadded_start(self.model, source, lengths), self.ends, 0)

    def step(self, token: Tensor, state: "EndingState", with_weights: bool):
        logits, inner, weights = self.model_step(token, state.inner, with_weights)
        logits[:, EOS] = torch.where(state.ends == state.t + 1, math.inf, -math.inf)
        return logits, EndingState(inner, state.ends, state.t + 1), weights


class EndingState(NamedTuple):
    inner: State
    ends: Tensor
    t: int

    def select(self, rows: Tensor) -> "EndingState":
        return EndingState(self.inner.select(rows), self.ends[rows], self.t)


def decode(
    models: dict[str, nn.Module], batch: Batch, ends: Tensor, repeats: int, device: str, compiled: bool
) -> dict[str, float]:
    """Greedy decoding through the cache; sentence b ends with its token number ends[b], in both models.

    `compiled` is for our step; `generate()` is taken as it comes.
    """
    ours, marian = models["ours"].model.eval(), models["transformers Marian"].model.eval()
    n = int(ends.max())
    written = int(ends.sum())
    # Torch gives up on a function that it has compiled 8 times; the growing caches ask for some more.
    compiled_step = torch.compile(fast_step(ours, n), dynamic=True, recompile_limit=64) if compiled else None

    def run_ours() -> None:
        step = compiled_step or fast_step(ours, n)                # as `greedy` makes it for each decoding
        tokens = greedy(Ending(ours, step, ends), batch.source, batch.lengths, max_length=n).tokens
        assert int((tokens != PAD).sum()) == written

    def end(tokens: Tensor, scores: Tensor) -> Tensor:
        scores[:, PAD] = -math.inf
        scores[:, EOS] = torch.where(ends == tokens.shape[1], math.inf, -math.inf)
        return scores

    def run_marian() -> None:
        mask = lengths_to_mask(batch.lengths, batch.source.shape[1])
        tokens = marian.generate(
            input_ids=batch.source,
            attention_mask=mask,
            max_new_tokens=n,
            num_beams=1,
            do_sample=False,
            logits_processor=LogitsProcessorList([end]),
        )
        assert int((tokens[:, 1:] != PAD).sum()) == written

    with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
        return medians({"ours": run_ours, "transformers Marian": run_marian}, repeats, device)


@torch.no_grad()
def windows(size: dict, batch: int, repeats: int, device: str) -> dict[str, list[dict[str, float]]]:
    """Of a language model with and without a window: ms for a token, and the MB of its cache, after so many tokens.

    They are measured in turns, `AT_A_TIME` tokens each, after the tokens before were read at once.
    """
    kinds = {"whole": None, f"window of {WINDOW}": WINDOW}
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in kinds}
    torch.manual_seed(0)
    for n in READ:
        states, runs = {}, {}
        for name, window in kinds.items():
            longest = max(READ) + AT_A_TIME * (repeats + 3)
            config = TransformerConfig(**size, positions="rope", max_length=longest, window=window)
            model = LanguageModel(config).to(device).eval()
            states[name] = model.start()
            for begin in range(0, n, 512):                        # at once, scores would take n² numbers
                tokens = torch.randint(4, size["vocab_size"], (batch, min(512, n - begin)), device=device)
                model.read(tokens, states[name])

            def run(model=model, state=states[name]) -> None:
                for _ in range(AT_A_TIME):
                    model.step(torch.full((batch,), 5, device=device), state)

            runs[name] = run
        for name, seconds in medians(runs, repeats, device).items():
            bytes_kept = sum(cache.n_bytes for cache in states[name].caches)
            measured[name].append({"after": n, "ms": seconds * 1000 / AT_A_TIME, "MB": bytes_kept / 1e6})
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--size", choices=SIZES, default="base" if device == "cuda" else "small")
    parser.add_argument("--batch", type=int, default=256 if device == "cuda" else 64, help="sentences a batch")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        default=device == "cuda",
        help="torch.compile for training with all of them, and for our decoding step",
    )
    parser.add_argument("--only", choices=["train", "decode", "window"], help="a part of the tables")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", message="enable_nested_tensor")
    logging.set_verbosity_error()
    torch.manual_seed(0)

    size = SIZES[args.size]
    models = {name: peer(size).to(device) for name, peer in PEERS.items()}
    parameters = {name: sum(p.numel() for p in model.parameters() if p.requires_grad) for name, model in models.items()}
    drawn = torch.empty(args.batch).log_normal_(math.log(12), 0.36).round().clamp(3, 48).long()
    captions = Batch(drawn, size["vocab_size"], device)
    level = Batch(torch.full((args.batch,), 14), size["vocab_size"], device)
    alone = Batch(drawn[:1], size["vocab_size"], device)
    ends, repeats = drawn[torch.randperm(len(drawn))].to(device) + 1, max(3, args.repeats // 3)
    real = float((captions.target_out != PAD).float().mean())

    seconds = {}
    if args.only in (None, "train"):
        for name, batch in (("lengths of captions", captions), ("one length", level)):
            seconds[f"train, {name}"] = train(models, batch, args.repeats, device, args.compile)
    if args.only in (None, "decode"):
        forty = torch.full_like(ends, 40)
        rows = {"lengths of captions": (captions, ends), "40 tokens each": (captions, forty)}
        rows["one sentence of 40"] = (alone, forty[:1])
        for name, (batch, ends) in rows.items():
            seconds[f"decode, {name}"] = decode(models, batch, ends, repeats, device, args.compile)

    how = ("bf16, " if device == "cuda" else "") + ("compiled" if args.compile else "eager")
    threads = f"{platform.machine()}, {torch.get_num_threads()} threads"
    where = torch.cuda.get_device_name() if device == "cuda" else threads
    print(f"{args.size}, {args.batch} sentences, {real:.0%} of the target positions real; {device} ({where}), {how}")
    print(f"{'':<34}{'ours':>9}{'torch':>9}{'Marian':>9}{'ratio':>8}{'goal':>6}")
    ratios = {}
    for name, row in seconds.items():
        peers = [row[peer] for peer in row if peer != "ours"]
        ratios[name] = min(peers) / row["ours"]
        cells = "".join(f"{row[peer] * 1000:>7.0f}ms" if peer in row else f"{'':>9}" for peer in PEERS)
        goals = {"train, lengths of captions": TRAIN_GOAL[device], "decode, lengths of captions": DECODE_GOAL}
        goals["decode, one sentence of 40"] = DECODE_GOAL
        print(f"{name:<34}{cells}{ratios[name]:>8.2f}{goals.get(name, ''):>6}")
    print("parameters: " + ", ".join(f"{name} {n:,}" for name, n in parameters.items()))

    windowed = windows(size, 4, repeats, device) if args.only in (None, "window") else {}
    if windowed:
        print(f"\na language model's cache, 4 texts   {'ms a token':>28}{'MB kept':>32}")
        print(f"{'after tokens':<24}" + 2 * "".join(f"{n:>8}" for n in READ))
    for name, row in windowed.items():
        cells = "".join(f"{at['ms']:>8.1f}" for at in row) + "".join(f"{at['MB']:>8.1f}" for at in row)
        print(f"{name:<24}{cells}")

    if args.json:
        result = {JSON_NAMES[name]: ratio for name, ratio in ratios.items()} | {
            "seconds": seconds,
            "window": windowed,
            "size": args.size,
            "batch": args.batch,
            "compiled": args.compile,
            "precision": "bf16" if device == "cuda" else "float32",
            "device": device,
            "device_name": where,
            "versions": {name: version(name) for name in ("torch", "transformers", "attncourse")}
            | {"python": platform.python_version()},
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
