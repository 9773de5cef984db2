"""``kx check``: a Metal kernel file through the compiler and, given sizes, through every check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kx.errors import InputError
from kx.settings import Settings

if TYPE_CHECKING:
    from metalsim import CompiledFile, Finding

_ELEMENTS_PER_THREAD = 16
_THREADGROUP_BYTES = 32768


def _size(_context: click.Context, parameter: click.Parameter, text: str | None) -> tuple[int, int, int] | None:
    if text is None:
        return None
    parts = text.split(",")
    if not 1 <= len(parts) <= 3 or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise click.BadParameter(f"{text!r} is not X,Y,Z", param=parameter)
    x, y, z = (*map(int, parts), 1, 1)[:3]
    return x, y, z
