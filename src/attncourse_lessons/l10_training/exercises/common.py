"""What several exercises of this lesson share."""

READY_MADE = ("attncourse.metrics", "attncourse.training", "attncourse.decoding", "attncourse.transformer")
