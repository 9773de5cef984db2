"""Checks dequant_gemv.cu against a float64 reference, then times it against a copy and torch.

    python3 corpus/cuda_kernels/dequant_gemv/check.py --out report.json

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

DTYPES = {torch.float16: 1, torch.bfloat16: 2}
NAMES = {torch.float16: "half", torch.bfloat16: "bf16"}
ROUNDING = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
BLOCK_ROWS = 64
CHUNK = 64  # k per 16-byte word of a lane
SPARE = 64  # elements behind the output, to catch writes there


@dataclass(frozen=True)
class Case:
    dtype: torch.dtype
    batch: int
    rows: int
    depth: int
    group: int = 128
    bias: bool = False
    style: str = "normal"

    @property
    def padded_rows(self) -> int:
        return (self.rows + BLOCK_ROWS - 1) // BLOCK_ROWS * BLOCK_ROWS

    @property
    def bytes_moved(self) -> int:
        weights = self.padded_rows * (self.depth // 2 + self.depth // self.group * 4)
        return weights + self.batch * (self.depth + self.rows) * 2

    @property
    def name(self) -> str:
        bias = " bias" if self.bias else ""
        return f"{NAMES[self.dtype]} m{self.batch} n{self.rows} k{self.depth} g{self.group}{bias} {self.style}"


def pack_weights(q: torch.Tensor) -> torch.Tensor:
    """(rows, depth) integers 0..15, rows a multiple of 64, as int32 in the kernel's order.

    Word s of lane (g, t) of tile i holds, in nibble h + 2 p + 4 e, row 16 i + 8 h + g and
    k = 16 t + 4 s + 2 p + e, of its block of 64 rows and its chunk of 64 k.
    """
    rows, depth = q.shape
    #                 block, i, h, g, chunk, t, s, p, e
    parts = q.to(torch.int64).view(rows // BLOCK_ROWS, 4, 2, 8, depth // CHUNK, 4, 4, 2, 2)
    ordered = parts.permute(0, 4, 1, 3, 5, 6, 8, 7, 2).reshape(-1, 8)
    shifts = torch.arange(0, 32, 4, device=q.device)
    words = (ordered << shifts).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def pack_parameters(scales: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
    """(rows, groups) scales and zeros in the kernel's order: {scale, zero} of rows g and g + 8."""
    rows, groups = scales.shape
    pairs = torch.stack([scales, zeros], -1).view(rows // BLOCK_ROWS, 4, 2, 8, groups, 2)
    return pairs.permute(0, 4, 1, 3, 2, 5).contiguous()


@dataclass
class Inputs:
    x: torch.Tensor
    weights: torch.Tensor
    parameters: torch.Tensor
    bias: torch.Tensor | None


def make_inputs(case: Case) -> tuple[Inputs, torch.Tensor]:
    """The kernel's inputs, and the dequantized weights in float64."""
    groups = case.depth // case.group
    shape = (case.padded_rows, groups)
    q = torch.randint(0, 16, (case.padded_rows, case.depth), device="cuda")
    zeros = torch.randint(0, 16, shape, device="cuda").to(case.dtype)
    scales = ((torch.rand(shape, device="cuda") + 0.2) * 0.02).to(case.dtype)
    x = torch.randn(case.batch, case.depth, device="cuda")
    if case.style == "extremes":  # the ends of the range, scales of both signs
        q = torch.where(q < 8, 0, 15)
        zeros = torch.where(zeros < 8, 0, 15).to(case.dtype)
        scales = scales * torch.where(torch.rand(shape, device="cuda") < 0.5, -1, 1)
    elif case.style == "uneven":  # single activations that outweigh all others
        x[:, ::61] *= 300
    q[case.rows :], zeros[case.rows :], scales[case.rows :] = 0, 0, 0
    x = x.to(case.dtype)
    bias = torch.randn(case.rows, device="cuda").to(case.dtype) if case.bias else None
    repeat = lambda t: t.double().repeat_interleave(case.group, 1)  # noqa: E731
    exact = ((q.double() - repeat(zeros)) * repeat(scales))[: case.rows]
    scales = scales.to(case.dtype)
    return Inputs(x, pack_weights(q), pack_parameters(scales, zeros), bias), exact


class Kernel:
    def __init__(self, library: ctypes.CDLL):
        p, i = ctypes.c_void_p, ctypes.c_int
        self.bytes_function = library.kx_dequant_gemv_workspace_bytes
        self.bytes_function.restype, self.bytes_function.argtypes = ctypes.c_int64, [i, i]
        self.function = library.kx_dequant_gemv
        self.function.restype, self.function.argtypes = i, [p] * 6 + [i] * 5 + [p]

    def workspace(self, case: Case) -> torch.Tensor:
        return torch.zeros(self.bytes_function(case.batch, case.rows), dtype=torch.uint8, device="cuda")

    def status(self, case: Case, inputs: Inputs, y: torch.Tensor, workspace: torch.Tensor) -> int:
        arrays = (inputs.x, inputs.weights, inputs.parameters, inputs.bias, y, workspace)
        return self.function(
            *map(checklib.pointer, arrays), case.batch, case.rows, case.depth, case.group, DTYPES[case.dtype],
            checklib.stream_handle(),
        )  # fmt: skip

    def __call__(self, *arguments) -> None:
        checklib.expect_success(self.status(*arguments))


def check_case(kernel: Kernel, case: Case, report: checklib.Report) -> None:
    inputs, weights = make_inputs(case)
    workspace = kernel.workspace(case)
    ticket_bytes = (case.padded_rows // BLOCK_ROWS + 3) // 4 * 16
    results = []
    for _ in range(2):
        workspace[ticket_bytes:].view(torch.float32).fill_(math.nan)
        y = torch.full((case.batch * case.rows + SPARE,), math.nan, dtype=case.dtype, device="cuda")
        kernel(case, inputs, y, workspace)
        results.append(y)
    torch.cuda.synchronize()
    y, y2 = results
    expected = inputs.x.double() @ weights.T
    size = inputs.x.double().abs() @ weights.abs().T
    if inputs.bias is not None:
        expected += inputs.bias.double()
    out = y[: case.batch * case.rows].view(case.batch, case.rows)
    error = (out.double() - expected).abs()
    # Float sums: an error relative to the size of the terms. Then one rounding to the output type.
    tolerance = 1e-6 * size + ROUNDING[case.dtype] * expected.abs() + 2.0**-24
    ratio = float((error / tolerance).max())
    deterministic = torch.equal(y.view(torch.int16), y2.view(torch.int16))
    spare = bool(y[case.batch * case.rows :].isnan().all())
    tickets = not bool(workspace[:ticket_bytes].any())
    report.case(
        case.name, ratio <= 1.0 and deterministic and spare and tickets, max_abs_error=float(error.max()),
        error_over_tolerance=ratio, tolerance=f"1e-6 * sum |x w| + {ROUNDING[case.dtype]:.3g} * |y|",
        deterministic=deterministic, spare_elements_untouched=spare, tickets_returned=tickets,
    )  # fmt: skip


def check_arguments(kernel: Kernel, report: checklib.Report) -> None:
    case = Case(torch.float16, 2, 64, 256)
    inputs, _ = make_inputs(case)
    y, workspace = torch.empty(2, 64, dtype=case.dtype, device="cuda"), kernel.workspace(case)
    for wrong in (replace(case, batch=17), replace(case, group=32), replace(case, depth=200)):
        report.case(f"rejects {wrong.name}", kernel.status(wrong, inputs, y, workspace) != 0)
    shifted = replace_x(inputs, torch.empty(513, dtype=case.dtype, device="cuda")[1:])
    report.case("rejects a misaligned x", kernel.status(case, shifted, y, workspace) != 0)
    report.case("accepts an empty batch", kernel.status(replace(case, batch=0), inputs, y, workspace) == 0)


def replace_x(inputs: Inputs, x: torch.Tensor) -> Inputs:
    return Inputs(x, inputs.weights, inputs.parameters, inputs.bias)


def correctness_cases() -> list[Case]:
    shapes = [(1, 64), (5, 128), (63, 256), (64, 512), (65, 640), (100, 1024), (129, 1152), (256, 896)]
    shapes += [(1000, 2048), (1023, 3072), (4096, 4096), (2000, 8192), (96, 14336), (11008, 512)]
    cases = []
    for d, dtype in enumerate(DTYPES):
        for i, (rows, depth) in enumerate(shapes):
            for group in (64, 128):
                if depth % group == 0:
                    n = 2 * i + d + group // 128
                    style = ("normal", "extremes", "uneven")[n % 3]
                    case = Case(dtype, (1, 3, 8, 9, 2, 16, 5)[n % 7], rows, depth, group, n % 4 < 2, style)
                    cases.append(case)
        # Every batch size, with one split of k and with several.
        for batch in range(1, 17):
            cases += [Case(dtype, batch, 192, 1024, bias=True), Case(dtype, batch, 130, 256, 64)]
    return cases


def torch_weights(case: Case) -> list[torch.Tensor]:
    count = checklib.buffer_sets(case.rows * case.depth * 2)
    return [torch.randn(case.rows, case.depth, device="cuda").to(case.dtype) for _ in range(count)]


def torch_int4_calls(case: Case, x: torch.Tensor) -> dict:
    """torch's own 4-bit product on bfloat16, where this build has it: its speed only is of interest."""
    if case.dtype != torch.bfloat16:
        return {}
    try:
        packed = []
        for _ in range(checklib.buffer_sets(case.bytes_moved)):
            q = torch.randint(0, 256, (case.rows, case.depth // 2), dtype=torch.uint8, device="cuda")
            packed.append(torch.ops.aten._convert_weight_to_int4pack(q, 8))
        shape = (case.depth // case.group, case.rows, 2)
        parameters = torch.rand(shape, device="cuda").to(case.dtype)
        torch.ops.aten._weight_int4pack_mm(x, packed[0], case.group, parameters)
        torch.cuda.synchronize()
    except (RuntimeError, AttributeError) as error:
        print(f"torch's 4-bit product is not available: {str(error).splitlines()[0]}")
        return {}
    product = torch.ops.aten._weight_int4pack_mm
    return {"torch_int4": lambda i: product(x, packed[i % len(packed)], case.group, parameters)}


def make_timed_sets(case: Case, moved: int) -> list[tuple]:
    sets = []
    words = case.padded_rows * case.depth // 8
    for _ in range(checklib.buffer_sets(moved)):
        weights = torch.randint(-(2**31), 2**31, (words,), dtype=torch.int32, device="cuda")
        shape = (case.padded_rows, case.depth // case.group)
        zeros = torch.randint(0, 16, shape, device="cuda").to(case.dtype)
        scales = (torch.rand(shape, device="cuda") * 0.02).to(case.dtype)
        x = torch.randn(case.batch, case.depth, device="cuda").to(case.dtype)
        y = torch.empty(case.batch, case.rows, dtype=case.dtype, device="cuda")
        source = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
        inputs = Inputs(x, weights, pack_parameters(scales, zeros), None)
        sets.append((inputs, y, source, torch.empty_like(source)))
    return sets


def time_case(kernel: Kernel, case: Case, report: checklib.Report) -> str:
    moved = case.bytes_moved
    sets = make_timed_sets(case, moved)
    workspace = kernel.workspace(case)
    dense = torch_weights(case)
    x = sets[0][0].x

    def product(i):
        inputs, y, _, _ = sets[i % len(sets)]
        kernel(case, inputs, y, workspace)

    def copy(i):  # reads and writes as many bytes in total as the product has to
        _, _, source, target = sets[i % len(sets)]
        target.copy_(source)

    def torch_dense(i):
        torch.matmul(x, dense[i % len(dense)].T)

    calls = {"kx": product, "device_copy": copy, "torch_dense": torch_dense, **torch_int4_calls(case, x)}
    launches = 10 if moved < 1 << 26 else 3
    samples = checklib.time_interleaved(calls, launches=launches)
    timed = {n: checklib.summarize(s) for n, s in samples.items()}
    median = {n: t["median_ms"] for n, t in timed.items()}
    ratio = median["device_copy"] / median["kx"]
    speedups = {n: median[n] / median["kx"] for n in median if n.startswith("torch")}
    report.timing(
        case.name, buffer_sets=len(sets), launches_per_sample=launches, bytes_moved=moved,
        gigabytes_per_s=moved / median["kx"] / 1e6, fraction_of_copy_bandwidth=ratio,
        speedup_over=speedups, **timed,
    )  # fmt: skip
    others = "  ".join(f"{n} {median[n] * 1e3:6.1f} us {s:.2f}x" for n, s in speedups.items())
    return (
        f"{case.name:36s} kx {median['kx'] * 1e3:6.1f} us {moved / median['kx'] / 1e6:5.0f} GB/s  "
        f"copy {median['device_copy'] * 1e3:6.1f} us  ratio {ratio:.2f}  {others}"
    )


TIMED_CASES = [
    Case(torch.float16, 1, 4096, 4096),
    Case(torch.float16, 1, 14336, 4096),
    Case(torch.float16, 1, 4096, 14336),
    Case(torch.float16, 1, 28672, 8192),
    Case(torch.float16, 1, 8192, 28672),
    Case(torch.float16, 1, 1024, 8192),
    Case(torch.bfloat16, 1, 14336, 4096),
    Case(torch.bfloat16, 1, 28672, 8192),
    Case(torch.bfloat16, 1, 28672, 8192, 64),
    Case(torch.float16, 4, 28672, 8192),
    Case(torch.float16, 8, 14336, 4096),
    Case(torch.float16, 8, 28672, 8192),
    Case(torch.bfloat16, 8, 28672, 8192),
    Case(torch.float16, 16, 28672, 8192),
]


def main() -> int:
    arguments = checklib.parse_arguments(__doc__.splitlines()[0])
    torch.manual_seed(checklib.SEED)
    library, build_info = checklib.build(HERE / "dequant_gemv.cu")
    report = checklib.Report("dequant_gemv", build_info)
    kernel = Kernel(library)
    check_arguments(kernel, report)
    for case in correctness_cases():
        check_case(kernel, case, report)
    table = [] if arguments.quick else [time_case(kernel, case, report) for case in TIMED_CASES]
    return report.finish(arguments.out, table)


if __name__ == "__main__":
    sys.exit(main())
