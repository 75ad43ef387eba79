"""What others published and what we measured ourselves, beside each other: tables that lectures draw."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple


class Translated(NamedTuple):
    """BLEU on newstest2014, and the FLOPs that training took, for the language pairs that were tried."""

    model: str
    ensemble: bool
    bleu: dict[str, float]
    flops: dict[str, float]


# Vaswani et al. 2017, table 2. The Transformers' FLOPs stand there once, for both pairs.
TRANSLATION = (
    Translated("ByteNet", False, {"en-de": 23.75}, {}),
    Translated("Deep-Att + PosUnk", False, {"en-fr": 39.2}, {"en-fr": 1.0e20}),
    Translated("GNMT + RL", False, {"en-de": 24.6, "en-fr": 39.92}, {"en-de": 2.3e19, "en-fr": 1.4e20}),
    Translated("ConvS2S", False, {"en-de": 25.16, "en-fr": 40.46}, {"en-de": 9.6e18, "en-fr": 1.5e20}),
    Translated("MoE", False, {"en-de": 26.03, "en-fr": 40.56}, {"en-de": 2.0e19, "en-fr": 1.2e20}),
    Translated("Deep-Att + PosUnk", True, {"en-fr": 40.4}, {"en-fr": 8.0e20}),
    Translated("GNMT + RL", True, {"en-de": 26.30, "en-fr": 41.16}, {"en-de": 1.8e20, "en-fr": 1.1e21}),
    Translated("ConvS2S", True, {"en-de": 26.36, "en-fr": 41.29}, {"en-de": 7.7e19, "en-fr": 1.2e21}),
    Translated("Transformer (base)", False, {"en-de": 27.3, "en-fr": 38.1}, {"en-de": 3.3e18, "en-fr": 3.3e18}),
    Translated("Transformer (big)", False, {"en-de": 28.4, "en-fr": 41.8}, {"en-de": 2.3e19, "en-fr": 2.3e19}),
)


class Compared(NamedTuple):
    """BLEU on newstest2014, English to French: on all its sentences, and on those that have no unknown word."""

    model: str
    bleu: float
    without_unknown: float


# Bahdanau, Cho and Bengio 2015, table 1. RNNencdec hands one vector over, RNNsearch has attention; the number is the
# longest training sentence; the star: trained until the validation set said enough. Moses is phrase-based.
FIRST_ATTENTION = (
    Compared("RNNencdec-30", 13.93, 24.19),
    Compared("RNNsearch-30", 21.50, 31.44),
    Compared("RNNencdec-50", 17.82, 26.71),
    Compared("RNNsearch-50", 26.75, 34.16),
    Compared("RNNsearch-50*", 28.45, 36.15),
    Compared("Moses", 33.30, 35.63),
)


class Generated(NamedTuple):
    """Wikipedia articles written from their sources: how long an input the model read, and how well it wrote."""

    model: str
    length: int
    perplexity: float
    rouge_l: float


# Liu et al. 2018, "Generating Wikipedia by summarizing long sequences"; L is the length of the input in tokens.
GENERATION = (
    Generated("seq2seq with attention", 500, 5.04952, 12.7),
    Generated("Transformer, encoder–decoder", 500, 2.46645, 34.2),
    Generated("Transformer, decoder-only", 4000, 2.22216, 33.6),
    Generated("the same, compressed memory", 11_000, 2.05159, 36.2),
    Generated("the same, 128 experts", 11_000, 1.92871, 37.9),
    Generated("the same, 256 experts", 7_500, 1.90325, 38.8),
)


class Ranked(NamedTuple):
    team: str
    model: str
    score: float


# The GLUE leaderboard as the course's decks show it, in 2021: the first six.
LEADERBOARD = (
    Ranked("Microsoft", "DeBERTa / TuringNLRv4", 90.8),
    Ranked("HFL iFLYTEK", "MacALBERT + DKM", 90.7),
    Ranked("Alibaba DAMO", "StructBERT + TAPT", 90.6),
    Ranked("PING-AN", "ALBERT + DAAF + NAS", 90.6),
    Ranked("Baidu", "ERNIE", 90.4),
    Ranked("Google", "T5", 90.3),
)


class Modified(NamedTuple):
    """Millions of parameters; losses, the early one's mean and deviation over five runs; SuperGLUE; BLEU."""

    name: str
    parameters: int
    early_loss: float
    early_deviation: float
    final_loss: float
    superglue: float
    en_de: float


