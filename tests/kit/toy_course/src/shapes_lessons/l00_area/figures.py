"""Pictures of this lesson alone."""


def outline(corners) -> str:
    """A polygon in words."""
    return " → ".join(f"({x:.1f}, {y:.1f})" for x, y in corners.tolist())
