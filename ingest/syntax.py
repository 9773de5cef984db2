"""What detectors see of a file: functions, loops, assignments, declarations, asm, macros, calls.

Positions are offsets into ``SyntaxView.code``, the text without comments, dead code and prose.
"""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeVar

from ingest.prefilter import may_match
from ingest.text import closing

IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_BRACKETED = re.compile(r"\[[^\[\]]*\]|\([^()]*\)")
_CAST = re.compile(
    r"\b(?:reinterpret|static|const|dynamic)_cast\s*<[^;=]*?>\s*(?=\()"
    r"|\(\s*(?:const\s+|volatile\s+|unsigned\s+)*[A-Za-z_][\w:]*(?:\s+const)?\s*\*+\s*(?:__restrict__)?\s*\)"
)
_TEMPLATE_ARGUMENTS = re.compile(r"\s*<[\w\s:,*&<>()+\-/.!=|%]*?>(?=\s*\()")
_OPENING = re.compile(r"\s*\(")
_PATH = re.compile(r"[A-Za-z_]\w*(?:\s*(?:\.|->)\s*[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Span:
    """Half-open range of offsets."""

    start: int
    end: int

    def holds(self, offset: int) -> bool:
        """Whether ``offset`` lies inside."""
        return self.start <= offset < self.end


class _HasSpan(Protocol):
    @property
    def span(self) -> Span: ...


_Spanned = TypeVar("_Spanned", bound=_HasSpan)


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
        return tuple(match.group(1) or match.group(2) for match in re.finditer(stepped, self.update))

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
    return {re.sub(r"\s+|->", lambda m: "." if m.group() == "->" else "", p) for p in _PATH.findall(text)}


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
        shorter = re.match(r"\s*(?:\[[^\[\]]*\]|\([^()]*\))", rest)
        member = re.match(r"\s*(?:\.|->)\s*([A-Za-z_]\w*)", rest)
        if shorter and shorter.end():
            rest = rest[shorter.end() :]
        elif member:
            path, rest = f"{path}.{member.group(1)}", rest[member.end() :]
        else:
            return re.sub(r"\s+", "", path.replace("->", "."))


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
    return bool(re.match(r"<[\w\s:,*&<>()+\-/]*>", text[offset:])) and not text[offset + 1 :].startswith(("<", "="))


@dataclass
class SyntaxView:
    """A parsed file.

    Attributes:
        code: analysed text; offsets of everything else point into it.
        functions: definitions in order; a kernel is one with ``__global__``.
        variables: locals, globals, parameters and members with their types.
        error_count: error nodes that the parser met.
    """

    code: str
    functions: tuple[Function, ...] = ()
    loops: tuple[Loop, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    variables: tuple[Parameter, ...] = ()
    branches: tuple[Branch, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    assembly: tuple[Assembly, ...] = ()
    defines: tuple[Define, ...] = ()
    error_count: int = 0
    _calls: dict[str, tuple[Call, ...]] = field(default_factory=dict, repr=False)
    _assigned: dict[int, dict[str, list[Assignment]]] = field(default_factory=dict, repr=False)
    _types: dict[tuple[str, int], str] = field(default_factory=dict, repr=False)
    _start_lists: dict[int, tuple[Sequence[_HasSpan], list[int]]] = field(default_factory=dict, repr=False)
    memory: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict, repr=False)
    _reached: dict[int, frozenset[str]] = field(default_factory=dict, repr=False)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(m.end() for m in re.finditer("\n", self.code))]

    def line(self, offset: int) -> int:
        """1-based line of an offset."""
        return bisect.bisect_right(self._line_starts, offset)

    @cached_property
    def kernels(self) -> tuple[Function, ...]:
        """The ``__global__`` functions."""
        return tuple(f for f in self.functions if f.is_kernel)

    def text(self, span: Span) -> str:
        """Code in a span."""
        return self.code[span.start : span.end]

    def function_at(self, offset: int) -> Function | None:
        """Innermost function whose head or body holds the offset."""
        last = bisect.bisect_right(self._function_starts, offset)
        for function in reversed(self.functions[:last]):
            if offset < function.body.end:
                return function
        return None

    @cached_property
    def _function_starts(self) -> list[int]:
        return [f.head.start for f in self.functions]

    def reached_from(self, function: Function) -> frozenset[str]:
        """Names of the file's functions that a function calls, directly or through others."""
        if function.name_start not in self._reached:
            known = {f.name: f for f in self.functions}
            reached: set[str] = set()
            frontier = [function]
            while frontier:
                named = names_in(self.text(frontier.pop().body)) & known.keys() - reached
                reached |= named
                frontier += [known[name] for name in named]
            self._reached[function.name_start] = frozenset(reached)
        return self._reached[function.name_start]

    def inside(self, span: Span, items: Sequence[_Spanned]) -> list[_Spanned]:
        """Items (in order of their spans) that start in a span."""
        starts = self._starts(items)
        first = bisect.bisect_left(starts, span.start)
        return list(items[first : bisect.bisect_left(starts, span.end)])

    def within(self, function: Function | None, items: Sequence[_Spanned]) -> list[_Spanned]:
        """Items (in order of their spans) that start in a function's body; all of them for None."""
        if function is None:
            return list(items)
        return self.inside(function.body, items)

    def assigned(self, function: Function | None) -> dict[str, list[Assignment]]:
        """A function's assignments by the path that they write."""
        key = function.name_start if function else -1
        if key not in self._assigned:
            table: dict[str, list[Assignment]] = defaultdict(list)
            for assignment in self.within(function, self.assignments):
                table[assignment.name].append(assignment)
            self._assigned[key] = dict(table)
        return self._assigned[key]

    def _starts(self, items: Sequence[_HasSpan]) -> list[int]:
        known = self._start_lists.get(id(items))
        if known is None or known[0] is not items:
            known = (items, [item.span.start for item in items])
            self._start_lists[id(items)] = known
        return known[1]

    def within_variables(self, function: Function) -> list[Parameter]:
        """Variables declared in a function's body."""
        return self.inside(function.body, self.variables)

    def parameters_of(self, function: Function) -> list[Parameter]:
        """A function's parameters as variables."""
        return self.inside(Span(function.head.start, function.body.start), self.variables)

    @cached_property
    def file_variables(self) -> tuple[Parameter, ...]:
        """Variables outside functions: globals and members."""
        return tuple(v for v in self.variables if self.function_at(v.start) is None)

    def loops_around(self, offset: int) -> list[Loop]:
        """Loops whose body holds the offset, outermost first."""
        function = self.function_at(offset)
        return [loop for loop in self.within(function, self.loops) if loop.body.holds(offset)]

    def search(self, pattern: str | re.Pattern[str], span: Span | None = None) -> Iterator[re.Match[str]]:
        """Matches in the code, or in one span of it."""
        compiled = re.compile(pattern) if isinstance(pattern, str) else pattern
        if span is None:
            return compiled.finditer(self.code) if may_match(compiled, self.code) else iter(())
        return compiled.finditer(self.code, span.start, span.end)

    def calls(self, pattern: str) -> tuple[Call, ...]:
        """Calls whose last name matches ``pattern`` in full; definitions are not calls."""
        if pattern not in self._calls:
            self._calls[pattern] = tuple(self._find_calls(pattern))
        return self._calls[pattern]

    def _find_calls(self, pattern: str) -> Iterator[Call]:
        wanted = re.compile(pattern)
        places = [(p, name) for name, found in self._called_names.items() if wanted.fullmatch(name) for p in found]
        for start, name in sorted(places):
            call = self._call_at(start, name)
            if call is not None:
                yield call

    @cached_property
    def _called_names(self) -> dict[str, list[int]]:
        """Offsets of every name before an opening bracket, definitions left out."""
        defined = {f.name_start for f in self.functions}
        table: dict[str, list[int]] = defaultdict(list)
        for match in re.finditer(r"(?<![\w#])[A-Za-z_]\w*(?=\s*[<(])", self.code):
            if match.start() not in defined:
                table[match.group()].append(match.start())
        return table

    def _call_at(self, start: int, name: str) -> Call | None:
        offset, template = start + len(name), ""
        angle = _TEMPLATE_ARGUMENTS.match(self.code, offset)
        if angle:
            template, offset = angle.group().strip()[1:-1], angle.end()
        opening = _OPENING.match(self.code, offset)
        if not opening:
            return None
        end = closing(self.code, opening.end() - 1)
        before = re.search(r"[\w:.>\-]*$", self.code[max(0, start - 80) : start])
        path = (before.group() if before else "") + name
        return Call(name, path, template, split_top(self.code[opening.end() : end - 1]), Span(start, end))

    @cached_property
    def names(self) -> frozenset[str]:
        """Every identifier of the code."""
        return frozenset(IDENTIFIER.findall(self.code))

    @cached_property
    def variables_named(self) -> dict[str, list[Parameter]]:
        """Declarations by name."""
        table: dict[str, list[Parameter]] = defaultdict(list)
        for variable in self.variables:
            table[variable.name].append(variable)
        return table

    def type_of(self, name: str, function: Function | None) -> str:
        """Type under which a function sees a name (its own declarations first), or empty."""
        last = name.rsplit(".", 1)[-1]
        key = (last, function.name_start if function else -1)
        if key not in self._types:
            candidates = self.variables_named.get(last, [])
            if function is not None:
                own = self.inside(Span(function.head.start, function.body.end), candidates)
                candidates = own or self._file_variables_named.get(last, [])
            self._types[key] = candidates[0].type if candidates else ""
        return self._types[key]

    @cached_property
    def _file_variables_named(self) -> dict[str, list[Parameter]]:
        table: dict[str, list[Parameter]] = defaultdict(list)
        for variable in self.file_variables:
            table[variable.name].append(variable)
        return table
