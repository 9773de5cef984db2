"""Swizzles in Metal text: ``v.xy`` becomes a call that reads a value, or one that gives something to assign to.

Vectors are classes without members for swizzles (``include/metalsim/vec.h``): as types of their own these would get in
the way of templates and overloads. A structure's own member that is named like a swizzle gets the same calls.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from metalsim.text.tokens import Token

_SWIZZLE = re.compile(r"[xyzw]{2,4}|[rgba]{2,4}")
_COMMON = frozenset(("xy", "yx", "xz", "yz", "zw", "xyz", "yzw"))
_CLASS_WORDS = ("struct", "class", "union")
_OPENING = {")": "(", "]": "[", "}": "{"}
_ASSIGNMENTS = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "++", "--")


def swizzle_call(tokens: Sequence[Token], index: int) -> str:
    """What to write for the name at ``index``; empty when it is no swizzle.

    Args:
        tokens: of the text.
        index: of a name.
    """
    earlier, later = _before(tokens, index), _after(tokens, index)
    if not _SWIZZLE.fullmatch(tokens[index].text) or earlier < 0 or tokens[earlier].text not in (".", "->"):
        return ""
    if later < len(tokens) and tokens[later].text == "(":
        return ""  # a method of the user's
    kind = "set" if _is_assigned(tokens, later) or _is_stepped(tokens, earlier) else "get"
    return f"msim_{kind}_{tokens[index].text}()"


def member_calls(tokens: Sequence[Token], index: int) -> str:
    """Methods for a structure's member that is declared at ``index`` under the name of a swizzle; else empty."""
    name = tokens[index].text
    earlier, later = _before(tokens, index), _after(tokens, index)
    if not _SWIZZLE.fullmatch(name) or earlier < 0 or later >= len(tokens):
        return ""
    is_declared = tokens[earlier].kind == "name" or tokens[earlier].text in (",", "*", "&", ">")
    if not is_declared or tokens[later].text not in (";", ",", "=", "[", "{") or not _is_in_class(tokens, index):
        return ""
    return (
        f" MSIM_INLINE auto &msim_get_{name}() {{ return {name}; }}"
        f" MSIM_INLINE const auto &msim_get_{name}() const {{ return {name}; }}"
        f" MSIM_INLINE auto &msim_set_{name}() {{ return {name}; }}"
    )


def precompiled_heads() -> tuple[tuple[str, str], ...]:
    """Starts of texts that the shim headers are compiled for once, with the header: those with common swizzles."""
    macros = vector_macros(_COMMON, has_unions=False)
    headers = ("metalsim/entry.h", "metalsim/kernel.h")
    return tuple((f'{macros}\n#include "{header}"\n', header) for header in headers)


def is_swizzle(name: str) -> bool:
    """Whether ``name`` can be one."""
    return _SWIZZLE.fullmatch(name) is not None


def vector_macros(swizzles: frozenset[str], has_unions: bool) -> str:
    """Definitions that ``include/metalsim/vec.h`` asks for.

    Args:
        swizzles: those that occur.
        has_unions: whether there are unions, which can hold vectors only when these are copied like plain memory.
    """
    # Kernels with few swizzles have the same definitions, so that compiled headers serve all of them.
    swizzles = _COMMON if swizzles <= _COMMON else swizzles
    lines = ["#define MSIM_UNIONS"] if has_unions else []
    for width in (2, 3, 4):
        members = []
        for name in sorted(swizzles):
            axes = [("xyzw" if name[0] in "xyzw" else "rgba").index(c) for c in name]
            if max(axes) < width:
                members.append(f"MSIM_SWIZZLE({name}, {len(name)}, {', '.join(map(str, axes))})")
        lines.append(f"#define MSIM_SWIZZLES_{width} {' '.join(members)}".rstrip())
    return "\n".join(lines)


def _before(tokens: Sequence[Token], index: int) -> int:
    index -= 1
    while index >= 0 and not tokens[index].counts:
        index -= 1
    return index


def _after(tokens: Sequence[Token], index: int) -> int:
    index += 1
    while index < len(tokens) and not tokens[index].counts:
        index += 1
    return index


def _is_assigned(tokens: Sequence[Token], index: int) -> bool:
    """Whether an assignment, ``++`` or ``--`` starts at ``index``."""
    mark = "".join(token.text for token in tokens[index : index + 3])
    if mark.startswith("=="):
        return False
    return mark.startswith(_ASSIGNMENTS)


def _is_stepped(tokens: Sequence[Token], index: int) -> bool:
    """Whether ``++`` or ``--`` stands in front of the expression whose last ``.`` is at ``index``."""
    i = _before(tokens, index)
    while i >= 0:
        if tokens[i].text in (")", "]"):
            i = _before(tokens, _opening(tokens, i))
        elif tokens[i].kind == "name" or tokens[i].text in (".", "->", "::"):
            i = _before(tokens, i)
        else:
            break
    return i > 0 and tokens[i].text in ("+", "-") and tokens[i - 1].text == tokens[i].text


def _opening(tokens: Sequence[Token], index: int) -> int:
    depth = 0
    for i in range(index, -1, -1):
        if tokens[i].kind == "mark":
            depth += 1 if tokens[i].text in _OPENING else -1 if tokens[i].text in _OPENING.values() else 0
            if depth == 0:
                return i
    return 0


def _is_in_class(tokens: Sequence[Token], index: int) -> bool:
    """Whether the innermost braces around ``index`` are those of a class."""
    depth, i = 0, index
    while i >= 0:
        text = tokens[i].text if tokens[i].kind == "mark" else ""
        depth += 1 if text in _OPENING else -1 if text in _OPENING.values() else 0
        if depth < 0:
            break
        i -= 1
    if i < 0 or tokens[i].text != "{":
        return False
    head: list[str] = []
    while i > 0 and tokens[i - 1].text not in (";", "{", "}", ")"):
        i -= 1
        head.append(tokens[i].text)
    return any(word in head for word in _CLASS_WORDS)
