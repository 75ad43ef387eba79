"""What several exercises of this lesson share: inputs, references, and words."""


READY_MADE = ("attncourse.beyond_text",)
