"""Checks rms_norm_residual.cu against a float64 reference, then times it against a device copy.

    python3 corpus/cuda_kernels/rms_norm_residual/check.py --out report.json

Written for kx. SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import checklib  # noqa: E402

DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
NAMES = {torch.float32: "float", torch.float16: "half", torch.bfloat16: "bf16"}
ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
EPSILON = 1e-5
SPARE = 24  # elements behind the last row, to catch writes there


@dataclass(frozen=True)
class Case:
    dtype: torch.dtype
    rows: int
    cols: int
    layout: str = "packed"  # packed; padded: rows on 16-byte boundaries; shifted: all one element off; mixed
    residual: bool = True
    in_place: bool = True  # residual_out is residual
    weight_offset: float = 0.0
    style: str = "normal"

    @property
    def row_stride(self) -> int:
        return (self.cols + 16) // 8 * 8 if self.layout == "padded" else self.cols

    @property
    def name(self) -> str:
        residual = "plain" if not self.residual else "residual in place" if self.in_place else "residual"
        offset = " 1+w" if self.weight_offset else ""
        return f"{NAMES[self.dtype]} {self.rows}x{self.cols} {self.layout} {residual}{offset} {self.style}"


def rows_view(case: Case, shift: int) -> torch.Tensor:
    """A (rows, cols) view, `shift` elements into a NaN buffer, with rows row_stride apart."""
    size = shift + case.rows * case.row_stride + SPARE
    buffer = torch.full((size,), math.nan, dtype=case.dtype, device="cuda")
    return buffer.as_strided((case.rows, case.cols), (case.row_stride, 1), shift)


def untouched(view: torch.Tensor) -> bool:
    """Whether everything in the view's buffer that is not part of the view is still NaN."""
    owned = torch.zeros(view._base.shape, dtype=torch.bool, device="cuda")
    owned.as_strided(view.shape, view.stride(), view.storage_offset()).fill_(True)
    return bool(view._base[~owned].isnan().all())


