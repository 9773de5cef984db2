"""Checks causal_conv1d_fwd.cu against a float64 reference, then times it against a device copy.

    python3 corpus/cuda_kernels/causal_conv1d/check.py --out report.json

Written for kx. SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F

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
    width: int = 4
    batch: int = 2
    channels: int = 3
    padding: int = 0  # spare elements after every row: 0 packs the rows
    x_offset: int = 0  # elements between a 16-byte boundary and the first row
    out_offset: int = 0
    bias: bool = True
    silu: bool = True
    initial: bool = False
    final: bool = True

    @property
    def name(self) -> str:
        flags = "+".join(f for f in ("bias", "silu", "initial", "final") if getattr(self, f)) or "plain"
        place = f"rows {self.length}+{self.padding} at {self.x_offset}/{self.out_offset}"
        return f"{NAMES[self.dtype]} w{self.width} b{self.batch} d{self.channels} {place} {flags}"


@dataclass
class Inputs:
    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    initial: torch.Tensor | None


def rows(case: Case, offset: int) -> torch.Tensor:
    """A (batch, channels, length) view into a NaN buffer with spare elements around every row."""
    stride = case.length + case.padding
    buffer = torch.full((offset + case.batch * case.channels * stride + 32,), math.nan, dtype=case.dtype, device="cuda")
    shape = (case.batch, case.channels, case.length)
    return buffer.as_strided(shape, (case.channels * stride, stride, 1), offset)


def spare_elements(view: torch.Tensor) -> torch.Tensor:
    """Everything in the buffer under the view that does not belong to it."""
    buffer = view._base
    owned = torch.zeros(buffer.shape, dtype=torch.bool, device="cuda")
    owned.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(True)
    return buffer[~owned]


def make_inputs(case: Case) -> Inputs:
    def random(*shape):
        return torch.randn(shape, device="cuda")

    x = rows(case, case.x_offset)
    x.copy_(random(*x.shape))
    state = (case.batch, case.channels, case.width - 1)
    return Inputs(
        x=x,
        weight=random(case.channels, case.width),
        bias=random(case.channels) if case.bias else None,
        initial=random(*state).to(case.dtype) if case.initial else None,
    )


def reference(case: Case, x: Inputs) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Output and the sum of the terms' magnitudes in float64, and the final state, exact."""
    state = (case.batch, case.channels, case.width - 1)
    before = x.x.new_zeros(state) if x.initial is None else x.initial
    padded = torch.cat([before, x.x], -1)
    windows = padded.double().unfold(-1, case.width, 1)
    terms = windows * x.weight.double()[None, :, None, :]
    bias = 0.0 if x.bias is None else x.bias.double()[None, :, None]
    total, size = terms.sum(-1) + bias, terms.abs().sum(-1) + abs(bias)
    if case.silu:
        total = total * torch.sigmoid(total)
    return total, size, padded[..., padded.shape[-1] - (case.width - 1) :]


class Kernel:
    def __init__(self, library: ctypes.CDLL):
        self.function = library.kx_causal_conv1d_forward
        self.function.restype = ctypes.c_int
        p, i = ctypes.c_void_p, ctypes.c_int
        self.function.argtypes = [p] * 8 + [i] * 6 + [p]

    def status(self, x: Inputs, out, final, silu: bool) -> int:
        strides = [(ctypes.c_int64 * 2)(*t.stride()[:2]) for t in (x.x, out)]
        return self.function(
            *map(checklib.pointer, (x.x, x.weight, x.bias, x.initial, out, final)), *strides,
            *x.x.shape, x.weight.shape[1], DTYPES[x.x.dtype], int(silu), checklib.stream_handle(),
        )  # fmt: skip

    def __call__(self, *arguments) -> None:
        checklib.expect_success(self.status(*arguments))


def check_case(kernel: Kernel, case: Case, report: checklib.Report) -> None:
    x = make_inputs(case)
    results = []
    for _ in range(2):
        out = rows(case, case.out_offset)
        shape = (case.batch, case.channels, case.width - 1)
        final = torch.full(shape, math.nan, dtype=case.dtype, device="cuda") if case.final else None
        kernel(x, out, final, case.silu)
        results.append((out, final))
    torch.cuda.synchronize()
    (out, final), (out2, _) = results
    expected, size, expected_final = reference(case, x)
    # One rounding to the output type. Before it: float sums, relative to the size of their terms,
    # and for SiLU the relative error of ex2 and of the fast division (the slope of SiLU is below 1.1).
    tolerance = 1.01 * ROUNDING[case.dtype] * expected.abs() + 2.0**-20 * (size + 1e-3)
    error = (out.double() - expected).abs()
    ratio = (error / tolerance).max().item()
    deterministic = bool((out == out2).all())
    untouched = bool(spare_elements(out).isnan().all())
    final_right = final is None or torch.equal(final, expected_final)
    report.case(
        case.name,
        bool(torch.isfinite(out).all()) and ratio <= 1.0 and deterministic and untouched and final_right,
        max_abs_error=error.max().item(),
        tolerance=f"1.01 * {ROUNDING[case.dtype]:.3g} * |y| + 2^-20 * (sum of |terms| + 1e-3)",
        error_over_tolerance=ratio,
        deterministic=deterministic,
        spare_elements_untouched=untouched,
        final_state_exact=final_right,
    )


