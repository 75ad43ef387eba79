"""What was handed in becomes a notebook that can be graded: reading, mending, and reasons where that fails."""
