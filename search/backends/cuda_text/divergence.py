"""Which SIMD-group functions of a Metal text may be reached by some lanes only.

On Metal the lanes that arrive take part. CUDA wants to be told: naming all 32 lanes costs nothing, asking which ones
arrive does, and is only right where the others are elsewhere for good reason. So a call is taken to be reached by all
lanes unless a condition around it depends on the lane. The analysis is by names alone and errs on the side of asking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from metalsim.text.declarations import closing_angle, counted, matching
from metalsim.text.tokens import Token

LANE_DEPENDENT = frozenset((
    "thread_position_in_grid", "thread_position_in_threadgroup", "thread_index_in_threadgroup",
    "thread_index_in_simdgroup", "thread_index_in_quadgroup", "quadgroup_index_in_threadgroup",
))  # fmt: skip
"""Attributes that differ between the lanes of a SIMD-group."""

_ASSIGNMENTS = frozenset("+-*/%&|^")
_CONDITIONS = ("if", "while", "for", "switch")
_LEAVING = ("break", "continue", "goto")


Writers = Mapping[str, tuple[int, ...]]


@dataclass
class Divergence:
    """What the analysis of one text found.

    Attributes:
        calls: indices of the tokens of SIMD-group functions that some lanes may not reach.
        leaves: whether some lanes may leave the kernel or function early.
    """

    calls: set[int] = field(default_factory=set)
    leaves: bool = False


def find_divergence(
    tokens: Sequence[Token], names: frozenset[str], start: int, end: int, writers: Writers
) -> Divergence:
    """Calls of ``names`` in ``tokens[start:end]``, a function's body, that depend on the lane.

    Args:
        tokens: of the text.
        names: functions to look for.
        start, end: of the body.
        writers: functions that write what their arguments name, and which ones by position.
    """
    scope = list(counted(tokens, start, end))
    regions = _Regions(tokens, scope)
    tainted = _tainted_names(tokens, scope, regions, writers)
    diverged = regions.diverged(tainted)
    found = Divergence()
    for position, index in enumerate(scope):
        text = tokens[index].text
        if tokens[index].kind != "name":
            continue
        if text in names and (
            any(a <= index < b for a, b in diverged) or _is_guarded(tokens, scope, position, tainted)
        ):
            found.calls.add(index)
        elif text == "return" and any(a <= index < b for a, b in diverged):
            found.leaves = True
    return found


class _Regions:
    """The conditions of a body, and what each one decides about."""

    def __init__(self, tokens: Sequence[Token], scope: list[int]) -> None:
        self._tokens, self._scope = tokens, scope
        self._position = {index: position for position, index in enumerate(scope)}
        self.conditions: list[tuple[frozenset[str], int, int, bool]] = []
        for position, index in enumerate(scope):
            if tokens[index].kind == "name" and tokens[index].text in _CONDITIONS:
                self._read(position, tokens[index].text)

    def _read(self, position: int, word: str) -> None:
        opening = position + 1
        if opening < len(self._scope) and self._tokens[self._scope[opening]].text == "constexpr":
            return
        if opening >= len(self._scope) or self._tokens[self._scope[opening]].text != "(":
            return
        close = self._close(opening)
        inside = [self._tokens[i] for i in self._scope[opening + 1 : close]]
        if word == "for":
            parts = _split(inside, ";")
            inside = parts[1] if len(parts) == 3 else inside
        end = self._statement_end(close + 1)
        names = frozenset(t.text for t in inside if t.kind == "name")
        self.conditions.append((names, self._index(close + 1), self._index(end), word != "if"))
        if word == "if" and end < len(self._scope) and self._tokens[self._scope[end]].text == "else":
            self.conditions.append((names, self._index(end), self._index(self._statement_end(end + 1)), False))
        if word == "while" and position and self._tokens[self._scope[position - 1]].text == "}":
            self.conditions.append((names, self._do_start(position - 1), self._index(position), True))

    def _index(self, position: int) -> int:
        return self._scope[position] if position < len(self._scope) else self._scope[-1] + 1

    def _close(self, position: int) -> int:
        return self._position.get(matching(self._tokens, self._scope[position]), len(self._scope) - 1)

    def _do_start(self, position: int) -> int:
        """Index of the brace that the one at ``position`` closes."""
        depth = 0
        for at in range(position, -1, -1):
            depth += {"}": 1, "{": -1}.get(self._tokens[self._scope[at]].text, 0)
            if depth == 0:
                return self._scope[at]
        return self._scope[0]

    def _statement_end(self, position: int) -> int:
        """Position behind the statement that starts at ``position``."""
        if position >= len(self._scope):
            return len(self._scope)
        text = self._tokens[self._scope[position]].text
        if text == "{":
            return self._close(position) + 1
        if text in _CONDITIONS and position + 1 < len(self._scope):
            end = self._statement_end(self._close(position + 1) + 1)
            if text == "if" and end < len(self._scope) and self._tokens[self._scope[end]].text == "else":
                return self._statement_end(end + 1)
            return end
        at = position
        while at < len(self._scope) and self._tokens[self._scope[at]].text != ";":
            at = self._close(at) if self._tokens[self._scope[at]].text in "({[" else at
            at += 1
        return at + 1

    def diverged(self, tainted: set[str]) -> list[tuple[int, int]]:
        """Index ranges that only some lanes may run."""
        ranges = [(a, b) for names, a, b, _ in self.conditions if names & tainted]
        loops = [(a, b) for _, a, b, loops in self.conditions if loops]
        for start, end in list(ranges):
            if any(self._tokens[i].text in _LEAVING for i in counted(self._tokens, start, end)):
                around = [item for item in loops if item[0] < start and end <= item[1]]
                ranges += [max(around)] if around else []
        return ranges


def _tainted_names(tokens: Sequence[Token], scope: list[int], regions: _Regions, writers: Writers) -> set[str]:
    """Names whose value may differ between the lanes of a SIMD-group."""
    constant = _constants(tokens, scope)
    statements = list(_statements(tokens, scope, writers))
    tainted = set(LANE_DEPENDENT)
    while True:
        before = len(tainted)
        diverged = regions.diverged(tainted)
        for start, statement in statements:
            inside = any(a <= start < b for a, b in diverged)
            for targets, names, is_call in statement:
                taints = bool(names & tainted) or (inside and not is_call)
                tainted |= (targets - constant if is_call else targets) if taints else set()
        if len(tainted) == before:
            return tainted


_Effect = tuple[set[str], frozenset[str], bool]


def _statements(tokens: Sequence[Token], scope: list[int], writers: Writers) -> Iterator[tuple[int, list[_Effect]]]:
    """(first index, effects) of each piece between ``;``, ``{`` and ``}``."""
    piece: list[int] = []
    for index in [*scope, -1]:
        if index >= 0 and tokens[index].text not in (";", "{", "}"):
            piece.append(index)
            continue
        if piece:
            yield piece[0], _effects([tokens[i] for i in piece], writers)
        piece = []


def _effects(piece: list[Token], writers: Writers) -> list[_Effect]:
    """What is written, from which names, and whether only a call may write it."""
    effects: list[_Effect] = []
    if piece[0].text == "for":
        piece = piece[2:]  # its own bracket is open, and its other parts are pieces of their own
    for part in _split(piece, ","):
        for i, token in enumerate(part):
            if token.text != "=" or (i + 1 < len(part) and part[i + 1].text == "="):
                continue
            if i and part[i - 1].text in ("=", "!", "<", ">") and not (i > 1 and part[i - 2].text in "<>"):
                continue
            target = _target(part[:i])
            names = frozenset(t.text for t in part[i + 1 :] if t.kind == "name")
            index_names = frozenset(t.text for t in part[:i] if t.kind == "name")
            if target:
                effects.append(
                    ({target}, names | (index_names if "[" in [t.text for t in part[:i]] else frozenset()), False)
                )
            break
    effects += _call_effects(piece, writers)
    return effects


def _call_effects(piece: list[Token], writers: Writers) -> list[_Effect]:
    """What the calls of functions that write their arguments may write."""
    effects: list[_Effect] = []
    for i, token in enumerate(piece):
        opening = _call_opening(piece, i) if token.text in writers else 0
        if not opening:
            continue
        arguments = _split(piece[opening + 1 : matching(piece, opening)], ",")
        names = frozenset(t.text for argument in arguments for t in argument if t.kind == "name")
        for position in writers[token.text]:
            if position < len(arguments):
                effects.append(({t.text for t in arguments[position] if t.kind == "name"}, names, True))
    return effects


def _call_opening(piece: list[Token], index: int) -> int:
    """Position of the bracket of the call whose function is named at ``index``; 0 when it is none."""
    following = index + 1
    if following < len(piece) and piece[following].text == "<":
        following = closing_angle(piece, following) + 1
    return following if following < len(piece) and piece[following].text == "(" else 0


def _target(left: list[Token]) -> str:
    """The name that an assignment's left side writes: the last one outside brackets and not behind a point."""
    depth, name, after_point = 0, "", False
    for token in left:
        if token.text in ("[", "("):
            depth += 1
        elif token.text in ("]", ")"):
            depth -= 1
        elif token.kind == "name" and depth == 0 and not after_point:
            name = token.text
        after_point = token.text in (".", "->")
    return name


def _split(piece: list[Token], mark: str) -> list[list[Token]]:
    """The piece cut at ``mark`` outside brackets."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in piece:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token.text, 0)
        if token.text == mark and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _constants(tokens: Sequence[Token], scope: list[int]) -> set[str]:
    """Names that are declared ``const`` or ``constexpr``: no call can write them."""
    names = set()
    for position, index in enumerate(scope):
        if tokens[index].text not in ("const", "constexpr"):
            continue
        for later in scope[position + 1 : position + 8]:
            if tokens[later].text in ("=", ";", "(", "[", "{", "*", "&"):
                break
            if tokens[later].kind == "name":
                last = tokens[later].text
                names.add(last)
    return names


def _is_guarded(tokens: Sequence[Token], scope: list[int], position: int, tainted: set[str]) -> bool:
    """Whether ``?``, ``&&`` or ``||`` behind a lane-dependent name stands before the call in its statement."""
    guard = False
    for at in range(position - 1, -1, -1):
        text = tokens[scope[at]].text
        if text in (";", "{", "}"):
            return False
        guard = guard or text in ("?", "&", "|", "&&", "||")
        if guard and tokens[scope[at]].kind == "name" and text in tainted:
            return True
    return False
