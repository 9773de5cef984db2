"""Metal Shading Language on any CPU: compile, run, check and estimate compute kernels."""

from metalsim.build.file import CompiledFile, FileOptions, compile_file, list_kernels
from metalsim.build.kernel import CompiledKernel, compile_kernel
from metalsim.execute.dispatch import Fresh, ReadOnly, run_file
from metalsim.execute.examine import examine, examine_file, examine_kernel, trace_nan
from metalsim.execute.launch import LaunchOptions, RunResult, run
from metalsim.execute.raw import GROUP_COUNTS, SITE_COUNTS, RawCounts
from metalsim.model import Argument, CompileFailure, DType, Finding, FindingKind, Limits, MlxKernel

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
