"""Turns Metal text into C++ that the shim headers understand, token by token.

What needs more than a macro: threadgroup variables of the kernel body become statics that all threads
share, with red zones around them and announced to the runtime by name; literals without a suffix are
float; attributes go; the swizzles that occur are listed, so that the vector classes declare only those.
Line breaks stay where they were. Whole ``.metal`` files (``metalsim.text.source``) are rewritten by the same parts.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from metalsim.text.braces import fill_lists
from metalsim.text.casts import CONVERTED, cast_call, convert_casts
from metalsim.text.conditionals import settle_conditionals
from metalsim.text.swizzles import is_swizzle, member_calls, swizzle_call
from metalsim.text.tokens import Token, tokenize

RED_ZONE_BYTES = 65536
"""On both sides of each threadgroup array; the runtime's RED_ZONE_BYTES."""

_FLOAT_LITERAL = re.compile(
    r"(?:(?=[0-9]*\.|[0-9]+[eE])[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?|0[xX][0-9A-Fa-f.]*[pP][+-]?[0-9]+)"
    r"(?P<suffix>[fFhH]|bf|BF)?"
)
_NOT_METAL = frozenset((
    "double", "goto", "try", "catch", "throw", "new", "delete", "virtual", "dynamic_cast", "typeid",
    "thread_local", "co_await", "co_yield",
))  # fmt: skip
_HOST_ONLY = frozenset(("extern", "__attribute__", "__attribute", "__declspec"))
_SPECIAL = frozenset(("threadgroup", "static_cast", *CONVERTED))
_ASSEMBLY = frozenset(("asm", "__asm", "__asm__"))
_MADE = "msim_defined_"  # by metalsim.text.source, for function constants
_RESERVED = ("msim", "__msim", "__ubsan", "__asan")
_STATEMENT_ENDS = (";", "{", "}", ":")


@dataclass(frozen=True)
class Rewritten:
    """Result of rewriting one text.

    Attributes:
        text: C++ with as many lines as the input.
        swizzles: swizzles that occur, such as ``xy``.
        faults: why the text is refused, each with place and line.
        lint: lines and words of what Metal's compiler refuses and clang takes.
        has_unions: whether the text defines a union.
    """

    text: str
    swizzles: frozenset[str]
    faults: tuple[str, ...]
    lint: tuple[tuple[int, str], ...] = ()
    has_unions: bool = False


@dataclass
class _Rewriting:
    place: str
    arrays_allowed: bool
    statics_allowed: bool = False
    out: list[str] = field(default_factory=list)
    swizzles: set[str] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)
    lint: list[tuple[int, str]] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    after_statement: str = ""

    def refuse(self, token: Token, what: str) -> None:
        self.faults.append(f"{self.place}:{token.line}: {what}")


@dataclass(frozen=True)
class _Declarator:
    name: str
    dimensions: str


def _float_literal(text: str) -> str:
    match = _FLOAT_LITERAL.fullmatch(text)
    if match is None:
        return text
    suffix = match["suffix"] or ""
    digits = text[: len(text) - len(suffix)]
    kind = {"h": "half", "bf": "bfloat"}.get(suffix.lower())
    return f"(({kind}){digits}f)" if kind else digits + "f"


def _next(tokens: list[Token], index: int) -> int:
    """Index of the next token that counts, or the length."""
    index += 1
    while index < len(tokens) and not tokens[index].counts:
        index += 1
    return index


def _text_of(tokens: list[Token]) -> str:
    return "".join(t.text for t in tokens)


def _attribute_end(tokens: list[Token], index: int) -> int | None:
    """Index of the last ``]`` of the attribute that starts at ``index``; None when none does."""
    second = _next(tokens, index)
    if tokens[index].text != "[" or second >= len(tokens) or tokens[second].text != "[":
        return None
    depth = 0
    for i in range(index, len(tokens)):
        depth += {"[": 1, "]": -1}.get(tokens[i].text, 0)
        if depth == 0:
            return i
    return None


def _statement_end(tokens: list[Token], index: int) -> int:
    """Index of the ``;`` that ends the statement, or the length."""
    depth = 0
    for i in range(index, len(tokens)):
        text = tokens[i].text if tokens[i].counts else ""
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text, 0)
        if depth < 0 or (text == ";" and depth == 0):
            return i
    return len(tokens)


def _top_level(tokens: list[Token]) -> Iterator[tuple[int, str]]:
    """Index and text of the tokens outside brackets and template arguments; brackets that open are included.

    After the first ``[`` or ``=`` angle signs are comparisons.
    """
    depth = angle = 0
    in_type = True
    for i, token in enumerate(tokens):
        if not token.counts:
            continue
        text = token.text
        if depth == 0 and in_type and text in ("<", ">"):
            angle += 1 if text == "<" else -1
            continue
        if depth == 0 and angle == 0:
            yield i, text
            in_type = in_type and text not in ("[", "=", "{")
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text, 0)


