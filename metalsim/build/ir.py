"""LLVM IR text as functions, blocks and instructions: as much of it as instrumentation needs.

The reader is line-based and forgiving: what it does not understand stays an instruction with an
opcode and the names it mentions. It never rewrites anything; positions are indices into the
module's lines, so that a caller can insert lines between them.

Grammar: LLVM Language Reference, textual form with opaque pointers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = r'(?:"(?:[^"\\]|\\.)*"|[-a-zA-Z$._0-9]+)'
_DEFINE = re.compile(rf"^define\b.*?@({_NAME})\s*\(")
_LABEL = re.compile(rf"^({_NAME}):(?:\s|$)")
_RESULT = re.compile(rf"^(%{_NAME})\s*=\s*(.*)$", re.DOTALL)
_LOCAL = re.compile(rf"(label\s+)?(%{_NAME})")
_PHI_ENTRY = re.compile(rf"\[\s*(.+?)\s*,\s*(%{_NAME})\s*\]")
_DBG = re.compile(r"!dbg !(\d+)")
_CALL_PREFIX = frozenset({"tail", "musttail", "notail"})
_STRUCT = re.compile(rf"^(%{_NAME})\s*=\s*type\s+(.*)$")
_METADATA = re.compile(r"^!(\d+)\s*=\s*(?:distinct\s+)?!(DI\w+)\((.*)\)\s*$")
_FIELD = re.compile(r'(\w+):\s*("(?:[^"\\]|\\.)*"|!\d+|[^,]+)')
_OPENERS = {"(": ")", "[": "]", "{": "}", "<": ">"}
_INT = re.compile(r"^i(\d+)$")
_FLOAT_BYTES = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "x86_fp80": 16, "fp128": 16}
_VECTOR = re.compile(r"^<\s*(\d+)\s+x\s+(.+)>$", re.DOTALL)
_WORD = re.compile(r"\s*([A-Za-z_]+)\b")
_TYPE_NAME = re.compile(rf"%{_NAME}|[A-Za-z_][A-Za-z_0-9]*")
_SPACE = re.compile(r"\s*addrspace\(\d+\)")
_PARENTHESIS = re.compile(r"\s*\(")
_BEFORE_CALLEE = re.compile(r"\s+[@%]")
_NESTING = re.compile(r"[()\[\]{}<>\"]")
_ARRAY = re.compile(r"^\[\s*(\d+)\s+x\s+(.+)\]$", re.DOTALL)


@dataclass(frozen=True)
class Instruction:
    """One instruction of a block.

    Attributes:
        result: name of its value with ``%``, empty when it has none.
        opcode: ``load``, ``fadd``, ``call`` ...; for a tail call ``call``.
        body: everything after the opcode without trailing metadata.
        first_line, last_line: indices into the module's lines, inclusive.
        location: number of the ``!dbg`` metadata, -1 without one.
    """

    result: str
    opcode: str
    body: str
    first_line: int
    last_line: int
    location: int = -1

    def value_names(self) -> list[str]:
        """Names of the local values it reads, in order, labels and phi's incoming blocks left out."""
        if self.opcode == "phi":
            names = [value for value, _ in self.incoming()]
            return [name for name in names if name.startswith("%")]
        return [name for label, name in _LOCAL.findall(self.body) if not label]

    def label_names(self) -> list[str]:
        """Names of the blocks it branches to, with ``%``."""
        return [name for label, name in _LOCAL.findall(self.body) if label]

    def incoming(self) -> list[tuple[str, str]]:
        """``(value, block)`` pairs of a phi; values are names or constants as text."""
        _, end = read_type(self.body, skip_words(self.body, FAST_MATH_FLAGS))
        return [(value, block) for value, block in _PHI_ENTRY.findall(self.body[end:])]


@dataclass(frozen=True)
class Block:
    """A basic block.

    Attributes:
        label: its name without ``%``; empty for an entry block that the text does not label.
        instructions: in order, phis first.
        insert_line: line index before which code at the block's start (after phis) goes.
    """

    label: str
    instructions: tuple[Instruction, ...]
    insert_line: int


@dataclass(frozen=True)
class Function:
    """A defined function: ``name`` without ``@``, its blocks, the text of its ``define`` line."""

    name: str
    header: str
    blocks: tuple[Block, ...]

    def definitions(self) -> dict[str, Instruction]:
        """Instructions by the name of their result."""
        return {
            instruction.result: instruction
            for block in self.blocks
            for instruction in block.instructions
            if instruction.result
        }


