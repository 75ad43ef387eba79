"""From executed notebooks, pages of docs/ and docstrings to a web book that needs no network."""
