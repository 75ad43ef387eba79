"""What attncourse.viz offers, and from which of its modules; __init__.py loads each of them when it is first used."""

from .charts import differences, function_curves, grouped_bars, labelled_points, measured, ranking, runs
from .figures import alignment_heatmap, curves, draw_masks, draw_weights, weight_tables
from .style import figure, show
from .viewer import attention_viewer, look
from .widgets import explore, step_through

__all__ = [
    "alignment_heatmap",
    "attention_viewer",
    "curves",
    "differences",
    "draw_masks",
    "draw_weights",
    "explore",
    "figure",
    "function_curves",
    "grouped_bars",
    "labelled_points",
    "look",
    "measured",
    "ranking",
    "runs",
    "show",
    "step_through",
    "weight_tables",
]
