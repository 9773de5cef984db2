"""GraphPlanner: proposes from the knowledge graph and the measured bottleneck, without a language model.

An author offers single changes; the graph says what each one's concepts are good for. Ratings follow from

- fit: the share of the parent's time that is spent in the bottlenecks which the concept addresses;
- impact: the concept's expected impact on the axes of those bottlenecks;
- evidence: how surely expert kernels of the graph were seen to do it;
- experience: what it gained when tried, in earlier runs and in this one.

The constants are in ``RatingRule``; docs/search.md works through an example.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kgraph.model import Concept, Evidence, Impacts, Observation
from search.authors import Edit, EditSource
from search.outcome import Scored
from search.program import Program
from search.world_model import Action, Belief, Node, WorldModel

BOTTLENECKS = ("bandwidth", "compute", "latency", "synchronization")


@dataclass(frozen=True)
class RatingRule:
    """Constants of the rating; every one is used.

    Attributes:
        fit_weight, impact_weight, evidence_weight: of the three shares in 0..1; they add up to 1.
        foreign_class: factor for a concept that does not serve the task's kernel class.
        experience_points: rating points per factor of two gained (or lost) when tried before.
        prior_strength: observations that count half: with n of them, experience weighs n / (n + strength).
        base_confidence: of an action with neither evidence nor experience.
        evidence_confidence, experience_confidence: added in proportion.
        width: most children that one proposal inserts.
        hopeless_rating: open nodes rated below are pruned.
        futile_attempts: failures of a concept after which open nodes that need it are pruned.
    """

    fit_weight: float = 0.45
    impact_weight: float = 0.35
    evidence_weight: float = 0.2
    foreign_class: float = 0.3
    experience_points: float = 2.0
    prior_strength: float = 1.0
    base_confidence: float = 0.4
    evidence_confidence: float = 0.3
    experience_confidence: float = 0.3
    width: int = 3
    hopeless_rating: float = 1.0
    futile_attempts: int = 2


@dataclass(frozen=True)
class Knowledge:
    """What the planner takes from the graph, fixed for a whole run so that a resumed run decides alike.

    Attributes:
        concepts: by slug.
        evidence: share in 0..1 per slug, from ``evidence_shares``.
        priors: (observations, mean log2 gain) per slug, from ``priors_from``.
    """

    concepts: Mapping[str, Concept]
    evidence: Mapping[str, float]
    priors: Mapping[str, tuple[int, float]]


def evidence_shares(evidence: Iterable[Evidence]) -> dict[str, float]:
    """Per concept the chance that at least one detection is right: 1 - product of (1 - confidence) over files."""
    doubt: dict[str, dict[str, float]] = {}
    for item in evidence:
        files = doubt.setdefault(item.concept, {})
        files[item.file] = min(files.get(item.file, 1.0), 1.0 - item.confidence)
    return {slug: 1.0 - math.prod(files.values()) for slug, files in sorted(doubt.items())}


def priors_from(observations: Iterable[Observation]) -> dict[str, tuple[int, float]]:
    """Per concept (count, mean log2 of the gain); a failure counts as a loss of a factor of two."""
    gains: dict[str, list[float]] = {}
    for item in observations:
        gains.setdefault(item.concept, []).append(math.log2(item.ratio) if item.ratio > 0 else -1.0)
    return {slug: (len(values), sum(values) / len(values)) for slug, values in sorted(gains.items())}


def bottleneck_shares(outcome: Scored) -> dict[str, float]:
    """Share of the time per bottleneck, averaged over workloads with equal weight; sums to 1.

    Parts that overlap in the estimate are normalized by their sum; launch overhead, which no kernel text
    changes, is left out.
    """
    shares = dict.fromkeys(BOTTLENECKS, 0.0)
    for workload in outcome.workloads:
        parts = {name: workload.parts_us.get(name, 0.0) for name in BOTTLENECKS}
        whole = sum(parts.values())
        for name in BOTTLENECKS:
            shares[name] += (parts[name] / whole if whole else 0.25) / len(outcome.workloads)
    return shares


@dataclass
class GraphPlanner:
    """See the module's text.

    Attributes:
        edits: knows what could be changed.
        kernel_class: the task's.
        experience: what this run has observed so far: log2 gains per concept.
    """

    edits: EditSource
    kernel_class: str
    knowledge: Knowledge
    rule: RatingRule = field(default_factory=RatingRule)
    experience: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    name: str = "graph-planner"
    trouble: str = ""

    def propose(self, model: WorldModel, node: Node, program: Program, outcome: Scored) -> list[Node]:
        """Insert up to ``width`` of the best rated edits that ``node`` has no child for yet."""
        shares = bottleneck_shares(outcome)
        children = model.children(node.id)
        taken = [dict(child.action.changes) for child in children if child.action.changes]
        titles = {child.action.title for child in children}
        candidates: list[tuple[float, str, Edit, Belief, str]] = []
        for edit in self.edits.edits(program):
            if dict(edit.changes) in taken or edit.label in titles or self._is_futile(edit.concepts):
                continue
            belief, rationale = self.believe(edit.concepts, shares)
            if belief.rating >= self.rule.hopeless_rating:
                candidates.append((-belief.rating * (0.5 + belief.confidence / 2), edit.label, edit, belief, rationale))
        candidates.sort(key=lambda item: item[:2])
        return [
            model.insert(node.id, Action(edit.label, edit.concepts, dict(edit.changes), rationale), belief)
            for _, _, edit, belief, rationale in candidates[: self.rule.width]
        ]

    def evolve(self, model: WorldModel, tried: Node, program: Program | None, outcome: Scored | None) -> None:
        """Revise what is open, then propose below what was scored."""
        self.revise(model, tried)
        if program is not None and outcome is not None:
            self.propose(model, tried, program, outcome)

    def revise(self, model: WorldModel, tried: Node) -> None:
        """Learn from a tried node: re-rate open nodes that share a concept with it, prune what lost its promise."""
        parent_score = model.nodes[tried.parent or ""].score or 1.0
        gain = math.log2(tried.score / parent_score) if tried.score else None
        for slug in tried.action.concepts[:1]:
            if gain is None:
                self.failures[slug] = self.failures.get(slug, 0) + 1
            self.experience.setdefault(slug, []).append(-1.0 if gain is None else gain)
        for node in model.open_nodes():
            if node.action.concepts[:1] == tried.action.concepts[:1]:
                shift = self.rule.experience_points * (-1.0 if gain is None else gain)
                note = f"{tried.id} tried the same: {'failed' if gain is None else f'x{2**gain:.2f}'}"
                rating = node.belief.rating + min(2.0, max(-2.0, shift))
                model.update(node.id, rating=rating, confidence=node.belief.confidence + 0.1, note=note)
        for node in model.open_nodes():
            if model.nodes[node.id].belief.rating < self.rule.hopeless_rating:
                model.prune(node.id, "its rating fell below what is worth an evaluation")
            elif self._is_futile(node.action.concepts):
                model.prune(node.id, f"{node.action.concepts[0]} failed {self.rule.futile_attempts} times")

    def believe(self, concepts: Sequence[str], shares: Mapping[str, float]) -> tuple[Belief, str]:
        """Beliefs about an edit that realizes ``concepts``, for a parent with these bottleneck shares.

        The first concept that the graph knows is what the edit is about; the others come along with it. It is
        as hard as its hardest concept.
        """
        known = [self.knowledge.concepts[slug] for slug in concepts if slug in self.knowledge.concepts]
        if not known:
            return Belief(3, Impacts(5, 5, 5), 5.0, 0.2), "the graph knows none of its concepts"
        main = known[0]
        rating, terms = self._rate(main, shares)
        seen = self.knowledge.evidence.get(main.slug, 0.0)
        count = self._experience(main.slug)[0]
        confidence = (
            self.rule.base_confidence
            + self.rule.evidence_confidence * seen
            + self.rule.experience_confidence * count / (count + 1)
        )
        difficulty = max(concept.difficulty for concept in known)
        reason = f"{main.slug}: " + ", ".join(f"{name} {value:.2f}" for name, value in terms.items())
        return Belief(difficulty, main.impacts, round(rating, 3), round(min(1.0, confidence), 3)), reason

    def _rate(self, concept: Concept, shares: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        rule = self.rule
        fit = sum(shares[name] for name in BOTTLENECKS if name in concept.bottlenecks)
        impact = sum(shares[name] * _axis(concept.impacts, name) / 10 for name in BOTTLENECKS)
        evidence = self.knowledge.evidence.get(concept.slug, 0.0)
        promise = rule.fit_weight * fit + rule.impact_weight * impact + rule.evidence_weight * evidence
        if self.kernel_class not in concept.kernel_classes:
            promise *= rule.foreign_class
        count, gain = self._experience(concept.slug)
        experience = rule.experience_points * gain * count / (count + rule.prior_strength)
        rating = min(10.0, max(0.0, 10 * promise + experience))
        terms = {"fit": fit, "impact": impact, "evidence": evidence, "experience": experience}
        return rating, terms

    def _experience(self, slug: str) -> tuple[int, float]:
        count, mean = self.knowledge.priors.get(slug, (0, 0.0))
        own = self.experience.get(slug, [])
        total = count + len(own)
        return (total, (count * mean + sum(own)) / total) if total else (0, 0.0)

    def _is_futile(self, concepts: Sequence[str]) -> bool:
        return any(self.failures.get(slug, 0) >= self.rule.futile_attempts for slug in concepts[:1])


def _axis(impacts: Impacts, bottleneck: str) -> int:
    """The impact axis that relieves a bottleneck; latency and synchronization are matters of hardware fit."""
    return impacts.memory_bandwidth if bottleneck == "bandwidth" else impacts.compute_hw_fit
