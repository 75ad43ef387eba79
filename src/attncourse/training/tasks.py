"""What a run can learn, to translate or to foretell a text, and all in which the two differ."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from attncourse.data import Tokenizer, encode_pairs, encode_texts
from attncourse.training.evaluation import final_metrics, text_metrics
from attncourse.transformer import EncoderDecoder, LanguageModel

TaskName = Literal["translation", "language model"]


class Task(NamedTuple):
    """`encode(examples, *tokenizers)` and `metrics(model, data's name, test examples, *tokenizers)` do it."""

    model: Any
    tokenizers: tuple[str, ...]
    """The files that hold them in a run's folder."""
    examples: str
    """What they are called."""
    in_pieces: bool
    """Whether a batch holds pieces of the examples, and not examples."""
    encode: Callable[..., list[Any]]
    metrics: Callable[..., dict[str, Any]]


def _of_pairs(model: EncoderDecoder, name: str, test: Sequence[Any], source: Tokenizer, target: Tokenizer) -> dict:
    return final_metrics(model, name, test, source, target)[0]


def _of_texts(model: LanguageModel, name: str, test: Sequence[Any], tokenizer: Tokenizer) -> dict:
    return text_metrics(model, test, tokenizer)


TASKS: dict[TaskName, Task] = {
    "translation": Task(
        EncoderDecoder, ("tokenizer_source.json", "tokenizer_target.json"), "pairs", False, encode_pairs, _of_pairs
    ),
    "language model": Task(LanguageModel, ("tokenizer.json",), "texts", True, encode_texts, _of_texts),
}
