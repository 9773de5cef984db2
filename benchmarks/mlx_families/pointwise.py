"""unary, binary, copy, arange and random bits, as unary.cpp, binary.cpp, copy.cpp and primitives.cpp launch them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.mlx_families.launches import FLOATS, Array, KernelLaunch, Size, draw, exact, numpy_dtype, strides
from metalsim import Fresh

_MANY = 65539
"""From 65536 elements on, a thread handles 8 bytes."""


def block_dims(x: int, y: int, z: int) -> Size:
    """``get_block_dims``: powers of two, 1024 threads at most, doubled in turn where the grid allows it."""
    size, powers = (x, y, z), [0, 0, 0]
    while True:
        before = sum(powers)
        for axis in range(3):
            if sum(powers) < 10 and size[axis] >= 1 << (powers[axis] + 1):
                powers[axis] += 1
        if sum(powers) in (before, 10):
            return 1 << powers[0], 1 << powers[1], 1 << powers[2]


def _line(size: int, dtype: str) -> tuple[Size, Size, str]:
    """Grid, threadgroup and the kernels' suffix for contiguous data."""
    per_thread = 1 if size < 65536 else max(1, 8 // numpy_dtype(dtype).itemsize)
    count = -(-size // per_thread)
    return (count, 1, 1), (min(count, 1024), 1, 1), "n" if per_thread > 1 else ""


def _space(shape: tuple[int, ...], per_thread: int) -> tuple[Size, Size]:
    """Grid and threadgroup for strided data; above three axes a thread handles several elements."""
    padded = (1,) * (2 - len(shape)) + shape
    x, y = padded[-1], padded[-2]
    rest = int(np.prod(shape)) // (x * y)
    if len(shape) > 3:
        x = -(-x // per_thread)
    return (x, y, rest), block_dims(x, y, rest)


def _erf(x: Array) -> Array:
    from math import erf

    return np.asarray(np.vectorize(erf)(x))


_UNARY: dict[str, tuple[Callable[[Array], Any], float, float, float]] = {
    # function in float64, half roundings inside the kernel, least and largest argument
    "Abs": (np.abs, 1, -3, 3),
    "ArcCos": (np.arccos, 1, -1, 1),
    "ArcSinh": (np.arcsinh, 1, -3, 3),
    "ArcTan": (np.arctan, 1, -3, 3),
    "Ceil": (np.ceil, 1, -9, 9),
    "Cos": (np.cos, 1, -9, 9),
    "Cosh": (np.cosh, 1, -3, 3),
    "Erf": (_erf, 1, -3, 3),
    "Exp": (np.exp, 1, -3, 3),
    "Expm1": (np.expm1, 1, -3, 3),
    "Floor": (np.floor, 1, -9, 9),
    "Log": (np.log, 1, 0.1, 9),
    "Log10": (np.log10, 1, 0.1, 9),
    "Log1p": (np.log1p, 2, 0.1, 9),
    "Log2": (np.log2, 1, 0.1, 9),
    "Negative": (np.negative, 1, -3, 3),
    "Round": (np.rint, 1, -9, 9),
    "Rsqrt": (lambda x: 1 / np.sqrt(x), 1, 0.1, 9),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 3, -5, 5),
    "Sign": (np.sign, 1, -3, 3),
    "Sin": (np.sin, 1, -9, 9),
    "Sinh": (np.sinh, 1, -3, 3),
    "Sqrt": (np.sqrt, 1, 0, 9),
    "Square": (np.square, 1, -3, 3),
    "Tan": (np.tan, 1, -1.4, 1.4),
    "Tanh": (np.tanh, 1, -3, 3),
}

_BINARY: dict[str, tuple[Callable[[Array, Array], Any], float]] = {
    "Add": (np.add, 1),
    "ArcTan2": (np.arctan2, 1),
    "Divide": (np.divide, 1),
    "LogAddExp": (np.logaddexp, 3),
    "Maximum": (np.maximum, 1),
    "Minimum": (np.minimum, 1),
    "Multiply": (np.multiply, 1),
    "Power": (np.power, 1),
    "Remainder": (np.remainder, 2),
    "Subtract": (np.subtract, 1),
}
_COMPARISONS: dict[str, Callable[[Array, Array], Any]] = {
    "Equal": np.equal,
    "GreaterEqual": np.greater_equal,
    "Less": np.less,
}


_KERNEL_ROUNDINGS = {"Expm1": 64.0, "Erf": 8.0}
"""Above 4: expm1f.h reduces its argument by the upper part of log(2) only, 1.4e-6 off per power of 2; erf.h uses it."""


def _between(seed: int, shape: tuple[int, ...], dtype: str, low: float, high: float) -> Array:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(numpy_dtype(dtype))


def unary(operation: str, dtype: str, shape: tuple[int, ...], by: tuple[int, ...] | None = None) -> KernelLaunch:
    """``unary_op_gpu_inplace``; ``by`` are strides of an input that is not contiguous."""
    function, rounds, low, high = _UNARY[operation]
    size = int(np.prod(shape))
    if by is None:
        x = _between(1, shape, dtype, low, high)
        grid, group, suffix = _line(size, dtype)
        name, seen = f"v{suffix}", x
        extra: dict[int, Array] = {2: np.array(size, np.int32)}
    else:
        x = _between(1, (1 + sum((n - 1) * s for n, s in zip(shape, by, strict=True)),), dtype, low, high)
        seen = np.lib.stride_tricks.as_strided(x, shape, [s * x.itemsize for s in by])
        (count, y, z), _ = _space(shape, 1)
        grid, group, name = (count, y, z), block_dims(count, y, z), "gn1"
        extra = {2: np.array(shape, np.int32), 3: np.array(by, np.int64), 4: np.array(len(shape), np.int32)}
    return KernelLaunch(
        family="unary", file="unary.metal", entry=f"{name}_{operation}{dtype}{dtype}", dtype=dtype, shape=f"{shape}",
        buffers={0: x, 1: Fresh(dtype, shape), **extra}, grid=grid, threadgroup=group,  # type: ignore[arg-type]
        expected={"out": function(exact(seen))}, half_roundings=rounds,
        roundings=_KERNEL_ROUNDINGS.get(operation, 4.0),
    )  # fmt: skip


def _binary_expected(operation: str, a: Array, b: Array) -> tuple[Array, str, float]:
    if operation in _COMPARISONS:
        return _COMPARISONS[operation](exact(a), exact(b)), "bool", 0
    function, rounds = _BINARY[operation]
    return function(exact(a), exact(b)), "", rounds


def binary(operation: str, dtype: str, size: int, kind: str = "vv") -> KernelLaunch:
    """Contiguous operands or scalars: ``kind`` is ss, sv, vs or vv."""
    a = _between(1, (size if kind[0] == "v" else 1,), dtype, 0.5, 4)
    b = _between(2, (size if kind[1] == "v" else 1,), dtype, 0.5, 4)
    expected, out_type, rounds = _binary_expected(operation, a, b)
    grid, group, suffix = _line(size, dtype)
    buffers: dict[int, Array | Fresh] = {0: a, 1: b, 2: Fresh(out_type or dtype, (size,))}  # type: ignore[arg-type]
    if kind != "ss":
        buffers[3] = np.array(size, np.int32)
    return KernelLaunch(
        family="binary", file="binary.metal", entry=f"{kind}{suffix if kind != 'ss' else ''}_{operation}{dtype}",
        dtype=dtype, shape=f"({size},)", buffers=buffers, grid=grid, threadgroup=group, expected={"c": expected},
        half_roundings=rounds,
    )  # fmt: skip


def binary_general(operation: str, dtype: str, shape: tuple[int, ...]) -> KernelLaunch:
    """A transposed operand and one that is broadcast along the first axis."""
    a, b = _between(1, shape[::-1], dtype, 0.5, 4), _between(2, shape[1:], dtype, 0.5, 4)
    expected, out_type, rounds = _binary_expected(operation, a.T, np.broadcast_to(b, shape))
    count = len(shape)
    grid, group = _space(shape, 2)
    by = np.array(strides(shape[::-1])[::-1], np.int64), np.array((0, *strides(shape[1:])), np.int64)
    buffers: dict[int, Array | Fresh] = {0: a, 1: b, 2: Fresh(out_type or dtype, shape)}  # type: ignore[arg-type]
    if count > 3:
        buffers |= {3: np.array(shape, np.int32), 4: by[0], 5: by[1], 6: np.array(count, np.int32)}
    else:
        buffers |= {3: by[0], 4: by[1]}
    name = f"g{count}" if count <= 3 else "gn2"
    return KernelLaunch(
        family="binary", file="binary.metal", entry=f"{name}_{operation}{dtype}", dtype=dtype, shape=f"{shape}",
        buffers=buffers, grid=grid, threadgroup=group, expected={"c": expected}, half_roundings=rounds,
    )  # fmt: skip


def copy(source: str, target: str, size: int, scalar: bool = False) -> KernelLaunch:
    """Contiguous, with conversion; or a fill with one value."""
    x = draw(1, (1 if scalar else size,), source)
    grid, group, suffix = _line(size, target)
    return KernelLaunch(
        family="copy", file="copy.metal", entry=f"{'s' if scalar else 'v'}{suffix}_copy{source}{target}",
        dtype=target, shape=f"({size},) from {source}", grid=grid, threadgroup=group,
        buffers={0: x, 1: Fresh(target, (size,)), 2: np.array(size, np.int32)},  # type: ignore[arg-type]
        expected={"dst": np.broadcast_to(x.astype(numpy_dtype(target)), (size,))}, roundings=0, half_roundings=0,
    )  # fmt: skip


def copy_general(dtype: str, shape: tuple[int, ...], both: bool = False) -> KernelLaunch:
    """A transposed source, into a contiguous target or (``both``) one with gaps between its rows."""
    x, count = draw(1, shape[::-1], dtype), len(shape)
    grid, group = _space(shape, 2)
    name = f"{'gg' if both else 'g'}{count if count <= 3 else 'n2'}"
    buffers: dict[int, Array | Fresh] = {0: x, 3: np.array(strides(shape[::-1])[::-1], np.int64)}
    expected: Array = x.T
    if both:
        wide = (*shape[:-1], shape[-1] + 2)
        target = np.zeros(wide, x.dtype)
        buffers |= {1: target, 4: np.array(strides(wide), np.int64)}
        expected = np.concatenate([x.T, np.zeros((*shape[:-1], 2), x.dtype)], -1)
    else:
        buffers[1] = Fresh(dtype, shape)  # type: ignore[arg-type]
    if count > 3:
        buffers |= {2: np.array(shape, np.int32), 5: np.array(count, np.int32)}
    return KernelLaunch(
        family="copy", file="copy.metal", entry=f"{name}_copy{dtype}{dtype}", dtype=dtype, shape=f"{shape}",
        buffers=buffers, grid=grid, threadgroup=group, expected={"dst": expected}, roundings=0, half_roundings=0,
    )  # fmt: skip


def arange(dtype: str, size: int) -> KernelLaunch:
    """``Arange::eval_gpu``: the step is the difference of the first two values in the output's type."""
    kind = numpy_dtype(dtype).type
    start, step = kind(-3), kind(2) if dtype == "int32" else kind(0.5)
    expected = np.float64(start) + np.arange(size) * np.float64(step)
    return KernelLaunch(
        family="arange", file="arange.metal", entry=f"arange{dtype}", dtype=dtype, shape=f"({size},)",
        buffers={0: np.array(start), 1: np.array(step), 2: Fresh(dtype, (size,))},  # type: ignore[arg-type]
        grid=(size, 1, 1), threadgroup=(min(size, 1024), 1, 1), half_roundings=2,
        expected={"out": expected.astype(np.int32) if dtype == "int32" else expected},
    )  # fmt: skip


def threefry(key: Array, count: Array) -> Array:
    """Threefry-2x32 with 20 rounds (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3): uint32 ``[n, 2]``."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ np.uint32(0x1BD11BDA))
    x, y = count[:, 0] + keys[0], count[:, 1] + keys[1]
    for block in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            x = x + y
            y = (y << np.uint32(turn)) | (y >> np.uint32(32 - turn))
            y = y ^ x
        x = x + keys[(block + 1) % 3]
        y = y + keys[(block + 2) % 3] + np.uint32(block + 1)
    return np.stack([x, y], -1)


def random_bits(keys: int, bytes_per_key: int, transposed: bool = False) -> KernelLaunch:
    """``RandomBits::eval_gpu``."""
    words = -(-bytes_per_key // 4)
    half, odd = words // 2, words % 2
    rows = half + odd
    key = np.random.default_rng(5).integers(0, 2**32, (keys, 2), dtype=np.uint32)
    expected = np.zeros((keys, words), np.uint32)
    index = np.arange(rows, dtype=np.uint32)
    second = np.where((index == half) & bool(odd), 0, index + np.uint32(rows)).astype(np.uint32)
    for row in range(keys):
        bits = threefry(key[row], np.stack([index, second], -1))
        expected[row] = np.concatenate([bits[:, 0], bits[:half, 1]])
    stored = np.ascontiguousarray(key.T) if transposed else key
    buffers: dict[int, Array | Fresh] = {
        0: stored, 1: Fresh("uint8", (keys, bytes_per_key)), 2: np.array(bool(odd)),
        3: np.array(bytes_per_key, np.uint64),
    }  # fmt: skip
    if transposed:
        buffers |= {4: np.array(2, np.int32), 5: np.array([keys, 2], np.int32), 6: np.array([1, keys], np.int64)}
    return KernelLaunch(
        family="random", file="random.metal", entry="rbits" if transposed else "rbitsc", dtype="uint8",
        shape=f"{keys} keys, {bytes_per_key} bytes", grid=(keys, rows, 1), threadgroup=block_dims(keys, rows, 1),
        buffers=buffers, expected={"out": expected.view(np.uint8)[:, :bytes_per_key]},
    )  # fmt: skip


def launches() -> Iterator[KernelLaunch]:
    """All launches of the families."""
    for dtype in FLOATS:
        for operation in _UNARY:
            yield unary(operation, dtype, (1003,))
        yield unary("Exp", dtype, (_MANY,))
        yield unary("Negative", dtype, (3, 5, 7), (5, 1, 15))
        for operation in (*_BINARY, *_COMPARISONS):
            yield binary(operation, dtype, 1003)
        for kind, size in (("ss", 1), ("sv", 77), ("vs", 77), ("vv", _MANY)):
            yield binary("Add", dtype, size, kind)
        for shape in ((37,), (5, 9), (3, 4, 5), (2, 3, 4, 5)):
            if len(shape) > 1:
                yield binary_general("Subtract", dtype, shape)
            yield copy_general(dtype, shape, both=True)
            yield copy_general(dtype, shape)
        for source in (*FLOATS, "int32"):
            yield copy(source, dtype, 1003)
        yield copy(dtype, dtype, _MANY)
        yield copy(dtype, dtype, 501, scalar=True)
        yield arange(dtype, 200)
    yield arange("int32", 1300)
    yield random_bits(3, 40)
    yield random_bits(2, 37)
    yield random_bits(3, 22, transposed=True)
