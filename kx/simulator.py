"""Where kx meets metalsim, which stands alone: its errors as kx's own, a chip's limits as its ``Limits``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kx.errors import EnvironmentLacking, InputError

if TYPE_CHECKING:
    from metalsim.model import Limits


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


def simulator_limits(limits: Mapping[str, float]) -> Limits:
    """A chip's hard limits (``search.backends.Chip.limits``) as metalsim takes them.

    Raises:
        KeyError: a limit is missing.
    """
    from metalsim.model import Limits

    return Limits(
        max_threads_per_threadgroup=int(limits["threads-per-threadgroup"]),
        max_threadgroup_bytes=int(limits["threadgroup-memory-bytes"]),
        simd_width=int(limits["simd-width"]),
        max_buffers=int(limits["buffer-arguments"]),
    )
