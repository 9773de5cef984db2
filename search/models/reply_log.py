"""Questions and replies in the run folder: what was answered is not asked again.

    replies/<digest>-<n>.json     the n-th reply to the question with that text
    questions/<digest>.md         a question that waits for a person

A run that is resumed decides anew from its start; every question it comes to that was answered before gets
the same reply, so it ends as if it had never stopped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kx.errors import RunCorrupt
from kx.paths import write_atomically
from search.models import Model, Question, Reply, ReplyAwaited
from search.run_store import Run

PERSON = "person"
REDACTED = "[key]"


def question_digest(question: Question) -> str:
    """Identity of a question: the hash of its text."""
    return hashlib.sha256(question.text.encode()).hexdigest()[:16]


@dataclass
class ReplyLog:
    """A run's replies.

    Attributes:
        run: its folder holds them.
        secrets: never written; ``[key]`` stands for them.
    """

    run: Run
    secrets: tuple[str, ...] = ()

    def find(self, question: Question, number: int) -> Reply | None:
        """The ``number``-th reply (from 0) to a question, None when there is none yet.

        Raises:
            RunCorrupt: its file is not readable.
        """
        path = self._path(question, number)
        try:
            data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return Reply(**data["reply"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as exc:
            raise RunCorrupt(
                f"run {self.run.id}: the reply {path.name} can't be read", f"delete {path}: it is asked for again"
            ) from exc

    def keep(self, question: Question, number: int, reply: Reply) -> None:
        """Write a reply, and a line in the run's events."""
        data = {"question": asdict(question), "reply": asdict(reply)}
        text = json.dumps(data, indent=1)
        for secret in self.secrets:
            text = text.replace(json.dumps(secret)[1:-1], REDACTED) if secret else text
        write_atomically(self._path(question, number), text)
        self.run.append(
            "replied", node=question.node, purpose=question.purpose, model=reply.model,
            prompt_tokens=reply.prompt_tokens, completion_tokens=reply.completion_tokens,
            seconds=round(reply.seconds, 3), flaw=reply.flaw,
        )  # fmt: skip
        self.forget(question)

    def post(self, question: Question) -> Path:
        """Leave a question for a person; returns its file."""
        path = self._folder("questions") / f"{question_digest(question)}.md"
        write_atomically(path, question.text)
        write_atomically(path.with_suffix(".json"), json.dumps(asdict(question)))
        return path

    def forget(self, question: Question) -> None:
        """Take an answered question away."""
        path = self._folder("questions") / f"{question_digest(question)}.md"
        for item in (path, path.with_suffix(".json")):
            item.unlink(missing_ok=True)

    def waiting(self) -> Iterator[Question]:
        """Questions that wait for a person."""
        for path in sorted(self._folder("questions").glob("*.json")):
            try:
                yield Question(**json.loads(path.read_text(encoding="utf-8")))
            except (OSError, ValueError, TypeError) as exc:
                raise RunCorrupt(
                    f"run {self.run.id}: the question {path.name} can't be read",
                    f"delete {path}; kx resume {self.run.id} writes it again",
                ) from exc

    def count(self, question: Question) -> int:
        """How many replies a question has."""
        return len(list(self._folder("replies").glob(f"{question_digest(question)}-*.json")))

    def _path(self, question: Question, number: int) -> Path:
        return self._folder("replies") / f"{question_digest(question)}-{number}.json"

    def _folder(self, name: str) -> Path:
        return self.run.folder / name


@dataclass
class Logged:
    """A model whose replies are kept, and taken from the log first.

    Attributes:
        model: asked when the log has no reply.
    """

    model: Model
    log: ReplyLog
    _asked: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The model's."""
        return self.model.name

    def ask(self, question: Question) -> Reply:
        """The logged reply, or a new one."""
        digest = question_digest(question)
        number = self._asked.get(digest, 0)
        reply = self.log.find(question, number)
        if reply is None:
            reply = self.model.ask(question)
            self.log.keep(question, number, reply)
        else:
            self.model.recall(reply)
        self._asked[digest] = number + 1
        return reply

    def recall(self, reply: Reply) -> None:
        """As ``Model.recall``."""
        self.model.recall(reply)

    def learn(self, reply: Reply, reward: float) -> None:
        """As ``Model.learn``."""
        self.model.learn(reply, reward)


@dataclass
class Correspondent:
    """A person or a coding agent as a model: leaves the question and stops the run until the reply is there."""

    log: ReplyLog
    name: str = PERSON

    def ask(self, question: Question) -> Reply:
        """Never answers by itself.

        Raises:
            ReplyAwaited: always; the question is in the run folder.
        """
        self.log.post(question)
        raise ReplyAwaited(question)

    def recall(self, reply: Reply) -> None:
        """Nothing depends on how often a person was asked."""

    def learn(self, reply: Reply, reward: float) -> None:
        """People choose themselves."""
