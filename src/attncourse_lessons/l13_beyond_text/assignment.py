# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Assignment @beyond_text · Beyond text
#
# In this assignment you write the parts that [lecture @beyond_text](@beyond_text) adds around the Transformer: for
# images the patches, the input of a ViT and its readout, and for sound the three parts of wav2vec 2.0's training, which
# are masking spans, drawing negatives, and the contrastive loss. After each check comes a cell that *uses* what you
# wrote: **your ViT reads digits**, and your three parts train a listener. The cell waits until the check gives all
# points, and it is not graded.
#
# In training, masks and negatives are random. Here the random numbers are given to you, so that there is one right
# result. Each exercise has a check below it; checks on other numbers and other sizes decide your points.
#
# Two rules hold throughout: return new tensors and leave those that come in as they are, and let a gradient through
# wherever something is learned.
#
# {exercises}
#
# If you are stuck, `hint("patchify", 1)` prints a hint; the later ones of an exercise tell more. An answer
# that calls the course's own functions, or a torch function that does the whole exercise, is rejected.

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

torch.set_num_threads(1)  # models as small as these gain nothing from a second thread

# %% [markdown]
# ## 1 · Patches: an image as a sequence
#
# Cut each image into square patches, side by side, and make one vector of each. The patches are read as one reads a
# page: the top row of patches from left to right, then the next row. Inside a patch the numbers run over channel, then
# row, then column. So the first numbers of a vector are the top row of the patch's pixels in channel 0.
#
# Images need not be square. The patch divides both sides.

# %% exercise="patchify"
def patchify(images: Tensor, patch: int) -> Tensor:
    """Cut images into patches of patch × patch pixels.

    images: (batch, channels, height, width)
    patch: height and width of a patch, a divisor of both
    returns (batch, n_patches, channels · patch · patch)
    """
    ...  # solution

# %% check="patchify"
check("patchify", patchify)

# %% [markdown]
# **Use it.** The cell shuffles your patches in three sizes and puts them together again. *Guess first:* at which size
# can you no longer read an "8"? A nearest-neighbour reader gives each image the label of the most similar of 1,400
# intact images: what share of the shuffled images does it get right? And what share if these 1,400 are shuffled in the
# same way? (Compare the last number of each line with the first.)

# %%
if solved("patchify"):
    from sklearn.datasets import load_digits

    from attncourse.beyond_text import unpatchify

    from . import figures

    digits = torch.tensor(load_digits().data, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    labels = torch.tensor(load_digits().target)
    eight = int((labels == 8).nonzero()[0])                  # the first "8"
    shown = {"whole": digits[eight, 0]}

    def nearest(images, known):
        """The share of the last 397 images whose nearest of 1,400 others has their label."""
        away = torch.cdist(images[1400:].flatten(1), known[:1400].flatten(1))    # (397, 1400)
        return (labels[away.argmin(dim=1)] == labels[1400:]).float().mean().item()

    print(f"whole: the nearest neighbour reads {nearest(digits, digits):.0%}")
    for side in (4, 2, 1):
        x = patchify(digits, side)                           # (1797, n, side²)
        order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(1))
        shuffled = unpatchify(x[:, order], side, 8, 8)       # (1797, 1, 8, 8)
        shown[f"{side} × {side}"] = shuffled[eight, 0]
        print(f"patches of {side} × {side}, shuffled: {nearest(shuffled, digits):>4.0%},",
              f"where the known ones are shuffled alike: {nearest(shuffled, shuffled):.0%}")
    figures.image_row(list(shown.values()), list(shown))

# %% [markdown]
# <details><summary>What to see</summary>
#
# The nearest neighbour reads shuffled digits far worse: 27 % in patches of 4 × 4, 4 % in patches of 2 × 2, 15 % in
# single pixels. (4 % is below the 10 % of guessing: because the order is the same for all digits, a shuffled digit can
# lie near intact ones of a wrong class, and nearly always does.) But if the known images are shuffled alike, it reads
# 96 %, as before, because a distance is a sum over pixels, and the order of a sum does not matter. So a shuffle does no
# harm to a method that treats all places alike, whereas it does much harm to you, and some to a CNN (lecture
# @beyond_text).
#
# The lecture's nearest neighbour reads 98.7 %. There the 397 are drawn at random; here they are the last of the
# file. We guess that these have other writers.</details>

