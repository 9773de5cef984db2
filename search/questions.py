"""Questions that both planner and author ask again when a reply does not fit."""

from __future__ import annotations

from collections.abc import Sequence

from search.artifacts import render
from search.models import Question, Reply


def mending_question(question: Question, reply: Reply, flaws: Sequence[str]) -> Question:
    """``question`` once more, with the reply that could not be used and why."""
    text = render("mend.md.j2", question=question.text, flaws=flaws, reply=reply.text.strip() or "(nothing)")
    return Question("mend", question.node, text)
