"""One published table, transcribed three times: table 1 of Narang et al. (2021), as it stands in three decks.

The texts of the decks were made from pictures of slides, so that nobody can say any more who slipped: whoever typed the
table for the slide, or the machine that read the slide. Rows that lost a cell in one of the three are left out.
"""

import torch
from torch import Tensor

from attncourse_lessons.slides.erratum import CSE576, CSE5321, FOUNDATIONS

NARANG_ROWS = (
    "Vanilla Transformer", "GeLU", "Swish", "ELU", "GLU", "GeGLU", "ReGLU", "SeLU", "SwiGLU", "LiGLU", "Sigmoid",
    "Softplus", "RMS Norm", "Rezero", "Rezero + LayerNorm", "Rezero + RMS Norm", "Fixup",
    "24 layers, d_ff = 1536, H = 6", "18 layers, d_ff = 2048, H = 8", "8 layers, d_ff = 4608, H = 18",
    "6 layers, d_ff = 6144, H = 24", "Block sharing", "+ Factorized embeddings", "+ Factorized & shared embeddings",
    "Encoder only block sharing", "Decoder only block sharing", "Factorized Embedding",
    "Factorized & shared embeddings", "Tied encoder/decoder input embeddings",
    "Tied decoder input and output embeddings", "Untied embeddings", "Adaptive input embeddings", "Adaptive softmax",
    "Adaptive softmax without projection", "Mixture of softmaxes", "Transparent attention", "Dynamic convolution",
    "Lightweight convolution", "Evolved Transformer", "Synthesizer (dense)", "Synthesizer (dense plus)",
    "Synthesizer (dense plus alpha)", "Synthesizer (factorized)", "Synthesizer (random)",
    "Synthesizer (random plus)", "Synthesizer (random plus alpha)", "Universal Transformer", "Mixture of experts",
    "Switch Transformer", "Funnel Transformer", "Weighted Transformer", "Product key memory",
)  # fmt: skip
"""The names of all its rows."""

COLUMNS = ("steps per s", "early loss", "its spread", "final loss", "SuperGLUE", "XSum", "WebQ", "WMT En–De")
TRANSCRIBERS = (CSE576, FOUNDATIONS, CSE5321)

