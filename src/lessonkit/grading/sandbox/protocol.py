"""Messages between the trusted worker and the learner's process: JSON and raw arrays, nothing that executes.

A frame is two lengths, a JSON text, and the bytes of the arrays that the text refers to. Whoever receives a frame
checks it: the other side may be hostile.
"""

from __future__ import annotations

import io
import json
import math
import select
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lessonkit.exercises.local_runner import Opaque, kind_of

MAX_TEXT, MAX_ARRAYS = 8 << 20, 64 << 20  # bytes of a frame
MAX_AXES = 32  # of a tensor
MAX_DEPTH = 50  # of values in values: whatever is done with them afterwards goes as deep
LENGTHS = struct.Struct("!II")
INTERVAL = 0.05  # seconds between two calls of `watch`

DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


# No code on the way may take these two for an error of the answer's.
class ConnectionClosed(BaseException):
    """The other side has gone."""


class ProtocolError(BaseException):
    """What came is no message: the other side does not keep to the protocol."""


class Channel:
    """One end of a connection. `send` may be called from several threads; `receive` from one.

    `patience`: how many seconds the other side may take to read what is sent to it.
    """

    def __init__(self, connection: socket.socket, patience: float | None = None) -> None:
        self.socket = connection
        self.socket.settimeout(patience)
        self._lock = threading.RLock()
        self._buffer = bytearray()
        self.callbacks: list[Any] | None = None  # functions of this side that the other may ask for
        self.make_callable: Callable[[int], Any] | None = None  # stands here for a function of the other side
        self._watched = 0.0
        self._late = -math.inf

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message. Raises ConnectionClosed, or ProtocolError if the other side does not read it.

        TypeError or ValueError, with nothing sent, for what cannot be sent.
        """
        arrays: list[bytes] = []
        packed = {name: pack(value, arrays, self.callbacks) for name, value in fields.items()}
        text = json.dumps([kind, packed]).encode()
        body = b"".join(arrays)
        if len(text) > MAX_TEXT or len(body) > MAX_ARRAYS:
            raise ValueError(f"too large: {(len(text) + len(body)) / 2**20:.0f} MB")
        # An interrupt in the middle of a frame would tear it.
        held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            with self._lock:
                self.socket.sendall(LENGTHS.pack(len(text), len(body)) + text + body)
        except TimeoutError:
            raise ProtocolError("it does not read what is sent to it") from None
        except OSError as error:
            raise ConnectionClosed(str(error)) from None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, held)

    def receive(
        self, until: float = math.inf, watch: Callable[[], None] | None = None, also: Sequence[int] = ()
    ) -> tuple[str, dict[str, Any]]:
        """The next message. TimeoutError at the time `until` (of time.monotonic); ConnectionClosed; ProtocolError.

        `watch` is called about every twentieth of a second, and when one of the descriptors `also` can be read.
        """
        waiting = (until, watch, also)
        start = LENGTHS.size
        self._wait_for(start, *waiting)
        n_text, n_body = LENGTHS.unpack(self._buffer[:start])
        if n_text > MAX_TEXT or n_body > MAX_ARRAYS:
            raise ProtocolError("a frame that is too long")
        end = start + n_text + n_body
        self._wait_for(end, *waiting)  # a frame whose time runs out on the way stays to be received
        text, body = bytes(self._buffer[start : start + n_text]), bytes(self._buffer[start + n_text : end])
        del self._buffer[:end]
        try:
            kind, fields = json.loads(text)
            if not isinstance(kind, str) or not isinstance(fields, dict):
                raise ValueError("not a kind and its fields")
            arrays = io.BytesIO(body)
            return kind, {name: unpack(value, arrays, self.make_callable) for name, value in fields.items()}
        except Exception as error:  # torch's own among them
            raise ProtocolError(f"not a message: {error}") from None

    def _wait_for(self, n: int, until: float, watch: Callable[[], None] | None, also: Sequence[int]) -> None:
        """Return when `n` bytes have come."""
        while len(self._buffer) < n:
            if watch is not None or until < math.inf:
                self._wait(until, watch, also)
            try:
                piece = self.socket.recv(1 << 20)
            except OSError as error:
                raise ConnectionClosed(str(error)) from None
            if not piece:
                raise ConnectionClosed("the connection has ended")
            self._buffer += piece

    def _wait(self, until: float, watch: Callable[[], None] | None, also: Sequence[int]) -> None:
        """Return when something can be read from the socket."""
        waiting: list[Any] = [self.socket, *also]
        ready: list[Any] = []
        while self.socket not in ready:
            now = time.monotonic()
            if now >= until:
                # This process may have been stopped, and not the other: what has come meanwhile counts, but only once.
                if self._late != until and self.socket in select.select(waiting, [], [], 0)[0]:
                    self._late = until
                    return
                raise TimeoutError
            if watch is not None and (now >= self._watched + INTERVAL or ready):
                self._watched = now
                watch()
                time.sleep(0.001 if ready else 0)  # what has been closed is ready for ever
            ready = select.select(waiting, [], [], min(until - now, INTERVAL))[0]


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in a value, in the order in which both sides count them."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    if isinstance(value, tuple | list):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def pack(value: Any, arrays: list[bytes], callbacks: list[Any] | None = None, depth: int = 0) -> Any:
    """`value` as JSON data; tensors' bytes are added to `arrays`, functions to `callbacks`, if there is such a list.

    What is no plain data, or lies too deep, goes as a description of its type.
    """
    if value is None or isinstance(value, bool | str):
        return value if type(value) in (bool, str, type(None)) else str(value)
    if type(value) in (int, float):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, np.integer | np.floating):  # what np.ceil or np.exp give: a number like any other
        return int(value) if isinstance(value, np.integer) else float(value)
    if isinstance(value, Tensor):
        return _pack_tensor(value, arrays)
    if isinstance(value, list | tuple | dict) and depth <= MAX_DEPTH:
        deeper = depth + 1
        if isinstance(value, list):
            return [pack(item, arrays, callbacks, deeper) for item in value]
        if isinstance(value, tuple):
            return {"tuple": [pack(item, arrays, callbacks, deeper) for item in value]}
        return {"dict": [[pack(part, arrays, callbacks, deeper) for part in item] for item in value.items()]}
    if callbacks is not None and callable(value):
        callbacks.append(value)
        return {"function": len(callbacks) - 1}
    return {"opaque": kind_of(value)[:200]}


def unpack(
    value: Any, arrays: io.BytesIO, make_callable: Callable[[int], Any] | None = None, depth: int = 0
) -> Any:
    """The reverse of `pack`, which reads the arrays' bytes in order. An Exception of some kind for anything else."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "replace").decode()  # half a character cannot be written to a file
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth > MAX_DEPTH + 1:
        raise ValueError("too many values in values")
    deeper = depth + 1
    if isinstance(value, list):
        return [unpack(item, arrays, make_callable, deeper) for item in value]
    ((tag, content),) = value.items()
    match tag:
        case "tuple":
            return tuple(unpack(item, arrays, make_callable, deeper) for item in content)
        case "dict":
            flat = [unpack(item, arrays, make_callable, deeper) for pair in content for item in _pair(pair)]
            return dict(zip(flat[::2], flat[1::2], strict=True))
        case "tensor":
            return _unpack_tensor(content, arrays)
        case "opaque":
            return Opaque(unpack(str(content)[:200], arrays))
        case "function" if make_callable is not None and type(content) is int:
            return make_callable(content)
    raise ValueError(f"an unknown tag, {tag!r}"[:80])


