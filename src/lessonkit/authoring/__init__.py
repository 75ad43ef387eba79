"""From the text sources in src/notebooks to executed lectures, executed solutions and released assignments."""
