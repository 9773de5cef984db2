"""Turns Metal text into the CUDA C++ that the headers of ``kx_metal`` understand, token by token.

Address spaces go, threadgroup arrays become shared ones, SIMD-group functions that some lanes may not reach are
told to ask who is there, literals without a suffix are float, swizzles are calls. Line breaks stay where they were,
so that a compiler's message names the line of the Metal text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from metalsim.text.declarations import Declaration, closing_angle, counted, declarations, is_attribute, matching
from metalsim.text.swizzles import swizzle_call
from metalsim.text.tokens import Token, tokenize
from search.backends.cuda_text.divergence import find_divergence

COLLECTIVES = frozenset(
    f"{group}_{name}"
    for group in ("simd", "quad")
    for name in (
        "sum", "product", "min", "max", "and", "or", "xor",
        "prefix_inclusive_sum", "prefix_exclusive_sum", "prefix_inclusive_product", "prefix_exclusive_product",
        "shuffle", "shuffle_up", "shuffle_down", "shuffle_xor", "shuffle_rotate_up", "shuffle_rotate_down",
        "shuffle_and_fill_up", "shuffle_and_fill_down", "broadcast", "broadcast_first",
        "ballot", "any", "all", "is_first", "active_threads_mask",
    )
) | {"simdgroup_barrier"}  # fmt: skip
"""Functions of a SIMD-group or quad-group whose result depends on which lanes take part."""

_WRITE_THEIR_FIRST = ("simdgroup_load", "simdgroup_multiply", "simdgroup_multiply_accumulate")
_SPACES = frozenset(("device", "constant", "thread", "threadgroup"))
_STATEMENT_ENDS = (";", "{", "}", ":")
_FLOAT = re.compile(
    r"(?P<digits>(?=[0-9]*\.|[0-9]+[eE])[0-9]*\.?[0-9]*(?:[eE][+-]?[0-9]+)?|0[xX][0-9A-Fa-f.]*[pP][+-]?[0-9]+)"
    r"(?P<suffix>[fFhH]|bf|BF)?"
)
_SWIZZLE = re.compile(r"msim_(?P<kind>get|set)_(?P<axes>[xyzwrgba]+)\(\)")
_REFUSED = re.compile(
    r"texture(?:cube|\d|_)\w*|depth(?:cube|2d)\w*|sampler|imageblock\w*|r[aw]y?_?data\w*|intersect(?:or|ion)\w*"
    r"|visible_function_table|simdgroup_async_copy\w*|simdgroup_event|tensor\w*|cooperative_tensor|mpp|os_log\w*"
    r"|packed_\w+|(?:float|half)[234]x[234]|asm|__asm\w*|kernel|vertex|fragment|function_constant|array_ref"
)


@dataclass
class Rewritten:
    """One Metal text as CUDA text.

    Attributes:
        text: with as many lines as the input.
        refusals: what can't be rewritten, by name and line; empty where all can.
        leaves_early: whether some lanes of a SIMD-group may return before the others.
        uses_lanes: whether the text names something of a SIMD-group or quad-group.
        uses_matrices: whether it names simdgroup matrices.
    """

    text: str = ""
    refusals: list[str] = field(default_factory=list)
    leaves_early: bool = False
    uses_lanes: bool = False
    uses_matrices: bool = False


def rewrite_body(text: str, header: str) -> Rewritten:
    """A kernel's body, of which threadgroup arrays are part; ``header`` defines the functions that it calls."""
    tokens = tokenize(text)
    found = find_divergence(tokens, COLLECTIVES, 0, len(tokens), written_arguments(header)) if tokens else None
    result = _Rewriting(tokens, "body", found.calls if found else set()).run()
    result.leaves_early = bool(found and found.leaves)
    return result