def _pair(value: Any) -> tuple[Any, Any]:
    key, item = value
    return key, item


def _pack_tensor(tensor: Tensor, arrays: list[bytes]) -> Any:
    if tensor.dtype not in NAMES or tensor.is_meta:
        return {"opaque": f"a tensor of {str(tensor.dtype).removeprefix('torch.')}" + " on meta" * tensor.is_meta}
    if tensor.dim() > MAX_AXES:
        return {"opaque": f"a tensor of {tensor.dim()} axes, which is too many,"}
    if tensor.numel() * tensor.element_size() > MAX_ARRAYS:  # before an expanded view is written out
        return {"opaque": f"a tensor of {tensor.numel()} numbers, which is too many,"}
    plain = tensor.detach().to("cpu")
    plain = plain.to_dense() if plain.layout is not torch.strided else plain
    # Of a subclass, the numbers alone.
    plain = torch.Tensor.as_subclass(plain, Tensor).resolve_conj().resolve_neg().contiguous()
    data = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    arrays.append(data)
    return {"tensor": [NAMES[tensor.dtype], list(tensor.shape), bool(tensor.requires_grad)]}


def _unpack_tensor(content: Any, arrays: io.BytesIO) -> Tensor:
    name, shape, grad = content
    dtype = DTYPES[name]
    if len(shape) > MAX_AXES or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("a shape that is none")
    length = math.prod(shape) * dtype.itemsize
    data = np.frombuffer(bytearray(arrays.read(length)), np.uint8)
    if len(data) != length:
        raise ValueError("an array that is not as long as its shape says")
    if dtype == torch.bool:
        data = (data != 0).view(np.uint8)  # any other byte would be a boolean that is neither
    tensor = torch.from_numpy(data).view(dtype).reshape(shape) if length else torch.empty(shape, dtype=dtype)
    return tensor.requires_grad_(bool(grad) and dtype.is_floating_point)
