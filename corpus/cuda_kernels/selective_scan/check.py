"""Checks selective_scan_fwd.cu against a float64 reference, then times it against a device copy.

    python3 corpus/cuda_kernels/selective_scan/check.py --out report.json

Written for kx. SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import checklib  # noqa: E402

DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
NAMES = {torch.float32: "float", torch.float16: "half", torch.bfloat16: "bf16"}
ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


@dataclass(frozen=True)
class Case:
    dtype: torch.dtype
    length: int
    aligned: bool = False  # rows padded to 16 bytes; otherwise packed
    batch: int = 2
    channels: int = 3
    states: int = 16
    gate: bool = True
    skip: bool = True
    bias: bool = True
    softplus: bool = True
    initial: bool = False
    style: str = "normal"

    @property
    def row_stride(self) -> int:
        return (self.length + 16) // 8 * 8 if self.aligned else self.length

    @property
    def name(self) -> str:
        flags = [f for f in ("gate", "skip", "bias", "softplus", "initial") if getattr(self, f)]
        rows = "padded" if self.aligned else "packed"
        return (
            f"{NAMES[self.dtype]} L{self.length} {rows} b{self.batch} d{self.channels} n{self.states} "
            f"{'+'.join(flags) or 'plain'} {self.style}"
        )


@dataclass
class Inputs:
    u: torch.Tensor
    delta: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor
    d: torch.Tensor | None
    z: torch.Tensor | None
    bias: torch.Tensor | None
    initial: torch.Tensor | None


def rows(case: Case, count: int) -> torch.Tensor:
    """A (batch, count, length) view into a NaN buffer whose rows are row_stride apart."""
    # Sixteen spare elements at the end catch writes behind the last row.
    buffer = torch.full((case.batch * count * case.row_stride + 16,), math.nan, dtype=case.dtype, device="cuda")
    shape = (case.batch, count, case.length)
    return buffer.as_strided(shape, (count * case.row_stride, case.row_stride, 1))


def spare_elements(view: torch.Tensor) -> torch.Tensor:
    """Everything in the buffer under the view that does not belong to it."""
    buffer = view._base
    owned = torch.zeros(buffer.shape, dtype=torch.bool, device="cuda")
    owned.as_strided(view.shape, view.stride()).fill_(True)
    return buffer[~owned]


def make_inputs(case: Case) -> Inputs:
    def random_rows(count):
        view = rows(case, count)
        return view.copy_(torch.randn(view.shape, device="cuda"))

    def optional(wanted, *shape):
        return torch.randn(shape, device="cuda") if wanted else None

    a = -torch.exp(torch.randn(case.channels, case.states, device="cuda"))
    delta = random_rows(case.channels)
    bias = optional(case.bias, case.channels)
    if not case.softplus:  # a negative step would make the recurrence grow without bound
        delta.copy_(delta.float().abs() * 0.3)
        bias = None if bias is None else bias.abs()
    if case.style == "slow":  # states that remember thousands of steps
        a.mul_(1e-3)
    elif case.style == "large":  # softplus beyond 20, decays that underflow to 0
        delta.copy_(delta.float() * 15 + 10)
    return Inputs(
        u=random_rows(case.channels),
        delta=delta,
        a=a,
        b=random_rows(case.states),
        c=random_rows(case.states),
        d=optional(case.skip, case.channels),
        z=random_rows(case.channels) if case.gate else None,
        bias=bias,
        initial=optional(case.initial, case.batch, case.channels, case.states),
    )


def reference(case: Case, x: Inputs) -> tuple[np.ndarray, np.ndarray, float]:
    """Output, final state, and the memory (in steps) of the slowest state, in float64."""

    def array(tensor):
        return tensor.double().cpu().numpy()

    u, delta, a, b, c = map(array, (x.u, x.delta, x.a, x.b, x.c))
    if x.bias is not None:
        delta = delta + array(x.bias)[None, :, None]
    if case.softplus:
        delta = np.where(delta > 20.0, delta, np.log1p(np.exp(np.minimum(delta, 20.0))))
    h = np.zeros((case.batch, case.channels, case.states))
    if x.initial is not None:
        h = array(x.initial)
    y = np.empty((case.batch, case.channels, case.length))
    for t in range(case.length):
        step = delta[:, :, t, None]
        h = np.exp(step * a) * h + step * u[:, :, t, None] * b[:, None, :, t]
        y[:, :, t] = (h * c[:, None, :, t]).sum(-1)
    if x.d is not None:
        y += array(x.d)[None, :, None] * u
    if x.z is not None:
        z = array(x.z)
        y *= z / (1.0 + np.exp(-z))
    decay_per_step = (np.abs(a).min(-1) * delta.mean((0, 2))).min()
    return y, h, min(case.length, 1.0 / max(decay_per_step, 1e-12))


class Kernel:
    def __init__(self, library: ctypes.CDLL):
        self.function = library.kx_selective_scan_forward
        self.function.restype = ctypes.c_int
        p, i = ctypes.c_void_p, ctypes.c_int
        self.function.argtypes = [p] * 11 + [i] * 4 + [ctypes.c_int64, i, i, p]

    def status(self, x: Inputs, out, final, softplus: bool) -> int:
        batch, channels, length = x.u.shape
        return self.function(
            *map(checklib.pointer, (x.u, x.delta, x.a, x.b, x.c, x.d, x.z, x.bias, x.initial, out, final)),
            batch, channels, x.a.shape[1], length, x.u.stride(1), DTYPES[x.u.dtype], int(softplus),
            checklib.stream_handle(),
        )  # fmt: skip

    def __call__(self, *arguments) -> None:
        checklib.expect_success(self.status(*arguments))


def compare(case: Case, out, final, expected, expected_state, memory: float) -> dict:
    # The output is rounded once to its type. Before that: float arithmetic relative to the size
    # of the terms, and the relative error of exp2 (about 2^-22), which a state accumulates over
    # as many steps as it remembers.
    relative = 2e-5 + 2.0**-22 * memory
    size = math.sqrt((expected**2).mean()) if expected.size > 64 else max(1.0, np.abs(expected).max())
    error = np.abs(out.double().cpu().numpy() - expected)
    tolerance = relative * (size + np.abs(expected)) + ROUNDING[case.dtype] * np.abs(expected)
    state_size = max(1.0, math.sqrt((expected_state**2).mean()))
    state_error = np.abs(final.double().cpu().numpy() - expected_state)
    state_tolerance = relative * (state_size + np.abs(expected_state))
    return {
        "max_abs_error": float(error.max()),
        "max_state_error": float(state_error.max()),
        "tolerance": f"{relative:.3g} * (rms + |y|) + {ROUNDING[case.dtype]:.3g} * |y|",
        "error_over_tolerance": float(max((error / tolerance).max(), (state_error / state_tolerance).max())),
    }


def check_case(kernel: Kernel, case: Case, report: checklib.Report) -> None:
    x = make_inputs(case)
    results = []
    for _ in range(2):
        out = rows(case, case.channels)
        final = torch.full((case.batch, case.channels, case.states), math.nan, device="cuda")
        kernel(x, out, final, case.softplus)
        results.append((out, final))
    torch.cuda.synchronize()
    (out, final), (out2, final2) = results
    bits = torch.int32 if case.dtype == torch.float32 else torch.int16
    deterministic = torch.equal(out.contiguous().view(bits), out2.contiguous().view(bits))
    deterministic &= torch.equal(final.view(torch.int32), final2.view(torch.int32))
    figures = compare(case, out, final, *reference(case, x))
    untouched = bool(spare_elements(out).isnan().all())
    finite = bool(torch.isfinite(out).all() and torch.isfinite(final).all())
    report.case(
        case.name,
        finite and deterministic and untouched and figures["error_over_tolerance"] <= 1.0,
        deterministic=deterministic,
        spare_elements_untouched=untouched,
        **figures,
    )


def check_split(kernel: Kernel, report: checklib.Report) -> None:
    """Two calls that hand the state over give what one call gives."""
    case = Case(torch.float32, 3000, aligned=True, gate=False)
    x = make_inputs(case)
    expected, expected_state, memory = reference(case, x)
    out = rows(case, case.channels)
    state = torch.zeros(case.batch, case.channels, case.states, device="cuda")
    for part in (slice(0, 1100), slice(1100, 3000)):
        piece = replace_rows(x, part, state)
        final = torch.empty_like(state)
        kernel(piece, out[:, :, part], final, case.softplus)
        state = final
    figures = compare(case, out, state, expected, expected_state, memory)
    report.case("state handed over between calls", figures["error_over_tolerance"] <= 1.0, **figures)


def replace_rows(x: Inputs, part: slice, state: torch.Tensor) -> Inputs:
    return Inputs(
        u=x.u[:, :, part], delta=x.delta[:, :, part], a=x.a, b=x.b[:, :, part], c=x.c[:, :, part],
        d=x.d, z=None, bias=x.bias, initial=state,
    )  # fmt: skip


def check_arguments(kernel: Kernel, report: checklib.Report) -> None:
    case = Case(torch.float32, 8, states=257)
    x, out = make_inputs(case), rows(case, case.channels)
    report.case("rejects 257 states", kernel.status(x, out, None, True) != 0)
    case = Case(torch.float32, 8)
    x, out = make_inputs(case), rows(case, case.channels)
    report.case("accepts a null final state", kernel.status(x, out, None, True) == 0)
    torch.cuda.synchronize()


def correctness_cases() -> list[Case]:
    lengths = [1, 2, 7, 8, 31, 32, 33, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1000, 1023, 1024]
    lengths += [1025, 2047, 2048, 2049, 4100]
    states = [16, 1, 5, 16, 2, 64]
    cases = []
    for dtype in DTYPES:
        for i, length in enumerate(lengths):
            options = Case(
                dtype, length, states=states[i % 6], gate=i % 2 == 0, skip=i % 3 != 1,
                bias=i % 4 != 2, softplus=i % 5 != 3, initial=i % 3 == 0,
            )  # fmt: skip
            cases += [options, replace(options, aligned=True)]
        for aligned in (False, True):
            cases.append(Case(dtype, 700, aligned, states=256, initial=True))
            cases.append(Case(dtype, 3001, aligned, style="large"))
            cases.append(Case(dtype, 3001, aligned, style="slow", initial=True))
            cases.append(Case(dtype, 2100, aligned, batch=3, channels=70))
    return cases


def time_case(kernel: Kernel, case: Case, report: checklib.Report) -> str:
    new = lambda count: torch.randn(case.batch, count, case.length, device="cuda").to(case.dtype)  # noqa: E731
    activation = case.batch * case.channels * case.length
    moved = (4 * activation + 2 * case.batch * case.states * case.length) * case.dtype.itemsize
    sets = []
    for _ in range(checklib.buffer_sets(moved)):
        a = -torch.arange(1, case.states + 1, device="cuda").float().repeat(case.channels, 1)
        x = Inputs(
            u=new(case.channels), delta=new(case.channels), a=a, b=new(case.states),
            c=new(case.states), d=torch.ones(case.channels, device="cuda"), z=new(case.channels),
            bias=torch.zeros(case.channels, device="cuda") - 2, initial=None,
        )  # fmt: skip
        source = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
        sets.append((x, torch.empty_like(x.u), source, torch.empty_like(source)))
    final = torch.empty(case.batch, case.channels, case.states, device="cuda")

    def scan(i):
        x, out, _, _ = sets[i % len(sets)]
        kernel(x, out, final, True)

    def copy(i):  # reads and writes as many bytes in total as the scan has to
        _, _, source, target = sets[i % len(sets)]
        target.copy_(source)

    samples = checklib.time_interleaved({"kx": scan, "device_copy": copy})
    timed = {n: checklib.summarize(s) for n, s in samples.items()}
    for figures in timed.values():
        figures["gigabytes_per_s"] = moved / figures["median_ms"] / 1e6
    steps = activation * case.states / timed["kx"]["median_ms"] * 1e3
    ratio = timed["device_copy"]["median_ms"] / timed["kx"]["median_ms"]
    report.timing(
        case.name, buffer_sets=len(sets), bytes_moved=moved, state_steps_per_s=steps,
        fraction_of_copy_bandwidth=ratio, **timed,
    )  # fmt: skip
    return (
        f"{case.name:52s} kx {timed['kx']['median_ms']:7.3f} ms "
        f"{timed['kx']['gigabytes_per_s']:6.0f} GB/s {steps / 1e12:5.2f} T state steps/s  copy "
        f"{timed['device_copy']['gigabytes_per_s']:6.0f} GB/s  ratio {ratio:.2f}"
    )


TIMED_CASES = [
    Case(torch.bfloat16, 4096, batch=8, channels=2048),
    Case(torch.float16, 4096, batch=8, channels=2048),
    Case(torch.float32, 4096, batch=8, channels=2048),
    Case(torch.bfloat16, 1024, batch=16, channels=2048),
    Case(torch.bfloat16, 16384, batch=1, channels=4096),
    Case(torch.bfloat16, 4096, batch=8, channels=2048, states=1),
]


def main() -> int:
    arguments = checklib.parse_arguments(__doc__.splitlines()[0])
    torch.manual_seed(checklib.SEED)
    library, build_info = checklib.build(HERE / "selective_scan_fwd.cu")
    report = checklib.Report("selective_scan_fwd", build_info)
    kernel = Kernel(library)
    check_arguments(kernel, report)
    for case in correctness_cases():
        check_case(kernel, case, report)
    check_split(kernel, report)
    table = [] if arguments.quick else [time_case(kernel, case, report) for case in TIMED_CASES]
    return report.finish(arguments.out, table)


if __name__ == "__main__":
    sys.exit(main())
