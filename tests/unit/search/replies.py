"""Replies as a model would write them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from search.evaluation.pool import Evaluated
from search.models import Question, Reply
from search.outcome import CompileFailed, Outcome
from search.program import Program
from search.task import Task
from tests.unit.search.doubles import scored


def reply_of(program: Program, task: Task, prose: str = "Here it is.") -> str:
    own = {spec.name for spec in task.outputs}
    stages = [
        {
            "name": stage.name,
            "inputs": list(stage.inputs),
            "outputs": [
                spec.name if spec.name in own else {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape)}
                for spec in stage.outputs
            ],
            "grid": list(stage.grid),
            "threadgroup": list(stage.threadgroup),
            "template": dict(stage.template),
        }
        for stage in program.stages
    ]
    text = f"{prose}\n\n```json\n{json.dumps({'stages': stages, 'concepts': list(program.concepts)}, indent=1)}\n```\n"
    for stage in program.stages:
        if stage.header:
            text += f"\n```metal {stage.name} header\n{stage.header.rstrip()}\n```\n"
        text += f"\n```metal {stage.name}\n{stage.body.rstrip()}\n```\n"
    return text + "\nThat should be faster.\n"


def with_speed(program: Program, factor: float, concepts: tuple[str, ...] = ()) -> Program:
    """A variant that ``SpeedEvaluator`` takes for ``factor`` times as fast."""
    stage = replace(program.stages[0], body=f"{program.stages[0].body.rstrip()}\n// speed {factor}\n")
    return replace(program, stages=(stage, *program.stages[1:]), concepts=concepts, choices={}, author="test")


def plan_reply(parent: str, *titles: str, **edits: object) -> str:
    action = {"concepts": ["exp2-trick"], "rationale": "it waits", "difficulty": 2, "rating": 6.0, "confidence": 0.6,
              "impacts": {"memory_bandwidth": 1, "register_pressure": 1, "compute_hw_fit": 7}}  # fmt: skip
    data = {"insert": [{"parent": parent, "title": title, **action} for title in titles], **edits}
    return f"```json\n{json.dumps(data)}\n```"


@dataclass
class ScriptedModel:
    """Answers from a list, then always ``after``, or ends the process there; remembers questions and rewards."""

    replies: list[str | Reply]
    after: str = ""
    name: str = "scripted"
    questions: list[Question] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    def ask(self, question: Question) -> Reply:
        self.questions.append(question)
        if not self.replies and not self.after:
            raise KeyboardInterrupt
        answer = self.replies.pop(0) if self.replies else self.after
        return answer if isinstance(answer, Reply) else Reply(answer, self.name, 1000, 200, 0.5)

    def recall(self, reply: Reply) -> None:
        self.replies.pop(0)

    def learn(self, reply: Reply, reward: float) -> None:
        self.rewards.append(reward)


class SpeedEvaluator:
    """Time follows the last ``// speed`` line; a body with ``broken`` does not compile."""

    def __init__(self) -> None:
        self.evaluated: list[str] = []

    def evaluate(self, jobs: Sequence[tuple[Program, int]]) -> Iterator[tuple[int, Evaluated]]:
        for index, (program, seed) in enumerate(jobs):
            self.evaluated.append(program.digest)
            yield index, Evaluated(self._outcome(program), seed, 0.01)

    def _outcome(self, program: Program) -> Outcome:
        body = program.stages[0].body
        if "broken" in body:
            return CompileFailed("float32", ("body:3: use of undeclared identifier 'broken'", "body:4: expected ';'"))
        speeds = [float(line.split()[-1]) for line in body.splitlines() if line.startswith("// speed")]
        return scored(100.0 / (speeds[-1] if speeds else 1.0))