def random_rows(case: Case, shift: int) -> torch.Tensor:
    view = rows_view(case, shift)
    values = torch.randn(view.shape, device="cuda")
    if case.style == "large":  # squares beyond half's range
        values *= 400
    elif case.style == "tiny":  # epsilon outweighs the mean square
        values *= 1e-3
    elif case.style == "uneven":  # some rows a thousand times larger than others, one of zeros
        values *= torch.logspace(-2, 1, case.rows, device="cuda")[:, None]
        values[case.rows // 2] = 0.0
    return view.copy_(values)


class Kernel:
    def __init__(self, library: ctypes.CDLL):
        self.function = library.kx_rms_norm_residual
        self.function.restype = ctypes.c_int
        p, i, f = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
        self.function.argtypes = [p] * 5 + [i, i, ctypes.c_int64, f, f, i, p]

    def status(self, x, residual, weight, out, residual_out, weight_offset: float = 0.0) -> int:
        rows, cols = x.shape
        return self.function(
            *map(checklib.pointer, (x, residual, weight, out, residual_out)), rows, cols, x.stride(0),
            EPSILON, weight_offset, DTYPES[x.dtype], checklib.stream_handle(),
        )  # fmt: skip

    def __call__(self, *arguments) -> None:
        checklib.expect_success(self.status(*arguments))


def run_case(kernel: Kernel, case: Case, x, residual, weight) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One launch on fresh outputs: (out, residual_out), both full of NaN before."""
    shift = 1 if case.layout == "shifted" else 0
    out = rows_view(case, shift)
    residual_out = None
    if residual is not None:
        residual_out = rows_view(case, 3 if case.layout == "mixed" else shift)
        if case.in_place:
            residual_out.copy_(residual)
            residual = residual_out
    kernel(x, residual, weight, out, residual_out, case.weight_offset)
    return out, residual_out


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    bits = torch.int32 if a.dtype == torch.float32 else torch.int16
    return torch.equal(a.contiguous().view(bits), b.contiguous().view(bits))


def check_case(kernel: Kernel, case: Case, report: checklib.Report) -> None:
    shift = 1 if case.layout == "shifted" else 0
    x = random_rows(case, shift)
    residual = random_rows(case, 3 if case.layout == "mixed" else shift) if case.residual else None
    weight = torch.randn(case.cols, device="cuda").to(case.dtype)
    out, residual_out = run_case(kernel, case, x, residual, weight)
    out2, residual_out2 = run_case(kernel, case, x, residual, weight)
    torch.cuda.synchronize()

    # The reference starts from the float sum that the kernel normalizes: for float inputs the
    # addition itself rounds, and where it cancels, any later error is relative to what is left.
    added = x.float() if residual is None else x.float() + residual.float()
    exact = added.double()
    expected = exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + EPSILON)
    expected *= weight.double() + case.weight_offset
    error = (out.double() - expected).abs()
    # 1e-5: float arithmetic, mostly the sum of squares. 2^-24 / 2^-25: the end of half's subnormals.
    relative = 1e-5 + ROUNDING[case.dtype]
    tolerance = relative * expected.abs() + (2.0**-24 if case.dtype == torch.float16 else 1e-30)
    ratio = float((error / tolerance).max())

    deterministic = same_bits(out, out2)
    spare = untouched(out)
    sum_exact = True
    if residual_out is not None:
        deterministic &= same_bits(residual_out, residual_out2)
        sum_exact = same_bits(residual_out, added.to(case.dtype))
        spare &= untouched(residual_out)
    passed = ratio <= 1.0 and deterministic and sum_exact and spare  # a NaN ratio does not pass
    report.case(
        case.name, passed, max_abs_error=float(error.max()), error_over_tolerance=ratio,
        tolerance=f"{relative:.3g} * |y|", deterministic=deterministic, residual_sum_exact=sum_exact,
        spare_elements_untouched=spare,
    )  # fmt: skip


def check_arguments(kernel: Kernel, report: checklib.Report) -> None:
    x = torch.randn(2, 8, device="cuda")
    weight, out = torch.ones(8, device="cuda"), torch.empty_like(x)
    overlapping = x.as_strided((2, 8), (4, 1))
    report.case("rejects overlapping rows", kernel.status(overlapping, None, weight, out, None) != 0)
    report.case("accepts no rows", kernel.status(x[:0], None, weight, out, None) == 0)
    residual = torch.randn_like(x)
    status = kernel.status(x, residual, weight, out, None)
    torch.cuda.synchronize()
    expected = torch.nn.functional.rms_norm(x + residual, (8,), weight, EPSILON)
    report.case("accepts a null residual output", status == 0 and torch.allclose(out, expected, 1e-5, 1e-6))
    status = kernel.status(x, None, weight, x, None)
    torch.cuda.synchronize()
    report.case("normalizes in place", status == 0 and bool((x.square().mean(-1) - 1).abs().max() < 1e-2))


def correctness_cases() -> list[Case]:
    lengths = [1, 2, 7, 8, 9, 31, 64, 65, 100, 127, 128, 129, 255, 256, 257, 511, 512, 513, 768, 1000, 1023]
    lengths += [1024, 1025, 1536, 2047, 2048, 2560, 4096, 4097, 5120, 8191, 8192, 11008, 16384, 16385, 20001]
    cases = []
    for dtype in DTYPES:
        for i, length in enumerate(lengths):
            case = Case(
                dtype, (1, 3, 5, 17)[i % 4], length, residual=i % 5 != 3, in_place=i % 2 == 0,
                weight_offset=float(i % 3 == 1),
            )  # fmt: skip
            cases += [replace(case, layout=layout) for layout in ("packed", "padded", "shifted")]
            if i % 4 == 0:
                cases.append(replace(case, layout="mixed", residual=True))
        # Enough rows that each thread has several vectors; 1024 of them in a warp's path.
        for rows, length in ((300, 1100), (300, 4096), (270, 4099), (300, 8192), (270, 16384), (1024, 96)):
            cases += [Case(dtype, rows, length), Case(dtype, rows, length, layout="shifted")]
        for style in ("large", "tiny", "uneven"):
            for length in (128, 1000, 4096, 16391):
                cases.append(Case(dtype, 7, length, style=style))
    return cases


def time_case(kernel: Kernel, case: Case, report: checklib.Report) -> str:
    arrays = 4 if case.residual else 2
    moved = arrays * case.rows * case.cols * case.dtype.itemsize
    new = lambda: torch.randn(case.rows, case.cols, device="cuda").to(case.dtype)  # noqa: E731
    weight = torch.randn(case.cols, device="cuda").to(case.dtype)
    sets = []
    for _ in range(checklib.buffer_sets(moved)):
        x = new()
        residual = new() if case.residual else None
        source = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
        sets.append((x, residual, torch.empty_like(x), source, torch.empty_like(source)))

    def norm(i):  # the residual is updated in place, as in a model
        x, residual, out, _, _ = sets[i % len(sets)]
        kernel(x, residual, weight, out, residual, 0.0)

    def torch_norm(i):
        x, residual, _, _, _ = sets[i % len(sets)]
        added = x if residual is None else x + residual
        return torch.nn.functional.rms_norm(added, (case.cols,), weight, EPSILON)

    def copy(i):  # reads and writes as many bytes in total as the kernel has to
        _, _, _, source, target = sets[i % len(sets)]
        target.copy_(source)

    # A launch of a few microseconds is timed ten at a time: an event costs about as much.
    launches = 10 if moved < 1 << 26 else 1
    samples = checklib.time_interleaved({"kx": norm, "device_copy": copy, "torch": torch_norm}, launches=launches)
    timed = {n: checklib.summarize(s) for n, s in samples.items()}
    for figures in timed.values():
        figures["gigabytes_per_s"] = moved / figures["median_ms"] / 1e6
    ratio = timed["device_copy"]["median_ms"] / timed["kx"]["median_ms"]
    speedup = timed["torch"]["median_ms"] / timed["kx"]["median_ms"]
    report.timing(
        case.name, buffer_sets=len(sets), launches_per_sample=launches, bytes_moved=moved,
        fraction_of_copy_bandwidth=ratio, speedup_over_torch=speedup, **timed,
    )  # fmt: skip
    return (
        f"{case.name:48s} kx {timed['kx']['median_ms'] * 1e3:8.1f} us {timed['kx']['gigabytes_per_s']:6.0f} GB/s  "
        f"copy {timed['device_copy']['gigabytes_per_s']:6.0f} GB/s  ratio {ratio:.2f}  "
        f"torch {timed['torch']['median_ms'] * 1e3:8.1f} us  speedup {speedup:.2f}"
    )


TIMED_CASES = [
    Case(torch.bfloat16, 16384, 4096),
    Case(torch.float16, 16384, 4096),
    Case(torch.float32, 16384, 4096),
    Case(torch.bfloat16, 16384, 8192),
    Case(torch.bfloat16, 32768, 2560),
    Case(torch.bfloat16, 131072, 768),
    Case(torch.bfloat16, 1048576, 128, residual=False),
    Case(torch.bfloat16, 16384, 4096, residual=False),
    Case(torch.bfloat16, 16384, 4097),
    Case(torch.float32, 16384, 4099),
    Case(torch.bfloat16, 2048, 65536),
    Case(torch.bfloat16, 1024, 4096),
    Case(torch.bfloat16, 32, 4096),
    Case(torch.bfloat16, 1, 8192),
]


def main() -> int:
    arguments = checklib.parse_arguments(__doc__.splitlines()[0])
    torch.manual_seed(checklib.SEED)
    library, build_info = checklib.build(HERE / "rms_norm_residual.cu")
    report = checklib.Report("rms_norm_residual", build_info)
    kernel = Kernel(library)
    check_arguments(kernel, report)
    for case in correctness_cases():
        check_case(kernel, case, report)
    table = [] if arguments.quick else [time_case(kernel, case, report) for case in TIMED_CASES]
    return report.finish(arguments.out, table)


if __name__ == "__main__":
    sys.exit(main())