# %% [markdown]
# ## 2 · Into a ViT, and out of it
#
# The patches are embedded, and the class token, one learned vector that is the same for every image, comes before them.
# A position is added to each of the $1 + n$ rows; the first one is the class token's. Of the stack's output the class
# token's row alone is passed to the head:
#
# $$X = [\,\text{class};\ x_0 W;\ \dots;\ x_{n-1} W\,] + P, \qquad
# \text{logits} = \operatorname{head}\bigl(\operatorname{stack}(X)_0\bigr)$$
#
# The patches come already cut, and the parts come as functions; you join them. Norms are inside the stack.

# %% exercise="vit_forward"
def vit_forward(
    patches: Tensor, embed, class_token: Tensor, positions: Tensor, stack, head
) -> Tensor:
    """Logits of the classes of images that are cut into patches.

    patches: (batch, n_patches, d_patch)   embed(patches) -> (batch, n_patches, d)
    class_token: (d,)   positions: (1 + n_patches, d)
    stack(x) -> (batch, n, d), for any n   head(x) -> one row of logits for each row of x
    returns (batch, n_classes)
    """
    ...  # solution

# %% check="vit_forward"
check("vit_forward", vit_forward)

# %% [markdown]
# **Use it: your ViT reads digits.** The parameters come from the package, and your function uses them. Training takes
# 200 steps of 64 images. *Guess:* how many of 397 new digits does it misread after so little training?

# %%
if solved("patchify") and solved("vit_forward"):
    from attncourse.beyond_text import ViT, ViTConfig

    from . import figures

    torch.manual_seed(0)
    parts = ViT(ViTConfig(image_size=8, patch=2, channels=1, n_classes=10,
                          d_model=64, n_layers=2, n_heads=4, d_ff=128))

    def your_vit(images):
        return vit_forward(patchify(images, 2), parts.patches, parts.class_token,
                           parts.positions.table, parts.stack, parts.head)

    order = torch.randperm(len(digits))
    training, test = order[:1400], order[1400:]
    optimiser = torch.optim.AdamW(parts.parameters(), 4e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=200,
                                                   pct_start=0.2)
    for step in range(200):
        batch = training[torch.randint(1400, (64,))]
        loss = nn.functional.cross_entropy(your_vit(digits[batch]), labels[batch])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step:>3}: loss {loss.item():.2f}")
    parts.eval()
    with torch.no_grad():
        said = your_vit(digits[test]).argmax(dim=-1)         # (397,)
    wrong = (said != labels[test]).nonzero()[:, 0]
    print(f"your ViT reads {1 - len(wrong) / len(test):.1%} of {len(test)} digits; it misread")
    figures.image_row([digits[test[i], 0] for i in wrong[:6]],
                      [f"{labels[test[i]]} as {said[i]}" for i in wrong[:6]])

# %% [markdown]
# <details><summary>What to see</summary>
#
# After 200 steps your ViT misreads about one in twenty. (After 450 steps the lecture's misreads about 4 %.) Look at the
# six: would you have read them all? A `vit_forward` that forgets the positions trains as well, and the lecture's ViT
# without positions reads three digits in four. So a loss that falls does not prove that your function is right; the
# check tests it.</details>

# %% [markdown]
# **What do the positions carry?** The weights stay as they are now. *Guess* what share your ViT reads (i) with all
# positions set to zero, (ii) with the sixteen patches shuffled, (iii) with patches *and* their positions shuffled
# alike. You can derive one of the three: in which order do the rows enter the stack, and does the class token notice?

