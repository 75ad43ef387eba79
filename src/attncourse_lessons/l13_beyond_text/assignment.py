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
# In this assignment you build what [lecture @beyond_text](@beyond_text) puts around the Transformer: for
# pictures the cutting into patches and the way in and out of a ViT, and for sound the three parts of wav2vec's game,
# which hides spans, draws negatives, and scores the guesses.
#
# Two of them are drawn by chance in training. Here the random numbers are handed to you, so that there is one right
# result. Under each exercise stands a check. A check on other numbers and other sizes decides your points.
#
# Two rules hold throughout. Return new tensors, and leave those that come in as they are; and let a
# gradient through wherever something is to be learned.
#
# {exercises}
#
# If you are stuck, `hint("patchify", 1)` prints a hint; the later ones of an exercise tell more. Your answers are
# refused if they call the course's own functions, or one of torch's that does the whole exercise.

# %% locked=true
try:
    from attncourse import check, hint
except ModuleNotFoundError:
    raise ImportError(
        "This notebook needs the attncourse package: open it with `make lab` in the course's "
        "folder, or choose a kernel of the environment in which you installed the course."
    ) from None

import math

import torch
from torch import Tensor, nn

# %% [markdown]
# ## 1 · A picture as a sequence
#
# Cut each picture into square patches, side by side, and make one vector of each. The patches are read as one reads a
# page: the top row of patches from left to right, then the next row. Inside a patch the numbers run over channel, then
# row, then column. So the first numbers of a vector are the top row of the patch's pixels in channel 0.
#
# Pictures need not be square. The patch divides both sides.

# %% exercise="patchify"
def patchify(images: Tensor, patch: int) -> Tensor:
    """Cut pictures into patches of patch × patch pixels.

    images: (batch, channels, height, width)   patch: height and width of a patch, a divisor of both
    returns (batch, n_patches, channels · patch · patch)
    """
    ...  # solution

# %% check="patchify"
check("patchify", patchify)

# %% [markdown]
# ## 2 · Into a ViT, and out of it
#
# The patches are embedded. In front of them comes the class token, one learned vector that is the same for every
# picture; its row is the one that will be read out. All $1 + n$ rows get a position, the class token's first:
#
# $$X = [\,\text{class};\ x_0 W;\ \dots;\ x_{n-1} W\,] + P, \qquad
# \text{logits} = \operatorname{head}\bigl(\operatorname{stack}(X)_0\bigr)$$
#
# The patches come already cut, and the parts come as functions: what is asked for is how they are joined. Norms are
# inside the stack.

# %% exercise="vit_forward"
def vit_forward(patches: Tensor, embed, class_token: Tensor, positions: Tensor, stack, head) -> Tensor:
    """Logits of the classes of pictures that are cut into patches.

    patches: (batch, n_patches, d_patch)   embed(patches) -> (batch, n_patches, d)
    class_token: (d,)   positions: (1 + n_patches, d)
    stack(x) -> (batch, n, d), for any n   head(x) -> one row of logits for each row of x
    returns (batch, n_classes)
    """
    ...  # solution

# %% check="vit_forward"
check("vit_forward", vit_forward)

# %% [markdown]
# ## 3 · Hide spans of a sound
#
# A batch of sounds is given as frames, `lengths[b]` of them in sound $b$ and padding behind. You decide which frames
# are hidden:
#
# * A sound of $n$ frames gets $s$ spans: $p \cdot n$, rounded to the nearest whole number, and at least one.
# * A span covers `span` frames in a row and lies wholly within the sound. So it may start at the frames
#   $0, \dots, n - \text{span}$.
# * Where the spans start is a lottery: each frame has a random number in `lot`, and of the frames at which a span may
#   start, the $s$ with the *lowest* numbers win.
# * Spans may overlap.
#
# There are always enough frames at which a span may start. `p · n` never lies half-way between two numbers.

# %% exercise="span_mask"
def span_mask(lot: Tensor, lengths: Tensor, p: float, span: int) -> Tensor:
    """Which frames to hide.

    lot: (batch, n_frames), random numbers in 0..1, no two of a row alike
    lengths: (batch,), how many frames of each sound are real   p: the share of its frames at which a span starts
    span: frames in a span
    returns (batch, n_frames), boolean, True where a frame is hidden
    """
    ...  # solution

# %% check="span_mask"
check("span_mask", span_mask)

# %% [markdown]
# ## 4 · Whom to be told apart from
#
# In one sound $n$ frames are hidden. For each of them, `k` negatives are drawn from the *others*, with replacement,
# each of the others as likely as any. Again the random numbers are given. For frame $i$ count the others from 0, in the
# order in which they stand, leaving $i$ out. A number $u$ picks other number $\lfloor u \cdot (n - 1) \rfloor$.
#
# With $n = 4$, frame 2, and $u = 0.7$: the others are the frames 0, 1 and 3, and $\lfloor 2.1 \rfloor = 2$. So the
# negative is frame 3.

