"""Checks moe_gating.cu against a float64 reference, then times it against copies and torch.

    python3 corpus/cuda_kernels/moe_gating/check.py --out report.json

Written for kx. SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import checklib  # noqa: E402

DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
NAMES = {torch.float32: "float", torch.float16: "half", torch.bfloat16: "bf16"}
POISON = -7
SPARE = 64  # elements behind each output, to catch writes there


@dataclass(frozen=True)
class Case:
    dtype: torch.dtype
    tokens: int
    experts: int
    top_k: int
    renormalize: bool = True
    alignment: int = 16
    shifted: bool = False  # logits one element off a 16-byte boundary
    style: str = "normal"

    @property
    def pairs(self) -> int:
        return self.tokens * self.top_k

    @property
    def padded_capacity(self) -> int:
        return self.pairs + self.experts * (self.alignment - 1)

    @property
    def name(self) -> str:
        kind = "renormalized" if self.renormalize else "plain"
        shifted = " shifted" if self.shifted else ""
        return (
            f"{NAMES[self.dtype]} t{self.tokens} e{self.experts} k{self.top_k} {kind} "
            f"align{self.alignment}{shifted} {self.style}"
        )


class Routing:
    """The outputs of one run, poisoned before it."""

    def __init__(self, case: Case, workspace_bytes: int):
        def integers(count):
            return torch.full((count + SPARE,), POISON, dtype=torch.int32, device="cuda")

        self.weights = torch.full((case.pairs + SPARE,), math.nan, device="cuda")
        self.ids = integers(case.pairs)
        self.workspace = integers(workspace_bytes // 4)
        self.sorted_pairs = integers(case.padded_capacity)
        self.places = integers(case.pairs)
        self.tile_experts = integers(case.padded_capacity // case.alignment)
        self.offsets = integers(case.experts + 1)

    def tensors(self) -> list[torch.Tensor]:
        return [self.weights, self.ids, self.sorted_pairs, self.places, self.tile_experts, self.offsets]


class Kernel:
    def __init__(self, library: ctypes.CDLL):
        p, i = ctypes.c_void_p, ctypes.c_int
        self.bytes_function = library.kx_moe_workspace_bytes
        self.bytes_function.restype, self.bytes_function.argtypes = ctypes.c_int64, [i, i]
        self.gate_function = library.kx_moe_gate
        self.gate_function.restype, self.gate_function.argtypes = i, [p] * 4 + [i] * 5 + [p]
        self.sort_function = library.kx_moe_sort
        self.sort_function.restype, self.sort_function.argtypes = i, [p] * 6 + [i] * 4 + [p]

    def workspace_bytes(self, case: Case) -> int:
        return self.bytes_function(case.tokens, case.experts)

    def gate_status(self, case: Case, logits: torch.Tensor, r: Routing) -> int:
        return self.gate_function(
            *map(checklib.pointer, (logits, r.weights, r.ids, r.workspace)), case.tokens, case.experts,
            case.top_k, int(case.renormalize), DTYPES[case.dtype], checklib.stream_handle(),
        )  # fmt: skip

    def sort_status(self, case: Case, r: Routing) -> int:
        arrays = (r.ids, r.workspace, r.sorted_pairs, r.places, r.tile_experts, r.offsets)
        return self.sort_function(
            *map(checklib.pointer, arrays), case.tokens, case.experts, case.top_k, case.alignment,
            checklib.stream_handle(),
        )  # fmt: skip

    def gate(self, case: Case, logits: torch.Tensor, r: Routing) -> None:
        checklib.expect_success(self.gate_status(case, logits, r))

    def sort(self, case: Case, r: Routing) -> None:
        checklib.expect_success(self.sort_status(case, r))


def make_logits(case: Case) -> torch.Tensor:
    shift = 1 if case.shifted else 0
    buffer = torch.empty(shift + case.tokens * case.experts, dtype=case.dtype, device="cuda")
    view = buffer[shift:].view(case.tokens, case.experts)
    values = torch.randn(view.shape, device="cuda") * 2
    if case.style == "ties":  # many equal logits; adding 0 turns -0 into +0
        values = (values * 2).round() / 2 + 0.0
    elif case.style == "equal":  # nothing but ties
        values = torch.ones_like(values)
    elif case.style == "masked":  # experts that are switched off, but never more than allowed
        values[:, case.top_k :] = -math.inf
    elif case.style == "skewed":  # most tokens choose the same experts
        values += torch.arange(case.experts, device="cuda") * 0.5
    elif case.style == "large":
        values *= 40
    return view.copy_(values)


def check_gate(case: Case, logits: torch.Tensor, r: Routing) -> dict:
    exact = logits.double()
    order = torch.sort(exact, dim=-1, descending=True, stable=True).indices[:, : case.top_k]
    probabilities = torch.softmax(exact, -1).gather(-1, order)
    if case.renormalize:
        probabilities = probabilities / probabilities.sum(-1, keepdim=True)
    weights = r.weights[: case.pairs].view(case.tokens, case.top_k)
    error = (weights.double() - probabilities).abs()
    # Float arithmetic; the exponents' rounding grows with the largest logit.
    relative = 5e-6 + 2.0**-22 * float(exact[exact.isfinite()].abs().max())
    tolerance = relative * probabilities + 1e-37
    ids = r.ids[: case.pairs].view(case.tokens, case.top_k)
    return {
        "ids_exact": torch.equal(ids.long(), order),
        "max_abs_error": float(error.max()),
        "tolerance": f"{relative:.3g} * w",
        "error_over_tolerance": float((error / tolerance).max()),
    }


def check_sort(case: Case, r: Routing) -> bool:
    """Whether offsets, sorted pairs, places and tiles are those of a stable padded counting sort."""
    ids = r.ids[: case.pairs].long()
    counts = torch.bincount(ids, minlength=case.experts)
    padded = (counts + case.alignment - 1) // case.alignment * case.alignment
    offsets = torch.cat([padded.new_zeros(1), padded.cumsum(0)])
    pairs = torch.sort(ids, stable=True).indices
    first_of_expert = counts.cumsum(0) - counts
    sorted_ids = ids[pairs]
    place = offsets[sorted_ids] + torch.arange(case.pairs, device="cuda") - first_of_expert[sorted_ids]
    total = int(offsets[-1])
    expected = torch.full((total,), case.pairs, device="cuda")
    expected[place] = pairs
    places = torch.empty_like(pairs)
    places[pairs] = place
    tiles = torch.repeat_interleave(torch.arange(case.experts, device="cuda"), padded // case.alignment)
    return (
        torch.equal(r.offsets[: case.experts + 1].long(), offsets)
        and torch.equal(r.sorted_pairs[:total].long(), expected)
        and torch.equal(r.places[: case.pairs].long(), places)
        and torch.equal(r.tile_experts[: total // case.alignment].long(), tiles)
        and bool((r.sorted_pairs[total:] == POISON).all())
        and bool((r.tile_experts[total // case.alignment :] == POISON).all())
    )


def spare_untouched(case: Case, r: Routing) -> bool:
    written = (case.pairs, case.pairs, case.experts + 1)
    tails = [t[n:] for t, n in zip((r.ids, r.places, r.offsets), written, strict=True)]
    tails.append(r.workspace[-SPARE:])
    return bool(r.weights[case.pairs :].isnan().all()) and all(bool((t == POISON).all()) for t in tails)


def check_case(kernel: Kernel, case: Case, report: checklib.Report) -> None:
    logits = make_logits(case)
    runs = []
    for _ in range(2):
        r = Routing(case, kernel.workspace_bytes(case))
        kernel.gate(case, logits, r)
        kernel.sort(case, r)
        runs.append(r)
    torch.cuda.synchronize()
    r = runs[0]
    figures = check_gate(case, logits, r)
    same = [
        torch.equal(a.nan_to_num(-1.0), b.nan_to_num(-1.0)) for a, b in zip(*(x.tensors() for x in runs), strict=True)
    ]
    in_range = bool(((r.ids[: case.pairs] >= 0) & (r.ids[: case.pairs] < case.experts)).all())
    sorted_right = in_range and check_sort(case, r)
    spare = spare_untouched(case, r)
    passed = figures["ids_exact"] and figures["error_over_tolerance"] <= 1.0
    report.case(
        case.name, passed and sorted_right and spare and all(same), sort_exact=sorted_right,
        deterministic=all(same), spare_elements_untouched=spare, **figures,
    )  # fmt: skip


def check_arguments(kernel: Kernel, report: checklib.Report) -> None:
    for experts, top_k in ((513, 2), (8, 9), (4, 5), (16, 0)):
        case = Case(torch.float32, 4, experts, top_k)
        r = Routing(case, kernel.workspace_bytes(case))
        status = kernel.gate_status(case, torch.randn(4, experts, device="cuda"), r)
        report.case(f"rejects top {top_k} of {experts} experts", status != 0)
    case = Case(torch.bfloat16, 50, 40, 3)
    logits = make_logits(case)
    logits[7, 11] = math.nan  # shows in its token's weights, and breaks nothing else
    r = Routing(case, kernel.workspace_bytes(case))
    kernel.gate(case, logits, r)
    kernel.sort(case, r)
    torch.cuda.synchronize()
    nan_tokens = r.weights[: case.pairs].view(-1, 3).isnan().all(-1).nonzero().flatten().tolist()
    report.case("a NaN logit makes its token's weights NaN", nan_tokens == [7] and check_sort(case, r))


def correctness_cases() -> list[Case]:
    shapes = [(1, 1), (2, 2), (7, 2), (8, 2), (16, 4), (17, 8), (32, 4), (60, 4), (64, 6), (64, 8), (65, 3)]
    shapes += [(128, 1), (128, 8), (130, 8), (160, 6), (256, 8), (257, 5), (384, 8), (511, 7), (512, 8), (512, 2)]
    tokens = [1, 5, 31, 32, 33, 100, 257, 1000]
    styles = ["normal", "ties", "masked", "skewed", "large", "equal", "normal"]
    cases = []
    for d, dtype in enumerate(DTYPES):
        for i, (experts, top_k) in enumerate(shapes):
            for j in range(2):
                n = i + 5 * j + 3 * d
                cases.append(
                    Case(
                        dtype,
                        tokens[n % 8],
                        experts,
                        top_k,
                        renormalize=n % 3 != 0,
                        alignment=(16, 1, 64, 7)[n % 4],
                        shifted=n % 5 == 4,
                        style=styles[n % 7],
                    )
                )
        # More tokens than the smallest chunk covers: a block then works through several tiles.
        cases.append(Case(dtype, 70001, 64, 6, alignment=128))
        cases.append(Case(dtype, 150000, 128, 8, renormalize=False, alignment=64, style="skewed"))
        cases.append(Case(dtype, 66000, 256, 8, alignment=16, style="ties"))
        cases.append(Case(dtype, 1200000, 16, 2, alignment=32))  # chunks of the largest size
    return cases


def torch_gate(case: Case, logits: torch.Tensor) -> torch.Tensor:
    weights, ids = torch.softmax(logits, -1, dtype=torch.float32).topk(case.top_k, -1)
    weights /= weights.sum(-1, keepdim=True)
    return ids


def torch_sort(case: Case, ids: torch.Tensor) -> torch.Tensor:
    flat = ids.flatten()
    pairs = torch.sort(flat, stable=True).indices
    places = torch.empty_like(pairs).scatter_(0, pairs, torch.arange(case.pairs, device=flat.device))
    counts = torch.bincount(flat, minlength=case.experts)
    return torch.cat([pairs, places, counts.cumsum(0)])


def make_sets(kernel: Kernel, case: Case, moved: int) -> list[tuple]:
    sets = []
    for _ in range(checklib.buffer_sets(moved)):
        logits = make_logits(case)
        source = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
        sets.append((logits, Routing(case, kernel.workspace_bytes(case)), source, torch.empty_like(source)))
    return sets


def time_case(kernel: Kernel, case: Case, report: checklib.Report) -> str:
    gate_bytes = case.tokens * case.experts * case.dtype.itemsize + case.pairs * 8
    sort_bytes = case.pairs * 12  # ids in, sorted pairs and places out
    sets = make_sets(kernel, case, gate_bytes)

    def gate(i):
        logits, r, _, _ = sets[i % len(sets)]
        kernel.gate(case, logits, r)

    def route(i):
        logits, r, _, _ = sets[i % len(sets)]
        kernel.gate(case, logits, r)
        kernel.sort(case, r)

    def copy(i):  # reads and writes as many bytes in total as the gate has to
        _, _, source, target = sets[i % len(sets)]
        target.copy_(source)

    def torch_gating(i):
        torch_gate(case, sets[i % len(sets)][0])

    def torch_routing(i):
        torch_sort(case, torch_gate(case, sets[i % len(sets)][0]))

    launches = 10 if gate_bytes < 1 << 26 else 1
    calls = {"kx_gate": gate, "kx_gate_and_sort": route, "device_copy": copy}
    samples = checklib.time_interleaved(calls, launches=launches)
    # torch's bincount waits for the device, so its calls are timed apart from the others.
    samples |= checklib.time_interleaved({"torch_gate": torch_gating, "torch_gate_and_sort": torch_routing}, repeats=10)
    timed = {n: checklib.summarize(s) for n, s in samples.items()}
    median = {n: t["median_ms"] for n, t in timed.items()}
    ratio = median["device_copy"] / median["kx_gate"]
    routing_ratio = ratio * median["kx_gate"] / median["kx_gate_and_sort"] * (gate_bytes + sort_bytes) / gate_bytes
    speedups = {n: median[f"torch_{n}"] / median[f"kx_{n}"] for n in ("gate", "gate_and_sort")}
    report.timing(
        case.name, buffer_sets=len(sets), launches_per_sample=launches, gate_bytes=gate_bytes,
        sort_bytes=sort_bytes, fraction_of_copy_bandwidth_gate=ratio,
        fraction_of_copy_bandwidth_gate_and_sort=routing_ratio, speedup_over_torch=speedups, **timed,
    )  # fmt: skip
    return (
        f"{case.name:46s} gate {median['kx_gate'] * 1e3:7.1f} us "
        f"copy {median['device_copy'] * 1e3:7.1f} us  ratio {ratio:.2f}  torch {speedups['gate']:5.1f}x | "
        f"and sort {median['kx_gate_and_sort'] * 1e3:7.1f} us  ratio {routing_ratio:.2f}  "
        f"torch {speedups['gate_and_sort']:5.1f}x"
    )


TIMED_CASES = [
    Case(torch.bfloat16, 1 << 20, 128, 8, alignment=64),
    Case(torch.float32, 1 << 20, 128, 8, alignment=64),
    Case(torch.bfloat16, 1 << 20, 256, 8, alignment=64),
    Case(torch.float32, 1 << 20, 256, 8, alignment=64),
    Case(torch.float16, 1 << 20, 64, 6, alignment=64),
    Case(torch.float32, 1 << 20, 64, 8, alignment=64),
    Case(torch.float32, 1 << 20, 8, 2, alignment=64),
    Case(torch.bfloat16, 1 << 19, 512, 8, alignment=64),
    Case(torch.float32, 1 << 20, 60, 4, renormalize=False, alignment=64),
    Case(torch.bfloat16, 1 << 16, 128, 8, alignment=64),
    Case(torch.bfloat16, 1 << 13, 128, 8, alignment=64),
    Case(torch.bfloat16, 256, 128, 8, alignment=16),
]


def main() -> int:
    arguments = checklib.parse_arguments(__doc__.splitlines()[0])
    torch.manual_seed(checklib.SEED)
    library, build_info = checklib.build(HERE / "moe_gating.cu")
    report = checklib.Report("moe_gating", build_info)
    kernel = Kernel(library)
    check_arguments(kernel, report)
    for case in correctness_cases():
        check_case(kernel, case, report)
    table = [] if arguments.quick else [time_case(kernel, case, report) for case in TIMED_CASES]
    return report.finish(arguments.out, table)


if __name__ == "__main__":
    sys.exit(main())
