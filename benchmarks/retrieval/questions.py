"""The questions with which retrieval is measured, and how new ones are dealt to the two halves.

    python -m benchmarks.retrieval.questions NEW.jsonl

deals the questions of NEW.jsonl and appends each to ``tuning.jsonl`` or ``held_out.jsonl``. README.md says how
questions are made and what counts as an answer.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Half = Literal["tuning", "held_out"]
HALVES: tuple[Half, ...] = ("tuning", "held_out")
FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Question:
    """One question and the nodes that answer it.

    Attributes:
        id: short name in words; never changes, since the half depends on it.
        style: how it is put (``keyword``, ``story``, ``error`` ...).
        topic: the part of the graph that it asks about (``mapping``, ``constraint``, ``pattern`` ...).
        text: what a person would type.
        answers: IRIs of nodes; any one of them answers the question by itself.
    """

    id: str
    style: str
    topic: str
    text: str
    answers: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the id, in hexadecimal."""
        return hashlib.sha256(self.id.encode("utf-8")).hexdigest()


def load_questions(half: Half, folder: Path = FOLDER) -> tuple[Question, ...]:
    """Questions of one half, in the file's order.

    Raises:
        ValueError: a line lacks a field, has an unknown one, or names no answer.
    """
    return read_questions(folder / f"{half}.jsonl")


def read_questions(path: Path) -> tuple[Question, ...]:
    """Questions of a JSONL file, one object a line.

    Raises:
        ValueError: a line lacks a field, has an unknown one, or names no answer.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(_question(line, f"{path.name}:{number}") for number, line in enumerate(lines, start=1))


def deal(questions: Iterable[Question]) -> dict[Half, list[Question]]:
    """Deal questions to the halves so that both get the same share of each topic and style.

    They are ordered by topic, style and digest of the id and taken in pairs; of a pair one goes to each half, and the
    first one's digest decides which. A last question without a partner goes where its own digest says.
    """
    dealt: dict[Half, list[Question]] = {"tuning": [], "held_out": []}
    ordered = sorted(questions, key=lambda question: (question.topic, question.style, question.digest))
    for first in range(0, len(ordered), 2):
        swapped = int(ordered[first].digest[-1], 16) % 2
        for place, question in enumerate(ordered[first : first + 2]):
            dealt[HALVES[(place + swapped) % 2]].append(question)
    return dealt


def _question(line: str, place: str) -> Question:
    record = json.loads(line)
    if set(record) != {"id", "style", "topic", "text", "answers"}:
        raise ValueError(f"{place}: a question has id, style, topic, text and answers, not {sorted(record)}")
    if not record["answers"]:
        raise ValueError(f"{place}: {record['id']} has no answer; a question that nothing answers is left out")
    return Question(record["id"], record["style"], record["topic"], record["text"], tuple(record["answers"]))


def main() -> None:
    """Deal the questions of a file and append them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="JSONL file of new questions")
    new = read_questions(parser.parse_args().file)
    known = {question.id for half in HALVES for question in load_questions(half)}
    if repeated := sorted(question.id for question in new if question.id in known):
        parser.error(f"already dealt: {', '.join(repeated)}")
    for half, questions in deal(new).items():
        with (FOLDER / f"{half}.jsonl").open("a", encoding="utf-8") as stream:
            stream.writelines(json.dumps(asdict(question), ensure_ascii=False) + "\n" for question in questions)


if __name__ == "__main__":
    main()
