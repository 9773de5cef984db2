"""What a run leaves for people: the best program as Metal text, and as a Python module for MLX."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from kx.errors import DataMalformed
from kx.paths import write_atomically
from search.program import IO_DTYPE
from search.run_store import Run
from search.task import Task

_FOLDER = Path(__file__).parent
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_FUNCTIONS = {"ceildiv", "min", "max"}


def template_environment() -> jinja2.Environment:
    """Jinja with our templates; a missing variable is an error, never an empty string."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([_FOLDER / "prompts", _FOLDER / "templates"]),
        undefined=jinja2.StrictUndefined,
        trim_blocks=False,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["python_text"] = python_text
    environment.filters["on_dims"] = on_dims
    environment.filters["mlx_dtype"] = mlx_dtype
    environment.filters["template_value"] = template_value
    return environment


def render(name: str, **values: Any) -> str:
    """The rendered template.

    Raises:
        DataMalformed: the template is broken or a variable is missing; names both.
    """
    try:
        return template_environment().get_template(name).render(**values)
    except jinja2.TemplateError as exc:
        raise DataMalformed(f"template {name}: {exc}") from exc


def write_best(run: Run, task: Task, best: Mapping[str, Any]) -> None:
    """Write best.metal and best.py into the run folder.

    Args:
        best: program (Program), outcome (Scored), score (float).
    """
    values = {
        "task": task,
        "run_id": run.id,
        "chip": run.configuration["chip"],
        "backend": run.configuration["backend"],
        "dimension_of": dimension_of(task),
        **best,
    }
    write_atomically(run.folder / "best.metal", render("best.metal.j2", **values))
    write_atomically(run.folder / "best.py", render("best.py.j2", **values))


def dimension_of(task: Task) -> dict[str, tuple[str, int]]:
    """Dimension -> (input, axis) that tells its extent.

    Raises:
        DataMalformed: no input has the dimension as a plain extent.
    """
    found: dict[str, tuple[str, int]] = {}
    for spec in task.inputs:
        for axis, extent in enumerate(spec.shape):
            if extent in task.dims:
                found.setdefault(extent, (spec.name, axis))
    missing = [dim for dim in task.dims if dim not in found]
    if missing:
        raise DataMalformed(f"task {task.name}: no input tells the dimension {missing[0]}")
    return {dim: found[dim] for dim in task.dims}


def on_dims(expression: str) -> str:
    """The expression over the module's local variables: dimension ``D`` is ``D_``, lest it hide an input ``D``."""
    return _IDENTIFIER.sub(lambda m: m[0] if m[0] in _FUNCTIONS else f"{m[0]}_", str(expression))


def mlx_dtype(dtype: str) -> str:
    """The MLX expression of an element type."""
    return "T" if dtype == IO_DTYPE else f"mx.{dtype}"


def template_value(value: int | bool | str) -> str:
    """The Python expression of a template argument's value."""
    if isinstance(value, int):
        return repr(value)
    if value == IO_DTYPE:
        return "T"
    return f"mx.{value}" if re.fullmatch(r"(b?float|u?int)\d+", value) else on_dims(value)


def python_text(text: str) -> str:
    """A readable Python literal of kernel text."""
    if '"""' in text or "\\" in text:
        return repr(text)
    return f'"""{text}"""'
