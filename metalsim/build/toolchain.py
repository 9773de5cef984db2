"""Compiles C++ text to a library that the runtime is linked into, with a cache by content.

The compiler is clang, by default the one inside the ``ziglang`` package. No C++ library and no compiler
runtime are used, so that a kernel takes a fraction of a second. Entries appear in the cache by rename:
several processes may share it.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from metalsim.build.cache import CacheFolder
from metalsim.build.commands import Commands
from metalsim.build.compiler import (
    COMPILER_VARIABLE,
    HINT,
    Compilation,
    compiler_version,
    default_compiler,
    run_compiler,
)
from metalsim.build.containment import escapes
from metalsim.build.instrument import USER_FILES, Instrumented, instrument
from metalsim.build.meetings import gather_meetings
from metalsim.errors import CompilerMissing, InputError
from metalsim.model import CompileFailure
from metalsim.text.includes import UNDEFINED, IncludeFolders, body_faults, listed_files, pragma_faults
from metalsim.text.swizzles import precompiled_heads

__all__ = [
    "COMPILER_VARIABLE",
    "Built",
    "Mode",
    "Toolchain",
    "compiler_version",
    "default_compiler",
    "error_messages",
    "failure_messages",
    "narrowing_messages",
    "text_faults",
]

Mode = Literal["checked", "counted", "traced", "plain"]
"""What a compiled kernel does besides its work: find faults, count, find faults and where NaNs are born, nothing."""

_PACKAGE = Path(__file__).parent.parent
_INCLUDE = _PACKAGE / "include"
_RUNTIME = _PACKAGE / "runtime"
_MESSAGE_LIMIT = 20
_MESSAGE_CHARACTERS = 600
_MAX_TEXT_BYTES = 8 << 20
_MACRO = re.compile(r"[A-Za-z_]\w*(?:\([\w, .]*\))?")
_NARROWING = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+)(?::\d+)?: warning: implicit conversion loses floating-point precision: "
    r"'(?:[\w ]+ )?float'[^\n]* to '[^\n]*(?:bfloat|__bf16)",
    re.MULTILINE,
)
_ASSERTION = re.compile(r"^static assertion failed(?: due to requirement '.*')?: ")
_DEFINE = re.compile(r"^#define (\w+) ?(.*)$", re.MULTILINE)
_TOO_LARGE = re.compile(r"relocation \S+ (?:is )?out of range|(?:section|file|output) .*too large")
_DIAGNOSTIC = re.compile(r"^(?P<file>[^:\n]+):(?P<line>\d+)(?::\d+)?: (?P<level>fatal error|error|note): (?P<text>.*)$")

_METAL_MACROS = {"__METAL__": "1", "__METAL_VERSION__": "320", "__HAVE_BFLOAT__": "1"}
_PREPROCESSOR_FLAGS = (
    "-E", "-x", "c++", "-std=c++17", "-w", "-nostdinc", "-nostdinc++", "-undef", "-fno-sanitize=all",
    "-fno-caret-diagnostics", "-fno-color-diagnostics",
)  # fmt: skip
_INLINE_FLAGS = ("-mllvm", "-inline-threshold=100000")

# Optimized without vectorization, contraction or unrolling by guess: what runs is what the text says, lane
# by lane. Loops of constant length are still unrolled.
_KERNEL_FLAGS = (
    "-std=c++17", "-O2", "-fPIC", "-gline-tables-only", "-fdebug-compilation-dir=.",
    "-nostdinc", "-nostdinc++",
    "-fno-exceptions", "-fno-rtti", "-fno-threadsafe-statics", "-fno-stack-protector", "-fstack-clash-protection",
    # An endless loop is a hang, not licence to drop what follows.
    "-fno-strict-aliasing", "-fno-finite-loops",
    # The one warning is an error in Metal, for bfloat.
    "-Wno-everything", "-Wimplicit-float-conversion",
    "-fno-vectorize", "-fno-slp-vectorize", "-mllvm", "-unroll-runtime=false",
    # As on a GPU: 32-bit indices stay 32 bits wide.
    "-mllvm", "-indvars-widen-indvars=false",
    "-fno-math-errno", "-ffp-contract=off",
    "-Xclang", "-ffloat16-excess-precision=none", "-Xclang", "-fbfloat16-excess-precision=none",
    "-fno-caret-diagnostics", "-fno-color-diagnostics", "-ftemplate-backtrace-limit=0", "-ferror-limit=20",
    "-fno-spell-checking", "-Xclang", "-fsycl-is-device", "-Xclang", "-aux-triple", "-Xclang",
)  # fmt: skip
# The attribute of the address sanitizer keeps the optimizer from hoisting loads out of their branch,
# which would look like races and uninitialized reads; its own hooks are switched off.
_NO_SPECULATION = (
    "-fno-sanitize=all", "-Xclang", "-fsanitize=kernel-address",
    *(part for flag in ("instrument-reads", "instrument-writes", "instrument-atomics", "stack", "globals")
      for part in ("-mllvm", f"-asan-{flag}=0")),
)  # fmt: skip
# What was never written is a NaN, and address 0 is one like others, instead of licence for the optimizer.
_CHECK_FLAGS = ("-fsanitize=array-bounds", "-ftrivial-auto-var-init=pattern", "-fno-delete-null-pointer-checks")
# Instructions that the optimizer moves between branches, or merges, lose their line.
_LINE_FLAGS = tuple(
    part
    for flag in (
        "hoist-common-insts=false", "sink-common-insts=false", "phi-node-folding-threshold=0",
        "two-entry-phi-node-folding-threshold=0", "speculate-one-expensive-inst=false",
        "instcombine-code-sinking=false", "enable-gvn-sink=false",
    )
    for part in ("-mllvm", f"-{flag}")
)  # fmt: skip
# Headers are known by their content, not by their times; what they need of templates is made once.
_HEADER_FLAGS = ("-Xclang", "-fno-pch-timestamp", "-Xclang", "-fpch-instantiate-templates", "-x", "c++-header")
# A kernel that is counted should have the instructions that a GPU compiler makes, which unrolls loops of constant
# length; one that is checked should compile fast. The IR is optimized in both; what is left is code generation.
_MODE_FLAGS: dict[Mode, tuple[str, ...]] = {
    "checked": (*_CHECK_FLAGS, *_LINE_FLAGS),
    "counted": ("-DMSIM_COUNTED", "-mllvm", "-unroll-threshold=4000"),
    "traced": (*_CHECK_FLAGS, *_LINE_FLAGS),
    "plain": ("-DMSIM_PLAIN",),
}
_CODE_GENERATION: dict[Mode, str] = {"checked": "-O0", "counted": "-O1", "traced": "-O0", "plain": "-O2"}
_RUNTIME_FLAGS = (
    "-O2", "-fPIC", "-fvisibility=hidden", "-ffp-contract=off", "-fno-stack-protector", "-fno-sanitize=all", "-w",
)  # fmt: skip
# The IR is optimized already. Blocks stay in the order of the source, since the lowest waiting call site goes first.
_OBJECT_FLAGS = (
    "-c", "-fPIC", "-fno-sanitize=all", "-fno-stack-protector", "-w", "-Xclang", "-disable-llvm-passes",
    "-mllvm", "-disable-block-placement", "-mllvm", "-enable-tail-merge=0",
    # What cannot be reached ends the launch, instead of running into the next function.
    "-mllvm", "-trap-unreachable",
)  # fmt: skip


@dataclass(frozen=True)
class Built:
    """A compiled kernel's files.

    Attributes:
        library: shared library with ``msim_run``.
        instrumented: sites and blocks; its ``text`` is dropped to keep the cache small.
    """

    library: Path
    instrumented: Instrumented


@dataclass(frozen=True)
class _Preprocessed:
    """A text after the preprocessor, and the files that it read."""

    text: str
    files: frozenset[Path]


# Whoever compiles several kernels of a file, or one in several modes, has it preprocessed once.
_recent_texts: dict[str, _Preprocessed] = {}
_RECENT_TEXTS = 4


def _remember(key: str, text: _Preprocessed) -> None:
    _recent_texts.pop(key, None)
    _recent_texts[key] = text
    for oldest in list(_recent_texts)[:-_RECENT_TEXTS]:
        _recent_texts.pop(oldest, None)


@functools.cache
def _package_digest() -> str:
    digest = hashlib.sha256()
    paths = [p for p in _PACKAGE.rglob("*") if p.suffix in (".h", ".c", ".py") or p.parent == _INCLUDE]
    for path in sorted(p for p in paths if p.is_file()):
        digest.update(str(path.relative_to(_PACKAGE)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Toolchain:
    """A compiler and a cache folder.

    Args:
        cache: folder for compiled kernels and the compiler's own cache; created when needed.
        compiler: command of the compiler; by default ``default_compiler()``.
    """

    def __init__(self, cache: Path, compiler: Sequence[str] | None = None) -> None:
        self._cache = CacheFolder(cache)
        self._compiler = tuple(compiler) if compiler else default_compiler()
        self._commands = Commands(self._compiler)

    def preprocess(self, path: Path, include: Sequence[Path], macros: Mapping[str, str]) -> str | CompileFailure:
        """The text of a ``.metal`` file with its includes and macros resolved, and line markers.

        Args:
            path: of the file; includes in quotes are looked for beside it.
            include: more folders to look in.
            macros: definitions, by name.

        Raises:
            InputError: there is no such file, or a macro's name is none.
            CompilerMissing: the compiler's command cannot be started.
            EnvironmentLacking: the cache folder cannot be written.
        """
        _check_given(path, macros)
        folders, beside = IncludeFolders(include, _INCLUDE), path.resolve().parent
        sources = folders.survey(path)
        if sources.faults:
            return CompileFailure(sources.faults[:_MESSAGE_LIMIT])
        flags = [f"-D{name}={value}" for name, value in ({**_METAL_MACROS, **macros}).items()]
        flags += [f"-I{folder}" for folder in (*folders.given, _INCLUDE)]
        flags += [*_undefined(probes=sources.probes), f"-fmacro-prefix-map={beside}/="]
        key = self._key("text", sources.digest, str(path.resolve()), *flags)
        text = _recent_texts.get(key) or self._preprocess(path, flags, folders)
        if isinstance(text, CompileFailure):
            return text
        if text.files <= sources.files:
            _remember(key, text)
        faults = pragma_faults(text.text)
        return CompileFailure(faults) if faults else text.text

    def _preprocess(self, path: Path, flags: Sequence[str], folders: IncludeFolders) -> _Preprocessed | CompileFailure:
        beside = path.resolve().parent
        with self._cache.workplace() as folder:
            output = ("-MD", "-MT", "text", "-MF", "files", "-o", "text.ii")
            command = (*self._commands.kernel, *_PREPROCESSOR_FLAGS, *flags, *output, str(path.resolve()))
            done = self._run(command, folder)
            listed = _content(folder / "files")
            strangers = folders.strangers(listed, beside, ())
            if done.returncode != 0 or strangers:
                searched = f"; looked in {folders.searched(beside)}"
                found = failure_messages(done, None)
                messages = [m + searched if m.endswith("file not found") else m for m in found]
                return CompileFailure(strangers or tuple(messages))
            size = (folder / "text.ii").stat().st_size
            if size > _MAX_TEXT_BYTES:
                return CompileFailure(
                    (f"the preprocessed text has {size >> 20} MiB, more than {_MAX_TEXT_BYTES >> 20}",)
                )
            text = (folder / "text.ii").read_text(encoding="utf-8", errors="replace")
        return _Preprocessed(text, frozenset(Path(name).resolve() for name in listed_files(listed)))

    def build(
        self, text: str, *, mode: Mode, user_files: Sequence[str] = USER_FILES, inlined: bool = False
    ) -> Built | CompileFailure:
        """Compile ``text`` (from ``metalsim.text.signature.cxx_text``), or take it from the cache.

        Args:
            text: C++ for the shim headers.
            mode: what to instrument.
            user_files: names of the files whose lines are reported.
            inlined: whether to inline every function, as a GPU compiler does.

        Raises:
            CompilerMissing: the compiler's command cannot be started.
        """
        key = self._key("kernel", mode, text)
        found = self._cache.kernel(key)
        return Built(*found) if found else self._build(key, text, mode, user_files, inlined)

    def _build(
        self, key: str, text: str, mode: Mode, user_files: Sequence[str], inlined: bool
    ) -> Built | CompileFailure:
        runtime = self._runtime_object()
        with self._cache.workplace() as folder:
            flags = (*_KERNEL_FLAGS, self._commands.triple, *_NO_SPECULATION, *_MODE_FLAGS[mode], f"-I{_INCLUDE}")
            flags += _INLINE_FLAGS if inlined else ()
            header, rest = self._precompiled(text, flags)
            # Here, not by flags: those of a precompiled header win.
            absent = "".join(f"#undef {name}\n" for name in ("__has_include", *UNDEFINED))
            (folder / "kernel.cpp").write_text(absent + rest, encoding="utf-8", errors="replace")
            output = ("-S", "-emit-llvm", "-o", "kernel.ll", "kernel.cpp")
            done = self._run((*self._commands.kernel, *flags, *header, *output), folder)
            if done.returncode != 0:
                return CompileFailure(failure_messages(done, (*user_files, "signature")))
            narrowed = narrowing_messages(done.stderr, user_files)
            if narrowed:
                return CompileFailure(narrowed)
            text = (folder / "kernel.ll").read_text(encoding="utf-8")
            refused = escapes(text)
            if refused:
                return CompileFailure(refused)
            if mode == "plain":
                text = gather_meetings(text)
            instrumented = instrument(text, mode=mode, user_files=user_files)
            (folder / "hooked.ll").write_text(instrumented.text, encoding="utf-8")
            failure = self._link(folder, _CODE_GENERATION[mode], runtime)
            if failure:
                return failure
            kept = Instrumented("", instrumented.sites, instrumented.blocks)
            return Built(self._cache.store_kernel(key, folder / "kernel.so", kept), kept)

    def _link(self, folder: Path, level: str, runtime: Path) -> CompileFailure | None:
        """Make the library of ``hooked.ll``; why it cannot be one."""
        command = (*self._commands.kernel, *_OBJECT_FLAGS, level, "-o", "kernel.o", "hooked.ll")
        done = self._run(command, folder)
        if done.returncode == 0:
            done = self._run((*self._commands.link, "-o", "kernel.so", "kernel.o", str(runtime)), folder)
        if done.fault:
            return CompileFailure((done.fault,))
        if _TOO_LARGE.search(done.stderr):
            return CompileFailure(("threadgroup arrays, constants or code are too large for any address",))
        if done.returncode != 0:
            raise CompilerMissing(f"the compiler cannot link a kernel: {done.stderr.strip()[-400:]}", HINT)
        return None

    def _precompiled(self, text: str, flags: Sequence[str]) -> tuple[tuple[str, ...], str]:
        """Flags that take the shim headers from the cache in compiled form, and the text without them.

        Only texts that need no headers of their own have this. A compiler that cannot do it reads the headers.
        """
        head, header = next(((h, name) for h, name in precompiled_heads() if text.startswith(h)), ("", ""))
        if not head:
            return (), text
        defined = tuple(f"-D{match[1]}={match[2]}" for match in _DEFINE.finditer(head))
        key = self._key("header", head, str(_INCLUDE), *flags)
        found = self._cache.object_file(key)
        if found is None:
            with self._cache.workplace() as folder:
                made = (*_HEADER_FLAGS, "-o", "head.pch", str(_INCLUDE / header))
                done = self._run((*self._commands.kernel, *flags, *defined, *made), folder)
                if done.returncode != 0 or done.fault:
                    return (), text
                found = self._cache.store_object(key, folder / "head.pch")
        return (*defined, "-include-pch", str(found)), text[len(head) :]

    def _runtime_object(self) -> Path:
        key = self._key("runtime")
        found = self._cache.object_file(key)
        if found is not None:
            return found
        with self._cache.workplace() as folder:
            command = (*self._commands.runtime, *_RUNTIME_FLAGS, "-x", "c", "-std=gnu11", "-c", "-o", "runtime.o")
            done = self._run((*command, str(_RUNTIME / "runtime.c")), folder)
            if done.returncode != 0:
                raise CompilerMissing(f"the compiler cannot build the runtime: {done.stderr.strip()[-400:]}", HINT)
            return self._cache.store_object(key, folder / "runtime.o")

    def _key(self, *parts: str) -> str:
        identity = (_package_digest(), compiler_version(self._compiler), *self._commands.kernel, *parts)
        return hashlib.sha256("\0".join(identity).encode()).hexdigest()[:40]

    def _run(self, command: Sequence[str], folder: Path) -> Compilation:
        return run_compiler(command, folder, self._cache.path / "compiler")


def _check_given(path: Path, macros: Mapping[str, str]) -> None:
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    wrong = [name for name, value in macros.items() if not _MACRO.fullmatch(name) or "\n" in value]
    if wrong:
        raise InputError(f"{wrong[0]!r} cannot be defined as a macro")


def _undefined(*, probes: bool) -> list[str]:
    return [f"-U{name}" for name in (*UNDEFINED, *(() if probes else ("__has_include",)))]


def _content(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def text_faults(text: str, place: str) -> tuple[str, ...]:
    """Directives of a kernel body or header that reach outside Metal; ``place`` names it."""
    return body_faults(text, place, _INCLUDE)


def failure_messages(done: Compilation, user_files: Collection[str] | None) -> tuple[str, ...]:
    """Why a compilation failed: the limit that it met, or the errors that clang found."""
    if done.fault:
        return (done.fault,)
    found = error_messages(done.stderr, user_files)
    return tuple(m if len(m) <= _MESSAGE_CHARACTERS else f"{m[:_MESSAGE_CHARACTERS]} ..." for m in found)


def narrowing_messages(diagnostics: str, user_files: Collection[str]) -> tuple[str, ...]:
    """Implicit conversions from float to bfloat in the user's files, which Metal refuses.

    Args:
        diagnostics: warnings that clang printed.
        user_files: names of the files that are the user's.
    """
    found = [
        f"{match['file']}:{match['line']}: implicit conversion from float to bfloat; write bfloat(...)"
        for match in _NARROWING.finditer(diagnostics)
        if match["file"] in user_files
    ]
    return tuple(dict.fromkeys(found))[:_MESSAGE_LIMIT]


def error_messages(
    diagnostics: str, user_files: Collection[str] | None = (*USER_FILES, "signature")
) -> tuple[str, ...]:
    """The errors among clang's diagnostics as ``place:line: text``.

    An error inside the shim headers is charged to the user's line that led there, when a note says so.

    Args:
        diagnostics: what clang printed.
        user_files: names of the files that are the user's; None when all are.
    """
    messages: list[str] = []
    ours = False
    for line in diagnostics.splitlines():
        match = _DIAGNOSTIC.match(line)
        if match is None:
            continue
        name = Path(match["file"]).name
        users = user_files is None or name in user_files
        place = f"{name}:{match['line']}: " if users else ""
        if match["level"] != "note":
            messages.append(place + _ASSERTION.sub("", match["text"]))
            ours = not users
        elif ours and users and messages:
            messages[-1] = place + messages[-1]
            ours = False
    if not messages:
        messages = [line for line in diagnostics.splitlines() if line.strip()][-3:]
    return tuple(dict.fromkeys(messages))[:_MESSAGE_LIMIT]
