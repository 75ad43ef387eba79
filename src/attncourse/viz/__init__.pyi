"""What attncourse.viz offers, and from which of its modules; __init__.py loads each of them when it is first used."""

from .architectures import encoder_decoder, transformer_architecture
from .charts import (
    differences_from_baseline,
    function_curves,
    grouped_bars,
    labelled_points,
    line_plot,
    ranking,
    strip_plot,
)
from .drill import Question, shape_drill
from .figures import alignment_heatmap, curves, draw_masks, draw_weights, weight_tables
from .style import figure, show
from .viewer import attention_viewer, show_attention
from .widgets import explore, step_through

__all__ = [
    "Question",
    "alignment_heatmap",
    "attention_viewer",
    "curves",
    "differences_from_baseline",
    "draw_masks",
    "draw_weights",
    "encoder_decoder",
    "explore",
    "figure",
    "function_curves",
    "grouped_bars",
    "labelled_points",
    "line_plot",
    "ranking",
    "shape_drill",
    "show",
    "show_attention",
    "step_through",
    "strip_plot",
    "transformer_architecture",
    "weight_tables",
]
