"""The ``mlx_cuda`` back end: a machine with an NVIDIA GPU. Metal text, rewritten, through ``mx.fast.cuda_kernel``."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kx.errors import BackendUnavailable
from metalsim.model import MlxKernel
from search.backends.cuda_text.source import write_cuda_kernel
from search.backends.mlx_arrays import Extents
from search.backends.mlx_device import AFTER, Ceilings, Definition, Refused
from search.backends.mlx_harness import MeasuringMachine, import_mlx

_INSTALL = 'pip install "mlx[cuda13]" on a machine with an NVIDIA GPU and its driver; metalsim needs neither'

# CUDA driver API, CUdevice_attribute.
_CLOCK_KHZ, _MULTIPROCESSORS, _MEMORY_CLOCK_KHZ, _BUS_BITS, _L2_BYTES = 13, 16, 36, 37, 38
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76

_FLOAT32_LANES = {(7, 0): 64, (7, 5): 64, (8, 0): 64}
"""Of a multiprocessor, by compute capability; 128 for all others (CUDA C++ programming guide, arithmetic rates)."""


@dataclass
class CudaPlatform:
    """Implements ``search.backends.mlx_device.Platform``."""

    name: str = "mlx_cuda"
    _ceilings: Ceilings | None = None

    def define(self, mx: Any, kernel: MlxKernel, grid: Extents, threadgroup: Extents) -> Definition:
        """See the protocol."""
        written = write_cuda_kernel(kernel, grid, threadgroup)
        if written.refusals:
            raise Refused(written.refusals)
        made = {
            chained: mx.fast.cuda_kernel(
                name=written.name,
                input_names=[*written.input_names, AFTER] if chained else list(written.input_names),
                output_names=list(written.output_names),
                header=written.header,
                source=written.source,
            )
            for chained in (False, True)
        }
        return partial(_launch, made)

    def ceilings(self, mx: Any) -> Ceilings:
        """See the protocol; asked of the driver."""
        if self._ceilings is None:
            self._ceilings = _driver_ceilings()
        return self._ceilings


def _launch(made: dict[bool, Any], *, chained: Any, **call: Any) -> list[Any]:
    outputs: list[Any] = made[chained is not None](**call)
    return outputs


def _driver_ceilings() -> Ceilings:
    """Of the first device.

    Raises:
        BackendUnavailable: the driver does not answer.
    """
    ask = _attribute_reader()
    lanes = _FLOAT32_LANES.get((ask(_CAPABILITY_MAJOR), ask(_CAPABILITY_MINOR)), 128)
    return Ceilings(
        bandwidth_gb_s=2 * ask(_MEMORY_CLOCK_KHZ) * 1e3 * ask(_BUS_BITS) / 8 / 1e9,
        float32_gflop_s=2.0 * lanes * ask(_MULTIPROCESSORS) * ask(_CLOCK_KHZ) / 1e6,
        cache_bytes=ask(_L2_BYTES),
    )


def _attribute_reader() -> Any:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as exc:
        raise BackendUnavailable("the NVIDIA driver's libcuda.so.1 cannot be loaded", _INSTALL) from exc
    if driver.cuInit(0) != 0:
        raise BackendUnavailable("the NVIDIA driver finds no GPU", _INSTALL)

    def ask(attribute: int) -> int:
        value = ctypes.c_int()
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0) != 0:
            raise BackendUnavailable(f"the NVIDIA driver does not tell device attribute {attribute}", _INSTALL)
        return value.value

    return ask


@dataclass
class Machine(MeasuringMachine):
    """Implements ``search.backends.Backend``.

    ``chip`` is the Apple chip whose limits a program has to keep; times and ceilings are those of the GPU at hand.
    """

    name: str = "mlx_cuda"
    platform: CudaPlatform = field(default_factory=CudaPlatform)

    def require_device(self) -> None:
        """MLX with its CUDA back end, and a GPU."""
        mx = import_mlx(_INSTALL)
        if not mx.cuda.is_available():
            raise BackendUnavailable("this MLX has no CUDA back end, or finds no NVIDIA GPU", _INSTALL)
        self.platform.ceilings(mx)
