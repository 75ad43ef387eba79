"""Areas of polygons."""

from . import polygon_area

# In the order in which they are set.
EXERCISES = (polygon_area.exercise,)