# A row's name, and what each of the three decks has for it, as long as they do not all have the same.
_READINGS = """
Vanilla Transformer | 3.5 2.182 0.005 1.838 71.66 17.78 23.02 26.62
GeLU | 3.58 2.179 0.003 1.838 75.79 17.86 25.13 26.47
Swish | 3.62 2.186 0.003 1.847 73.77 17.74 24.34 26.75
GLU
    | 3.59 2.174 0.003 1.814 74.2 17.42 24.34 27.12
    | 3.59 2.173 0.003 1.844 74.2 17.42 24.11 21.12
    | 3.59 2.174 0.003 1.814 74.2 17.42 24.34 27.12
GeGLU
    | 3.55 2.13 0.006 1.792 75.96 18.27 24.87 26.87
    | 3.55 2.13 0.006 1.792 75.96 18.27 24.87 26.47
    | 3.55 2.13 0.006 1.792 75.96 18.27 24.87 26.87
ReGLU
    | 3.57 2.145 0.004 1.803 76.17 18.36 24.87 27.02
    | 3.57 2.115 0.004 1.803 76.17 18.36 24.87 27.02
    | 3.57 2.145 0.004 1.803 76.17 18.36 24.87 27.02
SeLU
    | 3.55 2.315 0.004 1.948 68.76 16.76 22.75 25.99
    | 3.55 2.315 0.004 1.948 68.76 16.76 22.75 25.99
    | 3.55 2.115 0.004 1.948 68.76 16.76 22.75 25.99
SwiGLU | 3.53 2.127 0.003 1.789 76 18.2 24.34 27.02
Sigmoid
    | 3.63 2.291 0.019 1.867 74.31 17.51 23.02 26.3
    | 3.63 2.29 0.019 1.801 74.31 17.51 23.03 25.3
    | 3.63 2.201 0.019 1.867 74.31 17.51 23.02 26.3
Softplus
    | 3.47 2.207 0.011 1.85 72.45 17.65 24.34 26.89
    | 3.47 2.297 0.011 1.85 72.45 17.65 24.34 26.89
    | 3.47 2.207 0.011 1.85 72.45 17.65 24.34 26.89
RMS Norm | 3.68 2.167 0.008 1.821 75.45 17.94 24.07 27.14
Rezero | 3.51 2.262 0.003 1.939 61.69 15.64 20.9 26.37
Rezero + LayerNorm | 3.26 2.223 0.006 1.858 70.42 17.58 23.02 26.29
Rezero + RMS Norm | 3.34 2.221 0.009 1.875 70.33 17.32 23.02 26.19
Fixup | 2.95 2.382 0.012 2.067 58.56 14.42 23.02 26.31
Encoder only block sharing | 3.68 2.298 0.023 1.929 69.6 16.23 23.02 26.23
Decoder only block sharing | 3.7 2.352 0.029 2.082 67.93 16.13 23.81 26.08
Factorized Embedding | 3.8 2.208 0.006 1.855 70.41 15.92 22.75 26.5
Tied encoder/decoder input embeddings | 3.55 2.192 0.002 1.84 71.7 17.72 24.34 26.49
Tied decoder input and output embeddings | 3.57 2.187 0.007 1.827 74.86 17.74 24.87 26.67
Untied embeddings | 3.53 2.195 0.005 1.834 72.99 17.58 23.28 26.48
Adaptive input embeddings | 3.55 2.25 0.002 1.899 66.57 16.21 24.07 26.66
Adaptive softmax | 3.6 2.364 0.005 1.982 72.91 16.67 21.16 25.56
Mixture of softmaxes | 2.24 2.227 0.017 1.821 76.77 17.62 22.75 26.82
Transparent attention
    | 3.33 2.181 0.014 1.874 54.31 10.4 21.16 26.8
    | 3.33 2.181 0.014 1.874 54.31 10.4 21.16 26.4
    | 3.33 2.181 0.014 1.874 54.31 10.4 21.16 26.8
Dynamic convolution | 2.65 2.403 0.009 2.047 58.3 12.67 21.16 17.03
Lightweight convolution | 4.07 2.37 0.01 1.989 63.07 14.86 23.02 24.73
Evolved Transformer | 3.09 2.22 0.003 1.863 73.67 10.76 24.07 26.58
Synthesizer (dense) | 3.47 2.334 0.021 1.962 61.03 14.27 16.14 26.63
Synthesizer (dense plus) | 3.22 2.191 0.01 1.84 73.98 16.96 23.81 26.71
Synthesizer (dense plus alpha)
    | 3.01 2.18 0.007 1.828 74.25 17.02 23.28 26.61
    | 3.01 2.19 0.007 1.828 74.25 17.02 23.28 26.61
    | 3.01 2.18 0.007 1.828 74.25 17.02 23.28 26.61
Synthesizer (factorized) | 3.94 2.341 0.017 1.968 62.78 15.39 23.55 26.42
Synthesizer (random) | 4.08 2.326 0.012 2.009 54.27 10.35 19.56 26.44
Synthesizer (random plus) | 3.63 2.189 0.004 1.842 73.32 17.04 24.87 26.43
Synthesizer (random plus alpha) | 3.42 2.186 0.007 1.828 75.24 17.08 24.08 26.39
Funnel Transformer | 4.3 2.288 0.008 1.918 67.34 16.26 22.75 23.2
Weighted Transformer | 0.59 2.378 0.021 1.989 69.04 16.98 23.02 26.3
Product key memory | 0.25 2.155 0.003 1.798 75.16 17.04 23.55 26.73
"""


def transcriptions() -> tuple[list[str], Tensor]:
    """The names of the rows, and (3, rows, columns): what each of `TRANSCRIBERS` has in each place.

    >>> names, readings = transcriptions()
    >>> names[0], readings[:, 0, 3]
    ('Vanilla Transformer', tensor([1.8380, 1.8380, 1.8380], dtype=torch.float64))
    """
    names, rows = [], []
    for line in _READINGS.strip().replace("\n    |", " |").splitlines():
        name, *read = line.split(" | ")
        names.append(name)
        rows.append([[float(number) for number in each.split()] for each in read * (3 // len(read))])
    return names, torch.tensor(rows, dtype=torch.float64).transpose(0, 1)
