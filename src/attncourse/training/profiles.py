"""The sizes to train in: what a laptop does in minutes, for a T4 and for newer GPUs, and the base model of 2017."""

from typing import Any

from attncourse._checks import check_one_of
from attncourse.data import Tokenizer, multi30k, number_words
from attncourse.data.multi30k import Split3
from attncourse.training.own_text import PAIRS, TEXTS, load_own_text
from attncourse.training.recipe import Recipe
from attncourse.training.runs import RunConfig
from attncourse.training.tasks import TaskName
from attncourse.transformer import TransformerConfig

PROFILES = ("cpu", "t4", "gpu", "base")
DATA = ("number-words", "multi30k")

# What the data is: sizes of the vocabularies, and whether one serves both languages.
_NUMBERS = {"name": "number-words", "train": 20_000, "test": 1_000, "vocab_size": 200, "joint": False, "dates": 0.1}
_CAPTIONS = {"name": "multi30k", "vocab_size": 8_000, "joint": True}
_TEXTS = {"name": TEXTS, "joint": True}
# A language model as they are built today: RoPE, RMSNorm, SwiGLU, no biases.
_MODERN = {"positions": "rope", "norm": "rms", "activation": "swiglu", "bias": False}

_SIZES: dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    ("cpu", "number-words"): (
        _NUMBERS,
        {"d_model": 96, "n_layers": 2, "n_heads": 8, "d_ff": 256, "positions": "rope", "dropout": 0.0},
        {"steps": 1_400, "batch_tokens": 1024, "lr": 3e-3, "warmup": 100, "schedule": "cosine", "label_smoothing": 0.0,
         "evaluate_every": 700},
    ),
    ("cpu", "multi30k"): (
        _CAPTIONS | {"vocab_size": 6_000},
        {"d_model": 256, "n_layers": 2, "n_heads": 4, "d_ff": 512, "dropout": 0.1},
        {"steps": 2_200, "batch_tokens": 2048, "lr": 2e-3, "warmup": 220, "schedule": "cosine",
         "evaluate_every": 550},
    ),
    # As gpu, for the T4 of a hosted notebook: 16 bits by fp16, half of a step at a time.
    ("t4", "number-words"): (
        _NUMBERS,
        {"d_model": 256, "n_layers": 3, "n_heads": 4, "d_ff": 1024, "dropout": 0.0},
        {"steps": 1_000, "batch_tokens": 4096, "accumulate": 2, "lr": 1e-3, "warmup": 200, "schedule": "cosine",
         "label_smoothing": 0.0, "evaluate_every": 250, "precision": "fp16"},
    ),
    ("t4", "multi30k"): (
        _CAPTIONS | {"vocab_size": 10_000},
        {"d_model": 256, "n_layers": 4, "n_heads": 4, "d_ff": 1024, "dropout": 0.3, "dropout_attention": 0.1},
        {"steps": 6_000, "batch_tokens": 4096, "accumulate": 2, "lr": 2e-3, "warmup": 800, "ema": 0.998,
         "evaluate_every": 300, "patience": 8, "precision": "fp16"},
    ),
    # Nothing is compiled: on an H100 that took three minutes, and steps of 36 ms became steps of 28 to 35 ms.
    ("gpu", "number-words"): (
        _NUMBERS,
        {"d_model": 256, "n_layers": 3, "n_heads": 4, "d_ff": 1024, "dropout": 0.0},
        {"steps": 1_000, "batch_tokens": 8192, "lr": 1e-3, "warmup": 200, "schedule": "cosine", "label_smoothing": 0.0,
         "evaluate_every": 250, "precision": "auto"},
    ),
    ("gpu", "multi30k"): (
        _CAPTIONS | {"vocab_size": 10_000},
        {"d_model": 256, "n_layers": 4, "n_heads": 4, "d_ff": 1024, "dropout": 0.3, "dropout_attention": 0.1},
        {"steps": 6_000, "batch_tokens": 8192, "lr": 2e-3, "warmup": 800, "ema": 0.998, "evaluate_every": 300,
         "patience": 8, "precision": "auto"},
    ),
    ("base", "multi30k"): (
        _CAPTIONS | {"vocab_size": 10_000},
        {"d_model": 512, "n_layers": 6, "n_heads": 8, "d_ff": 2048, "dropout": 0.3, "dropout_attention": 0.1},
        {"steps": 6_000, "batch_tokens": 25_000, "lr": 1e-3, "warmup": 1_500, "ema": 0.998, "evaluate_every": 300,
         "patience": 8, "precision": "auto", "compile": True},
    ),
    ("cpu", TEXTS): (
        _TEXTS | {"vocab_size": 4_000},
        _MODERN | {"d_model": 192, "n_layers": 4, "n_heads": 6, "d_ff": 512, "max_length": 256, "dropout": 0.1},
        {"steps": 1_000, "batch_tokens": 2048, "lr": 3e-3, "warmup": 100, "schedule": "cosine", "label_smoothing": 0.0,
         "evaluate_every": 250},
    ),
    ("t4", TEXTS): (
        _TEXTS | {"vocab_size": 10_000},
        _MODERN | {"d_model": 384, "n_layers": 6, "n_heads": 6, "d_ff": 1024, "dropout": 0.1},
        {"steps": 5_000, "batch_tokens": 8192, "accumulate": 2, "lr": 1e-3, "warmup": 500, "schedule": "cosine",
         "label_smoothing": 0.0, "evaluate_every": 500, "precision": "fp16"},
    ),
    ("gpu", TEXTS): (
        _TEXTS | {"vocab_size": 10_000},
        _MODERN | {"d_model": 384, "n_layers": 6, "n_heads": 6, "d_ff": 1024, "dropout": 0.1},
        {"steps": 5_000, "batch_tokens": 16_384, "lr": 1e-3, "warmup": 500, "schedule": "cosine",
         "label_smoothing": 0.0, "evaluate_every": 500, "precision": "auto"},
    ),
    ("base", TEXTS): (
        _TEXTS | {"vocab_size": 16_000},
        _MODERN | {"d_model": 768, "n_layers": 12, "n_heads": 12, "d_ff": 2048, "max_length": 1024, "dropout": 0.1},
        {"steps": 20_000, "batch_tokens": 32_768, "lr": 6e-4, "warmup": 1_000, "schedule": "cosine",
         "label_smoothing": 0.0, "evaluate_every": 1_000, "precision": "auto", "compile": True},
    ),
}  # fmt: skip


