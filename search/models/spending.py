"""What models have cost a run, and how much they may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from search.models import AllowanceSpent, Model, Question, Reply

PER_MILLION = 1e6


@dataclass(frozen=True)
class Allowance:
    """What a run may spend on models; None is no limit.

    Attributes:
        tokens: prompt and completion together.
        cost_usd: by ``Price``; only models with a known price count.
        seconds: time waited for replies.
    """

    tokens: int | None = None
    cost_usd: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Price:
    """US dollars for a million tokens."""

    prompt: float = 0.0
    completion: float = 0.0

    def of(self, reply: Reply) -> float:
        """US dollars that ``reply`` cost."""
        return (reply.prompt_tokens * self.prompt + reply.completion_tokens * self.completion) / PER_MILLION


@dataclass
class Spending:
    """What was spent so far: ``replies``, ``tokens``, ``cost_usd``, ``seconds``."""

    replies: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    seconds: float = 0.0

    def add(self, reply: Reply, price: Price) -> None:
        """Count one reply."""
        self.replies += 1
        self.tokens += reply.prompt_tokens + reply.completion_tokens
        self.cost_usd += price.of(reply)
        self.seconds += reply.seconds


@dataclass
class Metered:
    """A model whose replies are counted, and who is not asked once the allowance is spent.

    Stands above the log, so that a resumed run counts the same replies. The last reply may exceed the
    allowance: what a reply costs is known only when it is there.

    Attributes:
        prices: by model; a model without one costs nothing.
    """

    model: Model
    allowance: Allowance
    prices: Mapping[str, Price] = field(default_factory=dict)
    spent: Spending = field(default_factory=Spending)

    @property
    def name(self) -> str:
        """The model's."""
        return self.model.name

    def ask(self, question: Question) -> Reply:
        """As ``Model.ask``."""
        self._require_left()
        reply = self.model.ask(question)
        self.spent.add(reply, self.prices.get(reply.model, Price()))
        return reply

    def recall(self, reply: Reply) -> None:
        """Counted by whoever asks, since the log stands below."""

    def learn(self, reply: Reply, reward: float) -> None:
        """As ``Model.learn``."""
        self.model.learn(reply, reward)

    def _require_left(self) -> None:
        limits = (
            ("tokens", self.allowance.tokens, self.spent.tokens, "{:.0f} tokens"),
            ("cost", self.allowance.cost_usd, self.spent.cost_usd, "{:.2f} US dollars"),
            ("time", self.allowance.seconds, self.spent.seconds, "{:.0f} seconds of waiting"),
        )
        for what, limit, spent, form in limits:
            if limit is not None and spent >= limit:
                raise AllowanceSpent(
                    f"the models' {what} budget of {form.format(limit)} is used up", "start a run with a larger one"
                )
