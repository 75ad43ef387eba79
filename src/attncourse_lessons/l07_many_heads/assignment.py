# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @many_heads · Multi-head attention
#
# In this assignment you build the **multi-head attention** of [lecture @many_heads](@many_heads), in the order of the
# lecture. You begin with the reshaping that makes heads at no cost. Then comes the whole layer, which takes the weights
# of torch's own layer and must give the same output. The heads get the two masks of a decoder at once, and you find out
# what each head adds to the output. Grouped-query attention saves memory while a model generates, and at the end an
# interchange of single keys and values shows which head of a trained model reads what.
#
# Every answer is a few lines long. The work is to know at each line which axis is which, so write the shape beside it.
# Each exercise has a check, and a second check, on other numbers and other sizes, decides your points. After the check
# a cell *uses* what you wrote: it waits until the check gives all points, and is not graded.
#
# Two rules hold throughout. Return new tensors, without changing those that come in, and keep the gradient intact: do
# not detach anything that could be learned from.
#
# {exercises}
#
# If you are stuck, `hint("split_heads", 1)` prints a hint; the later ones of an exercise tell more. Your answers are
# refused if they call the course's own attention or torch's: this is the place to build it.

# %% locked=true
try:
    from attncourse import check, hint, solved
except ModuleNotFoundError:
    raise ImportError(
        "This notebook needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math

import torch
from torch import Tensor, nn

from attncourse import viz

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [markdown]
# ## 1 · Split the heads
#
# A projection gives each token one vector of width `d_model`, which is `n_heads` vectors side by side: the first
# `d_head` numbers belong to head 0, the next `d_head` to head 1, and so on. Give the heads an axis of their own, in
# front of the tokens, so that a matrix product treats each head like another sentence.
#
# `n_heads` divides `d_model`.

# %% exercise="split_heads"
def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """Cut every token's vector into one piece for each head.

    x: (batch, n, d_model)
    returns (batch, n_heads, n, d_head) with d_head = d_model / n_heads
    """
    ...  # solution

# %% check="split_heads"
check("split_heads", split_heads)

# %% [markdown]
# **Use it.** The course has a small trained language model of four heads per layer
# ([lecture @transformer](@transformer) trains it), and your split shows what the heads of its last layer attend to. The
# queries and keys are turned by their positions (RoPE), and the future is masked. *Guess:* will the four heads attend
# to the same places? Describe each head in five words before you open *What to see*. The first two printed lines
# compare two splits, yours and a `view` of the right shape, with the weights that the model computes itself.

# %%
if solved("split_heads"):
    from attncourse import pretrained
    from attncourse.attention import attend
    from attncourse.data import BOS, Tokenizer
    from attncourse_lessons.results import kept_checkpoint

    model = pretrained.load(kept_checkpoint("writer")).model
    tokenizer = Tokenizer.load(kept_checkpoint("writer") / "tokenizer.json")
    line = "Return the number of bytes in the file"
    tokens = torch.tensor([[BOS, *tokenizer.encode(line)]])               # (1, 9)
    layer, read = model.decoder.stack.blocks[-1].attention.sublayer, []

    def keep_input(module, inputs):
        read.append(inputs[0])

    hook = layer.register_forward_pre_hook(keep_input)
    with torch.no_grad():
        model(tokens)
    hook.remove()
    (x,) = read                                                           # (1, 9, d_model)

    def weights_of_heads(split):
        query, key = layer.rope(split(layer.query(x), 4)), layer.rope(split(layer.key(x), 4))
        past = torch.ones(9, 9, dtype=torch.bool).tril()
        return attend(query, key, key, past)[1]                           # (1, 4, 9, 9)

    def view_alone(x, n_heads):
        return x.view(1, n_heads, 9, -1)

    own = []
    with torch.no_grad():
        layer(x, causal=True, weights=own)
        for name, split in {"your split": split_heads, "view alone": view_alone}.items():
            off = float((weights_of_heads(split) - own[0]).abs().max())
            print(f"{name}: off from the model's own weights by {off:.2f}")
        weights = weights_of_heads(split_heads)[0]                        # (4, 9, 9)
    words = ["<bos>", *tokenizer.pieces(line)]
    viz.weight_tables({f"head {i}": (words, weights[i]) for i in range(4)})
    before, first = weights[:, 1:].diagonal(dim1=1, dim2=2), weights[:, 2:, 0]
    for i in range(4):
        print(f"head {i}: {before[i, 1:].mean():.2f} on the token before,"
              f" {first[i].mean():.2f} on <bos> (means over the words after the first)")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Your split gives the model's own weights, and `view` does not. Heads 0 and 1 attend mostly to the token before,
# whereas heads 2 and 3 leave most of their weight on the first token, `<bos>`. The numbers under the maps say how
# much.</details>

# %% [markdown]
# ## 2 · Merge the heads
#
# Now the way back: put each token's outputs of all heads side by side again, head 0 first.

# %% exercise="merge_heads"
def merge_heads(heads: Tensor) -> Tensor:
    """Put every token's pieces side by side: the inverse of `split_heads`.

    heads: (batch, n_heads, n, d_head)
    returns (batch, n, n_heads * d_head)
    """
    ...  # solution

# %% check="merge_heads"
check("merge_heads", merge_heads)

# %% [markdown]
# **Use it.** The lecture says that heads are interchangeable. Here the trained model reads 60 lines of documentation,
# and your function merges its heads in every layer. *Guess:* what happens to the perplexity if the four heads are
# merged in reverse order? If only their blocks of $W_O$ are reversed? If both are? And if the heads are merged by a
# `reshape`, without exchanging the axes?

# %%
if solved("split_heads") and solved("merge_heads"):
    from copy import deepcopy

    from attncourse import pretrained
    from attncourse.data import BOS, EOS, Tokenizer, docstrings
    from attncourse_lessons.results import kept_checkpoint

    trained = pretrained.load(kept_checkpoint("writer")).model
    tokenizer = Tokenizer.load(kept_checkpoint("writer") / "tokenizer.json")
    lines = [text for text in docstrings(limit=1500).test if 40 < len(text) < 120][:60]

    def perplexity(merge, order=(0, 1, 2, 3), blocks=(0, 1, 2, 3)):
        def merge_again(module, inputs):                          # in place of what was merged
            return merge(split_heads(inputs[0], 4)[:, list(order)])

        model = deepcopy(trained)
        for block in model.decoder.stack.blocks:
            output = block.attention.sublayer.output          # its weight is W_O, transposed
            cut = output.weight.data.unflatten(1, (4, 32))                # (d_model, 4, 32)
            output.weight.data = cut[:, list(blocks)].flatten(1)
            output.register_forward_pre_hook(merge_again)
        nats, n = 0.0, 0
        for line in lines:
            tokens = torch.tensor([[BOS, *tokenizer.encode(line), EOS]])
            with torch.no_grad():
                logits = model(tokens)[0, :-1]
            nats += float(nn.functional.cross_entropy(logits, tokens[0, 1:], reduction="sum"))
            n += len(logits)
        return math.exp(nats / n)

    back = (3, 2, 1, 0)
    print(f"as trained:                      {perplexity(merge_heads):6.1f}")
    print(f"heads reversed:                  {perplexity(merge_heads, order=back):6.1f}")
    print(f"blocks of W_O reversed:          {perplexity(merge_heads, blocks=back):6.1f}")
    print(f"both reversed:                   {perplexity(merge_heads, back, back):6.1f}")
    by_reshape = perplexity(lambda heads: heads.reshape(1, heads.shape[2], -1))
    print(f"reshape, the axes not exchanged: {by_reshape:6.1f}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# A head and its block of $W_O$ belong together: if only one of the two is reversed, the perplexity nearly triples, but
# if both are, nothing changes, because the number of a head means nothing. (The two single reversals give the same
# perplexity, because a reversal undoes itself.) The `reshape` has the right shape, but it mixes tokens with heads. Do
# not read its perplexity as that of a milder mistake: row 1 of the reshaped tensor holds head 0's outputs for tokens 4
# to 7, so the model is told about words that it has yet to predict, and the numbers cannot be compared.</details>

# %% [markdown]
# ## 3 · The multi-head attention layer
#
# $$
# \begin{aligned}
# \text{head}_i &= \operatorname{attention}\bigl(X W_Q^{(i)},\ M W_K^{(i)},\ M W_V^{(i)}\bigr) \\
# \text{output} &= \operatorname{Concat}(\text{head}_0, \dots, \text{head}_{h-1})\; W_O
# \end{aligned}
# $$
#
# The attention is scaled by $\sqrt{d_\text{head}}$, as in the lecture. The matrices of all heads stand side by side in
# one `nn.Linear` each (with a bias). The queries come from $X$. The keys and values come from the memory $M$, as in
# cross-attention, or from $X$ itself if there is no memory.
#
# The mask says which of the positions that are read, of the memory or of $X$ itself, hold a token. It is (batch, 1, n_key)
# and serves all queries and all heads alike. Every sentence has at least one token. Without a mask, all positions hold one.
# You may call your functions from above, but a mistake in one of them then costs points here as well.

# %% exercise="MultiHeadAttention"
class MultiHeadAttention(nn.Module):
    """Several attentions side by side, and one projection that joins what they found."""

    def __init__(self, d_model: int, n_heads: int):
        super().__init__()
        self.n_heads = n_heads                          # each d_model / n_heads wide
        self.query = nn.Linear(d_model, d_model)        # W_Q of all heads, side by side
        self.key = nn.Linear(d_model, d_model)          # W_K
        self.value = nn.Linear(d_model, d_model)        # W_V
        self.output = nn.Linear(d_model, d_model)       # W_O

    def forward(
        self, x: Tensor, memory: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Scaled attention: queries from x; keys and values from `memory`, or else from x.

        x: (batch, n_query, d_model)   memory: (batch, n_key, d_model)
        mask: (batch, 1, n_key), True where there is a token
        returns (batch, n_query, d_model)
        """
        ...  # solution

# %% check="MultiHeadAttention"
check("MultiHeadAttention", MultiHeadAttention)

# %% [markdown]
# **Use it.** The proof: your layer takes the weights of torch's `nn.MultiheadAttention` and must give its output, in
# self-attention, with a memory, and with padding. (Torch keeps $W_Q$, $W_K$ and $W_V$ one below the other in a single
# matrix, and in its padding mask True means *not* a token.)

# %%
if solved("MultiHeadAttention"):
    torch.manual_seed(0)
    torchs = nn.MultiheadAttention(32, num_heads=4, batch_first=True).eval()
    nn.init.normal_(torchs.in_proj_bias)                           # a new one begins with zeros
    yours = MultiHeadAttention(32, 4)
    with torch.no_grad():
        for i, layer in enumerate((yours.query, yours.key, yours.value)):
            layer.weight.copy_(torchs.in_proj_weight[32 * i : 32 * (i + 1)])
            layer.bias.copy_(torchs.in_proj_bias[32 * i : 32 * (i + 1)])
        yours.output.load_state_dict(torchs.out_proj.state_dict())
        x, memory = torch.randn(3, 5, 32), torch.randn(3, 8, 32)
        is_token = torch.arange(8) < torch.tensor([[8], [3], [5]])           # (3, 8)
        pairs = {
            "self-attention": (yours(x), torchs(x, x, x)[0]),
            "with a memory": (yours(x, memory), torchs(x, memory, memory)[0]),
            "with padding": (yours(x, memory, is_token[:, None]),
                             torchs(x, memory, memory, key_padding_mask=~is_token)[0]),
        }
    for name, (mine, theirs) in pairs.items():
        print(f"{name:>15}: off from torch by {float((mine - theirs).abs().max()):.0e}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# All three differences are rounding errors: with the same weights, your layer is torch's.</details>

# %% [markdown]
# Your layer can also learn. Here it is used twice, with four heads. First it reads a number from 100 to 999 in words
# (self-attention). Then three learned questions, *hundreds?*, *tens?*, *ones?*, find their digits in what was read
# (cross-attention). For example, 342 is read as the tokens *three hundred and forty two*, and the three answers must be
# 3, 4 and 2. The model trains on 600 numbers, which takes some seconds. *Guess:* how many of the 300 others are right?
# At the end each text gets four more places of padding, which hold random words. What does the mask change?

# %%
if solved("MultiHeadAttention"):
    from attncourse.data import pad_batch, say

    torch.manual_seed(0)
    numbers, d = 100 + torch.randperm(900), 32
    texts = [say(int(number), "en").replace("-", " ").split() for number in numbers]
    vocabulary = ["padding", *sorted({word for text in texts for word in text})]
    tokens, is_token = pad_batch([[vocabulary.index(word) for word in text] for text in texts])
    digits = torch.stack([numbers // 100, numbers // 10 % 10, numbers % 10], dim=1)  # (900, 3)
    word, place = nn.Embedding(len(vocabulary), d), nn.Embedding(12, d)
    question = nn.Embedding(3, d)                                         # hundreds, tens, ones
    read, ask, answer = MultiHeadAttention(d, 4), MultiHeadAttention(d, 4), nn.Linear(d, 10)
    modules = nn.ModuleList([word, place, question, read, ask, answer])
    optimizer = torch.optim.Adam(modules.parameters(), lr=1e-2)

    def digit_logits(tokens, is_token):
        x = word(tokens) + place(torch.arange(tokens.shape[1]))           # (batch, n, d)
        x = x + read(x, mask=is_token[:, None])
        questions = question.weight.expand(len(tokens), 3, d)
        return answer(ask(questions, x, is_token[:, None]))               # (batch, 3, 10)

    for _ in range(200):
        rows = torch.randint(600, (64,))
        logits = digit_logits(tokens[rows], is_token[rows])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), digits[rows].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    words, there, right = tokens[600:], is_token[600:], digits[600:]      # not seen yet
    wide = torch.cat([words, torch.randint(1, len(vocabulary), (300, 4))], dim=1)
    masked = torch.cat([there, torch.zeros(300, 4, dtype=torch.bool)], dim=1)
    cases = {"new numbers": (words, there), "four places more, masked": (wide, masked),
             "four places more, no mask": (wide, torch.ones_like(masked))}
    for name, inputs in cases.items():
        written = digit_logits(*inputs).argmax(dim=-1)                    # (300, 3)
        share = (written == right).all(dim=1).float().mean()
        print(f"{name:>25}: {share:.0%} right;", *texts[600], "→", *written[0].tolist())

# %% [markdown]
# <details><summary>What to see</summary>
#
# Nearly all new numbers are read correctly, and with the mask the padding changes nothing. Without the mask the random
# words are read, too, and about a third of the numbers go wrong.</details>

# %% [markdown]
# ## 4 · Both masks at once
#
# A decoder's self-attention has two reasons to hide a key: it comes after the query, or it is padding. Position $i$ may
# attend to position $j$ if $j \le i$ **and** there is a token at $j$. All heads and all queries of a sentence have the
# same padding, and each sentence has its own.
#
# The padding may stand after a sentence, before it, or on both sides: `is_token` says where there are tokens. An
# example with `is_token` = (False, True, True, False): query 0 may attend to no key, query 1 to key 1, and queries 2
# and 3 to keys 1 and 2. At the padding, query, key and value hold finite numbers of any size. The next layers do not
# use the output at a place of the padding, so any finite number will do there, with a finite gradient. A NaN would
# spread: forwards through the next layer, and backwards already through the gradient of this one. The heads come in
# already split, and you need not merge them.

# %% exercise="decoder_attention"
def decoder_attention(query: Tensor, key: Tensor, value: Tensor, is_token: Tensor) -> Tensor:
    """Scaled attention of each head; each place sees the tokens of the past and its own.

    query, key, value: (batch, n_heads, n, d_head)
    is_token: (batch, n), True where there is a token, False where there is padding
    returns (batch, n_heads, n, d_head)
    """
    ...  # solution

# %% check="decoder_attention"
check("decoder_attention", decoder_attention)

# %% [markdown]
# **Use it.** Three sentences of 3, 6 and 9 tokens are padded to one length: on the right (**right padding**), as a
# translator's targets are in training, and on the left (**left padding**), as prompts are when a language model
# generates for several people at once. The cell compares the tokens' outputs with those of the sentence alone, once
# with your padding mask and once with the causal mask alone. *Guess* in which of the four cases there is a difference.

# %%
if solved("decoder_attention"):
    torch.manual_seed(0)
    lengths = (3, 6, 9)
    query, key, value = torch.randn(3, 3, 4, 9, 8)                        # 3 sentences, 4 heads
    all_places = torch.ones(3, 9, dtype=torch.bool)
    for side in ("right", "left"):
        for mask in ("both masks", "causal alone"):
            is_token = torch.stack([torch.arange(9) < n for n in lengths])
            is_token = is_token.flip(1) if side == "left" else is_token
            allowed = is_token if mask == "both masks" else all_places       # (3, 9)
            output = decoder_attention(query, key, value, allowed)
            off = 0.0
            for i in range(3):
                sentence = [x[i : i + 1, :, is_token[i]] for x in (query, key, value)]
                alone = decoder_attention(*sentence, all_places[i : i + 1, : lengths[i]])[0]
                off = max(off, float((output[i, :, is_token[i]] - alone).abs().max()))
            print(f"{side:>5} padding, {mask:>12}: off by {off:.6f}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# The causal mask hides right padding by itself, because the padding comes later. So a decoder that is trained with
# right padding needs no other mask (although its loss must still leave the padding out), whereas with left padding it
# needs both. Why, then, do programs that generate text pad on the left? Every row then ends with its last token, so the
# next token comes from the same place in all rows.</details>

# %% [markdown]
# ## 5 · What each head adds
#
# The lecture's formula says that the layer's output is a sum with one term per head. Make the terms visible, all at
# once: for every head what it writes into the output, for every token. The heads' outputs come in before the merge. In
# this exercise $W_O$ need not be square: it has $h\,d_v$ rows and $d_\text{model}$ columns, and stands on the right, as
# in the formula.

# %% exercise="contributions"
def contributions(heads: Tensor, W_O: Tensor) -> Tensor:
    """What each head adds to the layer's output.

    heads: (batch, n_heads, n, d_v)   W_O: (n_heads * d_v, d_model)
    returns (batch, n_heads, n, d_model); added over the heads, it is the output of the layer
    """
    ...  # solution

# %% check="contributions"
check("contributions", contributions)

# %% [markdown]
# **Use it.** Here is the trained model of exercise 1 again, with three layers of four heads, reading 30 lines of
# documentation. For each head the cell subtracts what *you* say it adds from its layer's output, and measures the loss
# in nats per token. If your part is right, this is an ablation of the head, and the last line checks it against real
# ablations, which set a head's block of $W_O$ to zero. *Guess:* does the head that writes the longest vectors cost
# most? Can the model do better without a head?

# %%
if solved("contributions") and solved("split_heads"):
    from attncourse import pretrained
    from attncourse.data import BOS, EOS, Tokenizer, docstrings, pad_batch
    from attncourse_lessons.results import kept_checkpoint

    model = pretrained.load(kept_checkpoint("writer")).model
    tokenizer = Tokenizer.load(kept_checkpoint("writer") / "tokenizer.json")
    lines = [text for text in docstrings(limit=1500).test if 40 < len(text) < 120][:30]
    tokens, is_token = pad_batch([[BOS, *tokenizer.encode(line), EOS] for line in lines])

    def nats():
        with torch.no_grad():
            logits = model(tokens)[:, :-1]                        # (30, n − 1, tokens known)
        there = is_token[:, 1:]                                           # (30, n − 1)
        return float(nn.functional.cross_entropy(logits[there], tokens[:, 1:][there]))

    def taken_away(output, head):
        sizes = []

        def subtract(module, inputs, result):                 # module.weight: W_O, transposed
            part = contributions(split_heads(inputs[0], 4), module.weight.T)[:, head]
            sizes.append(part[is_token].norm(dim=-1).mean())
            return result - part                                          # (30, n, d_model)

        hook = output.register_forward_hook(subtract)
        loss = nats()
        hook.remove()
        return loss, float(sizes[0])

    def ablated(output, head):
        kept = output.weight.data.clone()
        output.weight.data[:, 32 * head : 32 * (head + 1)] = 0.0
        loss = nats()
        output.weight.data = kept
        return loss

    as_trained, apart = nats(), 0.0
    print(f"as trained {as_trained:.3f} nats per token; more without a head:")
    for layer, block in enumerate(model.decoder.stack.blocks):
        output = block.attention.sublayer.output
        for head in range(4):
            loss, size = taken_away(output, head)
            more = loss - as_trained
            print(f"layer {layer}, head {head} writes {size:5.2f}, costs {more:+.3f}")
            apart = max(apart, abs(ablated(output, head) - loss))
    print(f"largest difference from a real ablation: {apart:.4f}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Heads that write longer vectors tend to cost more, and the three with the longest vectors cost most. But size alone
# decides nothing: in layer 0 the head with the longest vectors costs least, and without the last head of the last layer
# the model is even slightly better on these lines. The last line is 0 because the layer's output is a sum: if you
# subtract a head's part, you ablate the head. A part that takes the wrong rows of $W_O$ gives another number.
#
# One can also ask what a head's contribution *says*: up to the final norm, its product with the output matrix shows which
# tokens it makes more likely. That is its **direct effect on the logits** ([@elhage2021]).</details>

# %% [markdown]
# ## 6 · Grouped-query attention: fewer keys than queries
#
# While a model generates, it keeps the keys and values of all tokens so far, and this cache fills the memory. In
# **grouped-query attention** several query heads share one head of keys and values, a **KV head**. With 6 query heads and
# 2 KV heads, query heads 0, 1 and 2 use the first, and 3, 4 and 5 the second. `n_kv_heads` divides `n_heads`.

# %% exercise="grouped_query_attention"
def grouped_query_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Scaled attention in which neighbouring query heads share keys and values.

    query: (batch, n_heads, n_query, d_head)   key, value: (batch, n_kv_heads, n_key, d_head)
    returns (batch, n_heads, n_query, d_head)
    """
    ...  # solution

# %% check="grouped_query_attention"
check("grouped_query_attention", grouped_query_attention)

# %% [markdown]
# **Use it.** One layer of the size of Llama 3's 8B has 32 query heads of width 128, and here one query stands at the
# end of a text of 512 tokens. Torch's kernel knows groups, too, so your output is compared with its own. *Guess* how
# many bytes a layer's keys and values take, with 32, 8 and 1 KV heads, in float32. Then your function writes with a
# **KV cache**: a text of 20 tokens goes through it one query at a time, and all keys and values so far are kept, as in
# the lecture's section on the KV cache. At step $t$ the query has one row, and the cache has $t + 1$. It needs no mask
# for this. Why not? The result is compared with one causal pass of torch.

# %%
if solved("grouped_query_attention"):
    torch.manual_seed(0)
    query = torch.randn(1, 32, 1, 128)
    for n_kv_heads in (32, 8, 1):
        key, value = torch.randn(2, 1, n_kv_heads, 512, 128)
        fused = nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)
        off = float((grouped_query_attention(query, key, value) - fused).abs().max())
        kept = sum(x.numel() * x.element_size() for x in (key, value))
        mib = kept / 2**20
        heads = "KV heads:" if n_kv_heads > 1 else "KV head: "
        print(f"{n_kv_heads:>2} {heads} {mib:5.2f} MiB kept; off from torch: {off:.0e}")

    query = torch.randn(1, 8, 20, 8)                               # 8 query heads, each 8 wide
    key, value = torch.randn(2, 1, 2, 20, 8)                              # and 2 KV heads
    keys = values = torch.empty(1, 2, 0, 8)                        # the cache, nothing yet
    written = []
    for t in range(20):
        keys = torch.cat([keys, key[:, :, t : t + 1]], dim=2)             # (1, 2, t + 1, 8)
        values = torch.cat([values, value[:, :, t : t + 1]], dim=2)       # (1, 2, t + 1, 8)
        written.append(grouped_query_attention(query[:, :, t : t + 1], keys, values))
    at_once = nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=True
    )
    off = float((torch.cat(written, dim=2) - at_once).abs().max())
    kept = sum(x.numel() for x in (keys, values))
    print(f"with a cache of {kept} numbers, token by token: off from one causal pass {off:.0e}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# What a query must not see is not in the cache yet, so no mask is needed. The bytes shrink with the number of KV heads:
# without groups the cache of the last line would hold four times as many numbers.
#
# If your function calls `repeat_interleave`, it copies the keys and values for every query head, and for a moment all
# the bytes are there again. Broadcasting over an axis of length 1 copies them, too, inside `torch.matmul`. To avoid the
# copy, let the query heads of a group become *rows* of one query, `query.unflatten(1, (g, -1)).flatten(2, 3)` with $g$
# KV heads. Its shape is (batch, g, $h/g \cdot n_\text{query}$, d_head), so it meets the $g$ heads of keys as they are.
# At the end undo the two steps.</details>

# %% [markdown]
# ## 7 · Interchange: one key, or one value, of another run
#
# A trained model reads two sentences that differ in one name. Which head of a layer reads the name, and in what: in its
# keys or in its values? To test this, exchange *one* vector, as in the lecture: of one head, at one place of each
# sentence. Do it twice, once with the other run's key and once with its value, and let all heads attend as usual (scaled,
# without a mask). Everything else stays as it is in the first run.

# %% exercise="interchange"
def interchange(
    query: Tensor, key: Tensor, value: Tensor, other_key: Tensor, other_value: Tensor,
    head: int, place: Tensor,
) -> tuple[Tensor, Tensor]:
    """What the heads put out if one head has another run's key, or its value, at one place.

    query, key, value, other_key, other_value: (batch, n_heads, n, d_head)
    head: whose key or value is exchanged   place: (batch,), where in each sentence
    returns with_key, with_value: (batch, n_heads, n, d_head) each
    """
    ...  # solution

# %% check="interchange"
check("interchange", interchange)

# %% [markdown]
# **Use it.** The lecture replaced the key or the value of the pronoun for all heads of layer 1 at once. The cell
# trains the lecture's first model again (some seconds), and your function exchanges the key or the value of one head at
# a time. Then the cell counts how often the answer to "who gave" changes, and how often it becomes the other run's
# name. *Guess:* does one head carry the name alone?

# %%
if solved("interchange"):
    import random

    from attncourse.data.gossip import gossip

    from .patching import one_by_one, renamed, trained

    model = trained(seed=0)
    told, other, she = renamed(gossip(120, random.Random(12345)))         # 90 sentences
    layer = model.encoder.stack.blocks[1].attention.sublayer

    def heads_of(sentence):
        read = []
        hook = layer.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
        with torch.no_grad():
            model(sentence)
            projections = (layer.query, layer.key, layer.value)
            wide = [project(read[0]) for project in projections]          # (1, n, d_model) each
        query, key, value = (x.unflatten(-1, (4, -1)).transpose(1, 2) for x in wide)
        hook.remove()
        return layer.rope(query), layer.rope(key), value            # (1, 4, n, d_head) each

    def answer(sentence, heads):               # the model's, if the layer's heads put out this
        with torch.no_grad():
            output = layer.output(heads.transpose(1, 2).flatten(2))       # (1, n, d_model)
            hook = layer.register_forward_hook(lambda module, inputs, usual: output)
            name = model(sentence).argmax()
        hook.remove()
        return name

    became, changed = torch.zeros(2, 4, 2)        # answers per head, with the key and the value
    for sentence, another, place in zip(one_by_one(told), one_by_one(other), she, strict=True):
        query, key, value = heads_of(sentence)
        _, other_key, other_value = heads_of(another)
        with torch.no_grad():
            usual = model(sentence).argmax()
        for head in range(4):
            outputs = interchange(
                query, key, value, other_key, other_value, head, place[None]
            )
            for i, heads in enumerate(outputs):
                name = answer(sentence, heads)
                became[head, i] += name == another.answer[0]
                changed[head, i] += name != usual
    for head in range(4):
        for i, part in enumerate(("key", "value")):
            new, other_than_usual = became[head, i] / len(she), changed[head, i] / len(she)
            print(f"layer 1, head {head}, the other {part}: {other_than_usual:.0%} of the"
                  f" answers change, {new:.0%} become the other name")

# %% [markdown]
# <details><summary>What to see</summary>
#
# Only one exchange brings in the other name, that of the value of head 3, which changes about half of the answers. With
# the other key no answer changes, whichever head it is. In the lecture (Figure 7.17, c, seed 0) all four heads
# together brought the new name to nearly four fifths of this model's answers, so other heads read the name, too, but
# none of them changes an answer alone.</details>

# %% [markdown]
# ## 8 · Ablation: a head that nobody misses
#
# Suppose that you have trained a model with 144 heads. You ablate one head at a time, by setting what it hands to $W_O$
# to zero. For 130 of the heads the accuracy does not change. A course-mate says: "So 130 heads do nothing, we can delete
# them all." Then you ablate three pairs of heads (in percentage points of accuracy):
#
# | pair | lost without the first | lost without the second | lost without both |
# |---|---|---|---|
# | A | 0 | 0 | 0 |
# | B | 0 | 0 | 31 |
# | C | 12 | 9 | 21 |
#
# A second course-mate removes the heads together. In each round she removes the head whose removal leaves the most answers
# on the test set right, and never puts one back. "The model needs only 44 of its 144 heads":
#
# | heads removed | 0 | 20 | 40 | 60 | 80 | 100 | 120 |
# |---|---|---|---|---|---|---|---|
# | right on the test set, all questions, in % | 94.1 | 94.6 | 94.8 | 94.5 | 93.9 | 93.2 | 61.0 |
#
# **(a)** What does each pair say about its two heads, and which pair refutes the first course-mate? **(b)** Give two reasons
# why the table promises too much. What would you change in the second course-mate's procedure for each? Answer in four to
# six sentences. (2 points)

# %% [markdown] written="a-head-that-nobody-misses" points=2 minutes=8 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) B refutes it: the two heads stand in for each other, so each can go as long as the other is there, and an
#    ablation of one head at a time cannot show that. In A neither head is needed on this test set, as long as the others
#    are there. In C the losses add up: each head does work that the other does not do. Half a point for B alone.
# 2. (b) Half a point for each of two reasons with its change. The heads were chosen by the answers that the table counts, so
#    the numbers are too good for new sentences (more is right without 40 heads than with all): choose on a validation
#    set, and count on the test set once. The mean over all questions can hide that one kind of question, or rare cases,
#    are lost: count each kind apart, and report the worst. It is one trained model: repeat it for several seeds. The test
#    set may not hold what these heads are for: count on other texts, too.
# ### END SOLUTION

# %% [markdown]
# ## 9 · Scaled scores: why the root?
#
# A slide argues: "After LayerNorm the elements of a vector have mean 0 and variance 1, so the dot product of two of
# them has variance $d_k$. Divide by $\sqrt{d_k}$." LayerNorm ([lecture @deep_stacks](@deep_stacks)) gives each vector
# the mean 0 and the mean square 1.
#
# **(a)** Let the $2 d_k$ elements of $q$ and $k$ be independent, with mean 0, those of $q$ with variance $a$ and those
# of $k$ with variance $b$. Derive the variance of $q \cdot k$. Where do you use the independence, and where the mean of
# 0? **(b)** LayerNorm makes $x$ and $y$; the layer multiplies $q = x W_Q$ and $k = y W_K$. Let the $d$ elements of $x$ have
# mean square 1, and let the elements of $W_Q$ be drawn independently of $x$ and of each other, with mean 0 and variance
# $s^2$. What is the variance $a$ of an element of $q$? `nn.Linear` draws its elements evenly from $[-1/\sqrt d, 1/\sqrt d]$.
# If it makes $W_Q$ and $W_K$, which variance has $q \cdot k$ at the start? **(c)** After training the same layer has scores
# of a variance far above $d_k$, and LayerNorm is still there. Give a possible cause, and a measurement that would show it.
#
# ([Lecture @lookup](@lookup) derives (a) for $a = b = 1$. The last *Going further* of [lecture @many_heads](@many_heads), point
# 1, measures (b).) Answer in five to nine sentences or lines of mathematics. (3 points)

# %% [markdown] written="why-the-root" points=3 minutes=12 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) $\operatorname{Var}(q_c k_c) = E[q_c^2 k_c^2] - E[q_c k_c]^2 = E[q_c^2]\,E[k_c^2] - 0 = ab$, by independence of
#    $q_c$ and $k_c$ (expectations of products factor) and by the means of 0 ($E[q^2]$ is the variance, and the square
#    is gone): half a point. The $d_k$ terms are independent (uncorrelated is enough), so their variances add up:
#    $d_k\,ab$, half a point.
# 2. (b) $q_c = \sum_j x_j W_{jc}$ is a sum of $d$ terms. They are uncorrelated, because the elements of $W_Q$ are
#    independent with mean 0, and the sum of their variances is $s^2 \sum_j E[x_j^2]$: $a = d\,s^2$ (half a point). Numbers
#    drawn evenly from $[-c, c]$ have the variance $c^2/3$, so `nn.Linear` has $s^2 = 1/(3d)$ and $a = b = 1/3$. The variance
#    of $q \cdot k$ is $d_k/9$ (half a point).
# 3. (c) Half a point for a cause, half for its measurement. $W_Q$ or $W_K$ has grown: compare its mean square with $s^2$. Or
#    it stretches just the directions that $x$ takes: compare the mean square of $q_c$ with $d$ times that of the
#    elements of $W_Q$. Or $q$ and $k$ are no longer independent, because matching pairs are meant to have large scores:
#    compare the scores with those of queries and keys from different texts.
# ### END SOLUTION

# %% [markdown]
# ## Extension: from heads to groups
#
# This one is worth extra credit, and nothing is lost by leaving it out.
#
# You have a trained model with `n_heads` KV heads, and would like one with groups. Ainslie et al.
# ([-@ainslie2023, section 2.1]) convert the old model: each new key head is the *mean* of the key heads of its group,
# and so for the values. A little more training then repairs the loss. Build the new weight of the key projection from
# the old.
#
# The weight has the form of `nn.Linear`, (outputs, inputs): the first `d_head` *rows* make head 0, the next head 1, and
# so on.

# %% exercise="average_heads"
def average_heads(weight: Tensor, n_heads: int, n_kv_heads: int) -> Tensor:
    """A key (or value) projection for groups, made from one with a head for each query head.

    weight: (n_heads * d_head, d_model)
    returns (n_kv_heads * d_head, d_model)
    """
    ...  # solution

# %% check="average_heads"
check("average_heads", average_heads)

# %% [markdown]
# **Use it.** How much does the mean lose in a trained model, before any further training? The model of exercise 1 has four
# heads. Your function makes two KV heads and one of them, for its keys and its values, in every layer. The cell prints the
# perplexity on 60 lines of documentation. For comparison, each group also keeps its first head alone. *Guess* how the
# perplexity changes. Is the mean the better choice?

# %%
if solved("average_heads"):
    from copy import deepcopy

    from attncourse import pretrained
    from attncourse.data import BOS, EOS, Tokenizer, docstrings, pad_batch
    from attncourse_lessons.results import kept_checkpoint

    trained = pretrained.load(kept_checkpoint("writer")).model
    tokenizer = Tokenizer.load(kept_checkpoint("writer") / "tokenizer.json")
    lines = [text for text in docstrings(limit=1500).test if 40 < len(text) < 120][:60]
    tokens, is_token = pad_batch([[BOS, *tokenizer.encode(line), EOS] for line in lines])

    def first_heads(weight, n_heads, n_kv_heads):
        heads = weight.unflatten(0, (n_kv_heads, n_heads // n_kv_heads, -1))
        return heads[:, 0].flatten(0, 1)                      # (n_kv_heads * d_head, d_model)

    def perplexity(convert, n_kv_heads):
        model = deepcopy(trained)
        for block in model.decoder.stack.blocks:
            layer = block.attention.sublayer
            for projection in (layer.key, layer.value):
                fewer = convert(projection.weight.data, 4, n_kv_heads)    # (it has no bias)
                heads = fewer.unflatten(0, (n_kv_heads, -1))
                copies = heads.repeat_interleave(4 // n_kv_heads, dim=0)  # for each query head
                projection.weight.data = copies.flatten(0, 1)             # (d_model, d_model)
        with torch.no_grad():
            logits = model(tokens)[:, :-1]                        # (60, n − 1, tokens known)
        there = is_token[:, 1:]                                           # (60, n − 1)
        return float(nn.functional.cross_entropy(logits[there], tokens[:, 1:][there]).exp())

    for n_kv_heads in (4, 2, 1):
        means, firsts = (perplexity(how, n_kv_heads) for how in (average_heads, first_heads))
        print(f"{n_kv_heads} KV heads: perplexity with means {means:6.1f},"
              f" with first heads {firsts:6.1f}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# With two KV heads the perplexity rises by a third, and with one it nearly doubles. In this model, before further
# training, the mean is not clearly better than the first head of each group: with one KV head it is worse. The paper,
# however, compares after a further 5 % of the pre-training steps, and finds the mean better. (Each group here holds
# neighbours, 0 and 1, 2 and 3, which in exercise 1 attended to the same places in the last layer.)</details>
