"""Language models behind one protocol: a question in, a text out, and what it cost.

Endpoint      an OpenAI-compatible server, with bounded retries (endpoint.py)
Mixture       several models, the next one drawn by weight or by success (mixture.py)
Logged        the run folder's replies first, so that a resumed run asks nothing twice (reply_log.py)
Correspondent a person or a coding agent: questions wait in the run folder (reply_log.py)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kx.errors import EnvironmentLacking, KxError


@dataclass(frozen=True)
class Question:
    """What is asked.

    Attributes:
        purpose: ``plan``, ``write``, ``refine``, ``repair``, or ``mend`` (a reply of the wrong form).
        node: id of the node that it is about.
        text: the whole prompt; nothing else is sent.
    """

    purpose: str
    node: str
    text: str


@dataclass(frozen=True)
class Reply:
    """What came back.

    Attributes:
        text: the reply, empty when the model refused.
        model: who wrote it.
        prompt_tokens, completion_tokens: as the endpoint counted them; 0 where it does not say.
        seconds: waited, retries included.
        flaw: why the text can't be whole (cut off, refused); empty when it is.
    """

    text: str
    model: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    flaw: str = ""


class Model(Protocol):
    """Answers questions."""

    @property
    def name(self) -> str:
        """As it goes into records."""
        ...

    def ask(self, question: Question) -> Reply:
        """The reply.

        Raises:
            EndpointFailed: none can be had.
            AllowanceSpent: tokens, cost or time are used up.
            ReplyAwaited: a person has not answered yet.
        """
        ...

    def recall(self, reply: Reply) -> None:
        """A reply was taken from a run's log instead of being asked for: count it as asked."""
        ...

    def learn(self, reply: Reply, reward: float) -> None:
        """What a reply was worth, 0 to 1: how models are chosen among several."""
        ...


class EndpointFailed(EnvironmentLacking):
    """An endpoint refuses, or does not answer after all retries."""


class AllowanceSpent(KxError):
    """The run's tokens, cost or time for models are used up: a search ends well at it."""


class ReplyAwaited(Exception):
    """No error: a question waits for a person's reply, and the run goes on once it is submitted."""

    def __init__(self, question: Question) -> None:
        super().__init__(f"node {question.node} waits for a reply ({question.purpose})")
        self.question = question
