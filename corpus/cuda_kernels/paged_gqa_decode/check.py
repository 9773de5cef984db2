"""Checks paged_gqa_decode.cu against a float64 reference, then times it against PyTorch and a device copy.

    python3 corpus/cuda_kernels/paged_gqa_decode/check.py --out report.json

Written for kx. SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import checklib  # noqa: E402

DTYPES = {torch.float16: 1, torch.bfloat16: 2}
NAMES = {torch.float16: "half", torch.bfloat16: "bf16"}
ROUNDING = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


@dataclass(frozen=True)
class Case:
    dtype: torch.dtype
    head_dim: int
    lengths: tuple[int, ...]
    query_heads: int = 4
    kv_heads: int = 2
    page_size: int = 16
    layout: str = "nhd"  # pages of (tokens, heads, dim), or "hnd": (heads, tokens, dim)
    splits: int = 0  # 0: the kernel's own plan
    style: str = "normal"

    @property
    def name(self) -> str:
        lengths = ",".join(map(str, self.lengths))
        if len(self.lengths) > 6:
            lengths = f"{len(self.lengths)}x{min(self.lengths)}..{max(self.lengths)}"
        return (
            f"{NAMES[self.dtype]} d{self.head_dim} h{self.query_heads}/{self.kv_heads} L{lengths} "
            f"page{self.page_size} {self.layout} splits{self.splits or ' auto'} {self.style}"
        )


@dataclass
class Inputs:
    q: torch.Tensor
    k_cache: torch.Tensor  # (pages, kv heads, page size, head dim) views, whatever the layout
    v_cache: torch.Tensor
    table: torch.Tensor
    lengths: torch.Tensor


def empty_cache(case: Case, pages: int) -> torch.Tensor:
    if case.layout == "hnd":
        shape = (pages, case.kv_heads, case.page_size, case.head_dim)
        return torch.full(shape, math.nan, dtype=case.dtype, device="cuda")
    shape = (pages, case.page_size, case.kv_heads, case.head_dim)
    return torch.full(shape, math.nan, dtype=case.dtype, device="cuda").transpose(1, 2)


def make_inputs(case: Case) -> tuple[Inputs, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Inputs, and the dense K and V of every sequence as (kv heads, length, head dim)."""
    counts = [-(-n // case.page_size) for n in case.lengths]
    # NaN fills all that no sequence owns: a page more than needed, and the rest of every last page.
    order = torch.randperm(sum(counts) + 1)
    k_cache, v_cache = empty_cache(case, len(order)), empty_cache(case, len(order))
    # Entries behind the last page are no page numbers; following one would leave the cache.
    table = torch.full((len(counts), max([*counts, 1]) + 1), 2**30, dtype=torch.int32)
    dense = []
    used = 0
    for b, (length, count) in enumerate(zip(case.lengths, counts, strict=True)):
        pages = order[used : used + count]
        used += count
        table[b, :count] = pages.to(torch.int32)
        k, v = (torch.randn(case.kv_heads, length, case.head_dim, device="cuda") for _ in range(2))
        if case.style == "rising":  # the maximum moves in every tile: rescaling at each step
            k = k * 0.1 + torch.linspace(0, 3, max(length, 1), device="cuda")[None, :length, None]
        elif case.style == "negative":  # all scores far below zero: 0 must not act as a maximum
            k = k.abs() + 1
        k, v = k.to(case.dtype), v.to(case.dtype)
        dense.append((k, v))
        token = torch.arange(length)
        page, slot = pages[token // case.page_size].to(k.device), (token % case.page_size).to(k.device)
        k_cache[page, :, slot] = k.transpose(0, 1)
        v_cache[page, :, slot] = v.transpose(0, 1)
    q = torch.randn(len(counts), case.query_heads, case.head_dim, device="cuda")
    if case.style == "peaky":  # scores of +-100 and more: one key takes all the weight
        q = q * 12
    elif case.style == "rising":
        q = q.abs()
    elif case.style == "negative":
        q = -q.abs() - 1
    lengths = torch.tensor(case.lengths, dtype=torch.int32).to(q.device)
    return Inputs(q.to(case.dtype), k_cache, v_cache, table.to(q.device), lengths), dense


def reference(case: Case, x: Inputs, dense) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Output, log-sum-exp, and sum(P |V|), the scale of the rounding error, all in float64."""
    out, lse, scale = [], [], []
    group = case.query_heads // case.kv_heads
    for b, (k, v) in enumerate(dense):
        q = x.q[b].double()
        k64, v64 = (t.double().repeat_interleave(group, 0) for t in (k, v))
        scores = torch.einsum("hd,hld->hl", q, k64) / math.sqrt(case.head_dim)
        row_lse = torch.logsumexp(scores, -1) if k.shape[1] else q.new_full(q.shape[:1], -math.inf)
        p = torch.exp(scores - row_lse.masked_fill(torch.isinf(row_lse), 0.0)[:, None])
        out.append(torch.einsum("hl,hld->hd", p, v64))
        scale.append(torch.einsum("hl,hld->hd", p, v64.abs()))
        lse.append(row_lse)
    return torch.stack(out), torch.stack(lse), torch.stack(scale)


class Kernel:
    def __init__(self, library: ctypes.CDLL):
        p, i = ctypes.c_void_p, ctypes.c_int
        self.function = library.kx_paged_gqa_decode
        self.function.restype = ctypes.c_int
        self.function.argtypes = [p] * 9 + [i] * 8 + [ctypes.c_float, i, p]
        self.workspace_bytes = library.kx_paged_gqa_decode_workspace
        self.workspace_bytes.restype = ctypes.c_int64
        self.workspace_bytes.argtypes = [i] * 6

    def workspace(self, x: Inputs, max_length: int, splits: int) -> torch.Tensor | None:
        """NaN-filled, so that a partial result that nobody wrote shows."""
        shape = (*x.q.shape[:2], x.k_cache.shape[1], x.q.shape[2], max_length, splits)
        count = self.workspace_bytes(*shape)
        if count < 0:
            raise RuntimeError("the workspace size could not be told")
        return torch.full((count // 4,), math.nan, device="cuda") if count else None

    def status(self, x: Inputs, out, lse, workspace, max_length: int, splits: int = 0) -> int:
        batch, query_heads, head_dim = x.q.shape
        _, kv_heads, page_size, _ = x.k_cache.shape
        strides = (ctypes.c_int64 * 3)(*x.k_cache.stride()[:3])
        return self.function(
            *map(checklib.pointer, (x.q, x.k_cache, x.v_cache, x.table, x.lengths, out, lse, workspace)), strides,
            batch, query_heads, kv_heads, head_dim, page_size, x.table.shape[1], max_length, splits,
            1.0 / math.sqrt(head_dim), DTYPES[x.q.dtype], checklib.stream_handle(),
        )  # fmt: skip

    def __call__(self, *arguments) -> None:
        checklib.expect_success(self.status(*arguments))


def check_case(kernel: Kernel, case: Case, report: checklib.Report) -> None:
    x, dense = make_inputs(case)
    longest = max(case.lengths)
    results = []
    for _ in range(2):
        # A spare sequence at the end catches writes behind the last one.
        out = torch.full((len(case.lengths) + 1, *x.q.shape[1:]), math.nan, dtype=case.dtype, device="cuda")
        lse = torch.full((len(case.lengths) + 1, case.query_heads), math.nan, device="cuda")
        kernel(x, out, lse, kernel.workspace(x, longest, case.splits), longest, case.splits)
        results.append((out, lse))
    torch.cuda.synchronize()
    (out, lse), (out2, lse2) = results
    deterministic = torch.equal(out.view(torch.int16), out2.view(torch.int16))
    deterministic &= torch.equal(lse.view(torch.int32), lse2.view(torch.int32))
    untouched = bool(out[-1].isnan().all() and lse[-1].isnan().all())
    out, lse = out[:-1], lse[:-1]

    expected, expected_lse, scale = reference(case, x, dense)
    # P and the output are each rounded to 16 bits (relative to sum P|V| at most), a quarter more
    # for float arithmetic, and a floor for subnormal probabilities.
    tolerance = 1.25 * 2 * ROUNDING[case.dtype] * scale + 2e-5
    error = (out.double() - expected).abs()
    empty = torch.isinf(expected_lse)
    lse_error = (lse.double() - expected_lse).abs().masked_fill(empty, 0.0)
    lse_tolerance = 5e-5 * (1.0 + expected_lse.abs().masked_fill(empty, 0.0))
    empty_right = torch.equal(lse[empty], torch.full_like(lse[empty], -math.inf)) and bool((out[empty] == 0).all())
    ratio = max((error / tolerance).max().item(), (lse_error / lse_tolerance).max().item())
    finite = bool(torch.isfinite(out).all()) and not bool(lse.isnan().any())
    report.case(
        case.name,
        finite and ratio <= 1.0 and deterministic and untouched and empty_right,
        max_abs_error=error.max().item(),
        max_lse_error=lse_error.max().item(),
        tolerance=f"2.5 * {ROUNDING[case.dtype]:.3g} * sum(P|V|) + 2e-5; lse 5e-5 * (1 + |lse|)",
        error_over_tolerance=ratio,
        deterministic=deterministic,
        spare_rows_untouched=untouched,
        empty_sequences=int(empty.any(-1).sum()),
    )


def correctness_cases() -> list[Case]:
    cases = []
    ragged = [(1, 2, 15), (16, 17, 0), (31, 32, 33), (63, 64, 65), (127, 128, 129), (0, 255, 300), (1000, 1, 517)]
    for dtype in DTYPES:
        for head_dim in (64, 128):
            for i, lengths in enumerate(ragged):
                layout = ("nhd", "hnd")[i % 2]
                cases.append(Case(dtype, head_dim, lengths, layout=layout))
                cases.append(Case(dtype, head_dim, lengths, 8, 1, (1, 4, 16, 64, 256)[i % 5], layout, 1 + i % 4))
            for group in (1, 2, 3, 7, 8, 9, 16, 17, 40):
                cases.append(Case(dtype, head_dim, (70, 333), 2 * group, 2, splits=group % 4))
            for page_size in (1, 2, 8, 32, 128, 512):
                cases.append(Case(dtype, head_dim, (77, 600), page_size=page_size, layout="hnd", splits=page_size % 3))
            for splits in (2, 3, 5, 8, 33, 64):
                cases.append(Case(dtype, head_dim, (611, 60, 0, 1025), splits=splits))
            for style in ("peaky", "rising", "negative"):
                cases.append(Case(dtype, head_dim, (515, 90), 8, 2, style=style, splits=3))
                cases.append(Case(dtype, head_dim, (1030,), 8, 2, style=style, splits=1))
            cases.append(Case(dtype, head_dim, (9000, 20), 8, 2))
    return cases


def check_arguments(kernel: Kernel, report: checklib.Report) -> None:
    def status(**changes) -> int:
        case = Case(**{"dtype": torch.float16, "head_dim": 64, "lengths": (40,), **changes})
        x, _ = make_inputs(case)
        workspace = kernel.workspace(x, 40, 0)
        return kernel.status(x, torch.empty_like(x.q), None, workspace, 40)

    report.case("rejects head dim 96", status(head_dim=96) != 0)
    report.case("rejects 3 heads over 2", status(query_heads=3) != 0)
    report.case("rejects pages of 12", status(page_size=12) != 0)
    report.case("accepts a null lse", status() == 0)
    torch.cuda.synchronize()


def timing_inputs(case: Case) -> Inputs:
    counts = [-(-n // case.page_size) for n in case.lengths]
    order = torch.randperm(sum(counts), device="cuda").to(torch.int32)
    table = torch.zeros(len(counts), max(counts), dtype=torch.int32, device="cuda")
    used = 0
    for b, count in enumerate(counts):
        table[b, :count] = order[used : used + count]
        used += count
    k_cache, v_cache = empty_cache(case, used), empty_cache(case, used)
    for cache in (k_cache, v_cache):
        cache.copy_(torch.randn(cache.shape, dtype=case.dtype, device="cuda"))
    q = torch.randn(len(counts), case.query_heads, case.head_dim, dtype=case.dtype, device="cuda")
    return Inputs(q, k_cache, v_cache, table, torch.tensor(case.lengths, dtype=torch.int32, device="cuda"))


def gather_dense(x: Inputs, cache: torch.Tensor, length: int) -> torch.Tensor:
    """(batch, kv heads, length, head dim), contiguous: what an attention without pages needs."""
    batch, heads, head_dim = x.q.shape[0], cache.shape[1], cache.shape[3]
    pages = cache[x.table.reshape(-1).long()].reshape(batch, x.table.shape[1], *cache.shape[1:])
    return pages.transpose(1, 2).reshape(batch, heads, -1, head_dim)[:, :, :length].contiguous()


def time_case(kernel: Kernel, case: Case, report: checklib.Report) -> str:
    longest = max(case.lengths)
    keys = sum(case.lengths)
    moved = 2 * keys * case.kv_heads * case.head_dim * case.dtype.itemsize
    sets = []
    for _ in range(min(checklib.buffer_sets(moved), 64)):
        x = timing_inputs(case)
        source = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
        dense = None
        if len(set(case.lengths)) == 1:  # PyTorch's attention takes no ragged batch
            dense = [gather_dense(x, cache, longest) for cache in (x.k_cache, x.v_cache)]
        workspace = kernel.workspace(x, longest, 0)
        sets.append((x, torch.empty_like(x.q), workspace, source, torch.empty_like(source), dense))

    def decode(i):
        x, out, workspace, *_ = sets[i % len(sets)]
        kernel(x, out, None, workspace, longest)

    def copy(i):  # reads and writes together as many bytes as the cache has
        _, _, _, source, target, _ = sets[i % len(sets)]
        target.copy_(source)

    def torch_attention(i):
        x, *_, (k, v) = sets[i % len(sets)]
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
            return F.scaled_dot_product_attention(x.q[:, :, None], k, v, enable_gqa=case.query_heads != case.kv_heads)

    candidates = {"kx": decode, "device_copy": copy}
    if sets[0][-1] is not None:
        try:
            theirs = torch_attention(0)[:, :, 0].float()
        except RuntimeError as error:
            print(f"PyTorch's attention not timed: {str(error).splitlines()[0]}")
        else:
            candidates["torch_sdpa_dense"] = torch_attention
            decode(0)
            difference = (sets[0][1].float() - theirs).abs().max().item() / theirs.abs().max().item()
            limit = 8 * ROUNDING[case.dtype]
            report.case(f"{case.name} agrees with PyTorch", difference <= limit, max_relative_difference=difference)

    timed = {n: checklib.summarize(s) for n, s in checklib.time_interleaved(candidates).items()}
    for figures in timed.values():
        figures["gigabytes_per_s"] = moved / figures["median_ms"] / 1e6
    ratio = timed["device_copy"]["median_ms"] / timed["kx"]["median_ms"]
    figures = {"buffer_sets": len(sets), "bytes_moved": moved, "fraction_of_copy_bandwidth": ratio}
    line = (
        f"{case.name:62s} kx {timed['kx']['median_ms']:7.3f} ms {timed['kx']['gigabytes_per_s']:6.0f} GB/s  "
        f"copy {timed['device_copy']['gigabytes_per_s']:6.0f} GB/s  ratio {ratio:.2f}"
    )
    if "torch_sdpa_dense" in timed:
        figures["speed_over_torch"] = timed["torch_sdpa_dense"]["median_ms"] / timed["kx"]["median_ms"]
        line += f"  torch/kx {figures['speed_over_torch']:.1f}"
    report.timing(case.name, **figures, **timed)
    return line


def timed_cases() -> list[Case]:
    half, bf16 = torch.float16, torch.bfloat16
    spread = tuple(512 + 250 * i for i in range(64))
    return [
        Case(bf16, 128, (8192,) * 32, 32, 8),
        Case(half, 128, (8192,) * 32, 32, 8),
        Case(bf16, 64, (8192,) * 32, 32, 8),
        Case(bf16, 128, (8192,) * 32, 32, 8, layout="hnd"),
        Case(bf16, 128, (8192,) * 32, 32, 8, page_size=1),
        Case(bf16, 128, (8192,) * 32, 64, 8),
        Case(bf16, 128, (4096,) * 16, 32, 32),
        Case(bf16, 128, (131072,), 32, 8),
        Case(bf16, 128, (32768,) * 4, 128, 8),
        Case(bf16, 128, spread, 32, 8),
        Case(bf16, 128, (2048,) * 8, 32, 8),
        Case(bf16, 128, (1024,), 32, 8),
    ]


def main() -> int:
    arguments = checklib.parse_arguments(__doc__.splitlines()[0])
    torch.manual_seed(checklib.SEED)
    library, build_info = checklib.build(HERE / "paged_gqa_decode.cu")
    report = checklib.Report("paged_gqa_decode", build_info)
    kernel = Kernel(library)
    check_arguments(kernel, report)
    for case in correctness_cases():
        check_case(kernel, case, report)
    table = [] if arguments.quick else [time_case(kernel, case, report) for case in timed_cases()]
    return report.finish(arguments.out, table)


if __name__ == "__main__":
    sys.exit(main())
