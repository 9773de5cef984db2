"""Planted faults: each is found at its line, and the same kernel without it has no findings.

Every source below is one kernel: ``bad`` is true in the launch that must be caught and false in its correct twin.
Lines that may be named are marked ``//!``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from metalsim import CompileFailure, Limits, RunResult, examine_kernel
from tests.unit.metalsim.launching import Launcher

N = 64
FIRST_LINE = "uint i = thread_position_in_grid.x; uint t = thread_position_in_threadgroup.x; bool bad = flag[0] != 0;\n"
BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


@dataclass(frozen=True)
class Planted:
    """A kernel with a switchable fault.

    Attributes:
        name: of the case.
        kind: of the finding.
        source: lines 2 and on of the body.
        words: part of the message.
        header: of the kernel.
        also: further kinds that the fault causes.
        options: ``grid``, ``threadgroup``, ``out`` (dtype and shape of the output), ``init_value``.
    """

    name: str
    kind: str
    source: str
    words: str = ""
    header: str = ""
    also: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def lines(self) -> set[int]:
        """Marked lines of the body, or of the header where that has marks."""
        text = self.header if "//!" in self.header else FIRST_LINE + self.source
        return {number for number, line in enumerate(text.split("\n"), 1) if "//!" in line}


def examined(launch: Launcher, case: Planted, bad: bool) -> RunResult:
    x = np.arange(N, dtype=np.float32)
    inputs = {"x": x, "flag": np.array([bad, 0], np.int32)}
    options = dict(case.options)
    kernel = launch.kernel(
        FIRST_LINE + case.source, inputs, {"out": options.pop("out", ("float32", (N,)))}, case.header
    )
    grid, threadgroup = options.pop("grid", N), options.pop("threadgroup", N)
    result = examine_kernel(
        kernel, inputs, grid=(grid, 1, 1), threadgroup=(threadgroup, 1, 1), cache=launch.cache, **options
    )
    assert not isinstance(result, CompileFailure), result.messages
    return result


RACES = [
    Planted("all threads write one element", "race",
            "threadgroup float s[4];\nif (bad) s[0] = x[t]; //!\nif (t == 0) s[1] = 1;\n"
            "out[i] = x[i];", "s[0] is written"),
    Planted("the same value written by all is a race too", "race",
            "threadgroup int s[1];\nif (bad || t == 0) s[0] = 7; //!\n" + BARRIER + "\nout[i] = s[0];", "s[0]"),
    Planted("write and read without a barrier", "race",
            "threadgroup float s[64];\ns[t] = x[t]; //!\nif (!bad) " + BARRIER + "\nout[i] = s[63 - t]; //!",
            also=("uninitialized",)),
    Planted("no barrier before the next write", "race",
            "threadgroup float s[64];\nfor (int k = 0; k < 2; k++) {\ns[t] = x[t] + k; //!\n" + BARRIER
            + "\nout[i] = s[63 - t]; //!\nif (!bad) " + BARRIER + "\n}"),
    Planted("a barrier for no memory", "race",
            "threadgroup float s[64];\ns[t] = x[t]; //!\nif (bad) threadgroup_barrier(mem_flags::mem_none);\nelse "
            + BARRIER + "\nout[i] = s[63 - t]; //!", also=("uninitialized",)),
    Planted("a barrier for device memory only", "race",
            "threadgroup float s[64];\ns[t] = x[t]; //!\nif (bad) threadgroup_barrier(mem_flags::mem_device);\nelse "
            + BARRIER + "\nout[i] = s[63 - t]; //!", "mem_threadgroup", also=("uninitialized",)),
    Planted("a SIMD-group barrier for two SIMD-groups", "race",
            "threadgroup float s[64];\ns[t] = x[t]; //!\nif (bad) simdgroup_barrier(mem_flags::mem_threadgroup);\nelse "
            + BARRIER + "\nout[i] = s[63 - t]; //!", also=("uninitialized",)),
    Planted("within one SIMD-group", "race",
            "threadgroup float s[64];\ns[t] = x[t]; //!\nif (!bad) simdgroup_barrier(mem_flags::mem_threadgroup);\n"
            "out[i] = s[t ^ 1]; //!", also=("uninitialized",)),
    Planted("device memory in a threadgroup", "race",
            "out[i] = x[i]; //!\nif (bad) " + BARRIER + "\nelse threadgroup_barrier(mem_flags::mem_device);\n"
            "float v = out[63 - i]; //!\nthreadgroup_barrier(mem_flags::mem_device);\nout[i] = v;", "mem_device",
            also=("uninitialized",)),
    Planted("device memory of two threadgroups", "race",
            "out[bad ? i / 2 : i] = x[i]; //!", "nothing orders threadgroups",
            options={"threadgroup": 1, "init_value": 0.0}),
    Planted("a histogram without atomics", "race",
            "device atomic<float>* a = (device atomic<float>*)out + i / 16;\nif (bad) out[i / 16] += 1; //!\n"
            "else atomic_fetch_add_explicit(a, 1.0f, memory_order_relaxed);", options={"init_value": 0.0}),
    Planted("an atomic and a plain write", "race",
            "device atomic<float>* a = (device atomic<float>*)out;\n"
            "if (i) atomic_fetch_add_explicit(a, 1.0f, memory_order_relaxed); //!\nelse if (bad) out[0] = 1; //!",
            options={"init_value": 0.0}),
    Planted("a byte inside another thread's word", "race",
            "threadgroup int s[64];\ns[t] = 1; //!\nif (bad) ((threadgroup uchar*)s)[(t * 4 + 5) % 256] = 2; //!\n"
            + BARRIER + "\nout[i] = s[t];"),
    Planted("vector stores that overlap", "race",
            "*(device packed_float4*)(out + (bad ? i * 2 : i * 4)) = packed_float4(x[i]); //!",
            options={"grid": 16, "threadgroup": 16, "init_value": 0.0}),
    Planted("a reduction that reads what its neighbour writes", "race",
            "threadgroup float s[64];\ns[t] = x[t];\n" + BARRIER + "\nfor (uint step = 32; step > 0; step /= 2) {\n"
            "if (t < step) s[t] += s[t + step]; //!\nif (!bad) " + BARRIER + "\n}\n" + BARRIER + "\nout[i] = s[0];"),
]  # fmt: skip

OUT_OF_RANGE = [
    Planted("one past the end of a buffer", "out-of-range", "out[i] = x[bad ? i + 1 : i]; //!", "x[64]"),
    Planted("one before the start", "out-of-range", "out[i] = x[int(i) - (bad ? 1 : 0)]; //!", "x[-1]"),
    Planted("an unsigned index that wrapped", "out-of-range", "out[i] = x[i - (bad ? 1u : 0u)]; //!", "x[4294967295]"),
    Planted("far outside", "out-of-range", "out[i] = x[bad ? i + 30000000 : i]; //!", "x[30000000]"),
    Planted("a store past the end", "out-of-range", "out[i] = x[i];\nif (bad) out[i + 1] = 0; //!", "out[64]",
            also=("race",)),
    Planted("a row too many", "out-of-range",
            "threadgroup float s[8][8];\ns[bad ? t / 8 + 1 : t / 8][t % 8] = x[t]; //!\nout[i] = x[i];", "8"),
    Planted("a column into the next row", "out-of-range",
            "threadgroup float s[8][8];\ns[t / 8][bad ? t % 8 + 1 : t % 8] = x[t]; //!\nout[i] = x[i];", "8"),
    Planted("into the neighbouring array", "out-of-range",
            "threadgroup float a[64], b[64];\nb[t] = 1;\nthreadgroup float* p = a;\np[bad ? t + 64 : t] = x[t]; //!\n"
            + BARRIER + "\nout[i] = b[t];", "a[64]"),
    Planted("a thread's array", "out-of-range",
            "float own[4] = {0, 1, 2, 3};\nint k = int(x[i]) % (bad ? 8 : 4);\nown[k] = 5; //!\nout[i] = own[k & 3];",
            "index 4"),
    Planted("a thread's array through a pointer", "out-of-range",
            "float own[4] = {0, 1, 2, 3};\nthread float* p = own;\nint k = int(x[i]) % (bad ? 8 : 4);\np[k] = 5; //!\n"
            "out[i] = own[k & 3];"),
    Planted("a thread's array in a function", "out-of-range", "float own[4];\nfill(own, bad ? 5 : 4);\n"
            "out[i] = own[i & 3];",
            header="inline void fill(thread float* own, int n) {\nfor (int k = 0; k < n; k++)\nown[k] = k; //!\n}"),
    Planted("an array inside a structure", "out-of-range",
            "Pair pair;\nfor (int k = 0; k < 3; k++) pair.a[k] = pair.b[k] = k;\n"
            "int k = bad ? 3 + int(i & 1) : int(i & 1);\n"
            "pair.a[k] = 7; //!\nout[i] = pair.b[0];", header="struct Pair { float a[3], b[3]; };"),
    Planted("a constant table", "out-of-range", "out[i] = table[bad ? i : i & 3]; //!",
            header="constant float table[4] = {1, 2, 3, 4};"),
    Planted("a constant table through a pointer", "out-of-range",
            "constant float* p = table;\nout[i] = p[bad ? i : i & 3]; //!",
            header="constant float table[4] = {1, 2, 3, 4};"),
    Planted("a component of a vector", "out-of-range",
            "float4 v = float4(x[i]);\nout[i] = v[bad ? int(i) : int(i & 3)]; //!", "4"),
    Planted("an atomic past the end", "out-of-range",
            "device atomic<float>* a = (device atomic<float>*)out;\n"
            "atomic_fetch_add_explicit(a + i + (bad ? 1 : 0), 1.0f, memory_order_relaxed); //!", "out[64]",
            options={"init_value": 0.0}),
    Planted("half of a vector load", "out-of-range",
            "float4 v = *(const device float4*)(x + (bad ? 64 : 60));  //!\nout[i] = v.x;", "x[64]"),
    Planted("a matrix load past the end", "out-of-range",
            "simdgroup_float8x8 m;\nsimdgroup_load(m, x + (bad ? 8 : 0), 8); //!\nsimdgroup_store(m, out, 8);",
            options={"grid": 32, "threadgroup": 32}),
    Planted("a matrix load of threadgroup memory", "out-of-range",
            "threadgroup float s[64];\ns[t] = x[t]; s[t + 32] = x[t + 32];\n" + BARRIER
            + "\nsimdgroup_float8x8 m;\nsimdgroup_load(m, s, bad ? 9 : 8); //!\nsimdgroup_store(m, out, 8);", "s[",
            options={"grid": 32, "threadgroup": 32}),
]  # fmt: skip

UNINITIALIZED = [
    Planted("threadgroup memory", "uninitialized",
            "threadgroup float s[64];\nif (!bad) s[t] = 1;\nout[i] = s[t] + x[i]; //!", "s[0]"),
    Planted("the rest of threadgroup memory", "uninitialized",
            "threadgroup float s[64];\nif (!bad || t < 60) s[t] = 1;\n" + BARRIER + "\n"
            "out[i] = s[63 - t] + x[i]; //!", "s[63]"),
    Planted("threadgroup memory of the last threadgroup", "uninitialized",
            "threadgroup float s[1];\nif (!bad || i == 0) s[0] = x[0];\n"
            "out[i] = s[0]; //!", options={"threadgroup": 1}),
    Planted("an output", "uninitialized", "if (bad) out[i] += x[i]; //!\nelse out[i] = x[i];", "out[0]"),
    Planted("a variable", "uninitialized", "float v;\nif (!bad || i == 0) v = x[i];\nout[i] = v; //!", "out[1]"),
    Planted("a sum that starts nowhere", "uninitialized",
            "half sum;\nif (!bad) sum = 0;\nfor (int k = 0; k < 4; k++) sum += half(x[k]);\nout[i] = float(sum); //!"),
    Planted("elements of a thread's array", "uninitialized",
            "float own[8];\nfor (int k = 0; k < (bad ? 7 : 8); k++) own[k] = x[k];\n"
            "out[i] = own[i & 7]; //!", "out[7]"),
]  # fmt: skip

DIVERGENCE = [
    Planted("an early return", "divergence",
            "threadgroup float s[64];\ns[t] = x[t];\nif (t == 63) { out[i] = 0; if (bad) return; }\n" + BARRIER
            + " //!\nout[i] = s[t];", "has already ended"),
    Planted("a barrier in one branch", "divergence",
            "if (t < 7 && bad) {\nthreadgroup_barrier(mem_flags::mem_none); //!\n}\n"
            "threadgroup_barrier(mem_flags::mem_none);\nout[i] = x[i];", "another barrier"),
    Planted("a barrier in a loop of different lengths", "divergence",
            "int n = bad && t == 5 ? 3 : 2;\nfor (int k = 0; k < n; k++) {\n" + BARRIER + " //!\n}\nout[i] = x[i];"),
    Planted("a SIMD-group barrier in one branch", "divergence",
            "if (t % 2 || !bad) {\nsimdgroup_barrier(mem_flags::mem_none); //!\n} else {\nout[i] = simd_sum(1);\n}\n"
            "out[i] = x[i];"),
    Planted("a shuffle from a lane that ended", "divergence",
            "out[i] = x[i];\nif (t >= 20 && bad) return;\nout[i] = simd_shuffle_down(x[i], 1); //!", "lane 20"),
    Planted("a shuffle from another branch", "divergence",
            "float v = x[i];\nif (t % 32 < 16 || !bad) {\nv = simd_shuffle_xor(v, 16); //!\n}\nout[i] = v;", "lane 16"),
    Planted("a shuffle beyond a short SIMD-group", "divergence",
            "out[i] = simd_shuffle(x[i], bad ? 30 : 3); //!", "fewer threads",
            options={"grid": 20, "threadgroup": 20, "out": ("float32", (20,))}),
    Planted("a broadcast from no lane", "divergence", "out[i] = simd_broadcast(x[i], bad ? 32 : 31); //!",
            "no such lane"),
    Planted("a matrix product without all lanes", "divergence",
            "simdgroup_float8x8 a(1.0f), b(2.0f), c(0.0f);\nout[i] = out[i + 32] = 0;\nif (t == 31 && bad) return;\n"
            "simdgroup_multiply(c, a, b); //!\nout[i] = c.thread_elements()[0];", "lane 31",
            options={"grid": 32, "threadgroup": 32}),
]  # fmt: skip

OTHERS = [
    Planted("a write to an input", "read-only", "if (bad) ((device float*)x)[i] = 1; //!\nout[i] = 2;", "x[0]"),
    Planted("a write through const_cast", "read-only",
            "device float* p = const_cast<device float*>(x);\nif (bad) p[i] = 1; //!\nout[i] = 2;", "x[0]"),
    Planted("a write to constant memory", "read-only",
            "device int* p = (device int*)(ulong)flag;\nif (bad && i == 3) p[1] = 1; //!\nout[i] = 2;", "flag[1]"),
    Planted("an atomic on an input", "read-only",
            "device atomic<float>* a = (device atomic<float>*)(ulong)x;\n"
            "if (bad) atomic_fetch_add_explicit(a, 1.0f, memory_order_relaxed); //!\nout[i] = 2;", "x[0]"),
    Planted("an integer division by zero", "crash", "int d = 1 - flag[0];\n"
            "out[i] = float(int(i + 1) / d); //!", "divides"),
    Planted("an integer remainder by zero", "crash", "uint d = 1 - flag[0];\nout[i] = float(i % d); //!", "divides"),
    Planted("a null pointer", "out-of-range", "const device float* p = bad ? (const device float*)(ulong)0 : x;\n"
            "out[i] = p[i]; //!"),
    Planted("NaN from an empty mean", "nan",
            "float n = bad ? 0 : 1, sum = 0;\nfor (int k = 0; k < n; k++) sum += x[k];\n"
            "out[i] = sum / n; //!", "0 / 0"),
    Planted("NaN from a row that is masked as a whole", "nan",
            "float low = -1 / (flag[1] * 1.0f);\nfloat best = bad ? low : 1.0f;\n"
            "out[i] = exp(low - best); //!", "-inf - -inf"),
]  # fmt: skip


@pytest.mark.parametrize("case", [*RACES, *OUT_OF_RANGE, *UNINITIALIZED, *DIVERGENCE, *OTHERS], ids=str)
def test_a_planted_fault_is_found_and_its_twin_is_clean(launch: Launcher, case: Planted) -> None:
    assert examined(launch, case, bad=False).findings == ()
    found = examined(launch, case, bad=True).findings
    of_kind = [finding for finding in found if finding.kind == case.kind]
    assert of_kind, found
    assert {finding.line for finding in of_kind} <= case.lines(), of_kind
    assert {finding.kind for finding in found} <= {case.kind, *case.also}, found
    assert any(case.words in finding.message for finding in of_kind), of_kind


@pytest.mark.parametrize("elements", [10_000, 200_000])
def test_too_much_thread_memory(launch: Launcher, elements: int) -> None:
    source = f"""float big[{elements}];