# %% exercise="draw_negatives"
def draw_negatives(lot: Tensor) -> Tensor:
    """For each of n hidden frames, which other frames are its negatives.

    lot: (n, k), random numbers, 0 ≤ u < 1
    returns (n, k), indices from 0 to n − 1, of an integer dtype; i does not occur in row i
    """
    ...  # solution

# %% check="draw_negatives"
check("draw_negatives", draw_negatives)

# %% [markdown]
# ## 5 · Score the guesses
#
# For each hidden frame the model has a guess, `context`, and should tell the right target from the negatives:
#
# $$\mathcal L = \frac1n \sum_i -\log
# \frac{\exp\bigl(\cos(c_i, q_i) / \kappa\bigr)}{\sum_{\tilde q} \exp\bigl(\cos(c_i, \tilde q) / \kappa\bigr)}$$
#
# where $\tilde q$ runs over the target $q_i$ and all the negatives of row $i$, and $\kappa$ is the temperature. It may
# be as low as 0.01, also where targets are far from their contexts: the loss stays right and finite. The targets are
# learned as well, so gradients must reach all three tensors.

# %% exercise="contrastive_loss"
def contrastive_loss(context: Tensor, targets: Tensor, negatives: Tensor, temperature: float) -> Tensor:
    """Cross entropy of telling each target from its negatives, in nats, mean over the rows.

    context: (n, d)   targets: (n, d)   negatives: (n, n_negatives, d)   temperature: above 0
    returns a single number
    """
    ...  # solution

# %% check="contrastive_loss"
check("contrastive_loss", contrastive_loss)

# %% [markdown]
# ## 6 · In your own words: a larger picture
#
# A ViT was trained on pictures of 224 × 224 pixels with patches of 16 × 16. Now it is to look at pictures of
# 448 × 448, cut into patches of the same size.
#
# **(a)** How many tokens were there, and how many are there now? By what factor do the tables of attention weights
# grow?
# **(b)** Which of its learned parameters no longer fit, and which could be used as they are?
# **(c)** Suggest what to do with those that do not fit, without training them from nothing, and say what your
# suggestion assumes.
#
# Answer in four to eight sentences or lines. (3 points)

# %% [markdown] written="a-larger-picture" points=3 minutes=10 difficulty=2
# ### BEGIN SOLUTION
# **Mark scheme.** One point for each.
#
# 1. (a) $14 \cdot 14 + 1 = 197$ tokens, then $28 \cdot 28 + 1 = 785$: about four times as many, so the tables grow by a
#    factor of about 16 ($785^2/197^2 = 15.9$). Forgetting the class token costs nothing; answering "4" for the tables
#    costs the point.
# 2. (b) The positions do not fit: there is one for each place, and there are more places. All else does: the embedding
#    of the patches (a patch has as many numbers as before), the class token, every matrix of the blocks (none of them
#    depends on n), the head. Half a point for the positions alone.
# 3. (c) Arrange the 196 positions as a 14 × 14 grid and interpolate it to 28 × 28, the class token's kept as it is
#    (Dosovitskiy et al. 2021, section 3.2). It assumes that positions vary smoothly over the grid, and that what stood at
#    a third of the height is to be treated as before at a third of the height. Also right: repeat each position for the
#    four new places (assumes that they need not be told apart); use positions that are computed or relative from the
#    start. The suggestion without an assumption earns half.
# ### END SOLUTION

# %% [markdown]
# ## 7 · In your own words: too good to be true
#
# Somebody builds wav2vec's game, with 20 negatives, and changes a few things. The loss falls to nearly zero within two
# hundred steps, and a linear probe on the features is as bad as on an untrained network. Three changes are suspected:
#
# * **A.** "I draw the negatives from *other* sounds of the batch, there are more of them." (Each sound has its own
#   speaker, and its own hum in the background.)
# * **B.** "I compute the context from all frames, with none hidden. The mask only says at which frames to guess."
# * **C.** "I leave the temperature at 1. It is one thing less to tune."
#
# For each of the three: could it alone explain what was seen? If so, how does the model win the game; if not, what
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
# 3. **C.** No: cosines lie between −1 and 1, so at temperature 1 the best possible guess has the loss
#    $\log(1 + 20\, e^{-2}) \approx 1.3$: it could not fall to nearly zero. Seen would be a loss that stays high
#    (between 1.3 and $\log 21 \approx 3$). The argument earns the point without the number.
# ### END SOLUTION

# %% [markdown]
# ## Extension: where did it all come from?
#
# This one is worth extra credit, and nothing is lost by leaving it out.
#
# A table of weights says what a layer averages. But what it averages has been mixed by the layers below. *Attention
# rollout* (Abnar and Zuidema 2020) follows the mixing through the whole stack. Each layer's table is averaged over the
# heads, and half of every token is what the residual path kept:
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
