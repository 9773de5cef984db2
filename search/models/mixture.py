"""Several models: the next one is drawn by weight, or by how well each has done."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from search.models import EndpointFailed, Model, Question, Reply

Choice = Literal["weights", "bandit"]


@dataclass
class Mixture:
    """Asks one of several models; a model whose endpoint fails is left out while others answer.

    With ``weights`` each question draws a model in proportion to its weight. With ``bandit`` the model of the
    highest upper confidence bound is asked (UCB1): mean reward + exploration x sqrt(ln(all asked) / times asked),
    every model once before any twice; weights scale the bound's second term.

    Attributes:
        models: at least one; weights: one per model's name, positive.
        choice: how.
        seed: of the draws; the same questions in the same order are put to the same models.
        exploration: of the bandit.
    """

    models: Sequence[Model]
    weights: Mapping[str, float]
    choice: Choice = "weights"
    seed: int = 0
    exploration: float = 0.5
    _asked: dict[str, int] = field(default_factory=dict)
    _gained: dict[str, float] = field(default_factory=dict)
    _dead: dict[str, EndpointFailed] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """All names."""
        return "+".join(model.name for model in self.models)

    def ask(self, question: Question) -> Reply:
        """As ``Model.ask``; the last model's failure is raised when none is left."""
        while True:
            model = self._choose()
            self._asked[model.name] = self._asked.get(model.name, 0) + 1
            try:
                return model.ask(question)
            except EndpointFailed as exc:
                self._dead[model.name] = exc
                if len(self._dead) == len(self.models):
                    raise

    def recall(self, reply: Reply) -> None:
        """Count the model of ``reply`` as asked."""
        self._asked[reply.model] = self._asked.get(reply.model, 0) + 1

    def learn(self, reply: Reply, reward: float) -> None:
        """Credit the model that wrote ``reply``."""
        self._gained[reply.model] = self._gained.get(reply.model, 0.0) + reward

    def _choose(self) -> Model:
        alive = [model for model in self.models if model.name not in self._dead]
        total = sum(self._asked.values())
        if self.choice == "weights":
            draw = random.Random(f"{self.seed}/{total}")
            return draw.choices(alive, [self.weights.get(model.name, 1.0) for model in alive])[0]
        fresh = [model for model in alive if not self._asked.get(model.name)]
        return fresh[0] if fresh else max(alive, key=lambda model: self._bound(model.name, total))

    def _bound(self, name: str, total: int) -> float:
        count = self._asked[name]
        doubt = self.exploration * self.weights.get(name, 1.0) * math.sqrt(math.log(total) / count)
        return self._gained.get(name, 0.0) / count + doubt