def _split_declaration(tokens: list[Token]) -> tuple[str, list[list[Token]]]:
    """``(type, declarators)`` of ``float a[2][3], b``: the first name before ``[``, ``,`` or the end."""
    name = -1
    commas = []
    for i, text in _top_level(tokens):
        if text == ",":
            commas.append(i)
        elif not commas and text in ("[", "=", "{"):
            commas.append(-1)
        elif not commas and tokens[i].kind == "name":
            name = i
    starts = [name, *(i + 1 for i in commas if i >= 0)]
    ends = [*(i for i in commas if i >= 0), len(tokens)]
    return _text_of(tokens[:name]), [tokens[i:j] for i, j in zip(starts, ends, strict=True)]


def _declarator(rewriting: _Rewriting, tokens: list[Token]) -> _Declarator | None:
    counted = [t for t in tokens if t.counts]
    if not counted or counted[0].kind != "name":
        return None
    depth = 0
    for token in counted[1:]:
        depth += {"[": 1, "]": -1}.get(token.text, 0)
        if depth == 0 and token.text == "=" and rewriting.statics_allowed:
            # Apple's compiler takes it and drops it: threadgroup memory starts undefined.
            end = tokens.index(token)
            return _Declarator(counted[0].text, _rewrite_plain(rewriting, tokens[tokens.index(counted[0]) + 1 : end]))
        if depth == 0 and token.text != "]":
            rewriting.refuse(counted[0], f"threadgroup variable '{counted[0].text}' cannot have an initializer")
            return None
    rest = tokens[tokens.index(counted[0]) + 1 :]
    return _Declarator(counted[0].text, _rewrite_plain(rewriting, rest) if rest else "")


def _shared_array(number: int, type_text: str, declarator: _Declarator) -> str:
    storage, name = f"msim_storage_{number}", declarator.name
    return (
        f"static threadgroup struct {{ char msim_before[{RED_ZONE_BYTES}]; alignas(16) {type_text.strip()} "
        f"{name}{declarator.dimensions}; char msim_after[{RED_ZONE_BYTES}]; }} {storage}; "
        f"msim_declare((const void *)&{storage}.{name}, sizeof({storage}.{name}), "
        f'msim::scalar_of<decltype({storage}.{name})>::bytes, "{name}"); auto &{name} = {storage}.{name}; '
    )


def _is_variable(inner: list[Token]) -> bool:
    """Whether a declaration makes variables in threadgroup memory, rather than pointers or functions."""
    for _, text in _top_level(inner):
        if text in ("[", "=", "{"):
            return True
        if text in ("*", "&", "("):
            return False
    return True


def _threadgroup_declaration(rewriting: _Rewriting, tokens: list[Token], index: int) -> int | None:
    """Rewrite the declaration whose ``threadgroup`` is at ``index``; the index behind it, None for pointers."""
    end = _statement_end(tokens, index)
    inner = tokens[index + 1 : end]
    if not _is_variable(inner):
        return None
    if not rewriting.arrays_allowed:
        rewriting.refuse(tokens[index], "threadgroup variables can only be declared in the kernel's body")
        return end
    type_text, declarators = _split_declaration(inner)
    for of_one in declarators:
        declarator = _declarator(rewriting, of_one)
        if declarator is None:
            if not rewriting.faults:
                rewriting.refuse(tokens[index], "threadgroup declaration that metalsim cannot read")
            break
        rewriting.out.append(_shared_array(next(rewriting.numbers), type_text, declarator))
    return min(end + 1, len(tokens))


def _previous(tokens: list[Token], index: int) -> int:
    """Index of the token before that counts, or -1."""
    index -= 1
    while index >= 0 and not tokens[index].counts:
        index -= 1
    return index


def _starts_statement(tokens: list[Token], index: int) -> bool:
    before = _previous(tokens, index)
    while before >= 0 and tokens[before].text in ("const", "volatile"):
        before = _previous(tokens, before)
    return before < 0 or tokens[before].text in _STATEMENT_ENDS


def _rewrite_plain(rewriting: _Rewriting, tokens: list[Token]) -> str:
    inner = _Rewriting(rewriting.place, False, True, numbers=rewriting.numbers)
    _rewrite_tokens(inner, tokens)
    rewriting.swizzles |= inner.swizzles
    rewriting.faults += inner.faults
    rewriting.lint += inner.lint
    return "".join(inner.out)


def _rewrite_directive(rewriting: _Rewriting, token: Token) -> str:
    """Macros may hold literals and swizzles; a threadgroup array in a macro cannot be found."""
    stripped = token.text.lstrip()[1:].lstrip()
    if not stripped.startswith("define"):
        return token.text
    head, _, rest = token.text.partition("define")
    if re.search(r"\bthreadgroup\b[^*&\n]*\[", rest):
        rewriting.refuse(token, "metalsim does not support threadgroup arrays declared by a macro")
    pieces = []
    inner = convert_casts(tokenize(rest))
    for index, piece in enumerate(inner):
        swizzled = swizzle_call(inner, index) if piece.kind == "name" else ""
        if swizzled:
            rewriting.swizzles.add(piece.text)
        call = swizzled or (cast_call(inner, index) if piece.kind == "name" else "")
        pieces.append(call or (_float_literal(piece.text) if piece.kind == "number" else piece.text))
    return head + "define" + "".join(pieces)