def settings(profile: str, data: str, **changes: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """What the profile says of the data, the model and the recipe; `changes` are of the recipe.

    Pairs of one's own are treated as captions are.
    Raises ValueError for a profile or data that there is not, or not together.
    """
    check_one_of("profile", profile, PROFILES)
    check_one_of("data", data, (*DATA, PAIRS, TEXTS))
    like = "multi30k" if data == PAIRS else data
    if (profile, like) not in _SIZES:
        raise ValueError(f"data: got {data!r}, expected multi30k with the profile {profile!r}")
    of_data, of_model, of_recipe = _SIZES[profile, like]
    recipe = of_recipe | changes
    return of_data | {"name": data}, dict(of_model), {"save_every": recipe["evaluate_every"]} | recipe


def load_corpora(data: dict[str, Any]) -> Split3[Any]:
    """The pairs that `data` (of a plan) names, in its languages, or the texts. Raises what the loaders raise."""
    if data["name"] in (PAIRS, TEXTS):
        return load_own_text(data)
    source, target = data["source"], data["target"]
    if data["name"] == "multi30k":
        return multi30k(source, target)
    n = data["test"]
    drawn = number_words(source, target, train=data["train"] + 2 * n, test=0, dates=data["dates"], seed=0).train
    return Split3(drawn[2 * n :], drawn[:n], drawn[n : 2 * n])


def train_tokenizers(data: dict[str, Any], examples: list[Any]) -> tuple[Tokenizer, ...]:
    """The source's and the target's, from the training pairs alone; one for both if the data says "joint".

    Of texts, one, which keeps lines apart.
    """
    if data["name"] == TEXTS:
        return (Tokenizer.train(examples, data["vocab_size"], keep_apart=r"\n"),)
    sources, targets = [pair.source for pair in examples], [pair.target for pair in examples]
    if data["joint"]:
        both = Tokenizer.train(sources + targets, data["vocab_size"])
        return both, both
    return Tokenizer.train(sources, data["vocab_size"]), Tokenizer.train(targets, data["vocab_size"])


def make_run_config(
    profile: str, name: str, tokenizers: tuple[Tokenizer, ...],
    data: dict[str, Any] | None = None, model: dict[str, Any] | None = None, **changes: Any,
) -> RunConfig:  # fmt: skip
    """The plan of a new run: what the profile says, for these tokenizers.

    `data` and `model` stand in place of what the profile says of them, field by field; `changes` are of the recipe.
    Raises ValueError for what cannot be.
    """
    of_data, of_model, recipe = settings(profile, name, **changes)
    of_data |= data or {}
    own = None if of_data["joint"] else len(tokenizers[-1])
    sizes = {"vocab_size": len(tokenizers[0]), "target_vocab_size": own} | of_model | (model or {})
    task: TaskName = "language model" if name == TEXTS else "translation"
    return RunConfig(TransformerConfig(**sizes), Recipe(**recipe), of_data | {"profile": profile}, task)
