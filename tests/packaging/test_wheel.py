"""The wheel holds exactly our packages with their data files, and kx runs from it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"kx", "kgraph", "ingest", "retrieval", "search", "metalsim"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git tracks: a build in the checkout would leave folders behind and pick up stray files."""
    source = tmp_path_factory.mktemp("source")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, tracked):
        target = source / name.decode()
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name.decode()).read_bytes())
    return source


def build_wheel(source: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    return next(folder.glob("*.whl"))


def install(wheel: Path, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(source, tmp_path_factory.mktemp("wheel"))


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
    install(wheel, target)
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


def test_metalsim_installs_for_itself_and_its_readme_runs(source: Path, tmp_path: Path) -> None:
    wheel = build_wheel(source / "packaging" / "metalsim", tmp_path)
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"metalsim"}
    missing = {name for name in data_files() if name.startswith("metalsim/")} - set(zipfile.ZipFile(wheel).namelist())
    assert not missing
    install(wheel, tmp_path / "site")
    readme = (source / "packaging" / "metalsim" / "README.md").read_text(encoding="utf-8")
    example = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)[0]
    # Nothing else of kx can be imported: the checkout is not on the path, and the rest is not installed there.
    code = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); sys.modules['kx'] = None\n{example}"
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ
    )
    assert shown.returncode == 0, shown.stderr
    assert "kernel.metal 6 race tile[" in shown.stdout or "kernel.metal 7 race tile[" in shown.stdout
