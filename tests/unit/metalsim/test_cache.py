"""The cache of compiled kernels: damaged entries are built again, and a folder that cannot be used is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from metalsim import Argument, CompiledKernel, MlxKernel, compile_kernel, run
from metalsim.build.cache import CacheFolder
from metalsim.errors import EnvironmentLacking

KERNEL = MlxKernel(
    "twice",
    "uint i = thread_position_in_grid.x;\nout[i] = 2 * x[i];",
    (Argument("x", "float32", (64,)),),
    (Argument("out", "float32", (64,)),),
)
X = np.arange(64, dtype=np.float32)
ROOT = str(Path(__file__).parents[3])
COMPILE = """
import sys
from pathlib import Path
from tests.unit.metalsim.test_cache import compiled
print(compiled(Path(sys.argv[1])).library, flush=True)
"""


def compiled(cache: Path) -> CompiledKernel:
    result = compile_kernel(KERNEL, mode="counted", cache=cache)
    assert isinstance(result, CompiledKernel), result
    return result


def works(kernel: CompiledKernel) -> bool:
    result = run(kernel, {"x": X}, {}, grid=(64, 1, 1), threadgroup=(64, 1, 1))
    return bool((result.outputs["out"] == 2 * X).all()) and result.raw is not None


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def entry(cache: Path) -> tuple[Path, Path]:
    """Library and description of the only entry."""
    library = compiled(cache).library
    (described,) = (cache / "metalsim").glob("*.json")
    return library, described


def _halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    "damage",
    [
        _halve,
        lambda path: path.write_bytes(b""),
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b"\x80\x04\x95junk" + os.urandom(64)),
    ],
    ids=["halved", "empty", "gone", "junk"],
)
def test_a_damaged_entry_is_built_again(shared: Path, which: int, damage: Callable[[Path], None]) -> None:
    before = compiled(shared)
    damage(entry(shared)[which])
    after = compiled(shared)
    assert (after.sites, after.blocks) == (before.sites, before.blocks)
    assert works(after)


@pytest.mark.parametrize(
    "change",
    [
        {"library": "../../../etc/passwd"},
        {"library": 3},
        {"format": 0},
        {"sites": [{"index": 0}]},
        {"sites": 7},
        {"blocks": [[]]},
        {"blocks": None},
    ],
)
def test_a_description_that_fits_nothing_is_built_again(shared: Path, change: dict[str, object]) -> None:
    _, described = entry(shared)
    described.write_text(json.dumps(json.loads(described.read_text(encoding="utf-8")) | change), encoding="utf-8")
    assert works(compiled(shared))


def test_a_damaged_runtime_is_built_again(shared: Path) -> None:
    compiled(shared)
    for path in (shared / "metalsim").glob("*.o"):
        _halve(path)
    entry(shared)[1].unlink()
    assert works(compiled(shared))


def test_killed_compilations_leave_a_cache_that_works(tmp_path: Path) -> None:
    for delay_s in (0.2, 0.5, 0.8):
        process = subprocess.Popen(
            [sys.executable, "-c", COMPILE, str(tmp_path)], env=os.environ | {"PYTHONPATH": ROOT},
            cwd=ROOT, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(delay_s)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert works(compiled(tmp_path))


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(EnvironmentLacking, match="cannot write to the cache folder") as caught:
        compile_kernel(KERNEL, mode="checked", cache=tmp_path / "file")
    assert "another cache folder" in caught.value.hint


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path)
    with pytest.raises(EnvironmentLacking, match="No space left"), folder.workplace():
        raise OSError(28, "No space left on device")
    assert list(folder.path.iterdir()) == []


def test_old_entries_go_and_recent_ones_stay(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path)
    for age, name in enumerate(("new.so", "old.so", "older.so", "oldest.so")):
        path = folder.path / name
        path.write_bytes(b"x" * 100)
        os.utime(path, (time.time() - age * 7200, time.time() - age * 7200))
    abandoned = folder.path / "build-abandoned"
    abandoned.mkdir()
    os.utime(abandoned, (0, 0))
    folder.prune(250)
    assert {path.name for path in folder.path.iterdir()} == {"new.so", "old.so"}
    folder.prune(0)
    assert {path.name for path in folder.path.iterdir()} == {"new.so"}
