"""Which files a kernel's text may bring in: Metal's headers, and those in the folders that were given.

Before the compiler sees it, the text and every file that it could include are searched for directives that reach
further. The search errs on the side of finding: it looks behind any ``#``, in comments too, where only the names of
files are judged. Afterwards the compiler's own list of the files that it opened or asked for is held against the
folders: no macro and no forged line number changes that one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_FILE_BYTES = 16 << 20

_SPLICE = re.compile(r"\\[ \t\f\v]*\r?\n")
_GAP = r"(?:[ \t\f\v]|/\*(?:[^*]|\*(?!/))*\*/)*"
_DIRECTIVE = re.compile(
    rf"(?P<before>^{_GAP})?(?:\#|%:|\?\?=){_GAP}(?P<name>[a-z_]+)\b{_GAP}(?P<rest>[^\n]*)", re.MULTILINE
)
_OPERAND = re.compile(r'(?:<(?P<angle>[^<>\n]+)>|"(?P<quote>[^"\n]+)")')
_PROBE = re.compile(r"\b(__has_include|__has_include_next|__has_embed)\b(?P<rest>[^\n]*)")
_PROBE_OPERAND = re.compile(rf"{_GAP}\({_GAP}{_OPERAND.pattern}{_GAP}\)")
_REFUSED_DIRECTIVES = {
    "include_next": "#include_next leaves the folders that may be read",
    "import": "Metal has no #import",
    "embed": "Metal has no #embed",
    "ident": "",
}
# What stays in preprocessed text, _Pragma included. Everything else that clang knows changes what a name stands for,
# where code lies or which files are read.
_PRAGMA = re.compile(r"^[ \t]*\#[ \t]*pragma[ \t]+(?P<words>[^\n]*)", re.MULTILINE)
_REFUSED_PRAGMA = re.compile(
    r"(?:GCC|clang)\s+(?:dependency|module|section|attribute|include_alias|assume_nonnull|handoff|poison)\b"
    r"|(?:weak|redefine_extname|comment|include_alias|init_seg|code_seg|data_seg|bss_seg|const_seg|section|alloc_text"
    r"|detect_mismatch|ms_struct|export|omp|acc)\b"
)
_LEFTOVER = re.compile(r"^[ \t]*(?:\#|%:)(?!\#)[ \t]*(?!pragma\b)(?P<name>[A-Za-z_]+)", re.MULTILINE)

UNDEFINED = ("__has_include_next", "__has_embed", "__TIMESTAMP__", "__BASE_FILE__")
"""Built-in macros that the preprocessor goes without."""


@dataclass(frozen=True)
class Sources:
    """A text and what it may include.

    Attributes:
        faults: ``file:line: what is wrong``; empty when it may be preprocessed.
        probes: whether it asks for headers by ``__has_include``, for headers that it may read only.
        files: the text's file and those that were found.
        digest: of what they hold, where they lie and which headers are asked for in vain: the preprocessor makes the
            same of equal ones.
    """

    faults: tuple[str, ...]
    probes: bool
    files: frozenset[Path] = frozenset()
    digest: str = ""


class IncludeFolders:
    """The folders that a text may read.

    Args:
        given: folders, in the order in which they are searched.
        own: folder of Metal's headers, searched last.
    """

    def __init__(self, given: Sequence[Path], own: Path) -> None:
        self.given = tuple(folder.resolve() for folder in given)
        self._own = own.resolve()

    def holds(self, path: Path, beside: Path | None) -> bool:
        """Whether a file, links followed, lies in one of the folders or in that of the text."""
        real = path.resolve()
        roots = (*self.given, self._own, *((beside.resolve(),) if beside else ()))
        return any(real.is_relative_to(root) for root in roots)

    def survey(self, path: Path) -> Sources:
        """Search a file and everything that it could include.

        Raises:
            OSError: the file cannot be read.
        """
        beside = path.resolve().parent
        survey = _Survey(self, beside)
        survey.file(path)
        return Sources(tuple(survey.faults), survey.probes, frozenset(survey.seen), survey.digest.hexdigest())

    def survey_text(self, text: str, place: str) -> Sources:
        """Search the text of a kernel body or header, which has no folder of its own."""
        survey = _Survey(self, None)
        survey.text(text, place, None)
        return Sources(tuple(survey.faults), survey.probes)

    def strangers(self, dependencies: str, beside: Path | None, known: Iterable[Path]) -> tuple[str, ...]:
        """What the compiler read or asked for outside the folders.

        Args:
            dependencies: its list, in the form of a rule for make.
            beside: folder of the text.
            known: files that are the tool's own.
        """
        allowed = {path.resolve() for path in known}
        names = (Path(name) for name in listed_files(dependencies))
        wrong = [name for name in names if name.resolve() not in allowed and not self.holds(name, beside)]
        return tuple(f"{_shown(name)} lies outside the folders that may be read" for name in wrong)

    def searched(self, beside: Path | None) -> str:
        """The folders in words, for a header that was not found."""
        named = [*(["the file's own folder"] if beside else []), *map(str, self.given), "Metal's headers"]
        return ", ".join(named)

    def candidates(self, name: str, quoted: bool, beside: Path | None) -> Iterator[Path]:
        """Where a header of that name may lie, in the order of the search."""
        if quoted and beside is not None:
            yield beside / name
        for folder in (*self.given, self._own):
            yield folder / name


class _Survey:
    """Collects what is wrong in a text and its includes."""

    def __init__(self, folders: IncludeFolders, beside: Path | None) -> None:
        self._folders = folders
        self._beside = beside
        self.seen: set[Path] = set()
        self.digest = hashlib.sha256()
        self.faults: list[str] = []
        self.probes = False

    def file(self, path: Path) -> None:
        """Search a file once."""
        pending = [path.resolve()]
        while pending:
            current = pending.pop()
            if current in self.seen:
                continue
            self.seen.add(current)
            if not current.is_file():
                self.faults.append(f"{current.name}: is no file")
                continue
            if current.stat().st_size > MAX_FILE_BYTES:
                self.faults.append(f"{current.name}: larger than {MAX_FILE_BYTES >> 20} MiB")
                continue
            content = current.read_bytes()
            self.digest.update(f"{current}\0{len(content)}\0".encode(errors="surrogateescape") + content)
            fault = _unreadable(content)
            if fault:
                self.faults.append(f"{current.name}:{fault}")
                continue
            pending += self.text(content.decode("utf-8"), current.name, current.parent)

    def text(self, text: str, place: str, beside: Path | None) -> list[Path]:
        """Search a text; the files that it may include."""
        found: list[Path] = []
        lines = _Lines(text)
        for match in _DIRECTIVE.finditer(lines.spliced):
            name, at_start = match["name"], match["before"] is not None
            where = f"{place}:{lines.number(match.start('name'))}"
            if name == "include":
                found += self._include(match["rest"], where, beside, at_start)
            elif _REFUSED_DIRECTIVES.get(name) and (at_start or name == "embed"):
                self.faults.append(f"{where}: {_REFUSED_DIRECTIVES[name]}")
            elif name == "pragma" and at_start and _REFUSED_PRAGMA.match(match["rest"]):
                self.faults.append(f"{where}: '#pragma {match['rest'].strip()[:60]}' reaches outside Metal")
        self._find_probes(lines, place, beside)
        return found

    def _include(self, rest: str, where: str, beside: Path | None, at_start: bool) -> list[Path]:
        operand = _OPERAND.match(rest)
        if operand is None:
            # In a file, what looks like one in a comment is none, and the compiler's list comes after.
            if (at_start or beside is None) and rest.strip():
                self.faults.append(f"{where}: #include needs a name in quotes or angle brackets, not a macro")
            return []
        name = operand["quote"] or operand["angle"]
        path = self._find(name, operand["quote"] is not None, beside)
        if isinstance(path, Path):
            return [path]
        if path:
            self.faults.append(f"{where}: #include {operand[0]}: {path}")
        return []

    def _find(self, name: str, quoted: bool, beside: Path | None) -> Path | str:
        """The file of that name; why it may not be read; or empty when there is none."""
        found = self._search(name, quoted, beside)
        self.digest.update(f"{name}\0{found}\0".encode(errors="surrogateescape"))
        return found

    def _search(self, name: str, quoted: bool, beside: Path | None) -> Path | str:
        if name.startswith(("/", "~")) or re.match(r"[A-Za-z]:[\\/]", name):
            return "names of headers are relative to the folders that may be read"
        for path in self._folders.candidates(name, quoted, beside):
            try:
                exists = path.exists()
            except (OSError, ValueError):
                return "is no name of a file"
            if exists and not self._folders.holds(path, self._beside):
                return "leaves the folders that may be read; give its folder as an include folder"
            if exists:
                return path.resolve()
        # What does not exist may not be asked for beyond the folders, either.
        leaves = ".." in Path(name).parts and not any(
            self._folders.holds(path, self._beside) for path in self._folders.candidates(name, quoted, beside)
        )
        return "leaves the folders that may be read; give its folder as an include folder" if leaves else ""

    def _find_probes(self, lines: _Lines, place: str, beside: Path | None) -> None:
        for match in _PROBE.finditer(lines.spliced):
            where = f"{place}:{lines.number(match.start())}"
            operand = _PROBE_OPERAND.match(match["rest"])
            if match[1] != "__has_include":
                continue  # undefined: the compiler says so, where it matters
            if operand is None:
                if match["rest"].lstrip().startswith("("):
                    self.faults.append(f"{where}: __has_include needs a name in quotes or angle brackets, not a macro")
                continue
            name = operand["quote"] or operand["angle"]
            path = self._find(name, operand["quote"] is not None, beside)
            if isinstance(path, str) and path:
                self.faults.append(f"{where}: __has_include of {name!r}: {path}")
            self.probes = True


class _Lines:
    """Text with its continued lines joined, and the lines that positions in it had."""

    def __init__(self, text: str) -> None:
        parts, self._joints, last, length = [], [], 0, 0
        for match in _SPLICE.finditer(text):
            parts.append(text[last : match.start()])
            length += match.start() - last
            self._joints.append(length)
            last = match.end()
        self.spliced = "".join([*parts, text[last:]])

    def number(self, position: int) -> int:
        """1-based line of a position in ``spliced``."""
        joined = sum(1 for joint in self._joints if joint <= position)
        return self.spliced.count("\n", 0, position) + joined + 1


def _line(content: bytes, position: int) -> int:
    return content.count(b"\n", 0, position) + 1


def _unreadable(content: bytes) -> str:
    """Why a file is no text: ``line: reason``, or empty."""
    nul = content.find(b"\0")
    if nul >= 0:
        return f"{_line(content, nul)}: a NUL byte"
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as exc:
        return f"{_line(content, exc.start)}: not UTF-8"
    return ""


_OPERATOR = re.compile(r'\b_Pragma\b(?:\s*\(\s*L?"(?P<words>[^"\n]*)"\s*\))?')


def body_faults(text: str, place: str, own: Path) -> tuple[str, ...]:
    """What in the text of a kernel body or header, which is not preprocessed, reaches outside Metal.

    Args:
        text: as written.
        place: ``body`` or ``header``.
        own: folder of Metal's headers.
    """
    faults = list(IncludeFolders((), own).survey_text(text, place).faults)
    for match in _OPERATOR.finditer(text):
        if match["words"] is None or _REFUSED_PRAGMA.match(match["words"].strip()):
            faults.append(f"{place}:{text.count(chr(10), 0, match.start()) + 1}: {match[0][:60]} reaches outside Metal")
    return tuple(faults)


def pragma_faults(text: str) -> tuple[str, ...]:
    """Pragmas of preprocessed text that reach outside Metal, and directives that macros have made.

    Args:
        text: after the preprocessor.
    """
    found = [
        f"'#pragma {match['words'].strip()[:60]}' reaches outside Metal"
        for match in _PRAGMA.finditer(text)
        if _REFUSED_PRAGMA.match(match["words"])
    ]
    found += [f"a directive made by a macro: #{match['name']}" for match in _LEFTOVER.finditer(text)]
    return tuple(dict.fromkeys(found))


def listed_files(rule: str) -> Iterator[str]:
    """Names behind the colon of a rule for make."""
    _, _, names = rule.replace("\\\n", " ").partition(": ")
    for name in re.split(r"(?<!\\)\s+", names.strip()):
        if name:
            yield name.replace("\\ ", " ").replace("\\#", "#").replace("$$", "$")


def _shown(path: Path) -> str:
    return path.name or str(path)