# Narang et al. 2021, "Do Transformer modifications transfer across implementations and applications?", table 1: some
# rows. Every loss is that of pre-training on C4, in nats a token.
MODIFICATIONS = (
    Modified("Vanilla Transformer", 223, 2.182, 0.005, 1.838, 71.66, 26.62),
    Modified("GeLU", 223, 2.179, 0.003, 1.838, 75.79, 26.47),
    Modified("Swish", 223, 2.186, 0.003, 1.847, 73.77, 26.75),
    Modified("ELU", 223, 2.270, 0.007, 1.932, 67.83, 26.08),
    Modified("GLU", 223, 2.174, 0.003, 1.814, 74.20, 27.12),
    Modified("GeGLU", 223, 2.130, 0.006, 1.792, 75.96, 26.87),
    Modified("ReGLU", 223, 2.145, 0.004, 1.803, 76.17, 27.02),
    Modified("SwiGLU", 223, 2.127, 0.003, 1.789, 76.00, 27.02),
    Modified("RMS Norm", 223, 2.167, 0.008, 1.821, 75.45, 27.14),
    Modified("Rezero", 223, 2.262, 0.003, 1.939, 61.69, 26.37),
    Modified("24 layers, d_ff = 1536, H = 6", 224, 2.200, 0.007, 1.843, 74.89, 26.89),
    Modified("6 layers, d_ff = 6144, H = 24", 223, 2.201, 0.010, 1.857, 73.55, 26.66),
    Modified("Block sharing", 65, 2.497, 0.037, 2.164, 64.50, 25.48),
    Modified("Tied encoder/decoder input embeddings", 248, 2.192, 0.002, 1.840, 71.70, 26.49),
    Modified("Untied embeddings", 273, 2.195, 0.005, 1.834, 72.99, 26.48),
    Modified("Synthesizer (random)", 254, 2.326, 0.012, 2.009, 54.27, 26.44),
    Modified("Universal Transformer", 84, 2.406, 0.036, 2.053, 70.13, 23.91),
    Modified("Switch Transformer", 1100, 2.135, 0.007, 1.758, 75.38, 26.81),
)


def measured(name: str) -> dict[str, Any]:
    """What one of our benchmarks wrote down, by its name: its command, date and versions stand in it.

    Raises ValueError for a name of which nothing is kept.

    >>> sorted(measured("modifications"))[:3]
    ['batch_tokens', 'command', 'date']
    """
    folder = files("attncourse_lessons") / "measured"
    kept = sorted(file.name.removesuffix(".json") for file in folder.iterdir() if file.name.endswith(".json"))
    if name not in kept:
        raise ValueError(f"name: got {name!r}, expected one of {', '.join(kept)}")
    return json.loads((folder / f"{name}.json").read_text("utf-8"))


def kept_checkpoint(name: str) -> Path:
    """The folder of a trained model that comes with the package, as `attncourse.pretrained.load` reads it.

    Raises ValueError for a name of which nothing is kept.
    """
    folder = Path(str(files("attncourse_lessons"))) / "measured" / name
    if not (folder / "model.safetensors").is_file():
        kept = sorted(path.parent.name for path in folder.parent.glob("*/model.safetensors"))
        raise ValueError(f"name: got {name!r}, expected one of {', '.join(kept)}")
    return folder
