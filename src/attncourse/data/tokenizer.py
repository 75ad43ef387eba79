"""Byte-pair encoding: frequent neighbours grow into pieces, so that no word is unknown and `undzwanzig` has parts."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

SPECIAL = ("<pad>", "<bos>", "<eos>", "<unk>")
PAD, BOS, EOS, UNK = range(4)


class Tokenizer:
    """Text to token ids and back. Train it on the training split alone: what the test set holds must stay unseen.

    Sennrich et al. 2016, by the `tokenizers` library. The space before a word belongs to its first piece ("▁hundred"),
    a hyphen to the piece before it ("▁ninety-"), a comma stands alone, and no piece reaches over any of them.
    """

    def __init__(self, bpe: tokenizers.Tokenizer):
        self._bpe = bpe

    @classmethod
    def train(cls, texts: Iterable[str], size: int, keep_apart: str | None = None) -> "Tokenizer":
        """Start from single characters and merge the most frequent neighbours until there are `size` tokens.

        `keep_apart` is a regular expression; what it matches becomes a piece that no merge may cross.
        """
        bpe = tokenizers.Tokenizer(models.BPE(unk_token=SPECIAL[UNK]))
        splits: list[pre_tokenizers.PreTokenizer] = [
            pre_tokenizers.Metaspace(),
            pre_tokenizers.Split(",", behavior="isolated"),
            pre_tokenizers.Split("-", behavior="merged_with_previous"),
        ]
        if keep_apart:
            splits.append(pre_tokenizers.Split(tokenizers.Regex(keep_apart), behavior="isolated"))
        bpe.pre_tokenizer = pre_tokenizers.Sequence(splits)
        bpe.decoder = decoders.Metaspace()
        trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(SPECIAL), show_progress=False)
        bpe.train_from_iterator(texts, trainer)
        return cls(bpe)

    def __len__(self) -> int:
        return self._bpe.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """The ids of the text's tokens, without <bos> and <eos>. A character never seen in training becomes <unk>."""
        return self._bpe.encode(text).ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids; <pad>, <bos> and <eos> vanish, <unk> stays to be seen."""
        return self._bpe.decode([i for i in ids if i not in (PAD, BOS, EOS)], skip_special_tokens=False)

    def pieces(self, text_or_ids: str | Sequence[int]) -> list[str]:
        """The tokens as a reader wants to see them in a picture: no "▁", unless it stands alone."""
        ids = self.encode(text_or_ids) if isinstance(text_or_ids, str) else text_or_ids
        return [(self._bpe.id_to_token(i) or SPECIAL[UNK]).removeprefix("▁") or "▁" for i in ids]

    def to_json(self) -> str:
        """What `save` writes and `load` reads."""
        return self._bpe.to_str(pretty=True)

    def save(self, path: str | Path) -> None:
        self._bpe.save(str(path))

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        return cls(tokenizers.Tokenizer.from_file(str(path)))
