"""Reads whole preprocessed ``.metal`` texts: their kernels, instantiations and function constants.

The reader splits the text into declarations by brackets alone, which is enough to find what has to be
taken out or replaced; the C++ compiler sees the rest (``metalsim.text.rewrite``). Line markers of the
preprocessor stay, so that every token knows its file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import PurePath

from metalsim.text.declarations import (
    CLOSING,
    Bracketed,
    Declaration,
    closing_angle,
    counted,
    declarations,
    is_attribute,
    matching,
)
from metalsim.text.reach import Piece, Reachable, removable
from metalsim.text.tokens import Token, tokenize

Value = int | float | bool

_MARKER = re.compile(r'\s*#\s*(?:line\s+)?(\d+)\s+"([^"]*)"')
_UNROLL_BY_MACRO = re.compile(r"#\s*pragma\s+unroll\s*\([^\n]*[A-Za-z]\w*\s*\([^\n]*")
_SPACES = ("device", "threadgroup", "constant", "thread")
_RENDER_FUNCTIONS = ("vertex", "fragment", "object", "mesh", "intersection")
_STORAGE_WORDS = ("constant", "const", "constexpr", "static", ";")


@dataclass(frozen=True)
class KernelParameter:
    """One parameter of a kernel function.

    Attributes:
        name: in the text.
        space: ``device``, ``constant``, ``threadgroup``, or empty for a value.
        writable: whether the kernel may write through it.
        attributes: name to argument text, such as ``{"buffer": "0"}``.
        kind: what it points to, with ``*`` or ``&``: ``float*``, ``uint&``.
    """

    name: str
    space: str
    writable: bool
    attributes: Mapping[str, str]
    kind: str = ""


@dataclass(frozen=True)
class KernelFunction:
    """A kernel function or template.

    Attributes:
        name: qualified by its namespaces.
        parameters: in order.
        is_template: whether it needs template arguments.
        host_name: name given by an attribute, else empty.
        place, line: where it starts.
        template: names of its template parameters.
    """

    name: str
    parameters: tuple[KernelParameter, ...]
    is_template: bool
    host_name: str
    place: str
    line: int
    template: tuple[str, ...] = ()


@dataclass(frozen=True)
class FunctionConstant:
    """A constant that the host sets when it makes the pipeline.

    Attributes:
        name: in the text.
        index: by which the host may set it.
        defined: whether it got a value.
    """

    name: str
    index: int
    defined: bool


@dataclass(frozen=True)
class Source:
    """What a file holds.

    Attributes:
        reachable: the text to rewrite; instantiations are gone, function constants have their values.
        functions: kernels by qualified name.
        instances: host name to the C++ text of an instance, such as ``f<float>``.
        constants: function constants in order.
        lines: places of the text's lines.
        files: names of the user's files in the text.
    """

    reachable: Reachable
    functions: Mapping[str, KernelFunction]
    instances: Mapping[str, str]
    constants: tuple[FunctionConstant, ...]
    lines: LineMap
    files: tuple[str, ...]

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """Names of functions that are no templates, and of explicit instantiations."""
        plain = (f.host_name or f.name for f in self.functions.values() if not f.is_template)
        return (*plain, *self.instances)

    def tokens_of(self, instance: str) -> tuple[Token, ...]:
        """The tokens to rewrite for one kernel.

        Args:
            instance: its C++ text.
        """
        return tuple(self.reachable.from_entry(instance))


class LineMap:
    """Which line of which file a line of preprocessed text is.

    Args:
        tokens: of the text.
    """

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._starts: list[int] = []
        self._places: list[tuple[str, int]] = []
        for token in tokens:
            match = _MARKER.match(token.text) if token.kind == "directive" else None
            if match:
                self._starts.append(token.line + 1)
                self._places.append((PurePath(match[2]).name, int(match[1])))

    def place(self, line: int) -> tuple[str, int]:
        """``(file, line)``; an empty name before the first marker."""
        index = bisect_right(self._starts, line) - 1
        if index < 0:
            return "", line
        name, first = self._places[index]
        return name, first + line - self._starts[index]

    def files(self) -> tuple[str, ...]:
        """Names of all files that have lines in the text."""
        return tuple(dict.fromkeys(name for name, _ in self._places if name and not name.startswith("<")))


def attributes(tokens: Sequence[Token]) -> dict[str, str]:
    """All ``[[name(argument), ...]]`` of a run of tokens; an attribute without argument maps to ``""``."""
    result: dict[str, str] = {}
    i = 0
    while i < len(tokens):
        if tokens[i].counts and tokens[i].text == "[" and is_attribute(tokens, i):
            close = matching(tokens, i)
            text = "".join(t.text for t in tokens[i + 1 : close] if t.counts).strip("[]")
            for match in re.finditer(r"([A-Za-z_]\w*)(?:\(((?:[^()]|\([^()]*\))*)\))?", text):
                result.setdefault(match[1], match[2] or "")
            i = close
        i += 1
    return result


def without_attributes(tokens: Sequence[Token]) -> list[Token]:
    """The tokens that count, attributes left out."""
    result: list[Token] = []
    i = 0
    while i < len(tokens):
        if tokens[i].counts and tokens[i].text == "[" and is_attribute(tokens, i):
            i = matching(tokens, i)
        elif tokens[i].counts:
            result.append(tokens[i])
        i += 1
    return result


def _split_parameters(tokens: Sequence[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    depth = angle = 0
    for token in tokens:
        if token.kind == "mark":
            depth += 1 if token.text in CLOSING else -1 if token.text in CLOSING.values() else 0
            if depth == 0:
                angle += {"<": 1, ">": -1}.get(token.text, 0)
        if token.text == "," and depth == 0 and angle == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if any(t.counts for t in part)]


def _parameter(tokens: Sequence[Token]) -> KernelParameter:
    plain = without_attributes(tokens)
    texts = [t.text for t in plain]
    space = next((s for s in ("device", "constant", "threadgroup") if s in texts), "")
    if not ({"*", "&", "["} & set(texts)):
        space = ""
    name = next((t.text for t in reversed(plain) if t.kind == "name"), "")
    stars = texts[: texts.index("*")] if "*" in texts else texts
    writable = space in ("device", "threadgroup") and "const" not in stars
    before = texts[: texts.index(name)] if name else texts
    words = [t for t in before if t not in (*_SPACES, "const", "volatile", "metal", "::", "*", "&")]
    kind = "".join(words) + ("&" if "&" in texts else "*")
    return KernelParameter(name, space, writable, attributes(tokens), kind)


@dataclass
class _Reading:
    tokens: list[Token]
    lines: LineMap
    values: Mapping[int | str, Value]
    functions: dict[str, KernelFunction] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    constants: list[FunctionConstant] = field(default_factory=list)

    def drop(self, start: int, end: int, instead: str = "") -> None:
        """Take tokens out; their line breaks and directives stay."""
        for i in range(start, end):
            token = self.tokens[i]
            if token.kind != "directive":
                breaks = "\n" * token.text.count("\n")
                self.tokens[i] = Token("space", instead + breaks, token.line)
                instead = ""

    def kernel(self, found: Declaration) -> None:
        head = self.tokens[found.start : found.parameters]
        plain = [t for t in without_attributes(head) if t.text != "static"]
        close = matching(self.tokens, found.parameters)
        parts = _split_parameters(self.tokens[found.parameters + 1 : close])
        name = "::".join(part for part in (found.scope, plain[-1].text) if part)
        place, line = self.lines.place(self.tokens[found.start].line)
        self.functions[name] = KernelFunction(
            name,
            tuple(_parameter(part) for part in parts),
            plain[0].text == "template",
            _strings(attributes(head).get("host_name", "")),
            place,
            line,
            _template_names(plain),
        )

    def instance(self, found: Declaration) -> None:
        tokens = self.tokens[found.start : found.end]
        plain = without_attributes(tokens)
        name = _instance_text(plain) or self._deduced_instance(plain)
        host = _strings(attributes(tokens).get("host_name", ""))
        if name:
            self.instances[host or name] = "::".join(part for part in (found.scope, name) if part)
        self.drop(found.start, found.end)

    def _deduced_instance(self, tokens: Sequence[Token]) -> str:
        """The instance that an instantiation without template arguments names by its parameters' types."""
        opening = next((i for i, token in enumerate(tokens) if token.text == "("), 0)
        if not opening:
            return ""
        name = tokens[opening - 1].text
        kinds = [_parameter(p).kind for p in _split_parameters(tokens[opening + 1 : matching(tokens, opening)])]
        for function in self.functions.values():
            if function.name.rpartition("::")[2] != name or len(function.parameters) != len(kinds):
                continue
            values: dict[str, str] = {}
            for parameter, kind in zip(function.parameters, kinds, strict=True):
                values |= _deduced(parameter.kind, kind, function.template)
            if function.template and set(function.template) == set(values):
                return f"{name}<{', '.join(values[each] for each in function.template)}>"
        return ""

    def constant(self, found: Declaration) -> None:
        tokens = self.tokens[found.start : found.end]
        given = attributes(tokens).get("function_constant", "")
        parts = given.split("+")
        index = sum(map(_integer, parts)) if all(part[:1].isdigit() for part in parts) else -1
        plain = [t.text for t in without_attributes(tokens) if t.text not in _STORAGE_WORDS]
        if not given or len(plain) < 2:
            return  # no declaration of one: the compiler says what it is
        name, kind = plain[-1], " ".join(plain[:-1])
        value = self.values.get(index, self.values.get(name))
        self.constants.append(FunctionConstant(name, index, value is not None))
        literal = "false" if value is False else "true" if value is True else repr(value or 0)
        defined = "true" if value is not None else "false"
        text = f"constexpr {kind} {name} = ({kind})({literal}); constexpr bool msim_defined_{name} = {defined};"
        self.drop(found.start, found.end, text)

    def declaration(self, found: Declaration) -> bool:
        """Read a declaration that is no instantiation; whether it is a kernel."""
        if found.parameters >= 0:
            is_kernel = found.body >= 0 and _is_kernel(self, found)
            if is_kernel:
                self.kernel(found)
            self.array_parameters(found)
            return is_kernel
        if found.body < 0 and any(t.text == "function_constant" for t in self.tokens[found.start : found.end]):
            self.constant(found)
        elif found.is_class and found.body >= 0:
            self.members(found)
        return False

    def array_parameters(self, found: Declaration) -> None:
        """``constant int s[2]`` as a parameter is a pointer, which clang does not see for other address spaces."""
        start, spaced, name = found.parameters + 1, False, -1
        i, close = start, matching(self.tokens, found.parameters)
        while i < close:
            token = self.tokens[i]
            if token.text == "," and token.counts:
                spaced, name = False, -1
            elif token.kind == "name":
                spaced |= token.text in _SPACES
                name = i
            elif token.text in ("*", "&", "=") and token.counts:
                spaced = False
            elif token.text == "<" and token.counts:
                i = max(i, closing_angle(self.tokens, i))
            elif token.text == "(" and token.counts:
                spaced, i = False, matching(self.tokens, i)
            elif token.text in CLOSING and token.counts:
                end = matching(self.tokens, i)
                if token.text == "[" and spaced and not is_attribute(self.tokens, i):
                    more = next(counted(self.tokens, end + 1, close), close)
                    nested = self.tokens[more].text == "[" and not is_attribute(self.tokens, more)
                    written = f"(*{self.tokens[name].text})" if nested else f"*{self.tokens[name].text}"
                    self.tokens[name] = Token("mark", written, self.tokens[name].line)
                    self.drop(i, end + 1)
                    spaced = False
                i = end
            i += 1

    def members(self, found: Declaration) -> None:
        """Methods per address space: pointers to ``this`` have none here, so that one of each suffices."""
        seen: set[str] = set()
        for member in declarations(self.tokens, found.body + 1, matching(self.tokens, found.body)):
            if member.is_class and member.body >= 0:
                self.members(member)
            if member.parameters < 0:
                continue
            self.array_parameters(member)
            close = matching(self.tokens, member.parameters)
            tail = []
            for i in counted(self.tokens, close + 1, member.end):
                if self.tokens[i].text not in (*_SPACES, "const", "volatile", "noexcept"):
                    break
                tail.append(i)
            for i in tail:
                if self.tokens[i].text in _SPACES:
                    self.tokens[i] = Token("space", " ", self.tokens[i].line)
            key = " ".join(self.tokens[i].text for i in counted(self.tokens, member.start, (tail or [close])[-1] + 1))
            key = re.sub(r"^(?:(?:public|private|protected) : )+", "", key)
            if key in seen:
                self.drop(member.start, member.end)
            seen.add(key)


