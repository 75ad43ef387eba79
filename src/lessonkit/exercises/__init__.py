"""What an exercise is, how an answer is observed and judged, and what a learner reads of it."""
