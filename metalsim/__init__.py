"""Metal Shading Language on any CPU: compile, run, check and estimate compute kernels."""

from metalsim.dispatch import Fresh, ReadOnly, run_file
from metalsim.examine import examine, examine_file, examine_kernel, trace_nan
from metalsim.file import CompiledFile, FileOptions, compile_file, list_kernels
from metalsim.kernel import CompiledKernel, compile_kernel
from metalsim.launch import LaunchOptions, RunResult, run
from metalsim.model import Argument, CompileFailure, DType, Finding, FindingKind, Limits, MlxKernel
from metalsim.raw import GROUP_COUNTS, SITE_COUNTS, RawCounts

__all__ = [
    "GROUP_COUNTS",
    "SITE_COUNTS",
    "Argument",
    "CompileFailure",
    "CompiledFile",
    "CompiledKernel",
    "DType",
    "FileOptions",
    "Finding",
    "FindingKind",
    "Fresh",
    "LaunchOptions",
    "Limits",
    "MlxKernel",
    "RawCounts",
    "ReadOnly",
    "RunResult",
    "compile_file",
    "compile_kernel",
    "examine",
    "examine_file",
    "examine_kernel",
    "list_kernels",
    "run",
    "run_file",
    "trace_nan",
]
