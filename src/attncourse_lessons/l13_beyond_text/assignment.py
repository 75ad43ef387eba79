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
# In this assignment you build what [lecture @beyond_text](@beyond_text) puts around the Transformer. For images: the
# patches, and the way into a ViT and out of it. For sound, the three parts of wav2vec 2.0's training: masking spans,
# drawing negatives, and the contrastive loss. After each check comes a cell that *uses* what you wrote: **your ViT reads
# digits**, and your three parts train a listener. It waits until the check gives all points, and is not graded.
#
# In training, masks and negatives are random. Here the random numbers are handed to you, so that there is one right
# result. Under each exercise stands a check. A check on other numbers and other sizes decides your points.
#
# Two rules hold throughout. Return new tensors, and leave those that come in as they are. And let a
# gradient through wherever something is to be learned.
#
# {exercises}
#
# If you are stuck, `hint("patchify", 1)` prints a hint; the later ones of an exercise tell more. Your answers are
# refused if they call the course's own functions, or one of torch's that does the whole exercise.

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
# **Use it.** Your patches, shuffled and put together again, in three sizes. *Guess first:* at which size does an "8"
# stop being one for you? (For a ViT without positions it never was one: it gets the patches, and not their places.)

# %%
if solved("patchify"):
    from sklearn.datasets import load_digits

    from attncourse.beyond_text import unpatchify

    from . import figures

    digits = torch.tensor(load_digits().data, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    labels = torch.tensor(load_digits().target)
    eight = digits[labels == 8][:1]                          # (1, 1, 8, 8)
    shown = {"whole": eight}
    for side in (4, 2, 1):
        x = patchify(eight, side)                            # (1, n, side²)
        order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(1))
        shown[f"{side} × {side}"] = unpatchify(x[:, order], side, 8, 8)
    figures.image_row([picture[0, 0] for picture in shown.values()], list(shown))

# %% [markdown]
# ## 2 · Into a ViT, and out of it
#
# The patches are embedded. In front of them comes the class token, one learned vector that is the same for every
# image; its row is the one that will be read out. All $1 + n$ rows get a position, the class token's first:
#
# $$X = [\,\text{class};\ x_0 W;\ \dots;\ x_{n-1} W\,] + P, \qquad
# \text{logits} = \operatorname{head}\bigl(\operatorname{stack}(X)_0\bigr)$$
#
# The patches come already cut, and the parts come as functions: what is asked for is how they are joined. Norms are
# inside the stack.

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
# **Use it: your ViT reads digits.** The parameters come from the package, the way through them is yours: 200 steps
# of 64 images. *Guess* how many of 397 digits that it never saw it gets wrong after so short a training.

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
# ## 3 · Mask spans of a sound
#
# A batch of sounds is given as frames, `lengths[b]` of them in sound $b$, and padding after them. You decide which frames
# are masked. (The paper lets each frame start a span with probability $p$. Here the number of spans is fixed, so that
# there is one right result.)
#
# * A sound of $n$ frames gets $s$ spans: $p \cdot n$, rounded to the nearest whole number, and at least one.
# * A span covers `span` frames in a row and lies wholly within the sound. So it may start at the frames
#   $0, \dots, n - \text{span}$.
# * Where the spans start is decided by a lottery. Each frame has a random number in `lot`, and of the frames at which a span may
#   start, the $s$ with the *lowest* numbers win.
# * Spans may overlap.
#
# There are always enough frames at which a span may start. `p · n` never lies half-way between two numbers.

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
# **Use it.** Three sounds of different lengths, with the paper's $p$ and span, and with single frames. *Guess* the share
# that is masked. (In the lecture, where a span may begin at any frame and is cut off at the end, it was 49 %.)

