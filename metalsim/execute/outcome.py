"""How a launch's outcome travels from the process that ran an untrusted kernel: JSON, then plain numbers.

What comes back is believed as far as it fits: names, types and shapes are the launch's own, and bytes that do not
fit are a finding. Nothing of it is ever executed or unpickled.
"""

from __future__ import annotations

import json
import signal
import struct
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any, get_args

import numpy as np

from metalsim.build.file import CompiledFile
from metalsim.errors import EnvironmentLacking, InputError, MetalsimError, WorkerFailed
from metalsim.execute.dispatch import Fresh, ReadOnly
from metalsim.execute.isolation import Allowance, BodyLaunch, Compiled, Launch
from metalsim.execute.launch import Array, RunResult, numpy_dtype
from metalsim.execute.raw import GROUP_COUNTS, SITE_COUNTS, RawCounts
from metalsim.model import Finding, FindingKind
from metalsim.text.signature import element_count

_HEADER = struct.Struct("<Q")
_RAW_DTYPES: dict[str, np.dtype[Any]] = {
    "threadgroups": np.dtype(np.int64), "block_counts": np.dtype(np.uint32), "sites": SITE_COUNTS,
    "groups": GROUP_COUNTS,
}  # fmt: skip
_ERRORS: dict[str, type[MetalsimError]] = {kind.__name__: kind for kind in (InputError, EnvironmentLacking)}
_MIB = 1 << 20
_TEXT_LIMIT = 2000

_Plan = Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]


def encode(result: RunResult) -> bytes:
    """A result as bytes."""
    raw = {} if result.raw is None else {name: getattr(result.raw, name) for name in _RAW_DTYPES}
    arrays = [*result.outputs.values(), *raw.values()]
    plain = {
        item.name: getattr(result, item.name)
        for item in fields(result)
        if item.name not in ("outputs", "findings", "raw")
    }
    header = {
        "plain": plain,
        "outputs": {name: array.nbytes for name, array in result.outputs.items()},
        "raw": {name: array.shape for name, array in raw.items()},
        "findings": [asdict(finding) for finding in result.findings],
    }
    text = json.dumps(header).encode()
    return b"".join([_HEADER.pack(len(text)), text, *(np.ascontiguousarray(array).tobytes() for array in arrays)])


def encode_error(exc: Exception, words: str) -> bytes:
    """An exception as bytes: one of metalsim's by its name, memory that ran out, or a failure of metalsim itself."""
    header: dict[str, Any] = {"failed": words}
    if isinstance(exc, MemoryError):
        header = {"memory": True}
    elif isinstance(exc, MetalsimError):
        header = {"memory": type(exc) is EnvironmentLacking, "error": type(exc).__name__}
        header |= {"message": exc.message, "hint": exc.hint}
    text = json.dumps(header).encode()
    return _HEADER.pack(len(text)) + text


def decode(content: bytes, compiled: Compiled, launch: Launch, allowance: Allowance) -> RunResult:
    """The result in bytes that ``encode`` or ``encode_error`` may have made.

    Raises:
        MetalsimError: that the launch raised.
    """
    try:
        header, offset = _header(content)
        if "error" in header or "memory" in header or "failed" in header:
            return _failed(header, launch, allowance)
        return _Reader(content, offset).result(header, expected_outputs(compiled, launch))
    except (ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError):
        return stopped(launch, Finding("crash", "the process that ran the kernel was damaged: its answer is no result"))


def _header(content: bytes) -> tuple[dict[str, Any], int]:
    end = _HEADER.size + _HEADER.unpack_from(content)[0]
    if end > len(content):
        raise ValueError("cut short")
    return json.loads(content[_HEADER.size : end]), end


def _failed(header: Mapping[str, Any], launch: Launch, allowance: Allowance) -> RunResult:
    if header.get("memory"):
        return stopped(launch, _memory_finding(allowance))
    kind = _ERRORS.get(str(header.get("error")), WorkerFailed)
    raise kind(str(header.get("message", header.get("failed"))), str(header.get("hint", "")))


def _memory_finding(allowance: Allowance) -> Finding:
    words = f"the launch needs more than the {allowance.memory_bytes // _MIB} MiB of memory that it may have"
    return Finding("limit", words)


