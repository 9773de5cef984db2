"""Metal Shading Language on any CPU: compile, run, check and estimate compute kernels."""

from metalsim.kernel import CompiledKernel, compile_kernel
from metalsim.launch import RunResult, run
from metalsim.model import Argument, CompileFailure, DType, Finding, FindingKind, Limits, MlxKernel
from metalsim.raw import GROUP_COUNTS, SITE_COUNTS, RawCounts

__all__ = [
    "GROUP_COUNTS",
    "SITE_COUNTS",
    "Argument",
    "CompileFailure",
    "CompiledKernel",
    "DType",
    "Finding",
    "FindingKind",
    "Limits",
    "MlxKernel",
    "RawCounts",
    "RunResult",
    "compile_kernel",
    "run",
]
