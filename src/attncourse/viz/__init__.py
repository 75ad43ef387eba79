"""Pictures of attention, in one style, each with a text that says what it shows. Needs the extra `lab`.

The names are in __init__.pyi. Each is loaded on first use: who draws a curve need not wait for widgets and models, and
a lecture depends on the modules that draw its own pictures (authoring/imports.py).
"""

from commandkit.errors import require_extra

with require_extra("attncourse.viz", "lab"):
    import lazy_loader
    import matplotlib as _matplotlib  # noqa: F401

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
