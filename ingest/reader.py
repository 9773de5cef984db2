"""One CUDA file to a ``SourceReading``: kernels, primitives, concepts."""

from __future__ import annotations

import hashlib
import re
import stat
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from ingest.detectors import detect, versions_digest
from ingest.model import KernelFact, PrimitiveUse, SourceReading
from ingest.parse import parse
from ingest.syntax import SyntaxView
from ingest.text import clean, decode
from kx.errors import FileUnreadable

CUDA_SUFFIXES = frozenset({".cu", ".cuh"})
MIXED_SUFFIXES = frozenset({".h", ".hpp", ".cpp", ".inl"})
"""Suffixes of files that are read only when they contain CUDA."""

_CUDA_SIGNS = re.compile(
    r"\b__(?:global|device|shared|constant|launch_bounds)__\b|<<<|\b(?:threadIdx|blockIdx)\b"
    r"|\b(?:cute|cutlass|cub|wmma|cooperative_groups)::|\bcuda(?:Stream_t|LaunchKernel\w*|FuncSetAttribute)\b"
)
_CUDA_INCLUDE = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"](?:cuda|cute/|cutlass/|cub/|cooperative_groups)", re.MULTILINE
)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_STRINGS = re.compile(r'"(?:\\.|[^"\\])*"')


def reading_version(tokens: Mapping[str, str]) -> str:
    """Version of everything that decides what a reading holds: this package's code and the known tokens.

    The code itself is hashed, so that a forgotten version number cannot leave stale readings behind.
    """
    known = hashlib.sha256("\n".join(f"{t}\t{iri}" for t, iri in sorted(tokens.items())).encode("utf-8")).hexdigest()
    return f"{versions_digest()}-{_code_digest()[:8]}-{known[:8]}"


@cache
def _code_digest() -> str:
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode("utf-8") + b"\x00" + path.read_bytes())
    return digest.hexdigest()


def read_bytes(path: Path) -> bytes:
    """Content of a source file.

    Raises:
        FileUnreadable: no permission, not a file, empty, or binary.
    """
    try:
        # A pipe or a device would block or never end.
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise FileUnreadable(f"{path.as_posix()} is not a regular file", "give a CUDA source file")
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileUnreadable(f"{path.as_posix()} cannot be read: {reason}", "check its permissions") from error
    if not data.strip():
        raise FileUnreadable(f"{path.as_posix()} is empty", "give a CUDA source file")
    control = sum(data[:4096].count(byte) for byte in range(9))
    if b"\x00" in data or control > len(data[:4096]) // 50:
        raise FileUnreadable(f"{path.as_posix()} is a binary file", "give source text, not a compiled object")
    return data


def is_cuda(path: Path, text: str) -> bool:
    """Whether a file is CUDA: by its suffix, or, for headers and C++ files, by what its code says."""
    suffix = path.suffix.lower()
    if suffix in CUDA_SUFFIXES:
        return True
    return suffix in MIXED_SUFFIXES and bool(_CUDA_INCLUDE.search(text) or _CUDA_SIGNS.search(clean(text).code))


def read_source(path: Path, *, tokens: Mapping[str, str]) -> SourceReading:
    """Everything that one file says.

    Args:
        path: a ``.cu`` or ``.cuh`` file, or a header or C++ file that contains CUDA.
        tokens: spellings of primitives that the graph knows, with their IRIs.

    Raises:
        FileUnreadable: missing permission, empty, binary, or not CUDA.
    """
    return read_text(path.as_posix(), read_bytes(path), tokens=tokens)


def read_text(file: str, data: bytes, *, tokens: Mapping[str, str]) -> SourceReading:
    """As ``read_source``, for content already in memory under the name ``file``."""
    text = decode(data)
    if not is_cuda(Path(file), text):
        raise FileUnreadable(
            f"{file} is not CUDA", "kx reads .cu and .cuh files, and .h, .hpp, .cpp and .inl files with CUDA in them"
        )
    view = parse(text)
    return SourceReading(
        file=file,
        sha256=hashlib.sha256(data).hexdigest(),
        line_count=text.removesuffix("\n").count("\n") + 1,
        kernels=kernel_facts(view),
        primitives=primitive_uses(view, tokens),
        concepts=detect(view),
        syntax_errors=view.error_count,
    )


def kernel_facts(view: SyntaxView) -> tuple[KernelFact, ...]:
    """The ``__global__`` functions with their places, in order."""
    return tuple(
        KernelFact(
            name=kernel.name,
            line=view.line(kernel.name_start),
            last_line=view.line(kernel.body.end - 1),
            template_parameters=tuple(" ".join(p.split()) for p in kernel.template_parameters),
            parameters=tuple(" ".join(p.split()) for p in kernel.parameters),
            launch_bounds=" ".join(kernel.launch_bounds.split()),
        )
        for kernel in view.kernels
    )


