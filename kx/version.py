"""The version of kx, installed or run from its source folder."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path


def find_version() -> str:
    """The installed version, else the one that ``pyproject.toml`` of the source folder states."""
    try:
        return metadata.version("kx")
    except metadata.PackageNotFoundError:
        project = Path(__file__).resolve().parent.parent / "pyproject.toml"
        return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])
