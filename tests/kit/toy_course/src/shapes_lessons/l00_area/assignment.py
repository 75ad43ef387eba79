# %% [markdown]
# # Assignment @area · A field with five corners
#
# {exercises}

# %% locked

from shapes_lessons import check


# %% exercise="polygon_area"
def polygon_area(corners):
    """The area of a polygon. corners: (n, 2), in either direction around it; returns a tensor of no dimension."""
    ...  # solution

# %% check="polygon_area"
check("polygon_area", polygon_area)

# %% [markdown]
# Does the formula hold where the sides cross?

# %% [markdown] written="crossings" points=1 minutes=3 difficulty=1
# ### BEGIN SOLUTION
# No: parts that are gone around in opposite directions are subtracted from each other.
# ### END SOLUTION
