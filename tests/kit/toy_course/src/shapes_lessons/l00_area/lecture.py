# %% [markdown]
# # Lecture @area · Areas: the shoelace formula
#
# *About 5 minutes.* In [assignment @area](@area/assignment) you write it.
#
# The **shoelace formula** adds up the cross products of neighbouring corners:
#
# $$A = \frac{1}{2} \left| \sum_i x_i y_{i+1} - x_{i+1} y_i \right|$$

# %%
from shapes.polygons import area, regular

from . import figures

print(figures.outline(regular(4)))

# %%
area(regular(4))
