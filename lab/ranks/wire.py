"""Plain data between the grader and the ranks: JSON for the structure, raw bytes for tensors.

Ranks run untrusted code, so nothing that comes back from one is ever unpickled. What can travel: None, bool,
int, float (inf and nan too), str, bytes, list, tuple, dict and CPU tensors, nested as you like. A message is
`[4 bytes: length of the JSON][JSON][bytes of the tensors and byte strings, in the JSON's order]`.

On a socket each message is one frame, `[1 byte: kind][8 bytes: length][payload]`, of bounded length.
"""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Iterator
from typing import Any

MAX_JSON = 8 << 20  # bytes; parsed JSON takes some twenty times as much memory as its text
MAX_PAYLOAD = 64 << 20  # bytes of one message from a rank
GARBAGE = "wrote garbage on the lab's own channel"  # so begins the note about who has
MAX_INTEGER = 1 << 1000  # larger ones cannot even become floats: a judge would stumble over them

_TYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)

_TAG = "$"  # a JSON object with this key stands for something that JSON lacks
_JSON_LENGTH = struct.Struct(">I")
_FRAME = struct.Struct(">cQ")


class WireError(ValueError):
    """The value cannot be sent, or the bytes received are not a message."""


def encode(value: object, limit: int = MAX_PAYLOAD) -> bytes:
    """Return `value` as one message of at most `limit` bytes.

    Raises WireError naming the part that cannot be sent, or saying that the whole is too long.
    """
    blobs: list[bytes] = []
    try:
        text = json.dumps(_pack(value, blobs, "value"), separators=(",", ":")).encode("ascii")
    except RecursionError:
        raise WireError("value is nested too deeply to be sent, or contains itself") from None
    if len(text) > MAX_JSON:
        raise WireError(f"value takes {len(text)} bytes of JSON, more than {MAX_JSON}: send long data as tensors")
    message = b"".join([_JSON_LENGTH.pack(len(text)), text, *blobs])
    if len(message) > limit:
        raise WireError(f"value takes {len(message)} bytes, more than {limit}")
    return message


def decode(message: bytes) -> Any:
    """Return the value of a message from `encode`. Raises WireError for anything else; executes nothing."""
    if len(message) < _JSON_LENGTH.size:
        raise WireError("message is cut short")
    (length,) = _JSON_LENGTH.unpack_from(message)
    start = _JSON_LENGTH.size + length
    if length > MAX_JSON or start > len(message):
        raise WireError("message is cut short or too long")
    blobs = _Blobs(memoryview(message)[start:])
    try:
        value = _unpack(json.loads(message[_JSON_LENGTH.size : start]), blobs)
    except WireError:
        raise
    except (ValueError, TypeError, KeyError, RecursionError, RuntimeError, OverflowError) as error:
        raise WireError(f"message is garbled: {error}") from None
    if blobs.left:
        raise WireError("message is garbled: bytes are left over")
    return value


