"""Names the feature of Metal that metalsim lacks, instead of what the C++ compiler says where it is used."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from metalsim.model import CompileFailure
from metalsim.text.declarations import counted
from metalsim.text.tokens import Token

_FEATURES = {
    "textures": r"texture(?:1d|2d|3d|cube|_buffer)\w*|depth(?:2d|cube)\w*",
    "samplers": r"sampler",
    "imageblocks": r"imageblock\w*|threadgroup_imageblock|(?:r|rg|rgb|rgba)\d+\w*norm",
    "tensors": r"tensor|tensor_\w+|cooperative_tensor|dextents|mpp",
    "function tables": r"(?:visible|intersection)_function_table",
    "ray tracing": r"(?:primitive_|instance_)?acceleration_structure|intersector|intersection_\w+|ray|raytracing",
    "indirect command buffers": r"command_buffer|(?:render|compute)_(?:command|pipeline_state)",
    "asynchronous copies of SIMD-groups": r"simdgroup_event|__metal_simdgroup_event_t",
    "64-bit floats": r"(?:packed_)?double[2-4](?:x[2-4])?",
    "functions of the render pipeline": r"vertex|fragment|patch_control_point|interpolant|mesh_grid_properties|mesh",
}
_NAMES = {feature: re.compile(names) for feature, names in _FEATURES.items()}
_PLACE = re.compile(r"(?P<place>[^:\s]+):(?P<line>\d+): ")
_PARAMETER = re.compile(r"parameter '(\w+)' ")

Places = Callable[[int], tuple[str, int]]
"""From a token's line to the file and line that a user reads."""


def name_feature(failure: CompileFailure, texts: Sequence[tuple[Sequence[Token], Places]]) -> CompileFailure:
    """The failure as one message that names a feature, when it comes from one that metalsim lacks.

    Args:
        failure: of compiling.
        texts: tokens of the user's texts, and where their lines are.
    """
    failing = {(m["place"], int(m["line"])) for m in map(_PLACE.match, failure.messages) if m}
    parameters = {m[1] for m in map(_PARAMETER.search, failure.messages) if m}
    for tokens, places in texts:
        indices = list(counted(tokens, 0, len(tokens)))
        for position, index in enumerate(indices):
            token = tokens[index]
            feature = _feature(token) if token.kind == "name" else ""
            if not feature or not _is_used_as_type(tokens, indices, position):
                continue
            place, line = places(token.line)
            if (place, line) in failing or _declares(tokens, indices[position:], parameters):
                message = f"{place}:{line}: metalsim does not support {feature} ({token.text})"
                return replace(failure, messages=(message,))
    return failure


def _feature(token: Token) -> str:
    return next((feature for feature, names in _NAMES.items() if names.fullmatch(token.text)), "")


def _is_used_as_type(tokens: Sequence[Token], indices: Sequence[int], position: int) -> bool:
    """Rather than as the name of a variable, a member or a function."""
    before = tokens[indices[position - 1]].text if position else ""
    after = tokens[indices[position + 1]] if position + 1 < len(indices) else None
    return before not in (".", "->") and after is not None and (after.kind == "name" or after.text in ("<", "::", "("))


def _declares(tokens: Sequence[Token], indices: Sequence[int], names: set[str]) -> bool:
    """Whether the declaration that starts here is of a parameter in ``names``."""
    depth = 0
    for index in indices if names else ():
        text = tokens[index].text
        depth += {"<": 1, "(": 1, "[": 1, ">": -1, ")": -1, "]": -1}.get(text, 0)
        if depth < 0 or (depth == 0 and text in (",", ";")):
            return False
        if depth == 0 and text in names:
            return True
    return False
