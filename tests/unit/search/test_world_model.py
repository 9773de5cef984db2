from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgraph.model import Impacts, Observation
from search.planners.graph_planner import GraphPlanner, Knowledge, bottleneck_shares, priors_from
from search.world_model import Action, Attempt, Belief, WorldModel, world_model_from_json
from tests.unit.search.doubles import SwitchAuthor, concept, scored

ACTION = Action("do it", ("exp2-trick",), {"exp": 1}, "because")


def belief(rating: float = 5.0, confidence: float = 0.5, difficulty: int = 1) -> Belief:
    return Belief(difficulty, Impacts(5, 5, 5), rating, confidence)


def planted() -> WorldModel:
    model = WorldModel()
    model.plant("seed", 1.0, "fine")
    return model


def action(**changes: int) -> Action:
    return Action(f"change {changes}", ("exp2-trick",), changes, "because")


def test_only_scored_nodes_have_children() -> None:
    model = planted()
    child = model.insert("n0", ACTION, belief())
    with pytest.raises(ValueError, match="not a scored node"):
        model.insert(child.id, ACTION, belief())
    with pytest.raises(ValueError, match="already has a child"):
        model.insert("n0", ACTION, belief())


def test_what_was_tried_cannot_be_pruned() -> None:
    model = planted()
    child = model.insert("n0", ACTION, belief())
    model.close(child.id, [Attempt("p", "Mismatch", None, "wrong")], "prompt")
    with pytest.raises(ValueError, match="only open nodes"):
        model.prune(child.id, "no")


def test_child_of_a_lagging_branch_needs_a_much_better_rating() -> None:
    model = planted()
    fast = model.insert("n0", action(a=1), belief())
    model.close(fast.id, [Attempt("p", "Scored", 8.0, "fast")], "")
    slow_branch = model.insert("n0", action(b=1), belief(rating=9.0))
    fast_branch = model.insert(fast.id, action(b=1), belief(rating=6.0))
    assert model.select() == [fast_branch]
    model.update(slow_branch.id, rating=10.0, confidence=1.0, note="")
    model.update(fast_branch.id, rating=1.0, confidence=0.0, note="")
    assert model.select() == [model.nodes[slow_branch.id]]


def test_every_weight_of_the_selection_rule_is_used() -> None:
    from dataclasses import fields, replace

    from search.world_model import SelectionRule

    model = planted()
    fast = model.insert("n0", action(a=1), belief())
    model.close(fast.id, [Attempt("p", "Scored", 4.0, "")], "")
    node = model.insert("n0", action(b=1), belief(confidence=0.3, difficulty=3))
    easy = model.insert("n0", action(c=1), belief(rating=1.0))
    for item in fields(SelectionRule):
        before = model.priority(node), model.select()
        changed = replace(model.rule, **{item.name: 2 if item.name == "difficulty_cap" else 0.9})
        other = WorldModel(changed, dict(model.nodes), model.round)
        assert (other.priority(node), other.select()) != before, item.name
    assert easy.status == "open"


@given(
    st.lists(
        st.tuples(st.sampled_from(["insert", "close", "fail", "prune", "update"]), st.integers(0, 30)), max_size=40
    )
)
def test_any_sequence_of_operations_keeps_the_tree_sound(operations: list[tuple[str, int]]) -> None:
    model = planted()
    for step, (operation, pick) in enumerate(operations):
        frontier = model.open_nodes()
        if operation == "insert":
            closed = [node for node in model.nodes.values() if node.status == "closed"]
            model.insert(closed[pick % len(closed)].id, action(**{f"x{step}": pick}), belief(rating=pick % 11))
        elif frontier:
            node = frontier[pick % len(frontier)]
            if operation == "prune":
                model.prune(node.id, "no")
            elif operation == "update":
                model.update(node.id, rating=pick - 10.0, confidence=pick / 10, note="n")
            else:
                model.close(
                    node.id, [Attempt("p", "Scored", float(pick + 1) if operation == "close" else None, "")], ""
                )
        for node in model.nodes.values():
            assert node.parent is None or model.nodes[node.parent].status == "closed"
            assert 0 <= node.belief.rating <= 10
            assert 0 <= node.belief.confidence <= 1
            assert (node.score is not None) == (node.status == "closed")
        selected = model.select(3)
        assert len(selected) == len({node.id for node in selected}) == min(3, len(model.open_nodes()))
        assert model.select() == selected[:1]
    assert world_model_from_json(model.to_json()).to_json() == model.to_json()


def test_shares_of_bottlenecks_add_up_and_ignore_launch_overhead() -> None:
    shares = bottleneck_shares(scored(10.0, latency=6.0, bandwidth=2.0, launch=100.0))
    assert shares == {"bandwidth": 0.25, "compute": 0.0, "latency": 0.75, "synchronization": 0.0}
    assert sum(bottleneck_shares(scored(10.0, launch=3.0)).values()) == 1.0


def test_experience_of_earlier_runs_moves_the_rating() -> None:
    def observed(ratio: float) -> Observation:
        return Observation(
            "r", "n1", "exp2-trick", "t", "c", "b", "estimated", "Scored" if ratio else "Mismatch", ratio
        )

    concepts = {"exp2-trick": concept("exp2-trick", bottlenecks=("compute",))}
    ratings = []
    for history in ([0.0, 0.0], [], [2.0], [2.0, 2.0, 2.0]):
        priors = priors_from(observed(ratio) for ratio in history)
        planner = GraphPlanner(SwitchAuthor({}), "scan", Knowledge(concepts, {}, priors))
        ratings.append(
            planner.believe(["exp2-trick"], {"compute": 0.5, "latency": 0.5, "bandwidth": 0.0, "synchronization": 0.0})[
                0
            ].rating
        )
    assert ratings == sorted(ratings)
    assert len(set(ratings)) == 4


def test_concepts_of_another_kernel_class_and_without_evidence_rate_lower() -> None:
    concepts = {
        "a": concept("a", bottlenecks=("latency",)),
        "b": concept("b", bottlenecks=("latency",), kernel_classes=("attention",)),
        "c": concept("c", bottlenecks=("latency",)),
    }
    planner = GraphPlanner(SwitchAuthor({}), "scan", Knowledge(concepts, {"c": 0.9}, {}))
    shares = {"latency": 1.0, "compute": 0.0, "bandwidth": 0.0, "synchronization": 0.0}
    own, foreign, seen = (planner.believe([slug], shares)[0] for slug in ("a", "b", "c"))
    assert foreign.rating < own.rating < seen.rating
    assert own.confidence < seen.confidence