def rewrite_header(text: str) -> Rewritten:
    """Helper functions, types and constants that stand before the signature."""
    tokens = _without_repetitions(tokenize(text))
    diverged: set[int] = set()
    writers = written_arguments(text)
    for function in _functions(tokens):
        end = matching(tokens, function.body)
        diverged |= find_divergence(tokens, COLLECTIVES, function.body + 1, end, writers).calls
    return _Rewriting(tokens, "header", diverged).run()


def collective_functions(text: str) -> frozenset[str]:
    """Names of the header's functions that call a SIMD-group function, directly or through another one."""
    tokens = tokenize(text)
    calls: dict[str, set[str]] = {}
    for function in _functions(tokens):
        earlier = [tokens[i].text for i in counted(tokens, function.start, function.parameters)]
        body = {tokens[i].text for i in counted(tokens, function.body, matching(tokens, function.body))}
        calls.setdefault(earlier[-1] if earlier else "", set()).update(body)
    found: set[str] = set(COLLECTIVES)
    while True:
        more = {name for name, body in calls.items() if body & found} - found
        if not more:
            return frozenset(found - COLLECTIVES)
        found |= more


def calls_diverge(body: str, header: str) -> bool:
    """Whether the body calls a header function with SIMD-group functions in it where some lanes may be missing."""
    tokens, functions = tokenize(body), collective_functions(header)
    if not functions or not tokens:
        return False
    return bool(find_divergence(tokens, functions, 0, len(tokens), written_arguments(header)).calls)


def written_arguments(header: str) -> dict[str, tuple[int, ...]]:
    """Function of the header -> positions of the parameters through which it may write."""
    tokens = tokenize(header)
    writers: dict[str, set[int]] = {name: {0} for name in _WRITE_THEIR_FIRST}
    for function in _functions(tokens):
        name = next((tokens[i].text for i in reversed(list(counted(tokens, function.start, function.parameters)))), "")
        position, depth, words, last = 0, 0, [], matching(tokens, function.parameters)
        for i in counted(tokens, function.parameters + 1, last + 1):
            words.append(tokens[i].text)
            depth += {"<": 1, ">": -1}.get(tokens[i].text, 0)
            if (tokens[i].text == "," and depth == 0) or i == last:
                if ("*" in words or "&" in words or "[" in words) and "const" not in words:
                    writers.setdefault(name, set()).add(position)
                position, words = position + 1, []
    return {name: tuple(sorted(positions)) for name, positions in writers.items()}


def _functions(tokens: Sequence[Token]) -> list[Declaration]:
    return [f for f in declarations(tokens, 0, len(tokens)) if f.parameters >= 0 and f.body >= 0]


def _without_repetitions(tokens: list[Token]) -> list[Token]:
    """Functions that differ in address spaces only are one function here; the first stays."""
    seen: set[str] = set()
    kept = list(tokens)
    for function in _functions(tokens):
        signature = " ".join(
            tokens[i].text for i in counted(tokens, function.start, function.body) if tokens[i].text not in _SPACES
        )
        if signature in seen:
            for i in range(function.start, function.end):
                kept[i] = Token("space", "\n" * tokens[i].text.count("\n"), tokens[i].line)
        seen.add(signature)
    return kept


