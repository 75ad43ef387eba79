"""What a submission may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Limits:
    """What a submission may use. What goes over a limit ends, and what ran before it keeps its points.

    `memory_mb` and `open_files` are each process's; the rest is for all of them together. What they hold together may
    be a quarter more than `memory_mb`.
    """

    cell_seconds: float = 30
    notebook_seconds: float = 180
    memory_mb: int = 2048  # private memory; what torch reserves and does not use is free
    processes: int = 64  # threads count
    home_mb: int = 64
    home_files: int = 4096
    open_files: int = 256

    @classmethod
    def of(cls, given: Mapping[str, float]) -> Limits:
        """The limits with the given ones in place of the usual ones; unknown names are a TypeError."""
        unknown = set(given) - {field.name for field in fields(cls)}
        if unknown:
            raise TypeError(f"no limits of these names: {', '.join(sorted(unknown))}")
        return cls(**given)  # type: ignore[arg-type]

