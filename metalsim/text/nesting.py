"""Text that is nested too deeply for the reader is refused in words, like everything else that does not compile."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from metalsim.model import CompileFailure

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


def refuse_deep_nesting(compile_text: Callable[_Given, _Made]) -> Callable[_Given, _Made | CompileFailure]:
    """Make a function return a ``CompileFailure`` where Python's stack does not suffice."""

    @functools.wraps(compile_text)
    def guarded(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made | CompileFailure:
        try:
            return compile_text(*args, **kwargs)
        except RecursionError:
            return CompileFailure(("namespaces, classes or brackets are nested too deeply",))

    return guarded
