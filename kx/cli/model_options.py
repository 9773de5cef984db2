"""The options of kx search that name who writes the programs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kx.errors import InputError

if TYPE_CHECKING:
    from search.crews import ModelOptions

Command = TypeVar("Command", bound=Callable[..., Any])
BASE_URL_VARIABLE = "OPENAI_BASE_URL"


def model_options(command: Command) -> Command:
    """Add the options; ``read_model_options`` makes them one value."""
    options = (
        click.option("--model", multiple=True, metavar="NAME[=WEIGHT]",
                     help="Language model that plans and writes, at an OpenAI-compatible endpoint; several are mixed."),
        click.option("--by-hand", is_flag=True,
                     help="You plan and write: the search stops at each question (kx prompt, kx submit)."),
        click.option("--base-url", help=f"The models' endpoint; {BASE_URL_VARIABLE} when unset, else OpenAI's."),
        click.option("--planner", type=click.Choice(["model", "graph"]),
                     help="Who plans beside --model or --by-hand.  [default: model]"),
        click.option("--choose", type=click.Choice(["weights", "bandit"]), default="weights", show_default=True,
                     help="How one of several models is chosen: by weight, or by success."),
        click.option("--temperature", type=click.FloatRange(0, 2), help="Sampling temperature of the models."),
        click.option("--tokens", type=click.IntRange(1), help="Most tokens for the models, prompts included."),
        click.option("--cost", type=click.FloatRange(0, min_open=True), help="Most US dollars, by --price."),
        click.option("--price", multiple=True, metavar="NAME=IN,OUT",
                     help="A model's price: US dollars for a million prompt and completion tokens."),
        click.option("--waiting", type=click.FloatRange(0, min_open=True), help="Most seconds of waiting for replies."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def read_model_options(values: Mapping[str, Any]) -> ModelOptions | None:
    """The options' value, None when neither --model nor --by-hand is given.

    Raises:
        InputError: options that don't go together, or that don't parse.
    """
    from search.crews import ModelOptions
    from search.models.spending import Allowance

    if values["by_hand"] and values["model"]:
        raise InputError("--by-hand and --model exclude each other", "leave one of them out")
    if not values["by_hand"] and not values["model"]:
        alone = [name for name in ("base_url", "planner", "temperature", "tokens", "cost", "price", "waiting")
                 if values[name] not in (None, ())]  # fmt: skip
        if alone:
            raise InputError(f"--{alone[0].replace('_', '-')} needs --model NAME", "without it no model is asked")
        return None
    weights = dict(_weight(text) for text in values["model"])
    prices = dict(_price(text) for text in values["price"])
    strangers = sorted(set(prices) - set(weights))
    if strangers:
        raise InputError(f"--price names {strangers[0]}, which no --model does", f"models: {', '.join(weights)}")
    if values["cost"] is not None and not prices:
        raise InputError("--cost needs the models' prices", "add --price NAME=IN,OUT")
    allowance = Allowance(values["tokens"], values["cost"], values["waiting"])
    base_url = values["base_url"] or os.environ.get(BASE_URL_VARIABLE) or None
    return ModelOptions(
        weights=weights,
        base_url=None if values["by_hand"] else base_url,
        choice=values["choose"],
        temperature=values["temperature"],
        planner=values["planner"] or "model",
        allowance=allowance,
        prices=prices,
    )


def _weight(text: str) -> tuple[str, float]:
    name, _, weight = text.partition("=")
    try:
        value = float(weight) if weight else 1.0
    except ValueError:
        value = math.nan
    if not name or not 0 < value < math.inf:
        raise InputError(f"--model {text}: the weight is no positive number", "write --model NAME or --model NAME=2")
    return name, value


def _price(text: str) -> tuple[str, Any]:
    from search.models.spending import Price

    name, _, figures = text.rpartition("=")
    try:
        prompt, completion = (float(figure) for figure in figures.split(","))
    except ValueError:
        prompt = completion = math.nan
    if not name or not (prompt >= 0 and completion >= 0):
        raise InputError(f"--price {text} does not parse", "write --price NAME=IN,OUT, such as --price mine=0.5,1.5")
    return name, Price(prompt, completion)
