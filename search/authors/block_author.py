"""Composes programs from a task's building blocks: Jinja templates and the choices of blocks.toml.

Knows what can be written, not what is fast: the search finds that out.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jinja2

from kx.errors import DataMalformed
from search.authors import Assignment, Edit
from search.authors.block_space import BlockSpace, Choices, Option, Value, load_space
from search.outcome import Outcome
from search.program import Geometry, Program, Stage
from search.task import Task

DRAWS_PER_VARIATION = 12
"""Random draws for each variation asked for, before it is concluded that there are no more."""


@dataclass(frozen=True)
class Rejected:
    """Choices that can't be composed, and why."""

    reason: str


@dataclass
class BlockRefinement:
    """Implements ``search.authors.Refinement`` over programs that are all written at the start."""

    _left: list[Program]

    @classmethod
    def of(cls, programs: Sequence[Program], assignment: Assignment) -> BlockRefinement:
        """The fresh ones of ``programs``, each once; the first one where all are known."""
        fresh: dict[str, Program] = {}
        for program in programs:
            if program.digest not in assignment.known:
                fresh.setdefault(program.digest, program)
        return cls(list(fresh.values())[: assignment.attempts] or [programs[0]])

    def next(self, count: int) -> Sequence[Program]:
        """The next ``count`` programs, fewer at the end."""
        taken, self._left = self._left[:count], self._left[count:]
        return taken

    def learn(self, program: Program, outcome: Outcome, score: float | None) -> None:
        """Nothing to learn: what comes next is fixed."""

    def complaints(self) -> Sequence[str]:
        """None: blocks always compose, or the edit was not offered."""
        return ()


