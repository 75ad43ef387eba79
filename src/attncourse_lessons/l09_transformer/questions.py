"""What a professor would ask of the Transformer: each answer is computed by running it."""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attncourse.decoding import warp_logits
from attncourse.transformer import Block, LanguageModel, TransformerConfig
from lessonkit.authoring.questions.question import ask


def block_parameters(lots):
    d = lots.choice([64, 128, 256])
    config = TransformerConfig(vocab_size=11, d_model=d, n_heads=4, d_ff=4 * d, n_layers=1)
    seen = sum(p.numel() for p in Block(config).parameters() if p.ndim == 2)
    return ask(
        f"A block of self-attention and a feed-forward network, d_model = {d}, d_ff = 4 · d_model. "
        "How many numbers do its weight *matrices* have?",
        *((f"{value:,}", value == seen, why) for value, why in {
            12 * d * d: "4 d² for W_Q, W_K, W_V, W_O, and 2 · 4 d² for the feed-forward network.",
            8 * d * d: "That is the feed-forward network alone: two thirds of the block.",
            4 * d * d: "That is attention alone: a third of the block.",
            7 * d * d: "The feed-forward network has two matrices, in and out, of 4 d² each.",
        }.items()),
    )  # fmt: skip


def tying(lots):
    vocab, d = lots.choice([8_000, 16_000, 32_000]), lots.choice([256, 512])

    def size(tied):
        config = TransformerConfig(vocab_size=vocab, d_model=d, n_heads=4, d_ff=4 * d, n_layers=2, tie_output=tied)
        return sum(p.numel() for p in LanguageModel(config).parameters())

    seen = size(False) - size(True)
    return ask(
        f"A language model of {vocab:,} tokens, d_model = {d}, ties its embedding and its output matrix. "
        "How many parameters does that save?",
        *((f"{value:,}", value == seen, why) for value, why in {
            vocab * d: "The output matrix (d, vocabulary) is the embedding, transposed.",
            2 * vocab * d: "One of the two remains.",
            vocab: "That is a bias of the output.",
            vocab * d // 2: "The whole matrix is shared, and stored once.",
        }.items()),
    )  # fmt: skip


def training_compute(lots):
    billions, tokens = lots.choice([1, 3, 7]), lots.choice([100, 300, 1000])
    layer, x = nn.Linear(8, 8, bias=False), torch.zeros(4, 8, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        layer(x).sum().backward()
    seen = counter.get_total_flops() / (8 * 8 * 4) * billions * tokens * 1e18
    return ask(
        f"About how many FLOPs does training take with {billions} billion parameters and {tokens} billion tokens, by 6ND?",
        *((f"{value:.1e}", abs(value / seen - 1) < 1e-6, why) for value, why in {
            6e18 * billions * tokens: "2 a parameter and token forward, and twice that backward.",
            2e18 * billions * tokens: "That is the forward pass alone: what it costs to *use* the model on these tokens.",
            4e18 * billions * tokens: "That is the backward pass alone.",
            6e9 * billions * tokens: "Billions were multiplied as if one of them were not.",
        }.items()),
    )  # fmt: skip


def top_p(lots):
    probabilities = torch.tensor(lots.choice([[0.5, 0.2, 0.15, 0.1, 0.05], [0.4, 0.3, 0.15, 0.1, 0.05]]))
    limit = lots.choice([0.6, 0.8])
    kept = int((warp_logits(probabilities.log(), top_p=limit) > -torch.inf).sum())
    total = probabilities.cumsum(0)
    whys = {
        1: "Its probability alone does not reach p.",
        2: f"The first two have {total[1]:.2f} together.",
        3: f"The first three have {total[2]:.2f} together.",
        4: f"The first four have {total[3]:.2f} together.",
    }
    listed = ", ".join(f"{p:.2f}" for p in probabilities.tolist())
    return ask(
        f"Tokens have the probabilities {listed}. From how many of them does top-p = {limit} sample? "
        "(It keeps the smallest set whose probabilities add up to at least p.)",
        *((str(number), number == kept, why) for number, why in whys.items()),
    )


def shifted_right(lots):
    words = lots.sample(["ein", "Hund", "läuft", "schnell", "heim"], 3)
    answers = [*words, "<eos>"]
    inputs = ["<bos>", *answers[:-1]]
    told = {
        "<bos> {0} {1} {2}": "The target shifted right: at each place it reads what stands before the token to predict.",
        "{0} {1} {2} <eos>": "These are the answers. Read at the same place, they leak.",
        "<bos> {0} {1} {2} <eos>": "Five tokens for four answers: nothing is predicted after the end mark.",
        "{0} {1} {2}": "Then nothing predicts the first token.",
    }
    return ask(
        f"The decoder is to write “{' '.join(words)} <eos>”. What does it read in training?",
        *((f"`{(text := form.format(*words))}`", text.split() == inputs, why) for form, why in told.items()),
    )


def kinds_of_attention(lots):
    n, m = lots.sample([4, 5, 6, 7, 9], 2)
    seen = {"encoder": n * n, "decoder": m * (m + 1) // 2, "cross": m * n}
    return ask(
        f"Source of {n} tokens, target of {m}. How many weights of one head in one layer are not masked: "
        "encoder, decoder's self-attention, cross-attention?",
        *((f"{triple[0]}, {triple[1]}, {triple[2]}", triple == tuple(seen.values()), why) for triple, why in {
            (n * n, m * (m + 1) // 2, m * n): "Bidirectional, causal, and each target token over the whole source.",
            (n * n, m * m, m * n): "The decoder's self-attention is causal.",
            (n * (n + 1) // 2, m * (m + 1) // 2, m * n): "The encoder reads the whole source: it has no causal mask.",
            (n * n, m * (m + 1) // 2, m * m): "In cross-attention the keys are the source's.",
        }.items()),
    )  # fmt: skip
