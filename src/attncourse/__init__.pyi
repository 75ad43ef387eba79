"""What a program may rely on, and from which module it comes; __init__.py loads each when it is first used."""

from . import pretrained
from ._course import check, check_all, hint, practice, progress, solved
from .attention import (
    KeyValueCache,
    MultiHeadAttention,
    attend,
    causal_mask,
    combine_masks,
    lengths_to_mask,
    masked_softmax,
    window_mask,
)
from .beyond_text import ViT, ViTConfig, Wav2Vec2, Wav2Vec2Config
from .counting import cache_bytes, count_flops, count_parameters, count_training_flops, preset
from .data import Pair, Tokenizer, encode_pairs, encode_texts, read_parallel, read_texts
from .decoding import SpecialTokens, beam_search, beam_translate, greedy, sample, translate, warp_logits
from .efficient import flex_attend, linear_attend, sliding_window_attend, tiled_attend
from .layers import FeedForward, LayerNorm, RMSNorm
from .metrics import bleu, chrf, perplexity
from .recurrent import Seq2Seq
from .training.recipe import Recipe
from .training.runs import load_run
from .training.trainer import train
from .transformer import Block, Encoder, EncoderDecoder, LanguageModel, Stack, TransformerConfig
from .viz.viewer import show_attention

__version__: str
__all__ = [
    "Block",
    "Encoder",
    "EncoderDecoder",
    "FeedForward",
    "KeyValueCache",
    "LanguageModel",
    "LayerNorm",
    "MultiHeadAttention",
    "Pair",
    "RMSNorm",
    "Recipe",
    "Seq2Seq",
    "SpecialTokens",
    "Stack",
    "Tokenizer",
    "TransformerConfig",
    "ViT",
    "ViTConfig",
    "Wav2Vec2",
    "Wav2Vec2Config",
    "attend",
    "beam_search",
    "beam_translate",
    "bleu",
    "cache_bytes",
    "causal_mask",
    "check",
    "check_all",
    "chrf",
    "combine_masks",
    "count_flops",
    "count_parameters",
    "count_training_flops",
    "encode_pairs",
    "encode_texts",
    "flex_attend",
    "greedy",
    "hint",
    "lengths_to_mask",
    "linear_attend",
    "load_run",
    "masked_softmax",
    "perplexity",
    "practice",
    "preset",
    "pretrained",
    "progress",
    "read_parallel",
    "read_texts",
    "sample",
    "show_attention",
    "sliding_window_attend",
    "solved",
    "tiled_attend",
    "train",
    "translate",
    "warp_logits",
    "window_mask",
]