# %%
if solved("span_mask"):
    draws = torch.Generator().manual_seed(0)
    lot, lengths = torch.rand(3, 90, generator=draws), torch.tensor([90, 70, 45])
    for p, span in ((0.065, 10), (0.5, 1)):
        masked = span_mask(lot, lengths, p, span)            # (3, 90)
        share = masked.sum() / lengths.sum()
        visible = ~masked & (torch.arange(90) < lengths[:, None])            # no padding
        beside = masked.new_zeros(3, 90)
        beside[:, 1:] |= masked[:, 1:] & visible[:, :-1]
        beside[:, :-1] |= masked[:, :-1] & visible[:, 1:]
        print(f"p = {p}, spans of {span}: {share:.0%} masked,",
              f"{beside.sum() / masked.sum():.0%} of them next to a visible frame")
        for row, n in zip(masked.tolist(), lengths.tolist(), strict=True):
            print("   ", "".join("█" if hidden else "·" for hidden in row[:n]))

# %% [markdown]
# ## 4 · Negatives: what a frame is told apart from
#
# In one sound $n$ frames are masked. For each of them, `k` negatives are drawn from the *others*, with replacement and
# with equal probability. Again the random numbers are given. For frame $i$ count the others from 0, in the order in which
# they stand, leaving $i$ out. A number $u$ picks the one with number $\lfloor u \cdot (n - 1) \rfloor$.
#
# With $n = 4$, frame 2, and $u = 0.7$: the others are the frames 0, 1 and 3, and $\lfloor 2.1 \rfloor = 2$. So the
# negative is frame 3.

# %% exercise="draw_negatives"
def draw_negatives(lot: Tensor) -> Tensor:
    """For each of n masked frames, which other frames are its negatives.

    lot: (n, k), random numbers, 0 ≤ u < 1
    returns (n, k), indices from 0 to n − 1, of an integer dtype; i does not occur in row i
    """
    ...  # solution

# %% check="draw_negatives"
check("draw_negatives", draw_negatives)

# %% [markdown]
# **Use it.** The lecture's singers repeat their vowels. So a negative from the same sound may hold the very vowel that
# is to be recognised: a **false negative**, which the loss punishes all the same. *Guess* how many of your negatives are.

# %%
if solved("draw_negatives"):
    from attncourse.data.vowels import vowels

    draws = torch.Generator().manual_seed(0)
    sounds = vowels(100, noise=0.1, generator=draws)
    vowel = sounds.vowel[:, 100 + 160 * torch.arange(49)]    # (100, 49) of each frame
    same = []
    for row in vowel:
        negatives = draw_negatives(torch.rand(49, 10, generator=draws))      # (49, 10)
        same.append((row[negatives] == row[:, None]).float().mean())
    share = torch.stack(same).mean()
    other = torch.stack([(vowel[i - 1] == vowel[i]).float().mean() for i in range(100)]).mean()
    print(f"same vowel as the target: {share:.0%} of the negatives from its own sound,",
          f"{other:.0%} of frames of another")

# %% [markdown]
# ## 5 · The contrastive loss (InfoNCE)
#
# For each masked frame the model has a guess, `context`, and should tell the right target from the negatives:
#
# $$\mathcal L = \frac1n \sum_i -\log
# \frac{\exp\bigl(\cos(c_i, q_i) / \kappa\bigr)}{\sum_{\tilde q} \exp\bigl(\cos(c_i, \tilde q) / \kappa\bigr)}$$
#
# where $\tilde q$ runs over the target $q_i$ and all the negatives of row $i$, and $\kappa$ is the temperature. The loss
# must stay right and finite for $\kappa$ as low as 0.01, even where targets are far from their contexts. The targets are
# learned as well, so gradients must reach all three tensors.

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
# a small listener. *Guess* after how many steps it beats guessing, $\log 11 \approx 2.40$. And what will it have
# learned: the vowels, or something easier? Linear probes tell, as in the lecture, before and after: they are
# asked about 100 sounds that it has not heard.

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
    print("After so few steps the vowels have not yet fallen, as they do in the lecture's 360.")