@dataclass(frozen=True)
class Module:
    """The text of a module and what was read from it."""

    lines: tuple[str, ...]
    functions: tuple[Function, ...]
    structs: dict[str, str] = field(default_factory=dict)
    metadata: dict[int, tuple[str, dict[str, str]]] = field(default_factory=dict)

    def byte_size(self, type_text: str) -> int:
        """Bytes that a load or store of ``type_text`` touches; 0 for a type this reader does not know."""
        return _size_and_alignment(type_text.strip(), self.structs)[0]


FAST_MATH_FLAGS = frozenset({"fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc"})
"""Words between an opcode and its type that relax floating-point rules."""


def read_module(text: str) -> Module:
    """Reads a module.

    Args:
        text: textual LLVM IR as clang or ``llvm-dis`` writes it.
    """
    lines = text.split("\n")
    functions: list[Function] = []
    structs: dict[str, str] = {}
    metadata: dict[int, tuple[str, dict[str, str]]] = {}
    index = 0
    while index < len(lines):
        line = lines[index]
        if line.startswith("define"):
            function, index = _read_function(lines, index)
            functions.append(function)
        elif line.startswith("!"):
            match = _METADATA.match(line)
            if match:
                values = {key: value.strip() for key, value in _FIELD.findall(match[3])}
                metadata[int(match[1])] = (match[2], values)
        elif line.startswith("%"):
            struct = _STRUCT.match(line)
            if struct:
                structs[struct[1]] = struct[2].strip()
        index += 1
    return Module(tuple(lines), tuple(functions), structs, metadata)


def _read_function(lines: list[str], start: int) -> tuple[Function, int]:
    """Reads the function that begins at ``start``; returns it and the index of its closing line."""
    header = _DEFINE.match(lines[start])
    name = header[1].strip('"') if header else ""
    blocks: list[Block] = []
    label, first = "", start + 1
    current: list[Instruction] = []
    index = start + 1
    while index < len(lines) and lines[index].rstrip() != "}":
        stripped = lines[index].strip()
        if not stripped or stripped.startswith((";", "#dbg")):
            index += 1
            continue
        found = _LABEL.match(stripped)
        if found and not lines[index].startswith("    "):
            if current:
                blocks.append(_close_block(label, current, first))
            label, first, current = found[1].strip('"'), index + 1, []
            index += 1
            continue
        last = _last_line_of(lines, index)
        current.append(_read_instruction(lines[index : last + 1], index, last))
        index = last + 1
    if current:
        blocks.append(_close_block(label, current, first))
    return Function(name, lines[start], tuple(blocks)), index


def _last_line_of(lines: list[str], start: int) -> int:
    """The last line of the instruction that begins at ``start``: a switch spans several."""
    opened = _bracket_depth(lines[start])
    index = start
    while opened > 0 and index + 1 < len(lines) and lines[index + 1].rstrip() != "}":
        index += 1
        opened += _bracket_depth(lines[index])
    if index + 1 < len(lines) and lines[index + 1].lstrip().startswith("to label"):
        index += 1
    return index


def _bracket_depth(line: str) -> int:
    plain = re.sub(r'"(?:[^"\\]|\\.)*"', "", _without_comment(line))
    return plain.count("[") - plain.count("]")


def _close_block(label: str, instructions: list[Instruction], first: int) -> Block:
    after_phis = [item for item in instructions if item.opcode != "phi"]
    insert = after_phis[0].first_line if after_phis else first
    return Block(label, tuple(instructions), insert)


def _read_instruction(lines: list[str], first: int, last: int) -> Instruction:
    text = " ".join(_without_comment(line).strip() for line in lines)
    found = _DBG.search(text)
    location = int(found[1]) if found else -1
    text = strip_metadata(text)
    match = _RESULT.match(text)
    result, rest = (match[1], match[2]) if match else ("", text)
    words = rest.split(None, 1)
    while len(words) > 1 and words[0] in _CALL_PREFIX:
        words = words[1].split(None, 1)
    opcode = words[0] if words else ""
    body = words[1] if len(words) > 1 else ""
    return Instruction(result, opcode, body, first, last, location)


def _without_comment(line: str) -> str:
    if ";" not in line:
        return line
    parts = re.split(r'("(?:[^"\\]|\\.)*")', line)  # odd ones are quoted
    for index in range(0, len(parts), 2):
        if ";" in parts[index]:
            return "".join(parts[:index]) + parts[index].split(";", 1)[0]
    return line


