"""A lecture's slides: written in its source, shown by reveal.js from a folder."""
