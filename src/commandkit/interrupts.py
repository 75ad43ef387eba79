"""Ctrl-C that waits for what is under way, and is never lost."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class DeferredInterrupt:
    """Whether one of `signals` (Ctrl-C is SIGINT) came inside the block; the second one is let through.

    Left to Python, a Ctrl-C can be lost: where it meets a callback of the garbage collector it is printed and dropped.
    """

    def __init__(self, signals: Sequence[int]):
        self.signals = signals

    def __enter__(self) -> "DeferredInterrupt":
        self.requested = False
        self.waits = True
        # Only the main thread may listen.
        listens = threading.current_thread() is threading.main_thread()
        self.old = {number: signal.getsignal(number) for number in self.signals} if listens else {}
        for number in self.old:
            signal.signal(number, self.listen)
        return self

    def __exit__(self, *error) -> None:
        self.restore_handlers()

    def listen(self, number: int, frame) -> None:
        self.requested = True
        self.restore_handlers()
        if not self.waits:
            raise KeyboardInterrupt

    def restore_handlers(self) -> None:
        for number, handler in self.old.items():
            signal.signal(number, handler)

    def stop(self) -> None:
        """Raises KeyboardInterrupt if it came."""
        if self.requested:
            raise KeyboardInterrupt

    @contextmanager
    def immediately(self) -> Iterator[None]:
        """In here it raises KeyboardInterrupt; elsewhere what is under way is finished first."""
        self.waits = False
        try:
            yield
        finally:
            self.waits = True
