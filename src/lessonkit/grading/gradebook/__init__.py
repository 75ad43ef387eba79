"""nbgrader's side: its commands run from Python, and what is replaced in it."""
