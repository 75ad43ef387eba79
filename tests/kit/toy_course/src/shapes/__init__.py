"""Shapes in the plane: the library of the course."""
