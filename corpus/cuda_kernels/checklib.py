"""What the kernel checks share: building a .cu into a loaded library, timing, and the report.

Written for kx. SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

SEED = 20240607


def parse_arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, required=True, help="path of the JSON report")
    parser.add_argument("--quick", action="store_true", help="correctness only, e.g. under compute-sanitizer")
    return parser.parse_args()


def find_nvcc() -> str:
    for candidate in (shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if candidate and Path(candidate).exists():
            return candidate
    raise SystemExit("nvcc was not found on PATH or in /usr/local/cuda/bin")


def first_line(command: list[str], pattern: str = ".*") -> str:
    """The first output line of a command that matches the pattern, or 'unknown'."""
    try:
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return next((m.group(0) for m in map(re.compile(pattern).search, text.splitlines()) if m), "unknown")


def build(source: Path) -> tuple[ctypes.CDLL, dict]:
    """Compiles `source` for the present GPU, loads it, and returns it with ptxas' figures."""
    major, minor = torch.cuda.get_device_capability()
    library = Path(tempfile.mkdtemp(prefix="kx_check_")) / f"{source.stem}.so"
    command = [
        find_nvcc(), "-O3", "-std=c++17", f"-arch=sm_{major}{minor}", "-shared",
        "-Xcompiler", "-fPIC", "-Xptxas", "-v", "-o", str(library), str(source),
    ]  # fmt: skip
    started = time.perf_counter()
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    log = result.stdout + result.stderr
    if result.returncode != 0:
        raise SystemExit(f"compilation failed:\n{log}")
    entries = re.findall(
        r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores, (\d+) bytes spill loads"
        r".*?Used (\d+) registers",
        log,
        re.DOTALL,
    )
    kernels = [
        {"symbol": s, "spill_store_bytes": int(a), "spill_load_bytes": int(b), "registers": int(r)}
        for s, a, b, r in entries
    ]
    info = {
        "arch": f"sm_{major}{minor}",
        "seconds": time.perf_counter() - started,
        "warnings": [line for line in log.splitlines() if "warning" in line.lower()],
        "kernels": kernels,
    }
    return ctypes.CDLL(str(library)), info


def environment() -> dict:
    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size,
        "driver": first_line(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]),
        "nvcc": first_line([find_nvcc(), "--version"], r"release .*"),
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "python": sys.version.split()[0],
    }


def expect_success(status: int) -> None:
    if status != 0:
        raise RuntimeError(f"the launcher returned cudaError_t {status}")


def stream_handle() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def pointer(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def buffer_sets(bytes_per_set: int) -> int:
    """How many sets to rotate through so that no launch finds its inputs in L2."""
    l2 = torch.cuda.get_device_properties(0).L2_cache_size
    return 1 if bytes_per_set >= 3 * l2 else 3 * l2 // bytes_per_set + 1


def time_interleaved(candidates: dict, repeats: int = 30, warmup: int = 8, launches: int = 1) -> dict[str, list[float]]:
    """Milliseconds per call. The candidates take turns, so clock drift meets all of them alike.

    Each candidate is a function of the call's number, which it uses to pick its buffers. With
    `launches` above 1 a sample is the mean of that many calls between two events: for kernels so
    short that the events themselves would show.
    """
    for i in range(warmup):
        for call in candidates.values():
            call(i)
    torch.cuda.synchronize()
    events = {name: [] for name in candidates}
    for i in range(repeats):
        # Keeps the GPU busy while the host queues the launches; otherwise an idle GPU would
        # charge the launch latency to the interval between the two events.
        torch.cuda._sleep(1_000_000)
        for name, call in candidates.items():
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for j in range(launches):
                call(i * launches + j)
            stop.record()
            events[name].append((start, stop))
    torch.cuda.synchronize()
    return {name: [a.elapsed_time(b) / launches for a, b in pairs] for name, pairs in events.items()}


def summarize(samples: list[float]) -> dict:
    return {"median_ms": statistics.median(samples), "min_ms": min(samples), "samples_ms": samples}


class Report:
    def __init__(self, kernel: str, build_info: dict):
        self.failures: list[str] = []
        self.data = {
            "kernel": kernel,
            "environment": environment(),
            "build": build_info,
            "cases": [],
            "timings": [],
        }
        if build_info["warnings"]:
            self.failures.append(f"compiler warnings: {build_info['warnings']}")
        self.started = time.perf_counter()

    def case(self, name: str, passed: bool, **figures) -> None:
        self.data["cases"].append({"name": name, "passed": bool(passed), **figures})
        if not passed:
            self.failures.append(name)
            print(f"FAILED {name}: {figures}", flush=True)

    def timing(self, name: str, **figures) -> None:
        self.data["timings"].append({"name": name, **figures})

    def finish(self, path: Path, table: list[str]) -> int:
        cases = self.data["cases"]
        self.data["failures"] = self.failures
        self.data["seconds"] = time.perf_counter() - self.started
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.data, indent=1) + "\n")
        worst = max((c.get("error_over_tolerance", 0.0) for c in cases), default=0.0)
        print(f"{self.data['kernel']} on {self.data['environment']['device']}")
        print("\n".join(table))
        print(
            f"{len(cases)} cases, {len(self.failures)} failures, worst error / tolerance "
            f"{worst:.3f}, {self.data['seconds']:.0f} s"
        )
        return 1 if self.failures else 0
