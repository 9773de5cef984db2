"""Templates of the texts for prompts and people, and the measure of their length."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import jinja2

CHARACTERS_PER_TOKEN = 4
TEMPLATES = Path(__file__).parent / "templates"


def estimate_tokens(text: str) -> int:
    """Tokens of ``text``, estimated as a quarter of its characters, rounded up; no tokenizer is asked."""
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


@cache
def template_environment() -> jinja2.Environment:
    """Jinja over this package's templates; a variable that is missing is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["sentence"] = _as_sentence
    environment.filters["figure"] = "{:.6g}".format
    environment.filters["plain"] = _as_plain_number
    return environment


def _as_sentence(text: str) -> str:
    trimmed = text.strip()
    return trimmed if trimmed.endswith((".", "!", "?")) else f"{trimmed}."


def _as_plain_number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else f"{value:.6g}"