def check_split(kernel: Kernel, report: checklib.Report) -> None:
    """Calls that hand the state over, one of them a single step, give what one call gives."""
    case = Case(torch.bfloat16, 1500)
    x = make_inputs(case)
    expected, whole = rows(case, 0), torch.empty(2, 3, 3, dtype=case.dtype, device="cuda")
    kernel(x, expected, whole, True)
    out = rows(case, 0)
    state = None
    for part in (slice(0, 700), slice(700, 701), slice(701, 703), slice(703, 1500)):
        final = torch.empty_like(whole)
        kernel(replace(x, x=x.x[:, :, part], initial=state), out[:, :, part], final, True)
        state = final
    same = bool((out == expected).all()) and torch.equal(state, whole)
    report.case("state handed over between calls", same)


def check_arguments(kernel: Kernel, report: checklib.Report) -> None:
    for width in (1, 5):
        x = torch.zeros(1, 2, 64, device="cuda")
        inputs = Inputs(x, torch.zeros(2, width, device="cuda"), None, None)
        report.case(f"rejects width {width}", kernel.status(inputs, torch.empty_like(x), None, True) != 0)
    empty = torch.zeros(1, 2, 0, device="cuda")
    inputs = Inputs(empty, torch.zeros(2, 4, device="cuda"), None, None)
    report.case("rejects length 0", kernel.status(inputs, empty, None, True) != 0)
    torch.cuda.synchronize()


def correctness_cases() -> list[Case]:
    lengths = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 127, 128, 129, 255, 256, 257, 258, 511, 512, 513]
    lengths += [1000, 1023, 1024, 1025, 2047, 2048, 2049, 4100, 7001]
    cases = []
    for dtype in DTYPES:
        for i, length in enumerate(lengths):
            for width in (2, 3, 4):
                k = i + width
                cases.append(
                    Case(dtype, length, width, bias=k % 2 == 0, silu=k % 3 != 0, initial=k % 5 < 3, final=k % 7 != 0)
                )
            cases.append(Case(dtype, length, 4, padding=(-length) % 8, initial=True))
        for offset in range(1, 8):  # rows that begin anywhere between two 16-byte boundaries
            cases.append(Case(dtype, 1021, 4, padding=3, x_offset=offset, out_offset=offset, initial=True))
            cases.append(Case(dtype, 517, 2 + offset % 3, padding=1, x_offset=offset, out_offset=(3 * offset) % 8))
        cases.append(Case(dtype, 1300, 4, batch=3, channels=70, initial=True))
        cases.append(Case(dtype, 100, 4, batch=5, channels=333))
    return cases


def time_case(kernel: Kernel, case: Case, report: checklib.Report) -> str:
    shape = (case.batch, case.channels, case.length)
    moved = 2 * math.prod(shape) * case.dtype.itemsize
    weight = torch.randn(case.channels, case.width, device="cuda")
    bias = torch.randn(case.channels, device="cuda")
    typed_weight, typed_bias = weight.to(case.dtype)[:, None, :], bias.to(case.dtype)
    sets = []
    for _ in range(checklib.buffer_sets(moved)):
        x = Inputs(torch.randn(shape, device="cuda").to(case.dtype), weight, bias, None)
        sets.append((x, torch.empty_like(x.x)))

    def convolve(i):
        x, out = sets[i % len(sets)]
        kernel(x, out, None, case.silu)

    def copy(i):  # reads and writes what the kernel has to
        x, out = sets[i % len(sets)]
        out.copy_(x.x)

    def torch_ops(i):
        x, _ = sets[i % len(sets)]
        y = F.conv1d(x.x, typed_weight, typed_bias, padding=case.width - 1, groups=case.channels)
        return F.silu(y[..., : case.length])

    candidates = {"kx": convolve, "device_copy": copy, "torch_conv1d_silu": torch_ops}
    timed = {n: checklib.summarize(s) for n, s in checklib.time_interleaved(candidates).items()}
    for figures in timed.values():
        figures["gigabytes_per_s"] = moved / figures["median_ms"] / 1e6
    ratio = timed["device_copy"]["median_ms"] / timed["kx"]["median_ms"]
    speedup = timed["torch_conv1d_silu"]["median_ms"] / timed["kx"]["median_ms"]
    report.timing(
        case.name, buffer_sets=len(sets), bytes_moved=moved, fraction_of_copy_bandwidth=ratio,
        speed_over_torch=speedup, **timed,
    )  # fmt: skip
    return (
        f"{case.name:52s} kx {timed['kx']['median_ms']:7.3f} ms {timed['kx']['gigabytes_per_s']:6.0f} GB/s  "
        f"copy {timed['device_copy']['gigabytes_per_s']:6.0f} GB/s  ratio {ratio:.2f}  torch/kx {speedup:.1f}"
    )


TIMED_CASES = [
    Case(torch.bfloat16, 4096, batch=8, channels=5120, final=False),
    Case(torch.float16, 4096, batch=8, channels=5120, final=False),
    Case(torch.float32, 4096, batch=8, channels=5120, final=False),
    Case(torch.bfloat16, 4095, batch=8, channels=5120, final=False),  # rows at every alignment
    Case(torch.bfloat16, 4096, 2, batch=8, channels=5120, silu=False, final=False),
    Case(torch.bfloat16, 512, batch=64, channels=5120, final=False),
    Case(torch.bfloat16, 65536, batch=1, channels=2048, final=False),
]


def main() -> int:
    arguments = checklib.parse_arguments(__doc__.splitlines()[0])
    torch.manual_seed(checklib.SEED)
    library, build_info = checklib.build(HERE / "causal_conv1d_fwd.cu")
    report = checklib.Report("causal_conv1d_fwd", build_info)
    kernel = Kernel(library)
    check_arguments(kernel, report)
    for case in correctness_cases():
        check_case(kernel, case, report)
    check_split(kernel, report)
    table = [] if arguments.quick else [time_case(kernel, case, report) for case in TIMED_CASES]
    return report.finish(arguments.out, table)


if __name__ == "__main__":
    sys.exit(main())
