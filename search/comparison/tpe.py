"""Optuna's TPE over the axes of the block space; the only module that imports optuna."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kx.errors import EnvironmentLacking
from search.authors.block_author import BlockAuthor, Rejected
from search.authors.block_space import Choices
from search.outcome import Outcome
from search.program import Program

if TYPE_CHECKING:
    import optuna

_DRAWS = 300
"""Suggestions without a new program after which there is taken to be none."""
_FAILED = -4.0
"""What a failed program is told to be worth, in log2 of the score: a sixteenth of the seed's speed."""


@dataclass
class ParzenSearch:
    """Every axis is a categorical parameter.

    Few of all combinations can be composed, so a suggestion is settled into the valid one near it, as the author
    itself does; a suggestion that settles into a known program is told that program's value and costs no
    evaluation.

    Raises:
        EnvironmentLacking: optuna is not installed.
    """

    author: BlockAuthor
    seed: int
    name: str = "tpe"
    _study: optuna.Study = field(init=False)
    _open: dict[str, optuna.trial.Trial] = field(default_factory=dict)
    _proposed: set[str] = field(default_factory=set)
    _known: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            import optuna
        except ImportError as exc:
            raise EnvironmentLacking("optuna is not installed", "pip install 'kx[peers]'") from exc
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            # multivariate is marked experimental, and is what its authors advise for axes that interact
            warnings.simplefilter("ignore")
            sampler = optuna.samplers.TPESampler(seed=self.seed, multivariate=True, constant_liar=True)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._study.enqueue_trial(self.author.space.defaults)

    def ask(self, count: int) -> Sequence[Program]:
        """The next suggestions that can be composed and are new."""
        found: list[Program] = []
        for _ in range(_DRAWS):
            if len(found) == count:
                break
            trial = self._study.ask()
            settled = self.author.space.settled(self._suggest(trial))
            program = None if settled is None else self.author.compose(settled)
            if program is None or isinstance(program, Rejected):
                self._study.tell(trial, _FAILED)
                continue
            if program.digest in self._proposed:
                # One that is being evaluated beside this one has no value yet: the seed's is as good a guess as any.
                self._study.tell(trial, self._known.get(program.digest, 0.0))
                continue
            self._proposed.add(program.digest)
            self._open[program.digest] = trial
            found.append(program)
        return found

    def _suggest(self, trial: optuna.trial.Trial) -> Choices:
        chosen: Choices = {}
        for name, axis in self.author.space.axes.items():
            value = trial.suggest_categorical(name, list(axis.options))
            chosen[name] = value if isinstance(value, int) else str(value)
        return chosen

    def tell(self, program: Program, outcome: Outcome, score: float | None) -> None:
        """Tell the study the log2 of the score."""
        value = _FAILED if score is None else math.log2(score)
        self._known[program.digest] = value
        self._proposed.add(program.digest)
        trial = self._open.pop(program.digest, None)
        if trial is not None:
            self._study.tell(trial, value)
