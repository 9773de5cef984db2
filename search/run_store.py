"""Run folders: what a search wrote, so that a killed run goes on and a finished one can be read.

``runs/<id>/``
    run.json            configuration, versions, knowledge as it stood; written once
    events.jsonl        append-only, fsynced: one JSON object a line; the truth from which a run resumes
    world_model.json    the tree after the last round (derived; rewritten atomically)
    programs/<digest>.json, prompts/<digest>.md
    best.metal, best.py (derived; rewritten when the best changes)
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kx.errors import RunCorrupt, UnknownName
from kx.paths import Home, exclusive, write_atomically
from search.outcome import Outcome, outcome_from_json
from search.program import Program, program_from_json

CONFIGURATION = "run.json"
EVENTS = "events.jsonl"
WORLD_MODEL = "world_model.json"


@dataclass(frozen=True)
class Run:
    """An opened run folder.

    Attributes:
        id: its name; folder: its path.
        configuration: the content of run.json.
    """

    id: str
    folder: Path
    configuration: Mapping[str, Any]

    def append(self, kind: str, **fields: Any) -> None:
        """Append an event and wait until it is on the disk."""
        line = json.dumps({"kind": kind, "at": datetime.now(UTC).isoformat(timespec="milliseconds"), **fields})
        with (self.folder / EVENTS).open("ab") as stream:
            stream.write(line.encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())

    def events(self) -> Iterator[dict[str, Any]]:
        """All complete events in order. A last line cut short by a kill is not an event.

        Raises:
            RunCorrupt: a line other than the last is not JSON.
        """
        path = self.folder / EVENTS
        lines = path.read_bytes().split(b"\n") if path.exists() else []
        for number, line in enumerate(lines, start=1):
            if not line:
                continue
            try:
                event: dict[str, Any] = json.loads(line)
            except ValueError as exc:
                if number == len(lines):
                    return
                raise RunCorrupt(
                    f"run {self.id}: line {number} of {EVENTS} is not JSON",
                    "remove the damaged line to lose that event only",
                ) from exc
            yield event

    def drop_partial_event(self) -> None:
        """Cut a last line that a kill left incomplete, so that appending goes on at a line's start."""
        path = self.folder / EVENTS
        if not path.exists():
            return
        data = path.read_bytes()
        if data and not data.endswith(b"\n"):
            with path.open("r+b") as stream:
                stream.truncate(data.rfind(b"\n") + 1)
                stream.flush()
                os.fsync(stream.fileno())

    def save_program(self, program: Program) -> None:
        """Keep the program under its digest; a kept one is not written again."""
        path = self.folder / "programs" / f"{program.digest}.json"
        if not path.exists():
            write_atomically(path, json.dumps(program.to_json(), indent=1))

    def program(self, digest: str) -> Program:
        """The kept program.

        Raises:
            RunCorrupt: it is missing or unreadable.
        """
        path = self.folder / "programs" / f"{digest}.json"
        try:
            return program_from_json(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as exc:
            raise RunCorrupt(f"run {self.id}: program {digest} can't be read", f"look at {path}") from exc

    def save_prompt(self, text: str) -> str:
        """Keep a prompt under the digest of its text; returns the digest."""
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        path = self.folder / "prompts" / f"{digest}.md"
        if not path.exists():
            write_atomically(path, text)
        return digest

    def prompt(self, digest: str) -> str:
        """The kept prompt.

        Raises:
            RunCorrupt: it is missing or unreadable.
        """
        path = self.folder / "prompts" / f"{digest}.md"
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as exc:
            raise RunCorrupt(f"run {self.id}: prompt {digest} can't be read", f"look at {path}") from exc

    def outcome(self, digest: str) -> Outcome | None:
        """The logged outcome of a program, None when it was not evaluated.

        Raises:
            RunCorrupt: the log can't be read.
        """
        for event in self.events():
            if event["kind"] == "evaluated" and event.get("program") == digest:
                return logged_outcome(self, event)
        return None

    def save_world_model(self, data: Mapping[str, Any]) -> None:
        """Replace the snapshot of the tree."""
        write_atomically(self.folder / WORLD_MODEL, json.dumps(data, indent=1))

    def world_model(self) -> dict[str, Any]:
        """The snapshot of the tree.

        Raises:
            RunCorrupt: there is none yet or it is not JSON.
        """
        try:
            data: dict[str, Any] = json.loads((self.folder / WORLD_MODEL).read_text(encoding="utf-8"))
        except (OSError, ValueError) as exc:
            hint = f"kx resume {self.id} rebuilds it"
            raise RunCorrupt(f"run {self.id} has no readable {WORLD_MODEL}", hint) from exc
        return data


def logged_outcome(run: Run, event: Mapping[str, Any]) -> Outcome:
    """The outcome in an ``evaluated`` event.

    Raises:
        RunCorrupt: the event lacks it.
    """
    try:
        return outcome_from_json(event["outcome"])
    except (KeyError, TypeError) as exc:
        raise RunCorrupt(f"run {run.id}: an evaluated event misses {exc}", "start a new run") from exc


def create_run(home: Home, configuration: Mapping[str, Any]) -> Run:
    """A new run folder with its configuration written; the id starts with the time and never collides."""
    identity = f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{configuration['task']}-{secrets.token_hex(2)}"
    folder = home.runs / identity
    folder.mkdir(parents=True)
    write_atomically(folder / CONFIGURATION, json.dumps(configuration, indent=1, sort_keys=True))
    return Run(identity, folder, configuration)


def open_run(home: Home, identity: str) -> Run:
    """The run called ``identity``, or ``latest``.

    Raises:
        UnknownName: there is no such run.
        RunCorrupt: its run.json is missing or not JSON.
    """
    known = run_ids(home)
    if identity == "latest" and known:
        identity = known[-1]
    if identity not in known:
        hint = f"runs: {', '.join(known[-5:])}" if known else "there are no runs yet: start one with kx search"
        raise UnknownName(f"no run is called {identity!r}", hint)
    folder = home.runs / identity
    try:
        configuration = json.loads((folder / CONFIGURATION).read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        hint = f"the folder is unusable: delete {folder} or restore the file"
        raise RunCorrupt(f"run {identity}: {CONFIGURATION} can't be read", hint) from exc
    if not isinstance(configuration, dict) or "task" not in configuration:
        raise RunCorrupt(f"run {identity}: {CONFIGURATION} has no task", f"delete {folder} or restore the file")
    return Run(identity, folder, configuration)


def run_ids(home: Home) -> list[str]:
    """Names of the run folders, oldest first."""
    return sorted(path.name for path in home.runs.glob("*") if path.is_dir()) if home.runs.is_dir() else []


def hold(run: Run) -> Any:
    """A lock that one process at a time holds while it works on the run (a context manager)."""
    return exclusive(run.folder / ".lock")
