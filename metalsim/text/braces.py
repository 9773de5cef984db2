"""``uint4 k = {a, b, c};``: a vector's list may be shorter than the vector, and zeros follow.

The vector classes take as many components as they are wide, since ``uint4(a, b, c)`` is an error; lists become calls
of the shim headers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from metalsim.text.declarations import counted, matching
from metalsim.text.tokens import Token

_VECTOR = re.compile(r"(?:bool|u?char|u?short|u?int|u?long|half|float|bfloat)[2-4]")


def fill_lists(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with the lists that initialize vector variables as calls.

    Args:
        tokens: of the text.
    """
    result = list(tokens)
    for index, token in enumerate(tokens):
        if token.kind != "name" or not _VECTOR.fullmatch(token.text):
            continue
        following = _next(tokens, index, 3)
        texts = [tokens[i].text for i in following]
        if len(following) < 3 or tokens[following[0]].kind != "name" or texts[1:] != ["=", "{"]:
            continue
        opening, close = following[2], matching(tokens, following[2])
        if any(counted(tokens, opening + 1, close)):
            # Not marks: they are no brackets of the text any more.
            result[opening] = Token("string", f"msim::filled<{token.text}>(", tokens[opening].line)
            result[close] = Token("string", ")", tokens[close].line)
    return result


def _next(tokens: Sequence[Token], index: int, count: int) -> list[int]:
    found: list[int] = []
    for i in counted(tokens, index + 1, len(tokens)):
        found.append(i)
        if len(found) == count:
            break
    return found
