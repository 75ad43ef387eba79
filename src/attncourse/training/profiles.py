"""The sizes to train in: what a laptop does in 80 seconds and in twenty minutes, a GPU in one, a big GPU in earnest."""

import random
from typing import Any

from attncourse._checks import check_one_of
from attncourse.data import Pair, Tokenizer, multi30k, number_words
from attncourse.data.multi30k import Split3
from attncourse.training.recipe import Recipe
from attncourse.training.runs import RunConfig
from attncourse.transformer import TransformerConfig

PROFILES = ("cpu", "gpu", "base")
DATA = ("number-words", "multi30k")

# What the data is: sizes of the vocabularies, and whether one serves both languages.
_NUMBERS = {"name": "number-words", "train": 20_000, "test": 1_000, "vocab_size": 200, "joint": False, "dates": 0.1}
_CAPTIONS = {"name": "multi30k", "vocab_size": 8_000, "joint": True}

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
    ("gpu", "number-words"): (
        _NUMBERS,
        {"d_model": 256, "n_layers": 3, "n_heads": 4, "d_ff": 1024, "dropout": 0.0},
        {"steps": 1_000, "batch_tokens": 8192, "lr": 1e-3, "warmup": 200, "schedule": "cosine", "label_smoothing": 0.0,
         "evaluate_every": 250, "precision": "bf16", "compile": True},
    ),
    ("gpu", "multi30k"): (
        _CAPTIONS | {"vocab_size": 10_000},
        {"d_model": 256, "n_layers": 4, "n_heads": 4, "d_ff": 1024, "dropout": 0.3, "dropout_attention": 0.1},
        {"steps": 6_000, "batch_tokens": 8192, "lr": 2e-3, "warmup": 800, "ema": 0.998, "evaluate_every": 300,
         "patience": 8, "precision": "bf16", "compile": True},
    ),
    ("base", "multi30k"): (
        _CAPTIONS | {"vocab_size": 10_000},
        {"d_model": 512, "n_layers": 6, "n_heads": 8, "d_ff": 2048, "dropout": 0.3, "dropout_attention": 0.1},
        {"steps": 6_000, "batch_tokens": 25_000, "lr": 1e-3, "warmup": 1_500, "ema": 0.998, "evaluate_every": 300,
         "patience": 8, "precision": "bf16", "compile": True},
    ),
}  # fmt: skip


def settings(profile: str, data: str, **changes: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """What the profile says of the data, the model and the recipe; `changes` are of the recipe.

    Raises ValueError for a profile or data that there is not, or not together.
    """
    check_one_of("profile", profile, PROFILES)
    check_one_of("data", data, DATA)
    if (profile, data) not in _SIZES:
        raise ValueError(f"data: got {data!r}, expected multi30k with the profile {profile!r}")
    of_data, of_model, of_recipe = _SIZES[profile, data]
    return dict(of_data), dict(of_model), {"save_every": of_recipe["evaluate_every"]} | of_recipe | changes


def load_corpora(data: dict[str, Any]) -> Split3:
    """The pairs that `data` (of a plan) names, in its languages. Raises what the loaders raise."""
    source, target = data["source"], data["target"]
    if data["name"] == "multi30k":
        return multi30k(source, target)
    n = data["test"]
    drawn = number_words(source, target, train=data["train"] + 2 * n, test=0, dates=data["dates"], seed=0).train
    # No list occurs twice, so the short ones are used up among the first: shuffled, each part has its share of them.
    random.Random(0).shuffle(drawn)
    return Split3(drawn[2 * n :], drawn[:n], drawn[n : 2 * n])


def train_tokenizers(data: dict[str, Any], pairs: list[Pair]) -> tuple[Tokenizer, Tokenizer]:
    """The source's and the target's, from the training pairs alone; one for both if the data says "joint"."""
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    if data["joint"]:
        both = Tokenizer.train(sources + targets, data["vocab_size"])
        return both, both
    return Tokenizer.train(sources, data["vocab_size"]), Tokenizer.train(targets, data["vocab_size"])


def make_run_config(
    profile: str, name: str, source: str, target: str, tokenizers: tuple[Tokenizer, Tokenizer], **changes: Any
) -> RunConfig:
    """The plan of a new run: what the profile says, for these tokenizers; `changes` are of the recipe."""
    data, model, recipe = settings(profile, name, **changes)
    own = None if data["joint"] else len(tokenizers[1])
    config = TransformerConfig(vocab_size=len(tokenizers[0]), target_vocab_size=own, **model)
    return RunConfig(config, Recipe(**recipe), data | {"source": source, "target": target, "profile": profile})