def strip_metadata(text: str) -> str:
    """``text`` without the ``, !kind !n`` attachments at its end."""
    position = text.find(", !")
    while position >= 0 and text.count('"', 0, position) % 2:  # inside quotes
        position = text.find(", !", position + 1)
    return text[:position].rstrip() if position >= 0 else text.rstrip()


def skip_words(text: str, words: frozenset[str]) -> int:
    """Position after the leading ``words`` of ``text``."""
    position = 0
    while True:
        match = _WORD.match(text, position)
        if not match or match[1] not in words:
            return position
        position = match.end()


def read_type(text: str, position: int = 0) -> tuple[str, int]:
    """Reads the type that begins at ``position``; returns it and the position after it."""
    while position < len(text) and text[position].isspace():
        position += 1
    start = position
    if position < len(text) and text[position] in _OPENERS:
        position = _closing(text, position) + 1
    else:
        match = _TYPE_NAME.match(text, position)
        position = match.end() if match else position
    space = _SPACE.match(text, position)
    if space:
        position = space.end()
    function = _PARENTHESIS.match(text, position)
    if function and text[start:position] != "":
        end = _closing(text, function.end() - 1) + 1
        if _BEFORE_CALLEE.match(text, end):  # a function type before its callee
            position = end
    return text[start:position], position


def _closing(text: str, position: int) -> int:
    """Index of the bracket that closes the one at ``position``; the end of the text without one."""
    depth = 0
    quoted = False
    for index in range(position, len(text)):
        char = text[index]
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in _OPENERS:
            depth += 1
        elif char in ")]}>":
            depth -= 1
            if depth == 0:
                return index
    return len(text) - 1


def split_arguments(text: str) -> list[str]:
    """Splits at commas outside brackets and quotes; each part stripped."""
    if not _NESTING.search(text):
        return [part.strip() for part in text.split(",")] if text.strip() else []
    parts: list[str] = []
    depth = start = 0
    quoted = False
    for index, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in _OPENERS:
            depth += 1
        elif char in ")]}>":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    tail = text[start:].strip()
    return [*parts, tail] if tail or parts else []


_CALLEE = re.compile(rf"[@]({_NAME})\s*\(")


def read_callee(body: str) -> tuple[str, list[str]]:
    """Name of the called function without ``@`` and its arguments as text; name empty if indirect."""
    match = _CALLEE.search(body)
    if not match:
        return "", []
    opening = match.end() - 1
    return match[1].strip('"'), split_arguments(body[opening + 1 : _closing(body, opening)])


def vector_shape(type_text: str) -> tuple[int, str]:
    """``(lanes, element type)``; 1 lane for anything but a fixed vector."""
    match = _VECTOR.match(type_text.strip())
    return (int(match[1]), match[2].strip()) if match else (1, type_text.strip())


def _size_and_alignment(text: str, structs: dict[str, str]) -> tuple[int, int]:
    integer = _INT.match(text)
    if integer:
        size = max(1, (int(integer[1]) + 7) // 8)
        return size, min(size, 16)
    if text in _FLOAT_BYTES:
        return _FLOAT_BYTES[text], _FLOAT_BYTES[text]
    if text.startswith("ptr"):
        return 8, 8
    vector = _VECTOR.match(text) if not text.startswith("<{") else None
    if vector:
        element, _ = _size_and_alignment(vector[2].strip(), structs)
        bits = 1 if vector[2].strip() == "i1" else element * 8
        size = (int(vector[1]) * bits + 7) // 8
        return size, 1 << max(0, size - 1).bit_length()  # a vector of three lies where one of four would
    array = _ARRAY.match(text)
    if array:
        element, alignment = _size_and_alignment(array[2].strip(), structs)
        return int(array[1]) * (-(-element // alignment) * alignment), alignment
    if text in structs:
        return _size_and_alignment(structs[text], structs)
    return _struct_size(text, structs)


def _struct_size(text: str, structs: dict[str, str]) -> tuple[int, int]:
    packed = text.startswith("<{")
    inner = text[2:-2] if packed else text[1:-1]
    if not (packed or text.startswith("{")):
        return 0, 1
    offset, widest = 0, 1
    for part in split_arguments(inner):
        size, alignment = _size_and_alignment(part, structs)
        alignment = 1 if packed else max(1, alignment)
        offset = -(-offset // alignment) * alignment + size
        widest = max(widest, alignment)
    return -(-offset // widest) * widest, widest


MEMORY_CALL = re.compile(r"^(?:llvm\.)?(memcpy|memmove|memset)(?:\.|$)")
"""Callees that move or fill memory: the intrinsics, and the library calls into which sanitizer passes turn them."""
