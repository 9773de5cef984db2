"""Evaluations over several machines through Ray; the only module that imports ray.

Every machine of the cluster needs kx installed. A task evaluates one program as the local pool does, in a
process of its own that is killed at the limit, so a crash costs that program alone. A machine that is lost
costs nothing: Ray gives its tasks to others.
"""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

from kx.errors import EnvironmentLacking, KxError
from search.backends import Chip
from search.evaluation.pool import Evaluated, EvaluationSetting, WorkerPool
from search.outcome import outcome_from_json, outcome_to_json
from search.program import Program, program_from_json

if TYPE_CHECKING:
    from ray import ObjectRef

LOCAL = "local"
RETRIES = 3
"""How often a program is given to another machine after one was lost."""
CONNECT_S = 5.0
CACHE_FOLDER = "kx-ray-cache"


class RayPool:
    """Implements ``search.engine.Evaluator`` on a Ray cluster; a context manager that leaves it when it ends.

    Args:
        setting: what all evaluations share; its cache folder is one of this machine, so each machine uses one
            of its own.
        address: of the cluster (``ray://host:10001``, ``host:6379``, ``auto``), or ``local`` for one that is
            started here and ended with the pool.

    Raises:
        EnvironmentLacking: ray is not installed, or there is no such cluster.
    """

    def __init__(self, setting: EvaluationSetting, address: str) -> None:
        try:
            # Read when ray is imported and when its workers start.
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
            import ray
        except ImportError as exc:
            raise EnvironmentLacking("ray is not installed", "pip install 'kx[ray]'") from exc
        self._ray = ray
        self._setting = setting
        self._starts_own = not ray.is_initialized()
        if self._starts_own:
            self._connect(address)
        self._evaluate: Any = ray.remote(max_retries=RETRIES, num_cpus=1)(evaluate_here)

    def _connect(self, address: str) -> None:
        if address not in {LOCAL, "auto"}:
            _require_listener(address)
        where: dict[str, Any] = {"num_cpus": self._setting.workers} if address == LOCAL else {"address": address}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # deprecations inside ray are not the user's to act on
                self._ray.init(logging_level=logging.ERROR, log_to_driver=False, include_dashboard=False, **where)
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as exc:
            said = str(exc).strip().splitlines()[0] if str(exc).strip() else type(exc).__name__
            raise EnvironmentLacking(
                f"no Ray cluster answers at {address}: {said}", "start one with ray start --head, or use --ray local"
            ) from exc

    def __enter__(self) -> RayPool:
        return self

    def __exit__(self, *_: object) -> None:
        if self._starts_own and self._ray.is_initialized():
            self._ray.shutdown()

    def evaluate(self, jobs: Sequence[tuple[Program, int]]) -> Iterator[tuple[int, Evaluated]]:
        """Evaluate (program, seed) pairs on the cluster; yields (index, result) in the order of ``jobs``.

        Raises:
            EnvironmentLacking: a machine lacks something, or all were lost.
        """
        shared = asdict(replace(self._setting, cache=Path(), workers=1)) | {"cache": ""}
        waiting: list[ObjectRef[Any]] = [
            self._evaluate.remote(shared, program.to_json(), seed) for program, seed in jobs
        ]
        try:
            for index, reference in enumerate(waiting):
                yield index, self._receive(reference)
        except BaseException:
            for reference in waiting:
                self._ray.cancel(reference, force=True)
            raise

    def _receive(self, reference: ObjectRef[Any]) -> Evaluated:
        from ray.exceptions import RayError

        try:
            answer: dict[str, Any] = self._ray.get(reference)
        except RayError as exc:
            said = str(exc).strip().splitlines()[0]
            raise EnvironmentLacking(f"the Ray cluster lost a program: {said}", "kx resume goes on from here") from exc
        if "error" in answer:
            kind = EnvironmentLacking if answer["exit_code"] == EnvironmentLacking.exit_code else KxError
            raise kind(answer["error"], answer["hint"])
        return Evaluated(outcome_from_json(answer["outcome"]), int(answer["seed"]), float(answer["seconds"]))


def _require_listener(address: str) -> None:
    """Make sure that something listens: ray itself would try for minutes.

    Raises:
        EnvironmentLacking: nothing does, or the address is none.
    """
    hint = "start one with ray start --head, or use --ray local"
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=CONNECT_S):
            pass
    except (OSError, ValueError) as exc:
        raise EnvironmentLacking(f"no Ray cluster answers at {address}: {exc}", hint) from exc


def evaluate_here(shared: dict[str, Any], program: dict[str, Any], seed: int) -> dict[str, Any]:
    """One evaluation on the machine where this runs: plain data in and out, since versions of Python may differ."""
    chip = Chip(**shared["chip"])
    setting = EvaluationSetting(**{**shared, "chip": chip, "cache": Path(gettempdir()) / CACHE_FOLDER})
    try:
        with WorkerPool(setting) as pool:
            ((_, evaluated),) = pool.evaluate([(program_from_json(program), seed)])
    except KxError as exc:
        return {"error": exc.message, "hint": exc.hint, "exit_code": exc.exit_code}
    return {"outcome": outcome_to_json(evaluated.outcome), "seed": evaluated.seed, "seconds": evaluated.seconds}