def _rewrite_tokens(rewriting: _Rewriting, tokens: list[Token]) -> None:
    index = depth = 0
    while index < len(tokens):
        token = tokens[index]
        attribute_end = _attribute_end(tokens, index) if token.text == "[" else None
        if attribute_end is not None:
            rewriting.out.append("\n" * _text_of(tokens[index:attribute_end]).count("\n"))
            index = attribute_end + 1
            continue
        if token.kind == "mark":
            depth += {"(": 1, ")": -1}.get(token.text, 0)
        elif token.kind == "space" or (token.kind == "name" and not _is_special(token.text)):
            rewriting.out.append(token.text)
            index += 1
            continue
        if token.text == "threadgroup" and depth == 0 and _starts_statement(tokens, index):
            written = len(rewriting.out)
            behind = _threadgroup_declaration(rewriting, tokens, index)
            if behind is not None:
                lines = _text_of(tokens[index:behind]).count("\n")
                missing = lines - "".join(rewriting.out[written:]).count("\n")
                rewriting.out.append("\n" * missing)
                index = behind
                continue
        rewriting.out.append(_rewrite_token(rewriting, tokens, index))
        if token.text == ";" and depth == 0 and rewriting.after_statement:
            rewriting.out.append(rewriting.after_statement)
            rewriting.after_statement = ""
        index += 1


def _rewrite_token(rewriting: _Rewriting, tokens: list[Token], index: int) -> str:
    token = tokens[index]
    if token.kind == "number":
        return _float_literal(token.text)
    if token.kind == "directive":
        return _rewrite_directive(rewriting, token)
    if token.kind == "name":
        if is_swizzle(token.text):
            call = swizzle_call(tokens, index)
            if call:
                rewriting.swizzles.add(token.text)
                return call
            rewriting.after_statement += member_calls(tokens, index)
        elif token.text == "static_cast":
            return "msim::static_convert"
        elif cast_call(tokens, index):
            return cast_call(tokens, index)
        elif token.text in _NOT_METAL and not _is_deletion(tokens, index):
            rewriting.lint.append((token.line, f"Metal has no '{token.text}'"))
        elif token.text in _ASSEMBLY:
            rewriting.refuse(token, f"Metal has no inline assembly ({token.text!r})")
        elif rewriting.place and token.text in _HOST_ONLY:
            rewriting.refuse(token, f"'{token.text}' reaches outside Metal")
        elif token.text.lower().startswith(_RESERVED) and (rewriting.place or not token.text.startswith(_MADE)):
            rewriting.refuse(token, f"'{token.text}' is reserved: names of the simulator start like this")
    return token.text


@functools.lru_cache(maxsize=1 << 14)
def _is_special(name: str) -> bool:
    """Whether a name may have to be written otherwise, or be refused, or starts a declaration of its own."""
    known = name in _SPECIAL or name in _NOT_METAL or name in _ASSEMBLY or name in _HOST_ONLY
    return known or is_swizzle(name) or name.lower().startswith(_RESERVED)


def _is_deletion(tokens: list[Token], index: int) -> bool:
    """``= delete``: a function that must not be used."""
    before = _previous(tokens, index)
    return tokens[index].text == "delete" and before >= 0 and tokens[before].text == "="


def _next_text(tokens: list[Token], index: int) -> str:
    following = _next(tokens, index)
    return tokens[following].text if following < len(tokens) else ""


def rewrite(text: str, *, place: str, arrays_allowed: bool) -> Rewritten:
    """Rewrite a kernel's body or header.

    Args:
        text: Metal text.
        place: ``body`` or ``header``, for messages.
        arrays_allowed: whether threadgroup variables may be declared (only the kernel's body may).
    """
    return _rewritten(_Rewriting(place, arrays_allowed, statics_allowed=not arrays_allowed), tokenize(text))


def rewrite_file(tokens: Sequence[Token]) -> Rewritten:
    """Rewrite a whole preprocessed file; threadgroup variables may stand in any function.

    Faults carry lines of the preprocessed text.
    """
    return _rewritten(_Rewriting("", arrays_allowed=True, statics_allowed=True), tokens)


def _rewritten(rewriting: _Rewriting, tokens: Sequence[Token]) -> Rewritten:
    _rewrite_tokens(rewriting, convert_casts(settle_conditionals(fill_lists(tokens))))
    has_unions = any(token.text == "union" for token in tokens)
    return Rewritten(
        "".join(rewriting.out),
        frozenset(rewriting.swizzles),
        tuple(rewriting.faults),
        tuple(rewriting.lint),
        has_unions,
    )
