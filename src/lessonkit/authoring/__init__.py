"""From the lessons' text sources to executed lectures, executed solutions and released assignments."""
