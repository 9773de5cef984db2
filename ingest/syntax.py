"""What detectors see of a file: its parts, and questions about where they lie.

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

from ingest import patterns
from ingest.nodes import (
    IDENTIFIER,
    Aggregate,
    Assembly,
    Assignment,
    Branch,
    Call,
    Define,
    Function,
    Loop,
    Parameter,
    Span,
    names_in,
    paths_in,
    split_top,
    target_path,
)
from ingest.prefilter import may_match
from ingest.text import closing

__all__ = [
    "IDENTIFIER",
    "Aggregate",
    "Assembly",
    "Assignment",
    "Branch",
    "Call",
    "Define",
    "Function",
    "Loop",
    "Parameter",
    "Span",
    "SyntaxView",
    "names_in",
    "paths_in",
    "split_top",
    "target_path",
]

_TEMPLATE_ARGUMENTS = re.compile(r"\s*<[\w\s:,*&<>()+\-/.!=|%]*?>(?=\s*\()")
_OPENING = re.compile(r"\s*\(")


class _HasSpan(Protocol):
    @property
    def span(self) -> Span: ...


_Spanned = TypeVar("_Spanned", bound=_HasSpan)


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
    _lambdas: dict[int, dict[str, Span]] = field(default_factory=dict, repr=False)

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(m.end() for m in patterns.finditer("\n", self.code))]

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

    def loops_around(self, offset: int, depth: int = 2) -> list[Loop]:
        """Loops whose body holds the offset, outermost first; a named lambda runs in the loops that call it."""
        function = self.function_at(offset)
        own = [loop for loop in self.within(function, self.loops) if loop.body.holds(offset)]
        for name, body in self.lambdas(function).items() if depth else ():
            if not body.holds(offset) or any(loop.body.holds(body.start) for loop in own):
                continue
            for call in self.calls_named(name):
                if function and function.body.holds(call.span.start) and not body.holds(call.span.start):
                    outer = self.loops_around(call.span.start, depth - 1)
                    if outer:
                        return [*outer, *own]
        return own

    def lambdas(self, function: Function | None) -> dict[str, Span]:
        """Lambdas that a function gives a name, with their spans."""
        if function is None:
            return {}
        if function.name_start not in self._lambdas:
            self._lambdas[function.name_start] = {
                a.name: a.span
                for a in self.within(function, self.assignments)
                if a.declares and a.value.startswith("[") and a.value.endswith("}")
            }
        return self._lambdas[function.name_start]

    def search(self, pattern: str | re.Pattern[str], span: Span | None = None) -> Iterator[re.Match[str]]:
        """Matches in the code, or in one span of it."""
        compiled = patterns.compiled(pattern)
        if span is None:
            return compiled.finditer(self.code) if may_match(compiled, self.code) else iter(())
        return compiled.finditer(self.code, span.start, span.end)

    def calls(self, pattern: str) -> tuple[Call, ...]:
        """Calls whose last name matches ``pattern`` in full; definitions are not calls."""
        if pattern not in self._calls:
            self._calls[pattern] = tuple(self._find_calls(pattern))
        return self._calls[pattern]

    def calls_named(self, name: str) -> tuple[Call, ...]:
        """Calls of exactly this name."""
        key = f"={name}"
        if key not in self._calls:
            found = (self._call_at(start, name) for start in self._called_names.get(name, ()))
            self._calls[key] = tuple(call for call in found if call is not None)
        return self._calls[key]

    def _find_calls(self, pattern: str) -> Iterator[Call]:
        wanted = patterns.compiled(pattern)
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
        for match in patterns.finditer(r"(?<![\w#])[A-Za-z_]\w*(?=\s*[<(])", self.code):
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
        before = patterns.search(r"[\w:.>\-]*$", self.code[max(0, start - 80) : start])
        path = (before.group() if before else "") + name
        return Call(name, path, template, split_top(self.code[opening.end() : end - 1]), Span(start, end))

    @cached_property
    def names(self) -> frozenset[str]:
        """Every identifier of the code."""
        return frozenset(self._offsets)

    @cached_property
    def _offsets(self) -> dict[str, list[int]]:
        table: dict[str, list[int]] = defaultdict(list)
        for match in IDENTIFIER.finditer(self.code):
            table[match.group()].append(match.start())
        return dict(table)

    def occurrences(self, name: str, span: Span) -> list[int]:
        """Offsets in a span at which an identifier stands."""
        offsets = self._offsets.get(name, [])
        return offsets[bisect.bisect_left(offsets, span.start) : bisect.bisect_left(offsets, span.end)]

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
