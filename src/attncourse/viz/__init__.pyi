"""What attncourse.viz offers, and from which of its modules; __init__.py loads each of them when it is first used."""

from .architecture import block_frame, towers
from .cheap import weight_maps
from .depth import gradient_flow, landscapes, norm_steps, normed_vector, runs, wiring
from .diagrams import encoder_decoder
from .errata import caught_table, erratum_frame
from .figures import accuracy_by_length, alignment_heatmap, curves, draw_masks, draw_weights
from .heads import head_pieces, many_heads, shares, softmax_frame
from .lookup import (
    clock,
    function_curves,
    grouped_bars,
    lookup_frame,
    lookup_table,
    score_landscape,
    two_lookups,
)
from .masking import mask_frame, shrinking, teacher_forcing, who_hears_whom
from .pattern_pad import pattern_pad, pattern_presets
from .pictures_and_sound import (
    codes_used,
    hide_and_guess,
    looking,
    looking_frame,
    picture_to_sequence,
    pictures,
    position_maps,
    sound,
    span_frame,
)
from .positions import (
    attention_past_the_end,
    bands,
    counting,
    distance_table,
    past_the_end,
    property_table,
    turning,
)
from .recurrence import gates, measured, unrolled, walk
from .results import differences, labelled_points, ranking
from .self_attention import one_question, path_lengths, reach, self_attention_shapes, weight_tables
from .shapes import batch_axes, broadcasting, clouds, exponents, rectangle
from .style import figure, show
from .translation import learning_rates, packed, pieces_frame, search_frame
from .viewer import attention_viewer, look
from .widgets import explore, step_through

__all__ = [
    "accuracy_by_length",
    "alignment_heatmap",
    "attention_past_the_end",
    "attention_viewer",
    "bands",
    "batch_axes",
    "block_frame",
    "broadcasting",
    "caught_table",
    "clock",
    "clouds",
    "codes_used",
    "counting",
    "curves",
    "differences",
    "distance_table",
    "draw_masks",
    "draw_weights",
    "encoder_decoder",
    "erratum_frame",
    "explore",
    "exponents",
    "figure",
    "function_curves",
    "gates",
    "gradient_flow",
    "grouped_bars",
    "head_pieces",
    "hide_and_guess",
    "labelled_points",
    "landscapes",
    "learning_rates",
    "look",
    "looking",
    "looking_frame",
    "lookup_frame",
    "lookup_table",
    "many_heads",
    "mask_frame",
    "measured",
    "norm_steps",
    "normed_vector",
    "one_question",
    "packed",
    "past_the_end",
    "path_lengths",
    "pattern_pad",
    "pattern_presets",
    "picture_to_sequence",
    "pictures",
    "pieces_frame",
    "position_maps",
    "property_table",
    "ranking",
    "reach",
    "rectangle",
    "runs",
    "score_landscape",
    "search_frame",
    "self_attention_shapes",
    "shares",
    "show",
    "shrinking",
    "softmax_frame",
    "sound",
    "span_frame",
    "step_through",
    "teacher_forcing",
    "towers",
    "turning",
    "two_lookups",
    "unrolled",
    "walk",
    "weight_maps",
    "weight_tables",
    "who_hears_whom",
    "wiring",
]
