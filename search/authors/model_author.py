"""A language model, or a person, as the author: each reply is a whole program.

A reply that is no program goes back with what is wrong with it; a program that fails a gate goes back with
the gate's findings; a program that passed goes back with where its time went. Every question stands for
itself: it holds all that the answer needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from search.artifacts import render
from search.authors import Assignment
from search.authors.program_reply import ReplyFlawed, program_from_reply
from search.models import Model, Question, Reply
from search.models.reply_log import PERSON
from search.outcome import CompileFailed, Outcome, RuntimeFailed, Scored, describe, score_against
from search.program import Program
from search.questions import mending_question
from search.task import Task

_SHOWN_DETAILS = 12


def author_name(model: str) -> str:
    """Who a program is said to be from: ``person`` or ``llm:<model>``."""
    return PERSON if model == PERSON else f"llm:{model}"


@dataclass
class ModelAuthor:
    """Implements ``search.authors.Author`` over a model.

    Attributes:
        model: asked for programs.
        task: whose programs.
        mending_rounds: how often a reply that is no program is sent back.
    """

    model: Model
    task: Task
    mending_rounds: int = 2
    repairs: bool = True

    @property
    def name(self) -> str:
        """The model's, as it goes into records."""
        return author_name(self.model.name)

    def begin(self, assignment: Assignment) -> ModelRefinement:
        """Start a conversation on an action."""
        return ModelRefinement(self, assignment)


@dataclass
class ModelRefinement:
    """One action's conversation; implements ``search.authors.Refinement``."""

    author: ModelAuthor
    assignment: Assignment
    _tried: list[tuple[Program, Outcome, float | None]] = field(default_factory=list)
    _replies: dict[str, Reply] = field(default_factory=dict)
    _complaints: list[str] = field(default_factory=list)

    def next(self, count: int) -> Sequence[Program]:
        """One program: the next answers what became of the last; none after replies that were no program."""
        if self._complaints or count < 1:
            return []
        question = self._question()
        for _ in range(self.author.mending_rounds + 1):
            reply = self.author.model.ask(question)
            flaws = [reply.flaw] if reply.flaw else []
            if not flaws:
                try:
                    program = self._read(reply)
                except ReplyFlawed as exc:
                    flaws = exc.flaws
                else:
                    self._replies[program.digest] = reply
                    return [program]
            self.author.model.learn(reply, 0.0)
            question = mending_question(question, reply, flaws)
            trouble = f"{reply.model}: {'; '.join(flaws)}"
        self._complaints = [trouble]
        return []

    def learn(self, program: Program, outcome: Outcome, score: float | None) -> None:
        """Keep it for the next question, and credit the model: 1 for a gain over the parent, 0.5 for a pass."""
        self._tried.append((program, outcome, score))
        reply = self._replies.get(program.digest)
        if reply is None:
            return
        reward = 0.0
        if isinstance(outcome, Scored):
            reward = 1.0 if score_against(outcome, self.assignment.outcome) > 1 else 0.5
        self.author.model.learn(reply, reward)

    def complaints(self) -> Sequence[str]:
        """Why the last reply was no program."""
        return self._complaints

    def _question(self) -> Question:
        if not self._tried:
            return Question("write", self.assignment.node, self.assignment.prompt)
        program, outcome, score = self._tried[-1]
        gain = score_against(outcome, self.assignment.outcome) if isinstance(outcome, Scored) else None
        text = render(
            "refine.md.j2", assignment=self.assignment, program=program, outcome=outcome, score=score, gain=gain,
            verdict=describe(outcome), details=_details(outcome),
        )  # fmt: skip
        return Question("refine" if gain is not None else "repair", self.assignment.node, text)

    def _read(self, reply: Reply) -> Program:
        author = author_name(reply.model)
        return program_from_reply(reply.text, self.author.task, author, self.assignment.edit.concepts)


def _details(outcome: Outcome) -> list[str]:
    """What a gate said beyond its first line."""
    match outcome:
        case CompileFailed():
            return list(outcome.messages[1:_SHOWN_DETAILS])
        case RuntimeFailed():
            return list(outcome.findings[1:_SHOWN_DETAILS])
        case _:
            return []
