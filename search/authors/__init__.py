"""Authors write programs: one applies a single change to a parent program."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from search.program import Program


@dataclass(frozen=True)
class Edit:
    """A single change that an author can make.

    Attributes:
        concepts: slugs of the concepts that it realizes, the telling one first.
        changes: block axis -> option or parameter value.
        label: what is done, in an engineer's words.
    """

    concepts: tuple[str, ...]
    changes: Mapping[str, str | int]
    label: str


class Author(Protocol):
    """Writes candidate programs."""

    name: str

    def edits(self, program: Program) -> Sequence[Edit]:
        """Every single change that this author could make to ``program``; the order carries no meaning."""
        ...

    def write(self, program: Program, edit: Edit) -> Program:
        """``program`` with ``edit`` applied."""
        ...

    def variations(self, program: Program, edit: Edit, count: int, rng: random.Random) -> Sequence[Program]:
        """Up to ``count`` more ways to apply the same edit (other sizes), none equal to ``write``'s."""
        ...
