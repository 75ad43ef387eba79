"""Pictures of attention, in one style, each with a text that says what it shows. Needs the extra `lab`."""

from attncourse._needs import needs

with needs("attncourse.viz", "lab"):
    import ipywidgets as _ipywidgets  # noqa: F401
    import matplotlib as _matplotlib  # noqa: F401

from attncourse.viz.diagrams import encoder_decoder
from attncourse.viz.figures import accuracy_by_length, alignment_heatmap, curves, draw_masks, draw_weights
from attncourse.viz.style import figure, show
from attncourse.viz.widgets import explore, step_through

__all__ = [
    "accuracy_by_length",
    "alignment_heatmap",
    "curves",
    "draw_masks",
    "draw_weights",
    "encoder_decoder",
    "explore",
    "figure",
    "show",
    "step_through",
]
