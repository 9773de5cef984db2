"""What a parsed file is made of: functions, loops, assignments, declarations, asm, macros, calls.

Positions are offsets into the analysed code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from ingest import patterns

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_BRACKETED = re.compile(r"\[[^\[\]]*\]|\([^()]*\)")
_CAST = re.compile(
    r"\b(?:reinterpret|static|const|dynamic)_cast\s*<[^;=]*?>\s*(?=\()"
    r"|\(\s*(?:const\s+|volatile\s+|unsigned\s+)*[A-Za-z_][\w:]*(?:\s+const)?\s*\*+\s*(?:__restrict__)?\s*\)"
)
_PATH = re.compile(r"[A-Za-z_]\w*(?:\s*(?:\.|->)\s*[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Span:
    """Half-open range of offsets."""

    start: int
    end: int

    def holds(self, offset: int) -> bool:
        """Whether ``offset`` lies inside."""
        return self.start <= offset < self.end


@dataclass(frozen=True)
class Parameter:
    """A function parameter or a local or member declaration's name with its type as written.

    Attributes:
        name: identifier; type: text before it, qualifiers included; dimensions: texts between brackets.
        shared: declared ``__shared__``; constant: declared ``__constant__``.
    """

    name: str
    type: str
    start: int
    end: int
    dimensions: tuple[str, ...] = ()
    shared: bool = False
    constant: bool = False

    @property
    def span(self) -> Span:
        """Its declaration."""
        return Span(self.start, self.end)

    @property
    def is_pointer(self) -> bool:
        """Whether the type is a pointer or an array of unknown length."""
        return "*" in self.type


@dataclass(frozen=True)
class Function:
    """A function definition.

    Attributes:
        qualifiers: identifiers before the name (``__global__``, ``inline``, ``CUTLASS_DEVICE`` ...).
        template_parameters, parameters: as written, in order.
        launch_bounds: arguments of ``__launch_bounds__``, or empty.
    """

    name: str
    name_start: int
    head: Span
    body: Span
    qualifiers: frozenset[str]
    template_parameters: tuple[str, ...]
    parameters: tuple[str, ...]
    launch_bounds: str = ""

    @property
    def is_kernel(self) -> bool:
        """Whether it is a ``__global__`` function."""
        return "__global__" in self.qualifiers

    @property
    def on_device(self) -> bool:
        """Whether it is marked to run on the GPU."""
        return any(q in ("__global__", "__device__") or q.endswith("DEVICE") for q in self.qualifiers)


@dataclass(frozen=True)
class Loop:
    """A for, while or do loop; absent parts are empty."""

    kind: str
    initializer: str
    condition: str
    update: str
    span: Span
    body: Span

    @property
    def variable(self) -> str:
        """First name that the update changes, or empty."""
        return next(iter(self.variables), "")

    @property
    def variables(self) -> tuple[str, ...]:
        """Names that the update changes."""
        stepped = r"(?:\+\+|--)\s*([A-Za-z_]\w*)|([A-Za-z_]\w*)\s*(?:\+\+|--|[-+*/&|^]?=(?!=)|<<=|>>=)"
        return tuple(match.group(1) or match.group(2) for match in patterns.finditer(stepped, self.update))

    @property
    def header(self) -> str:
        """Initializer, condition and update in one text."""
        return f"{self.initializer} ; {self.condition} ; {self.update}"


@dataclass(frozen=True)
class Assignment:
    """``target operator value``; a declaration with an initial value has operator ``=``.

    Attributes:
        name: path of the target without subscripts, calls and casts (``state.row_max``).
        declares: whether it introduces the name.
    """

    name: str
    target: str
    operator: str
    value: str
    span: Span
    declares: bool = False

    @property
    def feeds_itself(self) -> bool:
        """Whether the new value depends on the old one."""
        return self.operator != "=" or self.name in self.sources

    @cached_property
    def sources(self) -> frozenset[str]:
        """Paths that the value reads."""
        return frozenset(paths_in(self.value))


@dataclass(frozen=True)
class Branch:
    """An ``if`` statement or a conditional expression."""

    condition: str
    span: Span
    consequence: Span
    alternative: Span
    constexpr: bool = False
    expression: bool = False


@dataclass(frozen=True)
class Call:
    """A call by name, found also inside macro bodies.

    Attributes:
        name: last component; path: with namespace or object, template arguments left out.
    """

    name: str
    path: str
    template_arguments: str
    arguments: tuple[str, ...]
    span: Span


@dataclass(frozen=True)
class Assembly:
    """An ``asm`` statement: its PTX with one instruction a line, and the mnemonics in order."""

    text: str
    mnemonics: tuple[str, ...]
    span: Span


@dataclass(frozen=True)
class Aggregate:
    """A struct, class or union definition."""

    keyword: str
    name: str
    span: Span


@dataclass(frozen=True)
class Define:
    """A macro: name, parameters (None for an object-like macro) and body as code."""

    name: str
    parameters: tuple[str, ...] | None
    body: str
    span: Span


def paths_in(text: str) -> set[str]:
    """Identifier paths in an expression (``a.b``, ``x``), subscripts' own names included."""
    return {patterns.sub(r"\s+|->", lambda m: "." if m.group() == "->" else "", p) for p in _PATH.findall(text)}


def names_in(text: str) -> set[str]:
    """Single identifiers in an expression."""
    return set(IDENTIFIER.findall(text))


def target_path(target: str) -> str:
    """Path that an assignment's left side writes through: subscripts, calls, casts and stars removed."""
    text = _CAST.sub(" ", target)
    match = _PATH.search(text)
    while match and match.group() in ("const", "auto", "float", "int", "unsigned"):
        match = _PATH.search(text, match.end())
    if not match:
        return ""
    # ``a[i].b`` is a.b: continue over the bracket.
    path, rest = match.group(), text[match.end() :]
    while True:
        shorter = patterns.match(r"\s*(?:\[[^\[\]]*\]|\([^()]*\))", rest)
        member = patterns.match(r"\s*(?:\.|->)\s*([A-Za-z_]\w*)", rest)
        if shorter and shorter.end():
            rest = rest[shorter.end() :]
        elif member:
            path, rest = f"{path}.{member.group(1)}", rest[member.end() :]
        else:
            return patterns.sub(r"\s+", "", path.replace("->", "."))


def split_top(text: str, separator: str = ",") -> tuple[str, ...]:
    """Parts of ``text`` between separators that stand outside brackets; empty parts are dropped."""
    parts, depth, angle, start = [], 0, 0, 0
    for offset, char in enumerate(text):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif (
            char == "<" and offset and (text[offset - 1].isalnum() or text[offset - 1] == "_") and _closes(text, offset)
        ):
            angle += 1
        elif char == ">" and angle and text[offset - 1] != "-":
            angle -= 1
        elif char == separator and depth == 0 and angle == 0:
            parts.append(text[start:offset])
            start = offset + 1
    parts.append(text[start:])
    return tuple(stripped for part in parts if (stripped := part.strip()))


def _closes(text: str, offset: int) -> bool:
    """Whether the ``<`` at ``offset`` opens template arguments rather than comparing."""
    return bool(patterns.match(r"<[\w\s:,*&<>()+\-/]*>", text[offset:])) and not text[offset + 1 :].startswith(
        ("<", "=")
    )
