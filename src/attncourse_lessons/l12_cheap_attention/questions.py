"""What a professor would ask of cheap attention: each answer is computed by running it."""

import math

import torch

from attncourse.counting import cache_bytes
from attncourse.efficient import dense_mask, linear_attend, linear_attend_step, receptive_field, sliding_window
from attncourse.transformer import TransformerConfig
from lessonkit.authoring.questions.question import ask


def cache(lots):
    layers, heads, kv, d_head, n = lots.choice([(32, 32, 8, 128, 4096), (32, 32, 32, 128, 2048), (40, 40, 8, 128, 8192)])
    config = TransformerConfig(vocab_size=10, d_model=heads * d_head, n_layers=layers, n_heads=heads, n_kv_heads=kv,
                               max_length=n)  # fmt: skip
    seen = cache_bytes(config, 1, n)
    mib = 2**20
    values = {
        2 * layers * kv * d_head * n * 2: "Keys and values, for each layer and key-value head, 2 bytes a number.",
        layers * kv * d_head * n * 2: "Keys *and* values are kept.",
        2 * kv * d_head * n * 2: "Every layer keeps its own.",
        2 * layers * kv * d_head * n * 8: "A number in bfloat16 takes 2 bytes.",
    }
    return ask(
        f"{layers} layers, {kv} key-value heads of width {d_head}, {n:,} tokens, bfloat16. How large is the KV cache?",
        *((f"{value / mib:,.0f} MiB", value == seen, why) for value, why in values.items()),
    )


def online_step(lots):
    first, second = lots.choice([(2.0, 5.0), (1.0, 4.0), (3.0, 3.5)])
    total = math.exp(first - second) + 1
    seen = float(torch.tensor([first, second]).double().sub(second).exp().sum())
    return ask(
        f"Online softmax has seen the score {first:g} (largest {first:g}, sum 1). Now comes the score {second:g}. "
        "What is the sum of exponentials, relative to the new largest?",
        *((text, math.isclose(value, seen), why) for text, value, why in (
            (f"exp({first - second:g}) + 1", total, "The old sum is rescaled by exp(old largest − new largest), then the new term, 1, is added."),
            (f"1 + exp({second - first:g})", 1 + math.exp(second - first), "That is relative to the *old* largest score: it may overflow."),
            ("1 + 1", 2.0, "The old sum was relative to another number: it must be rescaled."),
            (f"exp({first:g}) + exp({second:g})", math.exp(first) + math.exp(second), "That is relative to 0: nothing was subtracted."),
        )),
    )  # fmt: skip


def layers_for_a_window(lots):
    window, layers = lots.choice([4, 5, 8]), lots.choice([3, 4, 6])
    n = window * layers + 5
    mask = dense_mask(sliding_window(window - 1, causal=True), n, n)
    seen = int(receptive_field(mask, layers)[-1].sum())
    size = int(mask[-1].sum())
    return ask(
        f"A causal window in which a token sees itself and the {size - 1} before it, {layers} layers. "
        "Over how many tokens can an output depend, far from the start?",
        *((str(value), value == seen, why) for value, why in {
            layers * (size - 1) + 1: f"Each layer reaches {size - 1} tokens further back, and the token itself counts once.",
            layers * size: "The token itself is counted in every layer.",
            size: "That is one layer's.",
            size**layers: "The reach grows by addition: windows lie end to end.",
        }.items()),
    )  # fmt: skip


def memory_of_scores(lots):
    n, h = lots.choice([8192, 16384, 32768]), lots.choice([16, 32])
    one = torch.zeros(4, 4, dtype=torch.bfloat16)
    seen = one.element_size() * n * n * h / 2**30
    return ask(
        f"{n:,} tokens, {h} heads, bfloat16. How much memory would the attention weights of *one* layer take if they were stored?",
        *((f"{value:g} GiB", value == seen, why) for value, why in {
            2 * n * n * h / 2**30: "n² for each head, 2 bytes each. FlashAttention never stores them.",
            2 * n * n / 2**30: "Each head has weights of its own.",
            2 * n * 64 * h / 2**30: "That is what queries of width 64 take: linear in n.",
            4 * n * n * h / 2**30: "That would be float32.",
        }.items()),
    )  # fmt: skip


def exactness(lots):
    n = 32
    q, k, v = torch.randn(3, n, 8, generator=torch.Generator().manual_seed(lots.randint(0, 999)), dtype=torch.float64)
    exact = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]

    def same(mask=None, order=None):
        if order is not None:
            parts = [q @ k[part].mT / 8**0.5 for part in order]
            top = torch.cat(parts, 1).amax(1, keepdim=True)
            total = sum((part - top).exp().sum(1, keepdim=True) for part in parts)
            return torch.allclose(sum((part - top).exp() @ v[at] for part, at in zip(parts, order, strict=True)) / total, exact)
        return torch.allclose((q @ k.mT / 8**0.5).masked_fill(~mask, -torch.inf).softmax(-1) @ v, exact)

    window = dense_mask(sliding_window(4), n, n)
    low = torch.randn(n, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    linformer = (q @ (low.mT @ k).mT / 8**0.5).softmax(-1) @ (low.mT @ v)
    return ask(
        "Which of these gives the same output as full softmax attention, up to rounding?",
        ("FlashAttention: tiles and an online softmax", same(order=[slice(0, 10), slice(10, 32)]),
         "It changes the order of the additions and what is stored, and nothing else."),
        ("sliding-window attention of a fixed width", same(mask=window), "Keys outside the window get no weight."),
        ("linear attention with the features elu + 1", torch.allclose(linear_attend(q.float(), k.float(), v.float()).double(), exact, atol=1e-3),
         "Another kernel than exp(q · k)."),
        ("Linformer: keys projected to a smaller number", torch.allclose(linformer, exact), "Low rank is assumed, and lost what is above."),
    )  # fmt: skip


def linear_state(lots):
    n, d = lots.choice([1000, 4000, 16000]), lots.choice([32, 64])
    one = torch.rand(1, d)
    state = linear_attend_step(one, one, one, None)[1]
    seen = sum(part.numel() for part in state)
    return ask(
        f"Causal linear attention, one head, features and values {d} wide. How many numbers must be kept after {n:,} tokens?",
        *((f"{value:,}", value == seen, why) for value, why in {
            d * d + d: "The sum of φ(k) vᵀ, a matrix, and the sum of φ(k), a vector: whatever the length.",
            2 * n * d: "That is a KV cache: softmax attention has to keep all keys and values.",
            n * n: "Weights are not kept by either.",
            d: "One vector: the normaliser alone.",
        }.items()),
    )  # fmt: skip
