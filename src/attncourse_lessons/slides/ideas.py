"""The ideas of the five decks, in their order, and what becomes of each: `coverage.py` looks up who teaches it.

A cell of a lecture is marked `teaches="name; name"` with the names of the ideas that its section teaches.
"""

from typing import NamedTuple

from attncourse_lessons.slides.erratum import CS11711, CSE576, CSE5321, FOUNDATIONS, PARAMETRIC

BY_LETTER = {"A": CSE576, "B": FOUNDATIONS, "C": CSE5321, "D": PARAMETRIC, "E": CS11711}


class Idea(NamedTuple):
    """Something that a slide says, under a name for its marks, and in which decks."""

    name: str
    letters: str
    """Of the decks, as in `BY_LETTER`."""

    @property
    def decks(self) -> tuple[str, ...]:
        return tuple(BY_LETTER[letter] for letter in self.letters)


def _ideas(text: str) -> tuple[Idea, ...]:
    """One a line: letters, and the name."""
    return tuple(Idea(name, letters) for letters, name in (line.split(" ", 1) for line in text.strip().splitlines()))


IDEAS = _ideas("""
DE language modelling and its objective
D parametric models against tf-idf and n-grams
AD recurrent networks: LSTMs are powerful
AD encoder and decoder, and the bottleneck between them
ABD linear interaction distance, locality, vanishing gradients
ABD operations that cannot be parallel
AD bidirectional encoders where possible
A mean pooling as a starting point
ABD attention as a soft lookup: query, key, value
AB a summary of fixed size of a set
A attention is older than neural networks, and powerful if its weights are learned
E score functions: additive, bilinear, dot, scaled dot
ABDE cross-attention of a decoder, in equations
A the attentional vector feeds the next step
ABD soft alignment for free, and what it explains
A human-like translation
ABDE self-attention, token by token and in matrices
A embeddings are a product with one-hot vectors
BCE complexity, path length and sequential operations: the paper's table 1
E recurrence, convolution, attention: three kinds of sequence models
ABCDE self-attention does not see order
ABCDE sinusoidal positions, and shifts as a linear map
C integers and binary digits as positions
ABCDE learned absolute positions
ABD most systems use learned positions
BE relative positions: Shaw on keys and on values
B Shaw's BLEU for every clipping distance
ACE rotary embeddings
ABD nothing but averages: why a feed-forward network
ABD masking the future, with scores of −∞
ABDE training in parallel, teacher forcing
ABCDE multi-head attention, split and merged
C sizes of GPT-3 and of the base model, counted
AB heads look at different things, k heads or one
ABDE the scaled dot product: variance of a sum
E what heads do: bertviz, linguistic roles
E nanoGPT's forward pass
E grouped-query attention
ABDE residual connections and the gradient through them
AD the loss landscape with and without them
ABDE layer normalisation
E RMSNorm
ACE pre-norm and post-norm
D what the tricks improve: training or ability
ABCDE encoder, decoder and encoder–decoder, assembled
ABC figure 1 of the paper
ABCD translation results and training cost
AD Liu et al.: articles from long inputs
ACD leaderboards and pre-training
E encoder–decoder, decoder-only: T5, mBART, GPT, Llama
E Llama against the original Transformer
E Transformer++: ten times more efficient
ABC do modifications transfer: which help
ABC the rows of that table: mixture of experts, Universal, Funnel, Synthesizer and others
ABC its columns: steps per second, SuperGLUE, XSum, WebQ
E subwords
E code: a block and a language model
ABCE the quadratic cost of attention
E the T × T matrix in memory, FlashAttention
AC must the quadratic cost go? attention's share of the arithmetic
AC production models and what they use
A context lengths of foundation models
AC recurrence again: RWKV, Mamba
C a taxonomy of efficient Transformers
BC sparse patterns: Longformer, BigBird, panel by panel
BC low rank: Linformer and its matrices
C images: the Vision Transformer
C sound: wav2vec 2.0
E fast, with only matrix multiplications
B constituency parsing
B The Annotated Transformer
B textbooks of NLP
ABCDE what slides get wrong
""")

# What no lesson teaches, and why.
LEFT_OUT = {"human-like translation": "a metaphor, and no lecture compares models with readers"}
