"""Authors write programs: one refines an action until the search has seen enough of it."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from search.outcome import Outcome, Scored
from search.program import Program


@dataclass(frozen=True)
class Edit:
    """A single change that a program can undergo.

    Attributes:
        concepts: slugs of the concepts that it realizes, the telling one first.
        changes: block axis -> option or parameter value; empty for a change that only words describe.
        label: what is done, in an engineer's words.
    """

    concepts: tuple[str, ...]
    changes: Mapping[str, str | int]
    label: str


class EditSource(Protocol):
    """Knows what could be changed about a program."""

    def edits(self, program: Program) -> Sequence[Edit]:
        """Every single change that could be made to ``program``; the order carries no meaning."""
        ...


@dataclass(frozen=True)
class Assignment:
    """One action to be written.

    Attributes:
        node: id of the action's node.
        parent, outcome: the program to change, and what was measured of it.
        edit: the change; prompt: the same at length, with what the graph knows about it.
        attempts: most programs that will be asked for.
        known: digests of programs whose outcome is known already.
        seed: for whatever is drawn.
    """

    node: str
    parent: Program
    outcome: Scored
    edit: Edit
    prompt: str
    attempts: int
    known: Container[str]
    seed: str


class Refinement(Protocol):
    """An author at work on one assignment."""

    def next(self, count: int) -> Sequence[Program]:
        """Up to ``count`` further programs; none when the author has no more to offer."""
        ...

    def learn(self, program: Program, outcome: Outcome, score: float | None) -> None:
        """What became of a program; told for each one before ``next`` is called again."""
        ...

    def complaints(self) -> Sequence[str]:
        """Why no program came where one was expected, a line each."""
        ...


class Author(Protocol):
    """Writes candidate programs.

    Attributes:
        name: goes into every program's record.
        repairs: whether a failure is worth another attempt: true of authors that read what went wrong.
    """

    repairs: bool

    @property
    def name(self) -> str:
        """See above."""
        ...

    def begin(self, assignment: Assignment) -> Refinement:
        """Start to work on an action."""
        ...
