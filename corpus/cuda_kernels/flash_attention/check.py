"""Checks flash_attention_fwd.cu against a float64 reference, then times it against PyTorch.

    python3 corpus/cuda_kernels/flash_attention/check.py --out report.json

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

PADDING_ROWS = 40  # NaN rows behind every tensor: reading or writing them shows


@dataclass(frozen=True)
class Case:
    batch: int
    query_heads: int
    kv_heads: int
    query_length: int
    key_length: int
    head_dim: int
    causal: bool
    layout: str = "bhld"
    style: str = "normal"

    @property
    def name(self) -> str:
        kind = "causal" if self.causal else "full"
        return (
            f"b{self.batch} h{self.query_heads}/{self.kv_heads} {self.query_length}x{self.key_length}"
            f" d{self.head_dim} {kind} {self.layout} {self.style}"
        )


def padded(case: Case, heads: int, length: int) -> torch.Tensor:
    """A (batch, heads, length, head_dim) view into a NaN-filled buffer with spare rows."""
    b, d, rows = case.batch, case.head_dim, length + PADDING_ROWS
    shape = (b, heads, rows, d) if case.layout == "bhld" else (b, rows, heads, d)
    buffer = torch.full(shape, math.nan, dtype=torch.half, device="cuda")
    return (buffer if case.layout == "bhld" else buffer.transpose(1, 2))[:, :, :length]


def make_inputs(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q = padded(case, case.query_heads, case.query_length)
    k = padded(case, case.kv_heads, case.key_length)
    v = padded(case, case.kv_heads, case.key_length)
    for tensor in (q, k, v):
        tensor.copy_(torch.randn(tensor.shape, device="cuda"))
    if case.style == "peaky":  # scores of +-100 and more: one key takes all the weight
        q.mul_(12)
    elif case.style == "rising":  # the maximum moves in every tile: rescaling at each step
        ramp = torch.linspace(0, 3, case.key_length, device="cuda")[:, None]
        k.copy_(k.float() * 0.1 + ramp)
        q.copy_(q.float().abs())
    elif case.style == "negative":  # all scores far below zero: 0 must not act as a maximum
        k.copy_(k.float().abs() + 1)
        q.copy_(-q.float().abs() - 1)
    return q, k, v


def reference(case: Case, q, k, v):
    """Output, log-sum-exp, and sum(P |V|), the scale of the rounding error, all in float64."""
    group = case.query_heads // case.kv_heads
    q64 = q.double()
    k64 = k.double().repeat_interleave(group, 1)
    v64 = v.double().repeat_interleave(group, 1)
    scores = q64 @ k64.transpose(-1, -2) / math.sqrt(case.head_dim)
    if case.causal:
        rows = torch.arange(case.query_length, device="cuda")[:, None]
        keys = torch.arange(case.key_length, device="cuda")[None, :]
        visible = keys <= rows + (case.key_length - case.query_length)
        scores = scores.masked_fill(~visible, -math.inf)
    lse = torch.logsumexp(scores, -1) if case.key_length else q64.new_full(q.shape[:3], -math.inf)
    empty = torch.isinf(lse)
    p = torch.exp(scores - lse.masked_fill(empty, 0.0)[..., None])
    return p @ v64, lse, p @ v64.abs()


class Kernel:
    def __init__(self, library: ctypes.CDLL):
        self.function = library.kx_flash_attention_forward
        self.function.restype = ctypes.c_int
        p, i = ctypes.c_void_p, ctypes.c_int
        self.function.argtypes = [p] * 9 + [i] * 6 + [ctypes.c_float, i, p]

    def status(self, q, k, v, o, lse, causal: bool) -> int:
        strides = [(ctypes.c_int64 * 3)(*t.stride()[:3]) for t in (q, k, v, o)]
        return self.function(
            *map(checklib.pointer, (q, k, v, o, lse)), *strides,
            q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3],
            1.0 / math.sqrt(q.shape[3]), int(causal), checklib.stream_handle(),
        )  # fmt: skip

    def __call__(self, *arguments) -> None:
        checklib.expect_success(self.status(*arguments))


def check_case(kernel: Kernel, case: Case, report: checklib.Report) -> None:
    q, k, v = make_inputs(case)
    outputs = []
    for _ in range(2):
        o = padded(case, case.query_heads, case.query_length)
        lse = torch.full((case.batch, case.query_heads, case.query_length), math.nan, device="cuda")
        kernel(q, k, v, o, lse, case.causal)
        outputs.append((o, lse))
    torch.cuda.synchronize()
    (o, lse), (o2, lse2) = outputs
    deterministic = torch.equal(o.contiguous().view(torch.int16), o2.contiguous().view(torch.int16))
    deterministic &= torch.equal(lse.view(torch.int32), lse2.view(torch.int32))
    axis = 2 if case.layout == "bhld" else 1
    untouched = bool(o._base.narrow(axis, case.query_length, PADDING_ROWS).isnan().all())

    expected, expected_lse, scale = reference(case, q, k, v)
    # Half rounding of P (<= 2^-11 of sum P|V|) and of the output (<= 2^-11 |O| <= the same), a
    # quarter more for float arithmetic, and a floor for subnormal probabilities.
    tolerance = 1.25 * 2.0**-10 * scale + 2e-5
    error = (o.double() - expected).abs()
    empty = torch.isinf(expected_lse)
    lse_error = (lse.double() - expected_lse).abs().masked_fill(empty, 0.0)
    lse_tolerance = 5e-5 * (1.0 + expected_lse.abs().masked_fill(empty, 0.0))
    empty_rows_right = torch.equal(lse[empty], torch.full_like(lse[empty], -math.inf))
    empty_rows_right &= bool((o[empty] == 0).all())
    ratio = max((error / tolerance).max().item(), (lse_error / lse_tolerance).max().item())
    finite = bool(torch.isfinite(o).all()) and not bool(lse.isnan().any())
    report.case(
        case.name,
        finite and ratio <= 1.0 and deterministic and untouched and empty_rows_right,
        max_abs_error=error.max().item(),
        max_lse_error=lse_error.max().item(),
        tolerance="1.25 * 2^-10 * sum(P|V|) + 2e-5; lse 5e-5 * (1 + |lse|)",
        error_over_tolerance=ratio,
        deterministic=deterministic,
        spare_rows_untouched=untouched,
        empty_rows=int(empty.sum()),
    )


def correctness_cases() -> list[Case]:
    cases = []
    lengths = [1, 2, 15, 31, 33, 63, 64, 65, 127, 128, 129, 255, 257, 1000]
    for head_dim in (64, 128):
        for causal in (False, True):
            for i, n in enumerate(lengths):
                cases.append(Case(2, 3, 3, n, n, head_dim, causal, ("bhld", "blhd")[i % 2]))
            for lq, lk in [(1, 1000), (33, 127), (127, 33), (300, 64), (64, 300), (1000, 31), (200, 513), (77, 0)]:
                cases.append(Case(1, 4, 2, lq, lk, head_dim, causal, "blhd"))
            cases.append(Case(2, 8, 1, 200, 333, head_dim, causal))
            cases.append(Case(1, 6, 2, 1000, 1000, head_dim, causal))
            cases.append(Case(1, 2, 2, 2048, 2048, head_dim, causal))
            for style in ("peaky", "rising", "negative"):
                cases.append(Case(1, 2, 1, 515, 515, head_dim, causal, "bhld", style))
    return cases


def check_arguments(kernel: Kernel, report: checklib.Report) -> None:
    def tensors(head_dim, heads=2, kv_heads=2):
        q = torch.zeros(1, heads, 16, head_dim, dtype=torch.half, device="cuda")
        k = torch.zeros(1, kv_heads, 16, head_dim, dtype=torch.half, device="cuda")
        return q, k, k.clone(), q.clone(), None, False

    report.case("rejects head dim 96", kernel.status(*tensors(96)) != 0)
    report.case("rejects 3 heads over 2", kernel.status(*tensors(64, 3, 2)) != 0)
    shifted = torch.zeros(2 * 16 * 64 + 8, dtype=torch.half, device="cuda")[1:][: 2 * 16 * 64]
    arguments = list(tensors(64))
    arguments[0] = shifted.view(1, 2, 16, 64)
    report.case("rejects a misaligned pointer", kernel.status(*arguments) != 0)
    report.case("accepts a null lse", kernel.status(*tensors(64)) == 0)
    torch.cuda.synchronize()


def time_case(kernel: Kernel, case: Case, report: checklib.Report) -> str:
    shape_q = (case.batch, case.query_heads, case.query_length, case.head_dim)
    shape_k = (case.batch, case.kv_heads, case.key_length, case.head_dim)
    new = lambda shape: torch.randn(shape, device="cuda").half()  # noqa: E731
    set_bytes = 4 * (math.prod(shape_q) + math.prod(shape_k))
    sets = [
        (new(shape_q), new(shape_k), new(shape_k), torch.empty(shape_q, dtype=torch.half, device="cuda"))
        for _ in range(checklib.buffer_sets(set_bytes))
    ]
    lse = torch.empty(shape_q[:3], device="cuda")
    gqa = case.query_heads != case.kv_heads

    def ours(i):
        kernel(*sets[i % len(sets)], lse, case.causal)

    def torch_backend(backend):
        def call(i):
            q, k, v, _ = sets[i % len(sets)]
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=case.causal, enable_gqa=gqa)

        return call

    candidates = {"kx": ours, "torch_flash": torch_backend(SDPBackend.FLASH_ATTENTION)}
    try:  # PyTorch's cuDNN backend uses Hopper's own instructions: the honest upper comparison
        torch_backend(SDPBackend.CUDNN_ATTENTION)(0)
        candidates["torch_cudnn"] = torch_backend(SDPBackend.CUDNN_ATTENTION)
    except RuntimeError as error:
        print(f"cuDNN attention not timed: {str(error).splitlines()[0]}")

    ours(0)
    theirs = candidates["torch_flash"](0).float()
    difference = ((sets[0][3].float() - theirs).abs() / (1.0 + theirs.abs())).max().item()
    report.case(f"{case.name} agrees with PyTorch", difference <= 2.5e-3, max_relative_difference=difference)

    flops = 4.0 * case.batch * case.query_heads * case.query_length * case.key_length * case.head_dim
    flops *= 0.5 if case.causal else 1.0
    timed = {n: checklib.summarize(s) for n, s in checklib.time_interleaved(candidates).items()}
    for figures in timed.values():
        figures["tflops"] = flops / figures["median_ms"] / 1e9
    ratio = timed["torch_flash"]["median_ms"] / timed["kx"]["median_ms"]
    report.timing(case.name, buffer_sets=len(sets), speed_over_torch_flash=ratio, **timed)
    columns = "  ".join(f"{n} {f['median_ms']:8.3f} ms {f['tflops']:6.1f} TFLOP/s" for n, f in timed.items())
    return f"{case.name:42s} {columns}  kx/flash {ratio:.2f}"


TIMED_CASES = [
    Case(4, 16, 16, 4096, 4096, 128, False),
    Case(4, 16, 16, 4096, 4096, 128, True),
    Case(4, 32, 32, 4096, 4096, 64, False),
    Case(4, 32, 32, 4096, 4096, 64, True),
    Case(4, 32, 8, 4096, 4096, 128, True),
    Case(1, 16, 16, 16384, 16384, 128, False),
    Case(1, 16, 16, 16384, 16384, 128, True),
    Case(16, 16, 16, 1024, 1024, 128, False),
    Case(16, 16, 16, 1024, 1024, 128, True),
]


def main() -> int:
    arguments = checklib.parse_arguments(__doc__.splitlines()[0])
    torch.manual_seed(checklib.SEED)
    library, build_info = checklib.build(HERE / "flash_attention_fwd.cu")
    report = checklib.Report("flash_attention_fwd", build_info)
    kernel = Kernel(library)
    check_arguments(kernel, report)
    for case in correctness_cases():
        check_case(kernel, case, report)
    table = [] if arguments.quick else [time_case(kernel, case, report) for case in TIMED_CASES]
    return report.finish(arguments.out, table)


if __name__ == "__main__":
    sys.exit(main())