def _pack(value: object, blobs: list[bytes], path: str) -> object:
    if value is None or isinstance(value, (bool, float, int, str)):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        blobs.append(bytes(value))
        return {_TAG: "bytes", "n": len(blobs[-1])}
    if isinstance(value, list):
        return [_pack(item, blobs, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {_TAG: "tuple", "v": [_pack(item, blobs, f"{path}[{i}]") for i, item in enumerate(value)]}
    if isinstance(value, dict):
        if _TAG not in value and all(isinstance(key, str) for key in value):
            return {key: _pack(item, blobs, f"{path}[{key!r}]") for key, item in value.items()}
        pairs = [
            [_pack(key, blobs, f"{path} key"), _pack(item, blobs, f"{path}[{key!r}]")]
            for key, item in value.items()
        ]
        return {_TAG: "dict", "v": pairs}
    return _pack_tensor(value, blobs, path)


def _pack_tensor(value: object, blobs: list[bytes], path: str) -> object:
    import torch  # here, so that a grader that only lists exercises need not wait for it

    if not isinstance(value, torch.Tensor):
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise WireError(f"{path} is a {kind}: only plain data and tensors can be sent")
    if hasattr(value, "full_tensor"):
        raise WireError(f"{path} is a DTensor: call full_tensor() on every rank and send that")
    if value.layout != torch.strided or value.is_quantized or value.is_meta:
        raise WireError(f"{path} is a tensor of layout {value.layout} on {value.device}: send a dense CPU tensor")
    _known_type(value.dtype)
    tensor = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    blobs.append(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return {_TAG: "tensor", "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}


class _Blobs:
    """Hands out the raw bytes behind the JSON in order, each of them once."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if not isinstance(count, int) or not 0 <= count <= self.left:
            raise WireError(f"message is garbled: {count} bytes announced, {self.left} there")
        self._at += count
        return bytes(self._data[self._at - count : self._at])


def _unpack(node: Any, blobs: _Blobs) -> Any:
    if isinstance(node, str):
        # A lone surrogate is legal in JSON, but could not be printed or written by the grader.
        return node if node.isascii() else node.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    if isinstance(node, list):
        return [_unpack(item, blobs) for item in node]
    if isinstance(node, int) and abs(node) > MAX_INTEGER:
        raise WireError("message holds an integer of more than 1000 bits")
    if not isinstance(node, dict):
        return node
    tag = node.get(_TAG)
    if tag is None:
        return {_unpack(key, blobs): _unpack(item, blobs) for key, item in node.items()}
    if tag == "bytes":
        return blobs.take(node["n"])
    if tag == "tuple":
        return tuple(_unpack(node["v"], blobs))
    if tag == "dict":
        return {_unpack(key, blobs): _unpack(item, blobs) for key, item in node["v"]}
    if tag == "tensor":
        return _unpack_tensor(node["dtype"], node["shape"], blobs)
    raise WireError(f"message is garbled: unknown tag {tag!r}")


def _unpack_tensor(dtype_name: str, shape: list[int], blobs: _Blobs) -> Any:
    import torch

    dtype = getattr(torch, dtype_name, None) if isinstance(dtype_name, str) else None
    if not isinstance(dtype, torch.dtype):
        raise WireError(f"message is garbled: unknown dtype {dtype_name!r}")
    _known_type(dtype)
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise WireError(f"message is garbled: {shape!r} is no shape")
    data = blobs.take(math.prod(shape) * dtype.itemsize)
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape)


def _known_type(dtype: Any) -> None:
    """Raise WireError for types such as float8_e5m2, quint8 or bits16, in which PyTorch does not compute."""
    name = str(dtype).removeprefix("torch.")
    if name not in _TYPES:
        raise WireError(f"a tensor of type {name} cannot be compared with anything")


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """Return the frame of one message; `kind` is a single byte."""
    return _FRAME.pack(kind, len(payload)) + payload


class FrameReader:
    """Cuts a stream of bytes into frames; never holds more than `limit` bytes of one."""

    def __init__(self, limit: int = MAX_PAYLOAD) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield (kind, payload) of every frame completed by `data`. Raises WireError on a frame too long."""
        self._buffer += data
        while len(self._buffer) >= _FRAME.size:
            kind, length = _FRAME.unpack_from(self._buffer)
            if length > self._limit:
                raise WireError(f"a frame of {length} bytes is longer than {self._limit}")
            end = _FRAME.size + length
            if len(self._buffer) < end:
                return
            payload = bytes(memoryview(self._buffer)[_FRAME.size : end])
            del self._buffer[:end]
            yield kind, payload


def receive(sock: socket.socket, limit: int = MAX_PAYLOAD) -> tuple[bytes, bytes]:
    """Read exactly one frame from a blocking socket.

    Raises EOFError when the peer has closed, WireError when the frame is too long, TimeoutError by the
    socket's own timeout.
    """
    kind, length = _FRAME.unpack(_receive_exactly(sock, _FRAME.size))
    if length > limit:
        raise WireError(f"a frame of {length} bytes is longer than {limit}")
    return kind, _receive_exactly(sock, length)


def _receive_exactly(sock: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        part = sock.recv(min(count - len(data), 1 << 20))
        if not part:
            raise EOFError("the other end has closed the connection")
        data += part
    return bytes(data)