for (int k = 0; k < {elements}; k++) big[k] = x[(k + i) % 64]; //!
out[i] = big[int(x[i])];"""
    case = Planted("thread memory", "crash", source, options={"grid": 1, "threadgroup": 1, "out": ("float32", (1,))})
    findings = examined(launch, case, bad=True).findings
    assert [(f.kind, f.line) for f in findings] == ([("crash", 2)] if elements > 65_536 else [])


@pytest.mark.parametrize("which", ["not at all", "every second", "the last row", "the last threadgroup"])
def test_elements_that_are_never_written(launch: Launcher, which: str) -> None:
    condition = {
        "not at all": "false",
        "every second": "i % 2 == 0",
        "the last row": "i < 56",
        "the last threadgroup": "i < 48",
    }
    case = Planted(which, "not-written", f"if (!bad || {condition[which]}) out[i] = x[i];", options={"threadgroup": 16})
    assert examined(launch, case, bad=False).findings == ()
    (found,) = examined(launch, case, bad=True).findings
    first, count = {
        "not at all": (0, 64),
        "every second": (1, 32),
        "the last row": (56, 8),
        "the last threadgroup": (48, 16),
    }[which]
    assert found.kind == "not-written"
    assert f"{count} elements" in found.message and f"out[{first}]" in found.message


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (Limits(max_threadgroup_bytes=255), "256 bytes of threadgroup memory"),
        (Limits(max_threads_per_threadgroup=63), "a threadgroup of 64 threads"),
        (Limits(max_buffers=2), "3 buffer arguments"),
    ],
)
def test_more_than_the_chip_allows(launch: Launcher, limits: Limits, words: str) -> None:
    from metalsim import LaunchOptions

    case = Planted("limit", "limit", "threadgroup float s[64];\ns[t] = x[t];\nout[i] = s[t];")
    assert examined(launch, case, bad=False).findings == ()
    case = Planted("limit", "limit", case.source, options={"launch": LaunchOptions(limits=limits)})
    (found,) = examined(launch, case, bad=False).findings
    assert (found.kind, words in found.message) == ("limit", True)