class _Rewriting:
    def __init__(self, tokens: list[Token], place: str, diverged: set[int]) -> None:
        self._tokens, self._place, self._diverged = tokens, place, diverged
        self._result = Rewritten()
        self._out: list[str] = []

    def run(self) -> Rewritten:
        index = depth = 0
        while index < len(self._tokens):
            token = self._tokens[index]
            if token.text == "[" and is_attribute(self._tokens, index):
                close = matching(self._tokens, index)
                self._out.append("\n" * sum(t.text.count("\n") for t in self._tokens[index : close + 1]))
                index = close + 1
                continue
            depth += {"{": 1, "}": -1}.get(token.text, 0) if token.kind == "mark" else 0
            self._out.append(self._rewritten(index, depth))
            index += 1
        self._result.text = "".join(self._out)
        return self._result

    def _rewritten(self, index: int, depth: int) -> str:
        token = self._tokens[index]
        if token.kind == "number":
            return float_literal(token.text)
        if token.kind == "directive":
            return self._directive(token)
        if token.kind != "name":
            return token.text
        if token.text in _SPACES:
            return self._space(index, depth)
        if _REFUSED.fullmatch(token.text) and not self._is_member(index):
            self._result.refusals.append(
                f"{self._place}, line {token.line}: {token.text} has no counterpart in CUDA text"
            )
        self._result.uses_lanes |= token.text.startswith(("simd", "quad")) or "_in_simd" in token.text
        self._result.uses_lanes |= "_in_quad" in token.text
        self._result.uses_matrices |= "simdgroup_" in token.text and ("8x8" in token.text or "matrix" in token.text)
        if index in self._diverged:
            return f"{token.text}<kx_active>"
        swizzle = _SWIZZLE.fullmatch(swizzle_call(self._tokens, index))
        if swizzle:
            axes = ", ".join(str(("xyzw" if axis in "xyzw" else "rgba").index(axis)) for axis in swizzle["axes"])
            return f"kx_{swizzle['kind']}(kx_axes<{axes}>())"
        return token.text

    def _space(self, index: int, depth: int) -> str:
        """Nothing for an address space of a pointer or reference; CUDA's word for that of a variable."""
        token = self._tokens[index]
        if token.text == "constant" and self._place == "header" and depth == 0 and self._starts_statement(index):
            return "__constant__"
        if token.text != "threadgroup" or not self._starts_statement(index) or not self._is_variable(index):
            return ""
        if self._place == "header":
            self._result.refusals.append(
                f"header, line {token.line}: threadgroup variables belong in the kernel's body"
            )
        return "__shared__"

    def _starts_statement(self, index: int) -> bool:
        before = [i for i in range(index) if self._tokens[i].counts]
        while before and self._tokens[before[-1]].text in ("const", "volatile", "constexpr", "static", "inline"):
            before.pop()
        return not before or self._tokens[before[-1]].text in _STATEMENT_ENDS

    def _is_variable(self, index: int) -> bool:
        """Whether what is declared lies in the address space, rather than what it points to."""
        i = index + 1
        while i < len(self._tokens):
            text = self._tokens[i].text if self._tokens[i].counts else ""
            if text == "<":
                i = closing_angle(self._tokens, i)
            elif text in ("[", "=", "{", ";", ","):
                return True
            elif text in ("*", "&", "("):
                return False
            i += 1
        return False

    def _is_member(self, index: int) -> bool:
        before = next((i for i in range(index - 1, -1, -1) if self._tokens[i].counts), -1)
        return before >= 0 and self._tokens[before].text in (".", "->")

    def _directive(self, token: Token) -> str:
        words = token.text.lstrip()[1:].split(None, 1)
        lines = "\n" * token.text.count("\n")
        if not words or words[0] in ("include", "import"):
            return lines
        if words[0] == "pragma":
            count = re.search(r"\(?\s*(\d+)\s*\)?\s*$", token.text)
            unrolled = "unroll" in token.text and "disable" not in token.text
            return (f"#pragma unroll {count[1] if count else ''}".rstrip() if unrolled else "") + lines
        if words[0] != "define" or len(words) < 2:
            return token.text
        inner = _Rewriting(tokenize(words[1]), self._place, set())
        rewritten = inner.run()
        self._result.refusals += rewritten.refusals
        self._result.uses_lanes |= rewritten.uses_lanes
        self._result.uses_matrices |= rewritten.uses_matrices
        return f"#define {rewritten.text}"


def float_literal(text: str) -> str:
    """A literal of Metal as CUDA reads it: without a suffix it is float, ``h`` is half, ``bf`` bfloat."""
    match = _FLOAT.fullmatch(text)
    if match is None:
        return text
    kind = {"h": "half", "bf": "bfloat"}.get((match["suffix"] or "").lower())
    return f"{kind}({match['digits']}f)" if kind else f"{match['digits']}f"
