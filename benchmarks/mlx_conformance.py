"""Metal's functions as ``mlx_cuda`` rewrites them, against metalsim: small kernels, one launch each.

    python benchmarks/mlx_conformance.py expect FILE.npz     on any machine: what metalsim says
    python benchmarks/mlx_conformance.py compare FILE.npz    on a machine with an NVIDIA GPU

Bodies are in benchmarks/mlx_conformance/, inputs are drawn here. Every kernel reads ``f`` (64 floats), ``h`` (64
halves) and ``i`` (64 ints) and writes ``o``; its first line says how many floats ``o`` has and the launch.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from metalsim.model import Argument, MlxKernel

BODIES = Path(__file__).parent / "mlx_conformance"
Arrays = dict[str, npt.NDArray[Any]]
Extents = tuple[int, int, int]


def load(path: Path) -> tuple[MlxKernel, Extents, Extents]:
    """A kernel, its grid and its threadgroup."""
    text = path.read_text(encoding="utf-8")
    launch = json.loads(text.splitlines()[0].removeprefix("//"))
    header, _, body = text.rpartition("// ---- body\n")
    kernel = MlxKernel(
        name=path.stem,
        source=body,
        header=header,
        inputs=(Argument("f", "float32", (64,)), Argument("h", "float16", (64,)), Argument("i", "int32", (64,))),
        outputs=(Argument("o", "float32", (launch["outputs"],)),),
        template={"T": launch.get("T", "float32")},
    )
    grid, group = tuple(launch["grid"]), tuple(launch["threadgroup"])
    return kernel, (grid[0], grid[1], grid[2]), (group[0], group[1], group[2])


def inputs() -> Arrays:
    """The same for every kernel."""
    rng = np.random.default_rng(7)
    f = rng.standard_normal(64).astype(np.float32)
    return {
        "f": f,
        "h": rng.standard_normal(64).astype(np.float16),
        "i": rng.integers(-1000, 1000, 64).astype(np.int32),
    }


def expect(path: Path) -> None:
    """Run every kernel on metalsim with all checks and keep what it writes."""
    import metalsim

    results: Arrays = {}
    with tempfile.TemporaryDirectory() as cache:
        for body in sorted(BODIES.glob("*.metal")):
            kernel, grid, group = load(body)
            compiled = metalsim.compile_kernel(kernel, mode="checked", cache=Path(cache))
            if not isinstance(compiled, metalsim.CompiledKernel):
                sys.exit(f"{body.name}: {compiled.messages}")
            shapes = {argument.name: argument.shape for argument in kernel.outputs}
            result = metalsim.run(compiled, inputs(), shapes, grid=grid, threadgroup=group)
            if result.findings:
                sys.exit(f"{body.name}: {result.findings}")
            results[body.stem] = result.outputs["o"]
            print(f"{body.stem}: {result.outputs['o'].size} values")
    np.savez(path, **results)


def compare(path: Path) -> list[dict[str, Any]]:
    """Run every kernel on the GPU; the largest difference of each to metalsim, relative to its scale."""
    import mlx.core as mx

    from search.backends.mlx_arrays import to_mlx, to_numpy
    from search.backends.mlx_cuda import CudaPlatform
    from search.backends.mlx_device import Refused

    expected = np.load(path)
    arrays = [to_mlx(mx, array) for array in inputs().values()]
    rows: list[dict[str, Any]] = []
    for body in sorted(BODIES.glob("*.metal")):
        kernel, grid, group = load(body)
        row: dict[str, Any] = {"kernel": body.stem}
        try:
            defined = CudaPlatform().define(mx, kernel, grid, group)
            (out,) = defined(
                inputs=arrays, output_shapes=[kernel.outputs[0].shape], output_dtypes=[mx.float32], grid=grid,
                threadgroup=group, init_value=float("nan"), chained=None,
            )  # fmt: skip
            found = to_numpy(mx, out).astype(np.float64)
        except (Refused, RuntimeError) as exc:
            row |= {"error": str(exc)[:600]}
        else:
            wanted = expected[body.stem].astype(np.float64)
            scale = max(1.0, float(np.nanmax(np.abs(wanted))))
            difference = np.where(np.isnan(wanted) & np.isnan(found), 0.0, np.abs(found - wanted)) / scale
            worst = int(np.argmax(np.nan_to_num(difference, nan=np.inf)))
            row |= {
                "largest": float(np.nan_to_num(difference, nan=np.inf)[worst]),
                "at": worst,
                "expected": float(wanted[worst]),
                "found": float(found[worst]),
            }
        rows.append(row)
        print(row, flush=True)
    return rows


if __name__ == "__main__":
    if sys.argv[1] == "expect":
        expect(Path(sys.argv[2]))
    else:
        compare(Path(sys.argv[2]))
