"""One evaluation in a process of its own: a request on stdin, one JSON result on a channel of its own.

Started by ``search.evaluation.pool`` with next to no environment and in its own process group. What the
candidate prints can't be taken for a result: the result travels over a separate file descriptor.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from kx.errors import KxError
from search.backends import Chip, open_backend
from search.evaluation.gates import evaluate_program
from search.outcome import outcome_to_json
from search.program import program_from_json
from search.task import load_task


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The result for one request: ``{"outcome", "seconds"}``, or ``{"error", "hint", "exit_code"}``."""
    started = time.monotonic()
    try:
        chip = Chip(request["chip"]["slug"], request["chip"]["quantities"], request["chip"]["limits"])
        compiler = tuple(request["compiler"]) if request["compiler"] else None
        backend = open_backend(request["backend"], chip, Path(request["cache"]), compiler)
        program = program_from_json(request["program"])
        outcome = evaluate_program(program, load_task(request["task"]), backend, request["seed"])
    except KxError as exc:
        return {"error": exc.message, "hint": exc.hint, "exit_code": exc.exit_code}
    return {"outcome": outcome_to_json(outcome), "seconds": time.monotonic() - started}


def main() -> None:
    """Read the request, answer it, end."""
    channel = int(sys.argv[1])
    request = json.load(sys.stdin)
    with os.fdopen(channel, "w", encoding="utf-8") as stream:
        json.dump(answer(request), stream)


if __name__ == "__main__":
    main()