# %% [markdown]
# ## 6 · In your own words: two ways to see finer
#
# A ViT was trained on images of 224 × 224 pixels with patches of 16 × 16. It should now see finer detail. There are two plans:
#
# * **A.** Photograph the same scenes in 448 × 448 pixels, and keep the patches of 16 × 16.
# * **B.** Keep the images of 224 × 224, and cut them into patches of 8 × 8.
#
# **(a)** How many tokens does an image have in each plan, and by what factor do the attention weights grow?
# **(b)** Which learned parameters no longer fit, in A and in B, and which can be used as they are?
# **(c)** For each parameter that does not fit, suggest how to begin with what was learned, and say what your suggestion
# assumes. (Answer before you open the last extension, which builds one suggestion.)
#
# Answer in four to eight sentences or lines. (3 points)

# %% [markdown] written="a-larger-picture" points=3 minutes=10 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) In both plans $28 \cdot 28 + 1 = 785$ tokens in place of $14 \cdot 14 + 1 = 197$: about four times as many, so
#    the tables grow by a factor of about 16 ($785^2/197^2 = 15.9$). Forgetting the class token costs nothing; answering
#    "4" for the tables costs the point, and so does an answer that differs between the plans.
# 2. (b) In A only the positions do not fit: there is one for each place, and there are more places. In B these, and the
#    patch embedding, whose rows belong to $16 \cdot 16 \cdot 3 = 768$ numbers and not to 192. All else fits in both:
#    the class token, every matrix of the blocks (none of them depends on n), the head. Half a point for the positions
#    alone.
# 3. (c) *Positions*: arrange the 196 as a 14 × 14 grid and interpolate it to 28 × 28, the class token's kept as it is
#    ([@dosovitskiy2021, section 3.2]). It assumes that positions vary smoothly over the grid, and that what stood at
#    a third of the height is to be treated as before at a third of the height. Also right: repeat each position for the
#    four new places (assumes that they need not be told apart). *Patch embedding, in B*: enlarge each patch to 16 × 16
#    before it is multiplied, or (nearly the same) shrink each column of the matrix, seen as an image of
#    16 × 16, to 8 × 8. It assumes that what was worth finding in a patch is worth finding at half its size. (So B begins
#    as A with blurred images, and cannot see more than its pixels hold.) A suggestion without an assumption earns half.
# ### END SOLUTION

# %% [markdown]
# ## 7 · In your own words: too good to be true
#
# Somebody trains as wav2vec 2.0 does, with 20 negatives, and changes a few things. The loss falls to nearly zero within
# two hundred steps, and a linear probe for the words reads as little as from an untrained network. Three changes are
# suspected:
#
# * **A.** "I draw the negatives from *other* sounds of the batch, there are more of them." (Each sound has its own
#   speaker, and its own hum in the background.)
# * **B.** "I compute the context from all frames, with none hidden. The mask only says at which frames to guess."
# * **C.** "The negatives are any masked frames of the same sound. I do not mind if the target is among them."
#
# For each of the three: could it alone explain what was seen? If so, how does the model get its low loss? If not, what
# would be seen instead? (3 points)

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
# The two extensions are worth extra credit, and nothing is lost by leaving them out.
#
# Attention weights say what a layer averages. But what it averages has been mixed by the layers below. *Attention
# rollout* ([@abnar2020]) follows the mixing through the whole stack. Each layer's weights are averaged over the heads, and half
# of every token is what the residual connection kept:
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
# **Use it.** Where does the ViT that you trained look, by your rollout? Beside it stands a baseline without a model: how
# much ink each patch has. *Guess* how much they agree, then read again what the lecture found about such maps.

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
# channels, rows, columns), and you may use it. The work is to bring the positions into such a shape, and back. The class
# token has no place in the image: its position stays as it is.

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
# **Use it.** Your ViT has seen digits of 8 × 8 pixels, 16 patches. Here are the test digits enlarged to 12 × 12, 36
# patches, and no further training. *Guess* how many it reads with your positions. And with two others: the learned
# positions followed by zeros, and random ones?

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
# No weight was changed. So the model can read strokes at places that lie between those that it knows. (A model that is
# then trained a little on the larger images reads them better; this is how large ViTs are adapted to a higher
# resolution.)