def _integer(text: str) -> int:
    """Value of an integer literal; -1 for what is none."""
    digits = text.rstrip("uUlL").replace("'", "")
    try:
        return int(digits, 8) if re.fullmatch(r"0[0-7]+", digits) else int(digits, 0)
    except ValueError:
        return -1


def _template_names(tokens: Sequence[Token]) -> tuple[str, ...]:
    if len(tokens) < 2 or tokens[0].text != "template":
        return ()
    parts = _split_parameters(tokens[2 : closing_angle(tokens, 1)])
    names = []
    for part in parts:
        texts = [t.text for t in part]
        names.append(texts[texts.index("=") - 1] if "=" in texts else texts[-1])
    return tuple(names)


def _strings(text: str) -> str:
    return "".join(re.findall(r'"((?:\\.|[^"\\])*)"', text))


def _deduced(pattern: str, kind: str, names: Sequence[str]) -> dict[str, str]:
    """Values of the template parameters ``names`` that make a parameter's type ``pattern`` this ``kind``."""
    used = [name for name in names if re.search(rf"\b{name}\b", pattern)]
    escaped = re.escape(pattern)
    for name in used:
        escaped = re.sub(rf"\b{name}\b", f"(?P<{name}>.+)", escaped, count=1)
    match = re.fullmatch(escaped, kind)
    return match.groupdict() if match else {}