# %%
if solved("patchify") and solved("vit_forward"):
    def reads(patches, positions):
        with torch.no_grad():
            logits = vit_forward(patches, parts.patches, parts.class_token, positions,
                                 parts.stack, parts.head)    # (397, 10)
        return (logits.argmax(dim=-1) == labels[test]).float().mean().item()

    x, table = patchify(digits[test], 2), parts.positions.table.detach()     # (397, 16, 4)
    moved = torch.randperm(16, generator=torch.Generator().manual_seed(5))
    along = torch.cat([table[:1], table[1:][moved]])         # (17, 64)  the class token's stays
    print(f"as trained: {reads(x, table):.1%}")
    print(f"(i)   no positions: {reads(x, torch.zeros_like(table)):.1%}")
    print(f"(ii)  patches shuffled: {reads(x[:, moved], table):.1%}")
    print(f"(iii) patches and positions shuffled alike: {reads(x[:, moved], along):.1%}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# (iii) is exactly the number as trained, and you could derive it: each patch keeps its position, so the same rows
# enter the stack in another order. Self-attention is equivariant, and the class token's row stays row 0. (i) and (ii)
# come near to guessing: this model relies on where each patch stands. (The lecture's ViT without positions reads three
# digits in four. It was *trained* without them; here they were taken from a model that relied on them.)</details>

# %% [markdown]
# ## 3 · Mask spans of a sound
#
# A batch of sounds is given as frames, `lengths[b]` of them in sound $b$, and padding after them. You decide which
# frames are masked. As in the paper, a fixed share of the frames starts a span. (The lecture lets each frame decide by
# itself: then the masked share is a formula.)
#
# * A sound of $n$ frames gets $s$ spans: $p \cdot n$, rounded to the nearest whole number, and at least one.
# * A span covers `span` frames in a row and lies wholly within the sound. So it may start at the frames
#   $0, \dots, n - \text{span}$.
# * The starts are chosen at random: each frame has a number in `lot`. Among the frames at which a span may start, the
#   $s$ with the *lowest* numbers are the starts.
# * Spans may overlap.
#
# There are always enough frames at which a span may start. `p · n` never lies half-way between two whole numbers. A
# loop over the sounds is fine.

# %% exercise="span_mask"
def span_mask(lot: Tensor, lengths: Tensor, p: float, span: int) -> Tensor:
    """Which frames to mask.

    lot: (batch, n_frames), random numbers in 0..1, no two of a row alike
    lengths: (batch,), how many frames of each sound are real
    p: the share of its frames at which a span starts   span: frames in a span
    returns (batch, n_frames), boolean, True where a frame is masked
    """
    ...  # solution

# %% check="span_mask"
check("span_mask", span_mask)

# %% [markdown]
# **Use it.** Why spans, and not single frames? A lazy model could copy: for each masked frame it names the vowel of the
# nearest *visible* frame. Your function masks about half of a hundred sounds of 30 to 49 frames: in single frames, in
# spans of 3, and in the paper's spans of 10. *Guess:* how often is the copy right in each? (Guessing is right in one of
# five.)

# %%
if solved("span_mask"):
    from attncourse.data.vowels import vowels

    draws = torch.Generator().manual_seed(0)
    sung = vowels(100, generator=draws).vowel[:, 100 + 160 * torch.arange(49)]   # (100, 49)
    lot, lengths = torch.rand(100, 49, generator=draws), 30 + torch.arange(100) % 20
    frame = torch.arange(49)
    away = (frame[:, None] - frame).abs()                    # (49, 49)  frames from i to j
    for p, span in ((0.5, 1), (0.23, 3), (0.065, 10)):
        masked = span_mask(lot, lengths, p, span)            # (100, 49)
        visible = ~masked & (frame < lengths[:, None])       # (100, 49)  no padding
        far = away + 1000 * ~visible[:, None]                # (100, 49, 49)  none but visible
        nearest = far.argmin(dim=-1)                         # (100, 49)
        right = (sung.gather(1, nearest) == sung)[masked].float().mean()
        print(f"p = {p}, spans of {span}: {masked.sum() / lengths.sum():.0%} masked,",
              f"copying the nearest visible frame is right in {right:.0%}")
        for row, n in zip(masked[:3].tolist(), lengths[:3].tolist(), strict=True):
            print("   ", "".join("█" if hidden else "·" for hidden in row[:n]))

# %% [markdown]
# <details><summary>What to see</summary>
#
# Half of the frames are masked each time, but copying is right in 82 % of single frames, in 68 % with spans of 3, and
# in 44 % with spans of 10. A vowel lasts 4 to 10 frames, so the nearest visible frame of a single masked one is mostly
# in the same vowel. The longer the spans, the less a copy is worth, and the more the model must learn about the sound.
# (Spans overlap, so p · span is more than the share that is masked: 0.065 · 10 = 65 %, and 52 % are.)</details>

# %% [markdown]
# ## 4 · Negatives: what a frame is told apart from
#
# In one sound $n$ frames are masked. For each of them, `k` negatives are drawn from the *others*, with replacement and
# with equal probability. Again the random numbers are given. For frame $i$ count the others from 0, in the order in
# which they stand, leaving $i$ out. A number $u$ picks the one with number $\lfloor u \cdot (n - 1) \rfloor$.
#
# With $n = 4$, frame 2, and $u = 0.7$: the others are the frames 0, 1 and 3, and $\lfloor 2.1 \rfloor = 2$. So the
# negative is frame 3.

# %% exercise="draw_negatives"
def draw_negatives(lot: Tensor) -> Tensor:
    """For each of n masked frames, which other frames are its negatives.

    lot: (n, k), random numbers, 0 ≤ u < 1; n is at least 2
    returns (n, k), indices from 0 to n − 1, of an integer dtype; i does not occur in row i
    """
    ...  # solution

# %% check="draw_negatives"
check("draw_negatives", draw_negatives)

# %% [markdown]
# **Use it.** The lecture's singers repeat their vowels, so a negative from the same sound may hold the same vowel as
# the target. This is a **false negative**, and the loss punishes it all the same. *Guess:* what share of your negatives
# is false? What share would be false if they came from all masked frames of the batch?
#
# Then suppose a model that recognises every vowel and nothing else. With $m$ false negatives it must guess among $1 + m$
# equal candidates. *Guess* its loss, between 0 and the loss of guessing, log 11. Compare it with the loss at the end
# of the lecture's run with negatives from one sound: 1.5 to 1.7.

# %%
if solved("draw_negatives"):
    from attncourse import beyond_text
    from attncourse.data.vowels import vowels

    draws = torch.Generator().manual_seed(0)
    sounds = vowels(100, noise=0.1, generator=draws)
    vowel = sounds.vowel[:, 100 + 160 * torch.arange(49)]    # (100, 49) of each frame
    masked = beyond_text.span_mask(100, 49, 0.12, 3, draws)  # (100, 49)  the lecture's spans

    def false_negatives(vowel):
        """How many of a frame's ten negatives sing its vowel, for each frame of a pool (n,)."""
        negatives = draw_negatives(torch.rand(len(vowel), 10, generator=draws))      # (n, 10)
        return (vowel[negatives] == vowel[:, None]).sum(dim=1)                   # (n,)

    own = torch.cat([false_negatives(v[m]) for v, m in zip(vowel, masked, strict=True)])
    pools = {"masked frames of its own sound": own,
             "all frames of its own sound": torch.cat([false_negatives(v) for v in vowel]),
             "masked frames of all sounds": false_negatives(vowel[masked])}
    for pool, m in pools.items():
        print(f"{pool:>30}: {m.float().mean() / 10:.0%} are false;",
              f"the loss of all vowels known and nothing else: {(1 + m).log().mean():.2f}")
    print(f"guessing: {math.log(11):.2f}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# About a third of the negatives from the same sound are false, and a fifth of those from all sounds, which is chance
# with five vowels. One sound has more, for two reasons. It sings only about seven vowels one after the other, so two of
# its frames are often in the same one: about a quarter of all pairs are, masked or not. And the frames of a span are
# neighbours, which mostly sing the same vowel.
#
# A model that knows every vowel and nothing else has a loss of 1.27 with negatives from its own sound. The lecture's
# model ends at 1.5 to 1.7, and it does not know every vowel: a probe reads two in three. (A model that knows more about a
# frame than its vowel, for example its loudness, could have a loss below 1.27.)</details>

# %% [markdown]
# ## 5 · The contrastive loss (InfoNCE)
#
# For each masked frame the model has a guess, `context`, and should tell the right target from the negatives:
#
# $$\mathcal L = \frac1n \sum_i -\log
# \frac{\exp\bigl(\cos(c_i, q_i) / \kappa\bigr)}{\sum_{\tilde q} \exp\bigl(\cos(c_i, \tilde q) / \kappa\bigr)}$$
#
# where $\tilde q$ runs over the target $q_i$ and all the negatives of row $i$, and $\kappa$ is the temperature. The
# loss must stay right and finite for $\kappa$ as low as 0.01, even where targets are far from their contexts. The
# targets are learned as well, so gradients must reach all three tensors. You may use torch's functions for cosines,
# softmax and cross-entropy.

# %% exercise="contrastive_loss"
def contrastive_loss(
    context: Tensor, targets: Tensor, negatives: Tensor, temperature: float
) -> Tensor:
    """Cross-entropy of telling each target from its negatives, in nats, mean over the rows.

    context: (n, d)   targets: (n, d)   negatives: (n, n_negatives, d)   temperature: above 0
    returns a single number
    """
    ...  # solution

# %% check="contrastive_loss"
check("contrastive_loss", contrastive_loss)

# %% [markdown]
# **Use it: the whole game.** Your spans, your negatives (drawn from all masked frames of the batch) and your loss train
# a small listener. *Guess:* after how many steps does it beat guessing, $\log 11 \approx 2.40$? And what will it have
# learned: the vowels, or something easier? As in the lecture, linear probes tell, before and after the training. They
# are tested on 100 sounds that they have not seen.

# %%
if solved("span_mask") and solved("draw_negatives") and solved("contrastive_loss"):
    from attncourse.beyond_text import Wav2Vec2, Wav2Vec2Config

    torch.manual_seed(0)
    listener = Wav2Vec2(Wav2Vec2Config(d_model=64, n_layers=2, n_heads=4, d_ff=128, dropout=0.0,
                                       positions="rope", d_feature=64, kernels=(80, 4),
                                       strides=(40, 4), d_code=64))
    target = nn.Linear(64, 64)
    optimiser = torch.optim.Adam([*listener.parameters(), *target.parameters()], 2e-3)

    more = vowels(400, noise=0.1, generator=torch.Generator().manual_seed(1))    # new sounds
    sung = nn.functional.one_hot(more.vowel[:, 100 + 160 * torch.arange(49)])    # (400, 49, 5)
    pitch = more.pitch.log()[:, None, None].expand(-1, 49, 1)                    # (400, 49, 1)

    def probe(name):
        with torch.no_grad():
            x = listener.contextualise(listener.frames(more.waveform))           # (400, 49, 64)
        x = torch.cat([x, torch.ones(400, 49, 1)], dim=-1)   # a one for the bias
        x, y = x.double(), torch.cat([sung, pitch], dim=-1).double()             # (400, 49, 6)
        fit = torch.linalg.lstsq(x[:300].flatten(0, 1), y[:300].flatten(0, 1)).solution
        read, truth = x[300:] @ fit, y[300:]                 # of 100 sounds that did not fit it
        right = read[..., :5].argmax(dim=-1) == truth[..., :5].argmax(dim=-1)
        left = (read[..., 5] - truth[..., 5]).square().mean() / truth[..., 5].var()
        print(f"{name}: {right.double().mean():.0%} of the vowels (guessing: 20%),",
              f"{1 - left:.0%} of the variance of the log pitch")

    probe("untrained")
    for step in range(61):
        waveform = sounds.waveform[torch.randint(100, (16,))]                # (16, 8000)
        z = listener.frames(waveform)                                        # (16, 49, 64)
        masked = span_mask(torch.rand(16, 49), torch.full((16,), 49), 0.12, 3)
        c = listener.guess(listener.contextualise(z, mask=masked)[masked])   # (n, 64)
        q = target(z[masked])                                                # (n, 64)
        loss = contrastive_loss(c, q, q[draw_negatives(torch.rand(len(q), 10))], 0.1)
        if step % 20 == 0:
            print(f"step {step:>2}: your loss {loss.item():.2f}, guessing {math.log(11):.2f}")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    probe("trained  ")

# %% [markdown]
# <details><summary>What to see</summary>
#
# At step 40 the listener is a little better than guessing, and at step 60 clearly. It has learned the easier thing, the
# voice: the probe reads three times as much of the pitch as before, but hardly more of the vowels. Because the negatives
# come from sixteen singers, the voice tells the target from most of them. In the lecture's 360 steps the vowels even
# fall below the untrained network's.</details>

# %% [markdown]
# ## 6 · In your own words: two ways to see finer
#
# A ViT was trained on images of 224 × 224 pixels with patches of 16 × 16. It should now see finer detail. There are two
# plans:
#
# * **A.** Photograph the same scenes in 448 × 448 pixels, and keep the patches of 16 × 16.
# * **B.** Keep the images of 224 × 224, and cut them into patches of 8 × 8.
#
# **(a)** How many tokens does an image have in each plan, and by what factor do the attention weights grow?
# **(b)** Which learned parameters no longer fit, in A and in B, and which can be used as they are?
# **(c)** For each parameter that does not fit, suggest how to begin with what was learned, and say what your suggestion
# assumes. (Answer before you open the last extension, which builds one suggestion.)
#
# Answer in about ten sentences or lines. (3 points)

# %% [markdown] written="a-larger-picture" points=3 minutes=10 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) In both plans $28 \cdot 28 + 1 = 785$ tokens in place of $14 \cdot 14 + 1 = 197$: about four times as many, so
#    the attention weights grow by a factor of about 16 ($785^2/197^2 = 15.9$). Forgetting the class token costs nothing;
#    answering "4" for the weights costs the point, and so does an answer that differs between the plans.
# 2. (b) In A only the positions do not fit: there is one for each place, and there are more places. In B these, and the
#    patch embedding, whose rows belong to $16 \cdot 16 \cdot 3 = 768$ numbers and not to 192. All else fits in both:
#    the class token, every matrix of the blocks (none of them depends on n), the head. Half a point for the positions
#    alone.
# 3. (c) *Positions*: arrange the 196 as a 14 × 14 grid and interpolate it to 28 × 28, the class token's kept as it is
#    ([@dosovitskiy2021, section 3.2]). It assumes that positions vary smoothly over the grid, and that what stood at
#    a third of the height is to be treated as before at a third of the height. Also right: repeat each position for the
#    four new places (assumes that they need not be told apart). *Patch embedding, in B*: enlarge each patch to 16 × 16
#    by repeating each pixel, and multiply as before. Exactly the same: see each column of the matrix as an image of
#    16 × 16, and *add up* its blocks of 2 × 2 to 8 × 8. (Averaging them gives a quarter of what the blocks were trained
#    on. But accept a plain "shrink it to 8 × 8".) It assumes that what was worth finding in a patch is worth finding at
#    half its size. (So B begins as A with blurred images, and cannot see more than its pixels hold.) A suggestion without
#    an assumption earns half.
# ### END SOLUTION

# %% [markdown]
# ## 7 · In your own words: too good to be true
#
# A model is trained as wav2vec 2.0 is, with 20 negatives and about 24 masked frames in each sound, but with a few
# changes. The loss falls to nearly zero within two hundred steps, and a linear probe for the words reads as little as
# from an untrained network. Three changes are suspected:
#
# * **A.** "I draw the negatives from *other* sounds of the batch, there are more of them." (Each sound has its own
#   speaker, and its own hum in the background.)
# * **B.** "I compute the context from all frames, with none hidden. The mask only says at which frames to guess."
# * **C.** "The negatives are any masked frames of the same sound. I do not mind if the target is among them."
#
# For each of the three changes: could it alone explain what was seen? If so, how does the model get its low loss? If
# not, what would be seen instead? (3 points)

# %% [markdown] written="too-good" points=3 minutes=10 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each of the three, half of it for a yes or no with no reason.
#
# 1. **A.** Yes: the hum, or the voice, tells which sound a frame is from, and that tells the target from every
#    negative. The model learns to know the room and the speaker, and need not know anything about what is said. (A probe
#    for the speaker would do well.)
# 2. **B.** Yes: the frame that is to be guessed stands in front of the model, which need only copy it (the residual
#    path alone would do). A leak, like a missing causal mask in lecture @masking.
# 3. **C.** No: where the target is among its own negatives, two candidates are the same frame, and the loss is at least
#    log 2 ≈ 0.69. With 24 masked frames and 20 draws that happens to more than half of the guesses ($1 - (23/24)^{20}
#    \approx 0.57$), so the mean stays above 0.39 and cannot fall to nearly zero. The words would be learned all the same.
#    The argument earns the point without the number.
# ### END SOLUTION

# %% [markdown]
# ## Extension: attention rollout
#
# The two extensions are worth extra credit, and nothing is lost by leaving them out. (This one gives fewer points than
# the second, because the lecture prints its formula.)
#
# Attention weights say what a layer averages, but the layers below have already mixed the rows that it averages.
# *Attention rollout* ([@abnar2020]) follows the mixing through the whole stack. Each layer's weights are averaged over
# the heads, and half of every token is what the residual connection kept:
#
# $$\hat A_\ell = \tfrac12 \Bigl(\tfrac1h \textstyle\sum_{\text{heads}} A_\ell + I\Bigr), \qquad
# R = \hat A_{L-1} \cdots \hat A_1\, \hat A_0$$
#
# Row $i$ of $R$ says how much of each input token there is in token $i$ at the top.

# %% exercise="attention_rollout"
def attention_rollout(weights: Tensor) -> Tensor:
    """How much of each input token there is in each token at the top.

    weights: (batch, n_layers, n_heads, n, n), layer 0 is the first; every row sums to one
    returns  (batch, n, n); every row sums to one
    """
    ...  # solution

# %% check="attention_rollout"
check("attention_rollout", attention_rollout)

# %% [markdown]
# **Use it.** Where does the ViT that you trained look, by your rollout? The figure shows your map beside a baseline
# without a model: how much ink each patch has. *Guess* their correlation over the sixteen patches. (1: the same map but
# for scale; below 0: the map prefers empty patches.)
#
# Then the map is put to the lecture's test. Four patches of each digit are replaced by the average patch at their
# place: those with most rollout, with least rollout, with most ink, those that differ most from the average (the most
# unusual), or any four. *Guess:* if the map shows what mattered, which replacement costs most? The lecture's six models
# lose most when the most unusual patches are replaced. Does yours, too? And a sanity check: replace the patches that
# have most rollout in a ViT that was *never trained*. *Guess:* does that cost yours more than any four?

# %%
if solved("attention_rollout") and solved("patchify") and solved("vit_forward"):
    some = torch.stack([(labels[test] == digit).nonzero()[0, 0] for digit in (3, 8, 0)])
    with torch.no_grad():
        _, weights = parts(digits[test[some]], with_weights=True)            # (3, 2, 4, 17, 17)
    rolled = attention_rollout(weights)[:, 0, 1:].view(3, 4, 4)
    ink = patchify(digits[test[some]], 2).sum(dim=-1).view(3, 4, 4)
    ink = ink / ink.sum(dim=(1, 2), keepdim=True)
    figures.attention_on_images([digits[test[i], 0] for i in some],
                                {"your rollout": list(rolled), "ink": list(ink)},
                                ["a 3", "an 8", "a 0"])
    with torch.no_grad():
        _, weights = parts(digits[test], with_weights=True)  # (397, 2, 4, 17, 17)
    x = patchify(digits[test], 2)                            # (397, 16, 4)
    rolled, ink = attention_rollout(weights)[:, 0, 1:], x.sum(dim=-1)        # (397, 16) each
    agree = [torch.corrcoef(torch.stack(pair))[0, 1] for pair in zip(rolled, ink, strict=True)]
    print(f"correlation of rollout and ink, mean of 397: {torch.stack(agree).mean():.2f}")
    usual = patchify(digits[training], 2).mean(dim=0)        # (16, 4)  the average patch there
    torch.manual_seed(0)
    unusual = (x - usual).square().sum(dim=-1)               # (397, 16)
    with torch.no_grad():
        _, weights = ViT(parts.config).eval()(digits[test], with_weights=True)  # untrained
    untrained = attention_rollout(weights)[:, 0, 1:]         # (397, 16)
    torch.manual_seed(0)
    for name, order in {"rollout's most": rolled, "rollout's least": -rolled, "most ink": ink,
                        "most unusual": unusual, "untrained rollout's most": untrained,
                        "any": torch.rand(397, 16)}.items():
        chosen = torch.zeros(397, 16).scatter(1, order.topk(4).indices, 1.0)
        left = torch.where(chosen[..., None] > 0, usual, x)  # (397, 16, 4)
        with torch.no_grad():
            said = vit_forward(left, parts.patches, parts.class_token, parts.positions.table,
                               parts.stack, parts.head).argmax(dim=-1)
        right = (said == labels[test]).float().mean()
        print(f"{name + ', four patches replaced':>47}: reads {right:.0%}")

# %% [markdown]
# <details><summary>What to see</summary>
#
# In our run rollout's patches cost most: without them the ViT reads about a third of the digits, and without the most
# unusual ones more than half. The lecture's models lose more by the most unusual patches. They saw normalised pixels
# for 450 steps, whereas yours saw raw pixels for 200; we have not tested which of the two makes the difference, and this
# is one run.
#
# An untrained ViT's rollout fails the test: its patches cost about as much as any four. (With six random starts your
# ViT reads 65 to 74 % without them.) So the trained map does depend on what the model has learned.
#
# Rollout's correlation with ink is *negative*: your rollout prefers patches with little ink. Yet it passes the test:
# without its patches your ViT reads far fewer digits than without any four. Ink fails the test: without the patches
# with most ink your ViT reads nine in ten. Where ink is usual, an empty patch says something, too, so a map need not
# lie on the digit to show what mattered.</details>

# %% [markdown]
# ## Extension: positions for a larger image
#
# A ViT was trained on images with `old` = (rows, columns) patches. Now the images are larger or smaller, and have `new`
# = (rows, columns) patches of the same size in pixels. One learned parameter does not fit: the positions. Dosovitskiy
# et al. ([-@dosovitskiy2021], section 3.2) do not learn them anew. They lay the learned ones out as the grid of places
# in the image, and **interpolate** over the grid.
#
# Write this, with bilinear interpolation: each new place takes a mixture of the old places around its centre.
# `torch.nn.functional.interpolate(…, mode="bilinear", align_corners=False)` does the mixing, for a tensor (batch,
# channels, rows, columns), and you may use it. The work is to bring the positions into such a shape, and back. The
# class token has no place in the image: its position stays as it is.

# %% exercise="resize_positions"
def resize_positions(
    positions: Tensor, old: tuple[int, int], new: tuple[int, int]
) -> Tensor:
    """The positions of a ViT for another number of patches.

    positions: (1 + old_rows · old_columns, d), the class token's first, then row by row
    old, new: (rows, columns), how many patches an image has
    returns (1 + new_rows · new_columns, d), in the same order
    """
    ...  # solution

# %% check="resize_positions"
check("resize_positions", resize_positions)

# %% [markdown]
# **Use it.** Your ViT has seen digits of 8 × 8 pixels, 16 patches. Now it reads the test digits enlarged to 12 × 12
# pixels, 36 patches, without further training. *Guess:* what share does it read with your positions? With the learned
# positions followed by zeros? With random positions?

# %%
if solved("resize_positions") and solved("patchify") and solved("vit_forward"):
    large = nn.functional.interpolate(digits[test], size=(12, 12), mode="bilinear")
    with torch.no_grad():
        learned = parts.positions.table                      # (17, 64)
        tables = {"interpolated": resize_positions(learned, (4, 4), (6, 6)),
                  "learned, then zeros": torch.cat([learned, torch.zeros(20, 64)]),
                  "random": learned.std() * torch.randn(37, 64)}
        for name, table in tables.items():
            said = vit_forward(patchify(large, 2), parts.patches, parts.class_token, table,
                               parts.stack, parts.head).argmax(dim=-1)           # (397,)
            right = (said == labels[test]).float().mean()
            print(f"{name:>20}: {right:.0%} of the enlarged digits (guessing: 10%)")

# %% [markdown]
# <details><summary>What to see</summary>
#
# With interpolated positions it reads about seven in ten, although no weight was changed: it can read strokes at places
# that lie between those that it knows. With zeros after the learned positions it reads about one in five, because
# patch 5 is then no longer where position 5 was learned. Random positions are no better than guessing.
# (A model that is then trained a little on the larger images reads them better. This is how large ViTs are adapted to a
# higher resolution.)</details>
