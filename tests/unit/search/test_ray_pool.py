"""The cluster pool on two local nodes: the same outcomes as the local pool, and a killed node loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kx.errors import EnvironmentLacking
from search.evaluation.ray_pool import RayPool
from search.outcome import CompileFailed, TimedOut
from tests.unit.search.test_pool import TASK, setting, with_body

ray = pytest.importorskip("ray", reason="the ray extra is not installed")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    found.add_node(num_cpus=1)
    found.add_node(num_cpus=1)
    found.wait_for_nodes()
    ray.init(address=found.address, log_to_driver=False, logging_level="ERROR")
    yield found
    ray.shutdown()
    found.shutdown()


def test_outcomes_come_in_order_and_a_lost_node_loses_none(cluster: Any, tmp_path: Path) -> None:
    endless = with_body("volatile int on = 1; while (on) { on = 1; }")
    programs = [with_body(f"broken_{number};") for number in range(3)] + [endless] * 2
    with RayPool(setting(tmp_path, limit_s=4.0), "auto") as pool:
        started = pool.evaluate([(program, number) for number, program in enumerate(programs)])
        index, first = next(started)
        assert index == 0
        lost = sorted(cluster.worker_nodes, key=lambda node: node.unique_id)[0]
        cluster.remove_node(lost, allow_graceful=False)
        rest = list(started)
    assert [index for index, _ in rest] == [1, 2, 3, 4]
    outcomes = [first.outcome, *(evaluated.outcome for _, evaluated in rest)]
    assert all(isinstance(outcome, CompileFailed) for outcome in outcomes[:3]), outcomes
    assert [f"broken_{number}" in outcome.messages[0] for number, outcome in enumerate(outcomes[:3])] == [True] * 3
    assert outcomes[3:] == [TimedOut(4.0)] * 2
    assert [first.seed, *(evaluated.seed for _, evaluated in rest)] == [0, 1, 2, 3, 4]


def test_what_a_machine_lacks_is_told(cluster: Any, tmp_path: Path) -> None:
    with (
        RayPool(setting(tmp_path, compiler=("/no-such-compiler", "c++")), "auto") as pool,
        pytest.raises(EnvironmentLacking, match="no-such-compiler"),
    ):
        list(pool.evaluate([(TASK.seed, 1)]))


def test_cluster_that_is_not_there_is_told(tmp_path: Path) -> None:
    if ray.is_initialized():
        ray.shutdown()
    with pytest.raises(EnvironmentLacking, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        RayPool(setting(tmp_path), "127.0.0.1:1")
