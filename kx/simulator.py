"""metalsim's errors as kx's own: metalsim stands alone and has its own tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kx.errors import EnvironmentLacking, InputError


@contextmanager
def simulator_errors() -> Iterator[None]:
    """Raise what metalsim raises inside as kx's error of the same exit code; also a decorator.

    Raises:
        InputError: metalsim was given what doesn't fit.
        EnvironmentLacking: it lacks a compiler or memory.
    """
    from metalsim import errors

    try:
        yield
    except errors.EnvironmentLacking as exc:
        raise EnvironmentLacking(exc.message, exc.hint) from exc
    except errors.MetalsimError as exc:
        raise InputError(exc.message, exc.hint) from exc
