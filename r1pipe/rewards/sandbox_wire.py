"""What goes between the tests and the program under test: plain data only, as framed JSON.

The program runs in a process of its own and the tests in another one that it cannot see. Arguments and results cross as copies
of built-in values; anything else stays where it is and crosses as a numbered handle. So a program can answer a question, but it
cannot pass an object that claims to be equal to everything, and it cannot reach what it is compared with.

This file and the other `sandbox_*` files that it serves run inside the sandbox: the standard library is all they may import.
"""

from __future__ import annotations

import json
import struct
from collections import deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any

MESSAGE_LIMIT = 8_000_000
"""Bytes of one message."""
ITEM_LIMIT = 200_000
"""Items taken from an iterator, such as a generator that a program returns."""
_DEPTH_LIMIT = 100
_SAFE_INTEGER = 2**53


class WireError(Exception):
    """The other side sent something that is not a message, or too much of it."""


class Items:
    """The items of a view (`dict.values()`): they can be gone through and counted, and equal nothing, as in Python."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


def encode(value: Any, handle: Callable[[Any], int], depth: int = 0) -> Any:
    """A value as JSON; `handle` numbers what is not plain data. Methods of subclasses are passed by, so none can lie."""
    kind = type(value)
    if value is None or kind is bool or kind is float or kind is str:
        return value
    if kind is int:
        return value if -_SAFE_INTEGER < value < _SAFE_INTEGER else {"i": format(value, "x")}
    if depth >= _DEPTH_LIMIT:
        return {"h": handle(value)}
    deeper = depth + 1
    for base, tag in _SEQUENCES:
        if isinstance(value, base):
            items = [encode(item, handle, deeper) for item in base.__iter__(value)]
            return {tag: items} if tag else items
    if isinstance(value, dict):
        return {"d": [[encode(key, handle, deeper), encode(item, handle, deeper)] for key, item in dict.items(value)]}
    for base, tag, text in _ATOMS:
        if isinstance(value, base):
            return {tag: text(value)}
    if kind.__module__ == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist(), handle, deeper)
    if kind is range:
        return {"r": [value.start, value.stop, value.step]}
    if isinstance(value, Iterator) or kind in _VIEWS:
        taken = [encode(item, handle, deeper) for item in islice(value, ITEM_LIMIT)]
        return {_VIEWS.get(kind, "g"): taken}
    return {"h": handle(value)}


def decode(data: Any, handle: Callable[[int], Any]) -> Any:
    """The value of what `encode` made; `handle` turns numbers back into objects, or into stand-ins for them."""
    if isinstance(data, list):
        return [decode(item, handle) for item in data]
    if not isinstance(data, dict):
        return data
    if len(data) != 1:
        raise WireError("not a value")
    ((tag, body),) = data.items()
    if tag == "h" and isinstance(body, int):
        return handle(body)
    if tag == "d":
        return {decode(key, handle): decode(item, handle) for key, item in body}
    if tag in _FROM_ITEMS:
        return _FROM_ITEMS[tag]([decode(item, handle) for item in body])
    if tag in _FROM_TEXT:
        return _FROM_TEXT[tag](body)
    raise WireError("not a value")


_SEQUENCES: tuple[tuple[Any, str], ...] = ((list, ""), (tuple, "t"), (set, "s"), (frozenset, "z"), (deque, "q"))
_ATOMS: tuple[tuple[Any, str, Callable[[Any], Any]], ...] = (
    (int, "i", lambda value: format(int.__index__(value), "x")),
    (float, "f", lambda value: float.hex(value)),
    (str, "u", lambda value: str.__str__(value)),
    (bytes, "b", lambda value: bytes.hex(value)),
    (bytearray, "y", lambda value: bytearray.hex(value)),
    (complex, "c", lambda value: [value.real, value.imag]),
    (Fraction, "n", lambda value: [format(value.numerator, "x"), format(value.denominator, "x")]),
    (Decimal, "m", lambda value: Decimal.__str__(value)),
)
_VIEWS = {type({}.keys()): "k", type({}.values()): "v", type({}.items()): "v"}
_FROM_ITEMS: dict[str, Callable[[list[Any]], Any]] = {
    "t": tuple,
    "s": set,
    "z": frozenset,
    "q": deque,
    "g": iter,
    "k": lambda items: dict.fromkeys(items).keys(),
    "v": Items,
    "r": lambda parts: range(*parts),
}
_FROM_TEXT: dict[str, Callable[[Any], Any]] = {
    "i": lambda text: int(text, 16),
    "f": float.fromhex,
    "u": str,
    "b": bytes.fromhex,
    "y": bytearray.fromhex,
    "c": lambda parts: complex(*parts),
    "n": lambda parts: Fraction(int(parts[0], 16), int(parts[1], 16)),
    "m": Decimal,
}


def pack(message: Any) -> bytes:
    """A message with its length in front."""
    body = json.dumps(message).encode()
    if len(body) > MESSAGE_LIMIT:
        raise WireError(f"a message of {len(body)} bytes, at most {MESSAGE_LIMIT}")
    return struct.pack("<I", len(body)) + body


class Unpacker:
    """Collects bytes and gives whole messages."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """The messages that the bytes complete."""
        self.buffer += data
        while len(self.buffer) >= 4:
            (size,) = struct.unpack_from("<I", self.buffer)
            if size > MESSAGE_LIMIT:
                raise WireError(f"a message of {size} bytes, at most {MESSAGE_LIMIT}")
            if len(self.buffer) < 4 + size:
                return
            body = bytes(self.buffer[4 : 4 + size])
            del self.buffer[: 4 + size]
            try:
                yield json.loads(body)
            except (ValueError, RecursionError) as error:
                raise WireError("not JSON") from error
