"""Executing a class's submissions on many workers, and letting nbgrader grade them."""
