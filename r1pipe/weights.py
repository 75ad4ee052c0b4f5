"""Two model folders compared weight by weight, without loading a library of tensors."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r1pipe.errors import ArtifactError


@dataclass(frozen=True, slots=True)
class Difference:
    """How two sets of weights differ.

    Attributes:
        tensors: how many there are.
        differing: how many are not the same bit for bit.
        largest: largest absolute difference of two weights; infinite when names or shapes differ.
        where: the tensor that holds it; empty when nothing differs.
    """

    tensors: int
    differing: int
    largest: float
    where: str = ""


def compare_weights(one: Path, other: Path) -> Difference:
    """Compare the safetensors files of two model folders.

    Raises:
        ArtifactError: a folder has none, or a file is torn.
    """
    left, right = dict(_tensors(one)), dict(_tensors(other))
    if odd := sorted(left.keys() ^ right.keys()):
        return Difference(len(left), len(odd), math.inf, odd[0])
    differing, largest, where = 0, 0.0, ""
    for name, (kind, shape, data) in left.items():
        kind_too, shape_too, data_too = right[name]
        if (kind, shape) != (kind_too, shape_too):
            return Difference(len(left), len(left), math.inf, name)
        if data == data_too:
            continue
        differing += 1
        gap = _largest_gap(kind, data, data_too)
        if not where or gap > largest:
            largest, where = gap, name
    return Difference(len(left), differing, largest, where)


def count_parameters(folder: Path) -> int:
    """How many numbers a model's safetensors files hold, from their headers alone.

    Raises:
        ArtifactError: the folder has none, or a header is torn.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ArtifactError(f"{folder} has no weights (*.safetensors)")
    total = 0
    for path in files:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            try:
                header: dict[str, Any] = json.loads(stream.read(length))
            except (ValueError, OverflowError, MemoryError) as error:
                raise ArtifactError(f"{path} is torn: {error}") from error
        total += sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    return total


def _tensors(folder: Path) -> Iterator[tuple[str, tuple[str, tuple[int, ...], bytes]]]:
    """(name, (kind, shape, bytes)) of every tensor of a folder."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ArtifactError(f"{folder} has no weights (*.safetensors)")
    for path in files:
        content = path.read_bytes()
        try:
            length = int.from_bytes(content[:8], "little")
            header: dict[str, Any] = json.loads(content[8 : 8 + length])
        except ValueError as error:
            raise ArtifactError(f"{path} is torn: {error}") from error
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                yield name, (entry["dtype"], tuple(entry["shape"]), content[8 + length + begin : 8 + length + end])


def _largest_gap(kind: str, one: bytes, other: bytes) -> float:
    """Largest absolute difference of two tensors; not a number anywhere counts as infinite."""
    import numpy

    def decoded(data: bytes) -> Any:
        if kind == "BF16":  # the upper half of a float32
            return (numpy.frombuffer(data, numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32).astype(numpy.float64)
        kinds = {"F64": numpy.float64, "F32": numpy.float32, "F16": numpy.float16, "I64": numpy.int64, "I32": numpy.int32}
        return numpy.frombuffer(data, kinds.get(kind, numpy.uint8)).astype(numpy.float64)

    gap = float(numpy.max(numpy.abs(decoded(one) - decoded(other))))
    return gap if math.isfinite(gap) else math.inf