class _Reader:
    """Takes arrays off the bytes behind the header."""

    def __init__(self, content: bytes, offset: int) -> None:
        self._content = content
        self._offset = offset

    def result(self, header: Mapping[str, Any], plan: _Plan) -> RunResult:
        """The result.

        Raises:
            ValueError, KeyError, TypeError: the bytes do not fit.
        """
        outputs = {str(name): self._array(*plan[name]) for name in header["outputs"]}
        shapes = header["raw"]
        raw = (
            RawCounts(**{name: self._array(kind, tuple(shapes[name])) for name, kind in _RAW_DTYPES.items()})
            if shapes
            else None
        )
        if self._offset != len(self._content):
            raise ValueError("bytes are left over")
        findings = tuple(_finding(item) for item in header["findings"])
        plain = {name: int(value) for name, value in header["plain"].items()}
        return RunResult(outputs=outputs, findings=findings, raw=raw, **plain)

    def _array(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
        count = element_count(shape)
        end = self._offset + count * dtype.itemsize
        if count < 0 or end > len(self._content):
            raise ValueError("cut short")
        piece = self._content[self._offset : end]
        self._offset = end
        # A copy: what is made from bytes cannot be written.
        return np.frombuffer(piece, dtype).reshape(shape).copy() if count else np.zeros(shape, dtype)


def _finding(item: Mapping[str, Any]) -> Finding:
    kind = item["kind"]
    if kind not in get_args(FindingKind):
        raise ValueError(f"no kind of finding: {kind!r}")
    message, place = str(item["message"])[:_TEXT_LIMIT], str(item["place"])[:_TEXT_LIMIT]
    also = tuple(int(line) for line in item["also_lines"])
    return Finding(kind, message, int(item["line"]), place, int(item["count"]), also)


def expected_outputs(compiled: Compiled, launch: Launch) -> _Plan:
    """Type and shape of everything that the kernel may write, by name."""
    if isinstance(launch, BodyLaunch):
        assert not isinstance(compiled, CompiledFile)
        outputs = compiled.kernel.outputs
        return {o.name: (numpy_dtype(o.dtype), tuple(launch.output_shapes.get(o.name, o.shape))) for o in outputs}
    assert isinstance(compiled, CompiledFile)
    plan = {}
    for parameter in compiled.parameters:
        bound = launch.buffers.get(parameter.index, launch.buffers.get(parameter.name))
        if parameter.role != "buffer" or bound is None or isinstance(bound, ReadOnly):
            continue
        if isinstance(bound, Fresh):
            plan[parameter.name] = (numpy_dtype(bound.dtype), tuple(bound.shape))
        else:
            array = np.asarray(bound)
            plan[parameter.name] = (array.dtype, array.shape)
    return plan


def stopped(launch: Launch, finding: Finding) -> RunResult:
    """The result of a launch that did not come to its end: no outputs, one finding."""
    sizes = [min(extent, size) for extent, size in zip(launch.grid, launch.threadgroup, strict=True)]
    total = element_count(tuple(-(-extent // max(size, 1)) for extent, size in zip(launch.grid, sizes, strict=True)))
    place = "body" if isinstance(launch, BodyLaunch) else ""
    return RunResult({}, (replace(finding, place=place),), None, total, 0, element_count(tuple(sizes)), 0)


def ended(launch: Launch, reason: str, status: int, allowance: Allowance) -> RunResult:
    """The result of a launch whose process was killed or died.

    Args:
        launch: what was run.
        reason: ``time`` or ``memory`` when the worker killed it for that, else empty.
        status: of ``os.waitpid``.
        allowance: what it was allowed.
    """
    if reason == "memory":
        return stopped(launch, _memory_finding(allowance))
    number = status & 0x7F
    if reason == "time" or number == signal.SIGXCPU:
        words = f"the kernel did not end within {allowance.limit_s:g} s and was killed: an endless loop?"
        return stopped(launch, Finding("hang", words))
    if number == signal.SIGSYS:
        words = "the kernel tried to start a program, open a connection or the like and was killed"
    elif number == signal.SIGKILL:
        words = "the system killed the process that ran the kernel (SIGKILL): most often memory has run out"
    elif number:
        name, said = signal.Signals(number).name, signal.strsignal(number)
        words = f"the process that ran the kernel ended by {name} ({said})"
    else:
        words = f"the process that ran the kernel ended with code {status >> 8}"
    return stopped(launch, Finding("crash", words))
