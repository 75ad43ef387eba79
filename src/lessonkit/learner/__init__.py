"""What a learner's own machine does beside the checks: the whole of a notebook, their folder, their commands."""
