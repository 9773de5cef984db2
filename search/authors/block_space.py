"""The space of ways to write a kernel, as blocks.toml of a task describes it.

Knows which values exist, what they need of each other and what concepts they realize; nothing about
which of them is fast.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from kx.errors import DataMalformed
from search.expressions import evaluate

Value = str | int
Choices = dict[str, Value]
Condition = Mapping[str, tuple[Value, ...]]
"""Axis -> values that it may have; holds when all do."""


@dataclass(frozen=True)
class Option:
    """One value of an axis.

    Attributes:
        value: a word or a number.
        label: in an engineer's words.
        concepts: slugs of the concepts that it realizes.
        needs: alternatives, one of which must hold; empty for an option that needs nothing.
    """

    value: Value
    label: str
    concepts: tuple[str, ...]
    needs: tuple[Condition, ...]


@dataclass(frozen=True)
class Axis:
    """A choice that every program makes.

    Attributes:
        default: the seed's value, which needs nothing.
        options: by value.
    """

    name: str
    default: Value
    options: Mapping[Value, Option]

    @property
    def is_size(self) -> bool:
        """Whether its values are numbers, which local refinement may vary."""
        return isinstance(self.default, int)


@dataclass(frozen=True)
class Rule:
    """``zero``, an expression over the numeric axes, must be 0; the size ``adjust`` may give way to it."""

    zero: str
    adjust: str


@dataclass(frozen=True)
class Template:
    """A kernel body and its launch.

    Attributes:
        name: the file's, without ``.metal.j2``.
        when: alternatives of choices that it serves.
        grid, threadgroup: Jinja texts that give expressions over the task's dimensions.
        exact: likewise, for the template argument ``EXACT``; empty where the body has none.
    """

    name: str
    when: tuple[Condition, ...]
    grid: tuple[str, str, str]
    threadgroup: tuple[str, str, str]
    exact: str


@dataclass(frozen=True)
class BlockSpace:
    """All of blocks.toml.

    Attributes:
        stage: the launch's name, inputs, header template and template arguments.
        derived: name -> expression over the numeric axes and earlier names.
    """

    axes: Mapping[str, Axis]
    rules: tuple[Rule, ...]
    templates: tuple[Template, ...]
    stage: Mapping[str, Any]
    derived: Mapping[str, str]

    @property
    def defaults(self) -> Choices:
        """What the seed does."""
        return {name: axis.default for name, axis in self.axes.items()}

    def complete(self, choices: Mapping[str, Value]) -> Choices:
        """``choices`` with every axis that they leave out at its default.

        Raises:
            DataMalformed: an axis that doesn't exist.
        """
        unknown = sorted(set(choices) - set(self.axes))
        if unknown:
            raise DataMalformed(f"no axis is called {unknown[0]!r}", f"axes: {', '.join(sorted(self.axes))}")
        return {**self.defaults, **choices}

    def flaw(self, choices: Mapping[str, Value]) -> str | None:
        """Why the choices can't be composed, in one line, or None if they can."""
        for name, axis in self.axes.items():
            if choices[name] not in axis.options:
                return f"{name} can't be {choices[name]!r}"
            if not self._supported(name, choices):
                return f"{name} = {choices[name]} needs {_words(self._option(name, choices).needs)}"
        for rule in self.rules:
            if not self._keeps(rule, choices):
                return f"{rule.zero} is not 0"
        return None

    def concepts(self, choices: Mapping[str, Value]) -> tuple[str, ...]:
        """Concepts that the choices realize, sorted."""
        return tuple(sorted({slug for name in self.axes for slug in self._option(name, choices).concepts}))

    def numbers(self, choices: Mapping[str, Value]) -> dict[str, int]:
        """The numeric axes and what is derived from them."""
        values = {name: value for name, value in choices.items() if isinstance(value, int)}
        for name, expression in self.derived.items():
            values[name] = evaluate(expression, values)
        return values

    def template_for(self, choices: Mapping[str, Value]) -> Template:
        """The template that serves the choices.

        Raises:
            DataMalformed: not exactly one does.
        """
        fitting = [item for item in self.templates if any(_holds(case, choices) for case in item.when)]
        if len(fitting) != 1:
            raise DataMalformed(f"{len(fitting)} templates serve {dict(choices)}", "see [[template]] of blocks.toml")
        return fitting[0]

    def moves(self, choices: Choices) -> Iterator[tuple[Option, Choices]]:
        """Every option with concepts that is one change away, with the nearest valid choices that have it.

        A single change may take sizes along and send other axes back to their defaults, but never needs
        a second option of words. An axis of numbers counts as chosen at any value but its default.
        """
        for name, axis in self.axes.items():
            if axis.is_size and choices[name] != axis.default:
                continue
            wanted = [option for option in axis.options.values() if option.concepts and option.value != choices[name]]
            if axis.is_size:
                wanted = _nearest_first(wanted, choices[name])
            for option in wanted:
                reached = self.reach(choices, {name: option.value})
                if reached is not None and self._is_single(name, choices, reached):
                    yield option, reached
                    if axis.is_size:
                        break

    def reach(self, choices: Choices, changes: Mapping[str, Value]) -> Choices | None:
        """The valid choices nearest to ``choices`` that have ``changes``, or None where there are none.

        What the change needs is changed along; what it leaves without its own needs returns to its default.
        Nearest is: fewest axes changed, then smallest steps of sizes, then by name.
        """
        found = [self._settle(start, set(fixed)) for start, fixed in self._with_needs(choices, changes)]
        valid = [item for item in found if item is not None and self.flaw(item) is None]
        return min(valid, key=lambda item: _distance(choices, item), default=None)

    def settled(self, choices: Mapping[str, Value]) -> Choices | None:
        """``choices`` made valid: options that lack what they need go back to their defaults, sizes give way to rules.

        None where that does not suffice.
        """
        found = self._settle(self.complete(choices), set())
        return found if found is not None and self.flaw(found) is None else None

    def sizes(self, choices: Mapping[str, Value]) -> dict[str, list[int]]:
        """Numeric axes that local refinement may vary under ``choices``, with the other values that each may take.

        A number that realizes concepts varies only where it is off its default: to leave or to reach that
        value is a change of its own.
        """
        free: dict[str, list[int]] = {}
        for name, axis in self.axes.items():
            if not axis.is_size:
                continue
            values = []
            for option in axis.options.values():
                crosses = bool(option.concepts) and axis.default in (option.value, choices[name])
                applies = not option.needs or any(_holds(case, choices) for case in option.needs)
                if isinstance(option.value, int) and option.value != choices[name] and applies and not crosses:
                    values.append(option.value)
            if values:
                free[name] = sorted(values)
        return free

    def adjusted(self, choices: Choices, fixed: set[str]) -> Choices:
        """``choices`` with the sizes that rules name moved to the nearest value that keeps the rule."""
        settled = dict(choices)
        for rule in self.rules:
            if self._keeps(rule, settled) or rule.adjust in fixed:
                continue
            options = list(self.axes[rule.adjust].options.values())
            for option in _nearest_first(options, settled[rule.adjust]):
                if self._keeps(rule, {**settled, rule.adjust: option.value}):
                    settled[rule.adjust] = option.value
                    break
        return settled

    def _with_needs(self, choices: Choices, changes: Mapping[str, Value]) -> list[tuple[Choices, Choices]]:
        """Each way to apply the changes together with what they need: (choices, what is fixed)."""
        pending: list[tuple[Choices, Choices]] = [({**choices, **changes}, dict(changes))]
        ways: list[tuple[Choices, Choices]] = []
        while pending:
            start, fixed = pending.pop()
            lacking = next((name for name in sorted(fixed) if not self._supported(name, start)), None)
            if lacking is None:
                ways.append((start, fixed))
                continue
            for case in self._option(lacking, start).needs:
                free = {name: values for name, values in case.items() if start[name] not in values}
                if set(free) & set(fixed):
                    continue
                picks = [_nearest(values, start[name]) for name, values in free.items()]
                for combination in product(*picks):
                    extra = dict(zip(free, combination, strict=True))
                    pending.append(({**start, **extra}, {**fixed, **extra}))
        return ways

    def _settle(self, choices: Choices, fixed: set[str]) -> Choices | None:
        """Axes that lost what they need go back to their defaults; None where one of ``fixed`` would."""
        settled = self.adjusted(choices, fixed)
        for _ in self.axes:
            unsupported = [name for name in self.axes if not self._supported(name, settled)]
            if not unsupported:
                return self.adjusted(settled, fixed)
            if set(unsupported) & fixed:
                return None
            settled.update({name: self.axes[name].default for name in unsupported})
        return None

    def _is_single(self, moved: str, choices: Choices, reached: Choices) -> bool:
        changed = [name for name in self.axes if reached[name] != choices[name] and name != moved]
        return all(self.axes[name].is_size or reached[name] == self.axes[name].default for name in changed)

    def _option(self, name: str, choices: Mapping[str, Value]) -> Option:
        return self.axes[name].options[choices[name]]

    def _supported(self, name: str, choices: Mapping[str, Value]) -> bool:
        if choices[name] == self.axes[name].default:
            return True
        needs = self._option(name, choices).needs
        return not needs or any(_holds(case, choices) for case in needs)

    def _keeps(self, rule: Rule, choices: Mapping[str, Value]) -> bool:
        return evaluate(rule.zero, self.numbers(choices)) == 0