@dataclass
class BlockAuthor:
    """Implements ``search.authors.Author`` for a task with a ``blocks`` folder.

    Raises:
        DataMalformed: the folder's blocks.toml does not fit its templates.
    """

    task: Task
    name: str = "block-author"
    repairs: bool = False
    space: BlockSpace = field(init=False)
    _environment: jinja2.Environment = field(init=False, repr=False)

    def __post_init__(self) -> None:
        folder = self.task.folder / "blocks"
        self.space = load_space(folder / "blocks.toml")
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(folder),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=True,
            autoescape=False,
        )

    def begin(self, assignment: Assignment) -> BlockRefinement:
        """The edit as it is, then variations of its sizes; programs with a known outcome are left out."""
        first = self.write(assignment.parent, assignment.edit)
        rng = random.Random(f"{assignment.seed}/{first.digest}")
        more = self.variations(assignment.parent, assignment.edit, assignment.attempts - 1, rng)
        return BlockRefinement.of((first, *more), assignment)

    def edits(self, program: Program) -> Sequence[Edit]:
        """Every single change to ``program``; none where it was not composed from blocks."""
        choices = self.choices_of(program)
        return [] if choices is None else self.capabilities(choices)

    def write(self, program: Program, edit: Edit) -> Program:
        """``program`` with ``edit`` applied.

        Raises:
            DataMalformed: the program was not composed from blocks, or the edit does not fit it.
        """
        choices = self.choices_of(program)
        if choices is None:
            raise DataMalformed(f"program {program.digest} was not composed from blocks", "edit its text instead")
        written = self.compose({**choices, **edit.changes})
        if isinstance(written, Rejected):
            raise DataMalformed(f"{edit.label}: {written.reason}")
        return written

    def variations(self, program: Program, edit: Edit, count: int, rng: random.Random) -> Sequence[Program]:
        """Up to ``count`` programs with ``edit`` applied and other sizes than ``write`` takes.

        Every other one changes a single size, the rest any number; which and how is drawn from ``rng``.
        """
        choices = self.choices_of(program)
        if choices is None:
            return []
        first = {**choices, **edit.changes}
        return self.resize(first, count, rng)

    def choices_of(self, program: Program) -> Choices | None:
        """What ``program`` was composed from; the defaults for the seed; None for a free text."""
        if not program.choices and program.digest != self.task.seed.digest:
            return None
        return self.space.complete(program.choices)

    def capabilities(self, choices: Mapping[str, Value]) -> list[Edit]:
        """The single changes that ``choices`` allow, each with what it takes along, sorted by their changes."""
        current = self.space.complete(choices)
        edits = []
        for option, reached in self.space.moves(current):
            changes = {name: value for name, value in reached.items() if value != current[name]}
            edits.append(Edit(self._gained(option, current, reached), changes, self._label(option, changes)))
        return sorted(edits, key=lambda edit: sorted((name, str(value)) for name, value in edit.changes.items()))

    def compose(self, choices: Mapping[str, Value]) -> Program | Rejected:
        """The program of ``choices`` (axes left out have their default), or why there is none.

        Raises:
            DataMalformed: an unknown axis, or a template that is broken or lacks a variable.
        """
        chosen = self.space.complete(choices)
        flaw = self.space.flaw(chosen)
        if flaw is not None:
            return Rejected(flaw)
        template = self.space.template_for(chosen)
        values: dict[str, Any] = {**chosen, **self.space.numbers(chosen), "template": template.name}
        values["distances"] = _powers_below(values["width"])
        values["halves"] = _powers_below(values["lanes"])[::-1]
        arguments: dict[str, int | bool | str] = dict(self.space.stage["template"])
        if chosen["boundary"] == "specialize":
            arguments["EXACT"] = self._text(template.exact, values)
        stage = Stage(
            name=self.space.stage["name"],
            body=self._file(f"{template.name}.metal.j2", values),
            inputs=tuple(self.space.stage["inputs"]),
            outputs=self.task.outputs,
            grid=self._geometry(template.grid, values),
            threadgroup=self._geometry(template.threadgroup, values),
            header=self._file(self.space.stage["header"], values),
            template=arguments,
        )
        return Program(self.task.name, (stage,), self.space.concepts(chosen), chosen, self.name)

    def resize(self, choices: Mapping[str, Value], count: int, rng: random.Random) -> list[Program]:
        """Up to ``count`` different programs that differ from ``choices`` in sizes only."""
        start = self.space.complete(choices)
        found: dict[str, Program] = {}
        origin = self.compose(start)
        taken = {origin.digest} if isinstance(origin, Program) else set()
        for draw in range(DRAWS_PER_VARIATION * count):
            if len(found) == count:
                break
            written = self.compose(self._resized(start, single=draw % 2 == 0, rng=rng))
            if isinstance(written, Program) and written.digest not in taken:
                found.setdefault(written.digest, written)
        return list(found.values())

    def _resized(self, start: Choices, single: bool, rng: random.Random) -> Choices:
        free = self.space.sizes(start)
        names = sorted(free)
        if not names:
            return start
        varied = rng.sample(names, 1 if single else rng.randint(1, len(names)))
        drawn: Choices = {**start, **{name: rng.choice(free[name]) for name in varied}}
        return self.space.adjusted(drawn, set(varied))

    def _gained(self, option: Option, current: Choices, reached: Choices) -> tuple[str, ...]:
        """Concepts of the change: the option's own, then those that came along and were not there before."""
        before = set(self.space.concepts(current)) | set(option.concepts)
        return (*option.concepts, *(slug for slug in self.space.concepts(reached) if slug not in before))

    def _label(self, option: Option, changes: Mapping[str, Value]) -> str:
        along = [f"{name} {value}" for name, value in sorted(changes.items()) if value != option.value]
        return f"{option.label} (with {', '.join(along)})" if along else option.label

    def _geometry(self, texts: Geometry, values: Mapping[str, Any]) -> Geometry:
        x, y, z = (self._text(text, values) for text in texts)
        return (x, y, z)

    def _file(self, name: str, values: Mapping[str, Any]) -> str:
        try:
            return self._environment.get_template(name).render(values)
        except jinja2.TemplateError as exc:
            raise DataMalformed(f"{self.task.name}/blocks/{name}: {exc}") from exc

    def _text(self, text: str, values: Mapping[str, Any]) -> str:
        try:
            return self._environment.from_string(text).render(values)
        except jinja2.TemplateError as exc:
            raise DataMalformed(f"{self.task.name}/blocks/blocks.toml: {text!r}: {exc}") from exc


def _powers_below(limit: int) -> list[int]:
    """1, 2, 4 ... below ``limit``: the distances of a scan or a butterfly over that many lanes."""
    return [1 << power for power in range(limit.bit_length()) if 1 << power < limit]
