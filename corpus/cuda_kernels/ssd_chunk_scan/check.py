"""Checks ssd_chunk_scan_fwd.cu against a float64 recurrence, then times it against PyTorch and a device copy.

    python3 corpus/cuda_kernels/ssd_chunk_scan/check.py --out report.json

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

DTYPES = {torch.float16: 1, torch.bfloat16: 2}
NAMES = {torch.float16: "half", torch.bfloat16: "bf16"}
ROUNDING = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
CHUNK = 128
HEAD_DIM = 64
SPARE = 8  # NaN elements behind every row, and NaN rows behind every sequence


@dataclass(frozen=True)
class Case:
    dtype: torch.dtype
    length: int
    states: int = 128
    batch: int = 2
    heads: int = 4
    groups: int = 1
    skip: bool = True
    bias: bool = True
    softplus: bool = True
    initial: bool = False
    final: bool = True
    style: str = "normal"

    @property
    def name(self) -> str:
        flags = [f for f in ("skip", "bias", "softplus", "initial", "final") if getattr(self, f)]
        return (
            f"{NAMES[self.dtype]} L{self.length} b{self.batch} h{self.heads}/{self.groups} n{self.states} "
            f"{'+'.join(flags) or 'plain'} {self.style}"
        )


@dataclass
class Inputs:
    x: torch.Tensor  # (batch, length, heads, head dim)
    b: torch.Tensor  # (batch, length, groups, states)
    c: torch.Tensor
    dt: torch.Tensor  # (batch, length, heads)
    a: torch.Tensor
    d: torch.Tensor | None
    bias: torch.Tensor | None
    initial: torch.Tensor | None


def make_inputs(case: Case) -> Inputs:
    """x, B and C as slices of the rows of one NaN-filled buffer, as a fused projection leaves them."""
    widths = [case.heads * HEAD_DIM, case.groups * case.states, case.groups * case.states]
    rows = (case.batch, case.length + SPARE)
    fused = torch.full((*rows, sum(widths) + SPARE), math.nan, dtype=case.dtype, device="cuda")
    steps = torch.full((*rows, case.heads + 3), math.nan, dtype=case.dtype, device="cuda")
    parts = fused[:, : case.length, : sum(widths)].split(widths, -1)
    for part in parts:
        part.copy_(torch.randn(part.shape, device="cuda"))
    dt = steps[:, : case.length, : case.heads]
    dt.copy_(torch.randn(dt.shape, device="cuda") - 1)
    a = -torch.exp(torch.randn(case.heads, device="cuda"))
    bias = torch.randn(case.heads, device="cuda") if case.bias else None
    if not case.softplus:  # a negative step would make the recurrence grow without bound
        dt.copy_(F.relu(dt.float()) * 0.3)  # and many steps are exactly 0
        bias = None
    if case.style == "slow":  # states that remember thousands of steps
        a.mul_(1e-3)
    elif case.style == "large":  # softplus beyond 20, decays that underflow to 0
        dt.copy_(dt.float() * 5 + 10)
    shape = (case.batch, case.heads, HEAD_DIM, case.states)
    return Inputs(
        x=parts[0].unflatten(-1, (case.heads, HEAD_DIM)),
        b=parts[1].unflatten(-1, (case.groups, case.states)),
        c=parts[2].unflatten(-1, (case.groups, case.states)),
        dt=dt,
        a=a,
        d=torch.randn(case.heads, device="cuda") if case.skip else None,
        bias=bias,
        initial=torch.randn(shape, device="cuda") if case.initial else None,
    )


def step_sizes(x: Inputs, softplus: bool) -> torch.Tensor:
    delta = x.dt.double() if x.bias is None else x.dt.double() + x.bias.double()
    return F.softplus(delta, threshold=100) if softplus else delta


def recurrence(x: Inputs, delta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and final state, one position after the other, in float64."""
    batch, length, heads, _ = x.x.shape
    groups, states = x.b.shape[2:]
    decay = torch.exp(delta * x.a.double())
    inputs = delta[..., None] * x.x.double()
    b, c = (t.double().repeat_interleave(heads // groups, 2) for t in (x.b, x.c))
    h = torch.zeros(batch, heads, HEAD_DIM, states, dtype=torch.float64, device=x.x.device)
    if x.initial is not None:
        h = x.initial.double()
    y = []
    for t in range(length):
        h = h * decay[:, t, :, None, None] + inputs[:, t, :, :, None] * b[:, t, :, None, :]
        y.append((h @ c[:, t, :, :, None])[..., 0])
    y = torch.stack(y, 1)
    if x.d is not None:
        y += x.d.double()[:, None] * x.x.double()
    return y, h


def magnitudes(x: Inputs) -> Inputs:
    """With these inputs the recurrence sums the sizes of all terms: the scale of rounding errors."""
    size = {n: getattr(x, n) for n in ("x", "b", "c", "d", "initial")}
    return replace(x, **{n: t if t is None else t.abs() for n, t in size.items()})


class Kernel:
    def __init__(self, library: ctypes.CDLL):
        p, i = ctypes.c_void_p, ctypes.c_int
        self.function = library.kx_ssd_chunk_scan_forward
        self.function.restype = ctypes.c_int
        self.function.argtypes = [p] * 14 + [i] * 7 + [p]
        self.workspace_bytes = library.kx_ssd_chunk_scan_workspace
        self.workspace_bytes.restype = ctypes.c_int64
        self.workspace_bytes.argtypes = [i] * 4

    def workspace(self, x: Inputs) -> torch.Tensor:
        """NaN-filled, so that an intermediate result that nobody wrote shows."""
        count = self.workspace_bytes(*x.x.shape[:3], x.b.shape[3])
        return torch.full((count // 4,), math.nan, device="cuda")

    def status(self, x: Inputs, y, final, workspace, softplus: bool) -> int:
        strides = [(ctypes.c_int64 * 2)(*t.stride()[:2]) for t in (x.x, x.b, x.dt)]
        batch, length, heads, _ = x.x.shape
        tensors = (x.x, x.b, x.c, x.dt, x.a, x.d, x.bias, x.initial, y, final, workspace)
        return self.function(
            *map(checklib.pointer, tensors), *strides, batch, length, heads, *x.b.shape[2:],
            DTYPES[x.x.dtype], int(softplus), checklib.stream_handle(),
        )  # fmt: skip

    def __call__(self, *arguments) -> None:
        checklib.expect_success(self.status(*arguments))


def compare(case: Case, x: Inputs, y: torch.Tensor, final: torch.Tensor | None) -> dict:
    delta = step_sizes(x, case.softplus)
    expected, expected_state = recurrence(x, delta)
    scale, state_scale = recurrence(magnitudes(x), delta)
    # Weighed products, inputs of the state and entry states are rounded to 16 bits, at most two of
    # these on any way from input to output, and the output once. Differences of decay sums have the
    # absolute error of the sums, which becomes a relative error of the weights. Half has a floor:
    # its subnormal spacing.
    rounding = ROUNDING[case.dtype]
    largest_sum = (delta * x.a.double().abs()).sum(1).max().item() * min(1.0, CHUNK / case.length) * 2
    arithmetic = 2.0**-18 + 2.0**-22 * largest_sum
    floor = 2e-5 if case.dtype == torch.float16 else 1e-9
    tolerance = (2.1 * rounding + arithmetic) * scale + 1.01 * rounding * expected.abs() + floor
    error = (y.double() - expected).abs()
    ratio = (error / tolerance).max().item()
    figures = {"max_abs_error": error.max().item()}
    if final is not None:
        state_tolerance = (1.05 * rounding + arithmetic) * state_scale + floor
        state_error = (final.double() - expected_state).abs()
        figures["max_state_error"] = state_error.max().item()
        ratio = max(ratio, (state_error / state_tolerance).max().item())
    terms = f"(2.1 * {rounding:.3g} + {arithmetic:.3g}) * sum of |terms|"
    return {
        **figures,
        "tolerance": f"{terms} + 1.01 * {rounding:.3g} * |y| + {floor}",
        "error_over_tolerance": ratio,
    }


def check_case(kernel: Kernel, case: Case, report: checklib.Report) -> None:
    x = make_inputs(case)
    results = []
    for _ in range(2):
        # A spare sequence at the end catches writes behind the last one.
        y = torch.full((case.batch + 1, *x.x.shape[1:]), math.nan, dtype=case.dtype, device="cuda")
        shape = (case.batch, case.heads, HEAD_DIM, case.states)
        final = torch.full(shape, math.nan, device="cuda") if case.final else None
        kernel(x, y, final, kernel.workspace(x), case.softplus)
        results.append((y, final))
    torch.cuda.synchronize()
    (y, final), (y2, final2) = results
    deterministic = torch.equal(y.view(torch.int16), y2.view(torch.int16))
    deterministic &= final is None or torch.equal(final.view(torch.int32), final2.view(torch.int32))
    untouched = bool(y[-1].isnan().all())
    finite = bool(torch.isfinite(y[:-1]).all()) and (final is None or bool(torch.isfinite(final).all()))
    figures = compare(case, x, y[:-1], final)
    report.case(
        case.name,
        finite and deterministic and untouched and figures["error_over_tolerance"] <= 1.0,
        deterministic=deterministic,
        spare_rows_untouched=untouched,
        **figures,
    )


def check_split(kernel: Kernel, report: checklib.Report) -> None:
    """Two calls that hand the state over give what one call gives."""
    case = Case(torch.float16, 500)
    x = make_inputs(case)
    y = torch.empty(x.x.shape, dtype=case.dtype, device="cuda")
    state = None
    for part in (slice(0, 200), slice(200, 500)):
        names = ("x", "b", "c", "dt")
        piece = replace(x, initial=state, **{n: getattr(x, n)[:, part] for n in names})
        out = torch.empty(piece.x.shape, dtype=case.dtype, device="cuda")
        state = torch.empty(case.batch, case.heads, HEAD_DIM, case.states, device="cuda")
        kernel(piece, out, state, kernel.workspace(piece), case.softplus)
        y[:, part] = out
    figures = compare(case, x, y, state)
    report.case("state handed over between calls", figures["error_over_tolerance"] <= 1.0, **figures)


def check_arguments(kernel: Kernel, report: checklib.Report) -> None:
    def status(case: Case) -> int:
        x = make_inputs(case)
        y = torch.empty(x.x.shape, dtype=case.dtype, device="cuda")
        return kernel.status(x, y, None, kernel.workspace(x), True)

    report.case("rejects 96 states", status(Case(torch.float16, 10, states=96)) != 0)
    report.case("rejects 4 heads in 3 groups", status(Case(torch.float16, 10, groups=3)) != 0)
    report.case("accepts a null final state", status(Case(torch.float16, 10)) == 0)
    torch.cuda.synchronize()


def correctness_cases() -> list[Case]:
    lengths = [1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200, 255, 256, 257, 384, 513, 700]
    cases = []
    for dtype in DTYPES:
        for states in (64, 128):
            for i, length in enumerate(lengths):
                cases.append(
                    Case(
                        dtype, length, states, heads=(4, 1, 6)[i % 3], groups=(1, 1, 2)[i % 3], skip=i % 2 == 0,
                        bias=i % 3 != 1, softplus=i % 4 != 3, initial=i % 3 == 0, final=i % 5 != 4,
                    )
                )  # fmt: skip
            cases.append(Case(dtype, 300, states, batch=1, heads=40, initial=True))
            cases.append(Case(dtype, 140, states, heads=24, groups=8))
            cases.append(Case(dtype, 650, states, batch=6, heads=37, initial=True))
            cases.append(Case(dtype, 600, states, style="slow", initial=True))
            cases.append(Case(dtype, 600, states, style="large", initial=True))
    return cases


def einsum_expression(x: Inputs) -> torch.Tensor:
    """The same chunked computation in PyTorch operations, matrix products in the inputs' type."""
    batch, length, heads, _ = x.x.shape
    groups, states = x.b.shape[2:]
    kind, chunks, ratio = x.x.dtype, length // CHUNK, heads // groups
    delta = F.softplus(x.dt.float() + x.bias).reshape(batch, chunks, CHUNK, groups, ratio)
    u = x.x.reshape(batch, chunks, CHUNK, groups, ratio, HEAD_DIM)
    b, c = (t.reshape(batch, chunks, CHUNK, groups, states) for t in (x.b, x.c))
    sums = torch.cumsum(delta * x.a.reshape(groups, ratio), 2).permute(0, 1, 3, 4, 2)  # (b, c, g, r, position)
    weights = delta.permute(0, 1, 3, 4, 2)
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device="cuda").triu(1)
    differences = (sums[..., :, None] - sums[..., None, :]).masked_fill(later, -math.inf)
    products = torch.einsum("bctgn,bcugn->bcgtu", c, b)
    mixing = (products[:, :, :, None] * torch.exp(differences) * weights[..., None, :]).to(kind)
    y = torch.einsum("bcgrtu,bcugrp->bctgrp", mixing, u)

    to_end = (torch.exp(sums[..., -1:] - sums) * weights).to(kind)
    added = torch.einsum("bcugrp,bcugn->bcgrpn", u * to_end.permute(0, 1, 4, 2, 3)[..., None], b).float()
    chunk_decay = torch.exp(sums[..., -1])[..., None, None]
    state, entries = torch.zeros_like(added[:, 0]), []
    for i in range(chunks):
        entries.append(state.to(kind))
        state = state * chunk_decay[:, i] + added[:, i]
    entered = torch.einsum("bctgn,bcgrpn->bctgrp", c, torch.stack(entries, 1))
    y = y + entered * torch.exp(sums).permute(0, 1, 4, 2, 3)[..., None].to(kind)
    return y.reshape(x.x.shape) + x.d[:, None].to(kind) * x.x


def time_case(kernel: Kernel, case: Case, report: checklib.Report) -> str:
    batch, length, heads, groups, states = case.batch, case.length, case.heads, case.groups, case.states
    positions = batch * length
    # Each input once, the output once; states at chunk boundaries are this method's own traffic.
    moved = positions * (2 * heads * HEAD_DIM + 2 * groups * states + heads) * case.dtype.itemsize
    slots = positions // CHUNK * heads
    state_traffic = slots * (HEAD_DIM * states * (4 + 4 + 2 + 2) + CHUNK * (8 + 8 + HEAD_DIM * 2))
    triangle = CHUNK * (CHUNK + 1) / 2
    flops = 2.0 * slots * HEAD_DIM * (2 * CHUNK * states + triangle)
    flops += 2.0 * positions / CHUNK * groups * triangle * states

    def new(*shape):
        return torch.randn(batch, length, *shape, device="cuda").to(case.dtype)

    sets = []
    for _ in range(checklib.buffer_sets(moved)):
        x = Inputs(
            x=new(heads, HEAD_DIM), b=new(groups, states), c=new(groups, states), dt=new(heads),
            a=-torch.linspace(1, 16, heads, device="cuda"), d=torch.ones(heads, device="cuda"),
            bias=torch.zeros(heads, device="cuda") - 4, initial=None,
        )  # fmt: skip
        source = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
        sets.append((x, torch.empty_like(x.x), source, torch.empty_like(source)))
    workspace = kernel.workspace(sets[0][0])
    final = torch.empty(batch, heads, HEAD_DIM, states, device="cuda")

    def scan(i):
        x, y, _, _ = sets[i % len(sets)]
        kernel(x, y, final, workspace, True)

    def copy(i):  # reads and writes as many bytes in total as inputs and output have
        _, _, source, target = sets[i % len(sets)]
        target.copy_(source)

    def expression(i):
        return einsum_expression(sets[i % len(sets)][0])

    scan(0)
    theirs = expression(0).float()
    difference = ((sets[0][1].float() - theirs).norm() / theirs.norm()).item()
    report.case(
        f"{case.name} agrees with PyTorch", difference <= 4 * ROUNDING[case.dtype], relative_difference=difference
    )
    del theirs
    candidates = {"kx": scan, "device_copy": copy, "torch_einsum": expression}
    timed = {n: checklib.summarize(s) for n, s in checklib.time_interleaved(candidates, 20, 4).items()}
    for figures in timed.values():
        figures["gigabytes_per_s"] = moved / figures["median_ms"] / 1e6
    tflops = flops / timed["kx"]["median_ms"] / 1e9
    ratio = timed["device_copy"]["median_ms"] / timed["kx"]["median_ms"]
    speedup = timed["torch_einsum"]["median_ms"] / timed["kx"]["median_ms"]
    report.timing(
        case.name, buffer_sets=len(sets), bytes_moved=moved, bytes_with_states=moved + state_traffic, tflops=tflops,
        fraction_of_copy_bandwidth=ratio, speed_over_torch=speedup, **timed,
    )  # fmt: skip
    return (
        f"{case.name:56s} kx {timed['kx']['median_ms']:7.3f} ms {timed['kx']['gigabytes_per_s']:6.0f} GB/s "
        f"{tflops:6.1f} TFLOP/s  copy {timed['device_copy']['gigabytes_per_s']:6.0f} GB/s  ratio {ratio:.2f}  "
        f"torch/kx {speedup:.1f}"
    )


TIMED_CASES = [
    Case(torch.bfloat16, 4096, batch=8, heads=80),
    Case(torch.float16, 4096, batch=8, heads=80),
    Case(torch.bfloat16, 4096, 64, batch=8, heads=80),
    Case(torch.bfloat16, 4096, batch=8, heads=64, groups=8),
    Case(torch.bfloat16, 2048, batch=16, heads=24),
    Case(torch.bfloat16, 32768, batch=1, heads=80),
]


def main() -> int:
    arguments = checklib.parse_arguments(__doc__.splitlines()[0])
    torch.manual_seed(checklib.SEED)
    library, build_info = checklib.build(HERE / "ssd_chunk_scan_fwd.cu")
    report = checklib.Report("ssd_chunk_scan_fwd", build_info)
    kernel = Kernel(library)
    check_arguments(kernel, report)
    for case in correctness_cases():
        check_case(kernel, case, report)
    check_split(kernel, report)
    table = [] if arguments.quick else [time_case(kernel, case, report) for case in TIMED_CASES]
    return report.finish(arguments.out, table)


if __name__ == "__main__":
    sys.exit(main())
