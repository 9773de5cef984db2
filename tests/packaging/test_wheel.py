"""The wheel holds exactly our packages with their data files, and kx runs from it."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"kx", "kgraph", "ingest", "retrieval", "search", "metalsim"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # A copy of what git tracks: a build in the checkout would leave folders behind and pick up stray files.
    source = folder / "source"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, tracked):
        target = source / name.decode()
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name.decode()).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return next(folder.glob("*.whl"))


def data_files() -> set[str]:
    """Every tracked file of our packages that is not Python and not documentation."""
    listed = subprocess.run(
        ["git", "ls-files", *sorted(PACKAGES)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {name for name in listed.stdout.split() if not name.endswith((".py", ".md"))}


def test_top_level_names_and_data_files(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == PACKAGES
    missing = data_files() - names
    assert not missing
    assert any(name.endswith(".ttl") for name in names)
    assert any(name.endswith("task.toml") for name in names)
    assert any(name.endswith(".j2") for name in names)


def test_help_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    code = (
        "import sys; sys.argv = ['kx', '--help']; import kx.cli; print(kx.cli.__file__, file=sys.stderr); kx.cli.main()"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(target)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(target) in shown.stderr
    for command in ("ingest", "map", "query", "search", "resume"):
        assert command in shown.stdout
