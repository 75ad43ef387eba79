"""What a cell shows, as a notebook keeps it, built from the messages of a process that may say anything."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Sequence
from typing import Any

from lessonkit.mimetype import VERDICT

MAX_TEXT = 200_000  # characters that a cell may print
MAX_SHOWN = 20_000_000  # characters of everything, of all cells together
MAX_OUTPUTS = 500  # of one cell
MORE = "\n[more was printed and is left out]\n"


class Outputs:
    """The outputs of the present cell. `flags` tell what was left out of any cell."""

    def __init__(self) -> None:
        self.flags: list[str] = []
        self._shown = 0
        self._displays: dict[str, list[dict]] = {}  # display id -> the outputs that show it
        self.begin()

    def begin(self) -> None:
        """Start a cell."""
        self._outputs: list[dict[str, Any]] = []
        self._printed = 0
        self._failed = False
        self._clear = False
        self.silent = False  # of an interrupted cell, what comes from the interrupt is not shown

    def end(self) -> list[dict[str, Any]]:
        """The cell's outputs, as nbformat 4 has them."""
        return self._outputs

    def stop(self, name: str, words: str) -> None:
        """Say why the cell did not come to its end."""
        self._outputs.append({"output_type": "error", "ename": name, "evalue": words, "traceback": [words]})

    def take(self, kind: str, content: dict[str, Any]) -> bool:
        """Add what a message shows; False if it is of no kind that shows. TypeError and KeyError for nonsense."""
        match kind:
            case "stream":
                self._print(content["name"], content["text"])
            case "result" | "display" | "update":
                self._show(kind, content)
            case "error":
                name, value, lines = content["name"], content["value"], content["traceback"]
                if not isinstance(lines, list) or not all(isinstance(text, str) for text in (name, value, *lines)):
                    raise TypeError("not an error")
                lines = [line[:20_000] for line in lines[:200]]
                error = {"output_type": "error", "ename": name[:200], "evalue": value[:20_000], "traceback": lines}
                if not self._add(error) and not self.silent and not self._failed:
                    # To nbgrader, an instructor's own test without an error has passed.
                    self.stop(name[:200], value[:2000])
                self._failed = True
            case "clear":
                self._clear = True
                if content["wait"] is not True:
                    self._cleared()
            case _:
                return False
        return True

    def drain(self, descriptors: Sequence[int]) -> None:
        """Add what was written past Python: by programs that the cell started, or by compiled code."""
        for name, descriptor in zip(("stdout", "stderr"), descriptors, strict=False):
            data = b""
            try:
                while len(data) < MAX_TEXT * 8 and (piece := os.read(descriptor, 1 << 16)):
                    data += piece
            except (BlockingIOError, OSError):
                pass
            if data:
                self._print(name, data.decode("utf-8", "replace"))

    def _print(self, name: Any, text: Any) -> None:
        if name not in ("stdout", "stderr") or not isinstance(text, str):
            raise TypeError("no such stream")
        if self.silent or not text or self._printed > MAX_TEXT:
            return
        self._printed += len(text)
        if self._printed > MAX_TEXT:
            text = text[: MAX_TEXT - self._printed] + MORE
            self._flag(f"printed more than {MAX_TEXT // 1000} KB")
        self._cleared()
        last = self._outputs[-1] if self._outputs else None
        if last and last["output_type"] == "stream" and last["name"] == name:
            if self._has_room(text):
                last["text"] += text
        else:
            self._add({"output_type": "stream", "name": name, "text": text})

    def _show(self, kind: str, content: dict[str, Any]) -> None:
        data, metadata = content["data"], content["metadata"]
        if not isinstance(data, dict) or not isinstance(metadata, dict):
            raise TypeError("not a bundle")
        data = {str(mime): _value(str(mime), value) for mime, value in data.items() if mime != VERDICT}
        metadata = {str(key): _json(value) for key, value in metadata.items()}
        name = None if content.get("name") is None else str(content["name"])[:200]  # it is kept, and not counted
        if kind == "update":
            shown = self._displays.get(name or "", [])
            if self._has_room([data, metadata], len(shown)):
                for output in shown:
                    output.update(data=data, metadata=metadata)
            return
        if kind == "result":
            count = count_of(content["count"])
            output = {"output_type": "execute_result", "data": data, "metadata": metadata, "execution_count": count}
        else:
            output = {"output_type": "display_data", "data": data, "metadata": metadata}
        if self._add(output) and name is not None:
            self._displays.setdefault(name, []).append(output)

    def _add(self, output: dict[str, Any]) -> bool:
        if self.silent:
            return False
        self._cleared()
        if len(self._outputs) >= MAX_OUTPUTS:
            self._flag(f"a cell with more than {MAX_OUTPUTS} outputs")
            return False
        if self._has_room(output):
            self._outputs.append(output)
            return True
        return False

    def _has_room(self, shown: Any, times: int = 1) -> bool:
        """Count what is to be shown; False if it is too much."""
        size = len(repr(shown)) * times
        if self._shown + size > MAX_SHOWN:
            self._flag(f"showed more than {MAX_SHOWN // 10**6} MB")
            return False
        self._shown += size
        return True

    def _cleared(self) -> None:
        if self._clear:
            self._outputs, self._clear = [], False

    def _flag(self, words: str) -> None:
        if words not in self.flags:
            self.flags.append(words)


def count_of(value: Any) -> int | None:
    """An execution count, if it can be one."""
    return value if type(value) is int and 0 <= value < 1_000_000 else None


def _value(mime: str, value: Any) -> Any:
    """A representation as the notebook format allows it: JSON where the type says so, otherwise text."""
    if re.search(r"^application/(.*\+)?json$", mime):
        return _json(value)
    return value if isinstance(value, str) else json.dumps(_json(value))


def _json(value: Any) -> Any:
    """The value with None for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
