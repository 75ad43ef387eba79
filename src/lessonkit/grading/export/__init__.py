"""Grading where the class lives: what Gradescope and GitHub need to grade one submission as `grade` does."""