def primitive_uses(view: SyntaxView, tokens: Mapping[str, str]) -> tuple[PrimitiveUse, ...]:
    """Tokens of known primitives with the lines where they stand, sorted by token.

    Identifiers are looked for outside asm strings; dotted PTX tokens in them, where the mnemonic that a
    token generalizes most closely counts (``mma.sync.aligned.m16n8k16...`` is an ``mma.sync``).
    """
    known = _known_tokens(frozenset(tokens))
    lines: dict[str, set[int]] = defaultdict(set)
    plain = _without_assembly_strings(view)
    standing: dict[str, list[int]] = defaultdict(list)
    for match in _IDENTIFIER.finditer(plain):
        standing[match.group()].append(match.start())
    for token in known.words & standing.keys():
        lines[token] = {view.line(offset) for offset in standing[token]}
    for token, needed, pattern in known.spaced:
        if needed <= standing.keys():
            for match in pattern.finditer(plain):
                lines[token].add(view.line(match.start()))
    for statement in view.assembly:
        for mnemonic in dict.fromkeys(statement.mnemonics):
            parts = mnemonic.lower().split(".")
            token = _generalizing(parts, known.dotted.get(parts[0], ()))
            if token:
                place = view.code.find(mnemonic, statement.span.start, statement.span.end)
                lines[token].add(view.line(max(place, statement.span.start)))
    return tuple(PrimitiveUse(token, tuple(sorted(where))) for token, where in sorted(lines.items()) if where)


@dataclass(frozen=True)
class _KnownTokens:
    """Spellings sorted by how they are looked for.

    Attributes:
        words: single identifiers.
        spaced: tokens of several words or with punctuation, the identifiers that each needs, its pattern.
        dotted: PTX tokens and words as parts between dots, by their first part.
    """

    words: frozenset[str]
    spaced: tuple[tuple[str, frozenset[str], re.Pattern[str]], ...]
    dotted: Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]]


@lru_cache(maxsize=4)
def _known_tokens(tokens: frozenset[str]) -> _KnownTokens:
    words = frozenset(token for token in tokens if _IDENTIFIER.fullmatch(token))
    spaced = []
    for token in sorted(tokens - words):
        pattern = _spaced(token)
        if pattern is not None:
            # A word at a wildcard's or a digit's side is part of a longer one in the text.
            needed = frozenset(_IDENTIFIER.findall(token)) if re.fullmatch(r"[\w\s:()<>,*]*", token) else frozenset()
            spaced.append((token, needed, pattern))
    dotted: dict[str, list[tuple[str, tuple[str, ...]]]] = defaultdict(list)
    for token in sorted(tokens):
        if "." in token or token in words:
            parts = tuple(token.lower().split()[0].split("."))
            dotted[parts[0]].append((token, parts))
    return _KnownTokens(words, tuple(spaced), {first: tuple(entries) for first, entries in dotted.items()})


def _without_assembly_strings(view: SyntaxView) -> str:
    pieces, cursor = [], 0
    for statement in view.assembly:
        start, end = statement.span.start, statement.span.end
        pieces += [view.code[cursor:start], _STRINGS.sub(lambda m: " " * len(m.group()), view.code[start:end])]
        cursor = end
    pieces.append(view.code[cursor:])
    return "".join(pieces)


def _spaced(token: str) -> re.Pattern[str] | None:
    """Pattern of a token of several words or with punctuation; None for PTX, which asm statements show."""
    if re.fullmatch(r"[a-z][a-z0-9]*(?:\.[a-z0-9_:]+)+(?: \d+)?", token) or not token.strip():
        return None
    parts = re.findall(r"\w+|[^\w\s]", token)
    body = r"\s*".join(re.escape(part) for part in parts)
    body = re.sub(r"(\w)\\s\*(?=\w)", r"\1\\s+", body)
    return re.compile((r"(?<!\w)" if parts[0][0].isalnum() or parts[0][0] == "_" else "") + body
                      + (r"(?!\w)" if parts[-1][-1].isalnum() else ""))  # fmt: skip


def _generalizing(parts: list[str], candidates: Sequence[tuple[str, tuple[str, ...]]]) -> str:
    """The longest of the tokens whose parts all occur in the mnemonic's, in order."""
    best, length = "", 0
    for token, wanted in candidates:
        if len(wanted) <= length:
            continue
        rest = iter(parts)
        if all(part in rest for part in wanted):
            best, length = token, len(wanted)
    return best
