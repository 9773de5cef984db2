"""Integer expressions over a task's dimensions, as launch geometry and shapes need them.

Programs are data: an expression is parsed, never executed as Python. Allowed are integers, the names of
dimensions, ``+ - * // %``, calls of ``min``, ``max`` and ``ceildiv``, and parentheses.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

from kx.errors import DataMalformed

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_CALLS: dict[str, Callable[..., int]] = {
    "min": min,
    "max": max,
    "ceildiv": lambda a, b: -(-a // b),
}


def evaluate(expression: str | int, dims: Mapping[str, int]) -> int:
    """The value of ``expression`` with the dimensions' values from ``dims``.

    Raises:
        DataMalformed: it does not parse, names an unknown dimension, uses anything that is not allowed,
            or divides by zero.
    """
    if isinstance(expression, int):
        return expression
    try:
        tree = ast.parse(expression, mode="eval")
        return _value(tree.body, dims)
    except SyntaxError as exc:
        raise DataMalformed(f"expression {expression!r} does not parse") from exc
    except ZeroDivisionError as exc:
        raise DataMalformed(f"expression {expression!r} divides by zero for {dict(dims)}") from exc
    except _Refused as exc:
        known = ", ".join(sorted(dims))
        raise DataMalformed(f"expression {expression!r}: {exc}", f"dimensions: {known}") from exc


class _Refused(Exception):
    """Something in the expression that is not allowed."""


def _value(node: ast.expr, dims: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=bool()):
            raise _Refused("booleans are not numbers here")
        case ast.Constant(value=int() as number):
            return number
        case ast.Name(id=name):
            if name not in dims:
                raise _Refused(f"unknown dimension {name!r}")
            return dims[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, dims)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, dims), _value(right, dims))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS and len(args) == 2:
            return _CALLS[name](*(_value(arg, dims) for arg in args))
    raise _Refused(f"{ast.unparse(node)!r} is not allowed")
