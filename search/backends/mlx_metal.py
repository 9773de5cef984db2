"""The ``mlx_metal`` back end: a Mac. Programs as they are, through ``mx.fast.metal_kernel``.

Written against MLX's documented interface and not run on Apple hardware yet: docs/backends.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kx.errors import BackendUnavailable, InputError
from metalsim.model import MlxKernel
from search.backends.mlx_arrays import Extents
from search.backends.mlx_device import AFTER, Ceilings, Definition, Refused
from search.backends.mlx_harness import MeasuringMachine, import_mlx

BUFFERS = 31
"""Entries of Metal's buffer argument table."""

_INSTALL = "pip install mlx on a Mac with Apple Silicon; elsewhere use --backend metalsim"
_HELPERS = ("shape", "strides", "ndim")
_VARIANT = re.compile(r"-\d+-core$")


@dataclass
class MetalPlatform:
    """Implements ``search.backends.mlx_device.Platform``.

    Attributes:
        quantities: of the chip's profile, from which the ceilings follow; Metal does not tell them.
    """

    quantities: dict[str, float]
    name: str = "mlx_metal"

    def define(self, mx: Any, kernel: MlxKernel, grid: Extents, threadgroup: Extents) -> Definition:
        """See the protocol."""
        names = [argument.name for argument in kernel.inputs]
        helpers = sum(f"{name}_{helper}" in kernel.source for name in names for helper in _HELPERS)
        if len(names) + helpers + len(kernel.outputs) + 1 > BUFFERS:
            raise Refused((f"{kernel.name} takes all {BUFFERS} buffers; the harness needs one to order calls",))
        text = f"{kernel.header}\0{kernel.source}\0{sorted(kernel.template.items())}"
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        made = {
            chained: mx.fast.metal_kernel(
                name=f"{kernel.name}_{digest}",
                input_names=[*names, AFTER] if chained else names,
                output_names=[argument.name for argument in kernel.outputs],
                header=kernel.header,
                source=kernel.source,
            )
            for chained in (False, True)
        }
        template = [
            (name, getattr(mx, value) if isinstance(value, str) else value) for name, value in kernel.template.items()
        ]
        return partial(_launch, made, template)

    def ceilings(self, mx: Any) -> Ceilings:
        """See the protocol; from the chip's profile."""
        figures = self.quantities
        lanes = figures["gpu-cores"] * figures["schedulers-per-core"] * figures["simd-width"]
        return Ceilings(
            bandwidth_gb_s=figures["memory-bandwidth"],
            float32_gflop_s=lanes * 2 * figures["gpu-clock"],
            cache_bytes=max(figures["slc-bytes"], figures["l2-bytes"]),
        )


def _launch(made: dict[bool, Any], template: list[tuple[str, Any]], *, chained: Any, **call: Any) -> list[Any]:
    outputs: list[Any] = made[chained is not None](template=template, **call)
    return outputs


def chip_slug(device_name: str) -> str:
    """The slug that a device called ``Apple M3 Max`` has among the chips, without the number of its cores."""
    return re.sub(r"\W+", "-", device_name.removeprefix("Apple").strip().lower())


def profiles_of(device_name: str, slugs: Sequence[str]) -> list[str]:
    """Those of ``slugs`` that are profiles of the device: of one chip, however many of its cores work."""
    return [slug for slug in slugs if _VARIANT.sub("", slug) == chip_slug(device_name)]


@dataclass
class Machine(MeasuringMachine):
    """Implements ``search.backends.Backend``."""

    name: str = "mlx_metal"
    platform: MetalPlatform = field(init=False)

    def __post_init__(self) -> None:
        self.platform = MetalPlatform(dict(self.chip.quantities))

    def require_device(self) -> None:
        """MLX, Metal, and the chip that was named."""
        mx = import_mlx(_INSTALL)
        if not mx.metal.is_available():
            raise BackendUnavailable("MLX finds no Metal device on this machine", _INSTALL)
        device = str(mx.device_info().get("device_name", ""))
        if not profiles_of(device, [self.chip.slug]):
            raise InputError(
                f"this machine has {device or 'an unknown chip'}, not {self.chip.slug}",
                f"name it: --chip {chip_slug(device)}",
            )