def load_space(path: Path) -> BlockSpace:
    """The space that the file describes.

    Raises:
        DataMalformed: it does not parse, misses a key, or names an axis or value that does not exist.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        axes = [_axis(item) for item in data["axis"]]
        space = BlockSpace(
            axes={axis.name: axis for axis in axes},
            rules=tuple(Rule(item["zero"], item["adjust"]) for item in data.get("rule", ())),
            templates=tuple(_template(item) for item in data["template"]),
            stage=data["stage"],
            derived=data.get("derived", {}),
        )
    except (tomllib.TOMLDecodeError, TypeError, ValueError) as exc:
        raise DataMalformed(f"{path.name}: {exc}") from exc
    except KeyError as exc:
        raise DataMalformed(f"{path.name} misses the key {exc}") from exc
    _check_names(space, path.name)
    return space


def _axis(item: Mapping[str, Any]) -> Axis:
    if "values" in item:
        shared = tuple(item.get("concepts", ()))
        needs = _conditions(item.get("needs", ()))
        options = [
            Option(
                value,
                str(item["label"]).format(value=value),
                () if value == item["default"] else shared,
                () if value == item["default"] else needs,
            )
            for value in item["values"]
        ]
    else:
        options = [
            Option(
                entry["value"],
                f"{entry['label']}",
                tuple(entry.get("concepts", ())),
                _conditions(entry.get("needs", ())),
            )
            for entry in item["option"]
        ]
    axis = Axis(item["name"], item["default"], {option.value: option for option in options})
    if axis.default not in axis.options:
        raise ValueError(f"axis {axis.name}: its default {axis.default!r} is none of its values")
    return axis


def _template(item: Mapping[str, Any]) -> Template:
    grid, group = tuple(item["grid"]), tuple(item["threadgroup"])
    if len(grid) != 3 or len(group) != 3:
        raise ValueError(f"template {item['name']}: grid and threadgroup have three extents")
    return Template(item["name"], _conditions(item["when"]), grid, group, item.get("exact", ""))


def _conditions(items: Sequence[Mapping[str, Sequence[Value]]]) -> tuple[Condition, ...]:
    return tuple({name: tuple(values) for name, values in item.items()} for item in items)


def _check_names(space: BlockSpace, file: str) -> None:
    conditions = [case for item in space.templates for case in item.when]
    for axis in space.axes.values():
        for option in axis.options.values():
            conditions += option.needs
    for case in conditions:
        for name, values in case.items():
            if name not in space.axes:
                raise DataMalformed(f"{file}: no axis is called {name!r}")
            for value in values:
                if value not in space.axes[name].options:
                    raise DataMalformed(f"{file}: axis {name} has no value {value!r}")
    for rule in space.rules:
        if rule.adjust not in space.axes or not space.axes[rule.adjust].is_size:
            raise DataMalformed(f"{file}: rule {rule.zero!r} adjusts {rule.adjust!r}, which is no size")


def _holds(case: Condition, choices: Mapping[str, Value]) -> bool:
    return all(choices[name] in values for name, values in case.items())


def _steps(one: Value, two: Value) -> float:
    """How far two values of an axis are apart: powers of two between numbers, 1 between words."""
    if isinstance(one, int) and isinstance(two, int):
        return abs(math.log2(one / two))
    return float(one != two)


def _nearest(values: Sequence[Value], current: Value) -> list[Value]:
    """The nearest number; all words, since none is nearer than another."""
    if isinstance(current, int):
        return sorted(values, key=lambda value: (_steps(value, current), value))[:1]
    return sorted(values, key=str)


def _nearest_first(options: Sequence[Option], current: Value) -> list[Option]:
    return sorted(options, key=lambda option: (_steps(option.value, current), option.value))


def _distance(one: Choices, two: Choices) -> tuple[int, float, list[tuple[str, str]]]:
    changed = [name for name in one if one[name] != two[name]]
    steps = sum(_steps(one[name], two[name]) for name in changed)
    return len(changed), steps, sorted((name, str(two[name])) for name in changed)


def _words(needs: Sequence[Condition]) -> str:
    def case_words(case: Condition) -> str:
        return " and ".join(f"{name} {'/'.join(str(value) for value in values)}" for name, values in case.items())

    return " or ".join(case_words(case) for case in needs)