def _instance_text(tokens: Sequence[Token]) -> str:
    depth = 0
    for i, token in enumerate(tokens[:-1]):
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0 and token.kind == "name" and tokens[i + 1].text == "<":
            return " ".join(t.text for t in tokens[i : closing_angle(tokens, i + 1) + 1])
    return ""


def _is_kernel(reading: _Reading, found: Declaration) -> bool:
    head = reading.tokens[found.start : found.parameters]
    return any(t.text == "kernel" and t.kind == "name" for t in head)


def _uses_internals(tokens: Sequence[Token]) -> bool:
    return any(token.kind == "name" and token.text.startswith("__metal_") for token in tokens)


def _is_of_render_pipeline(tokens: Sequence[Token], found: Declaration) -> bool:
    """A vertex, fragment, object or mesh function, which no kernel can call."""
    if found.parameters < 0 or found.body < 0:
        return False
    head = [tokens[i].text for i in counted(tokens, found.start, found.parameters)]
    return any(
        word in _RENDER_FUNCTIONS and (i == 0 or head[i - 1] in ("[", ",", ">", "]")) for i, word in enumerate(head)
    )


def read_source(text: str, values: Mapping[int | str, Value]) -> Source:
    """Read a preprocessed file.

    Args:
        text: with the preprocessor's line markers.
        values: of function constants, by index or name.
    """
    # The preprocessor leaves macros in pragmas alone, and their definitions are gone by now.
    tokens = tokenize(_UNROLL_BY_MACRO.sub("#pragma unroll", text))
    lines = LineMap(tokens)
    reading = _Reading(tokens, lines, values)
    pieces: list[Piece] = []
    for found in declarations(Bracketed(tokens), 0, len(tokens)):
        words = list(islice((tokens[i].text for i in counted(tokens, found.start, found.end)), 2))
        if found.body == -2:
            if found.scope == "metal" and _uses_internals(tokens[found.start : found.end]):
                # Definitions on top of Apple's own built-ins: the shim headers have these functions.
                reading.drop(found.start, found.end)
        elif _is_of_render_pipeline(tokens, found):
            reading.drop(found.start, found.end)
        elif words[:1] == ["template"] and words[1:] != ["<"]:
            reading.instance(found)
        elif words:
            is_kernel = reading.declaration(found)
            piece = removable(tokens, found, is_kernel=is_kernel)
            pieces += [piece] if piece and (not pieces or piece.start >= pieces[-1].end) else []
    constants = tuple(reading.constants)
    return Source(Reachable(tokens, pieces), reading.functions, reading.instances, constants, lines, lines.files())
