"""An OpenAI-compatible endpoint; the only module that imports openai.

Retries are ours rather than the client's: bounded in number and time, told to the user, cancelled by Ctrl-C,
and obedient to Retry-After. What no retry can mend (a refused key, an unknown model) ends at once.
"""

from __future__ import annotations

import difflib
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from search.models import EndpointFailed, Question, Reply

if TYPE_CHECKING:
    from openai import APIStatusError, OpenAI
    from openai.types.chat import ChatCompletion

TOO_MANY_REQUESTS = 429
REQUEST_TIMEOUT = 408
CONFLICT = 409
SERVER_ERRORS = 500
Notice = Callable[[str], None]


@dataclass(frozen=True)
class RetryRule:
    """When to try again.

    Attributes:
        attempts: most tries of one question.
        first_wait_s, longest_wait_s: wait before the second try, doubled each time, up to the longest; a
            Retry-After of the server counts instead, up to the longest.
        answer_s: longest silence of the server within a try.
        whole_s: longest time for one question, retries included.
        failures_to_open: questions failed in a row after which the endpoint is taken for dead.
    """

    attempts: int = 5
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    answer_s: float = 180.0
    whole_s: float = 600.0
    failures_to_open: int = 3


@dataclass
class Endpoint:
    """``search.models.Model`` over HTTP.

    Attributes:
        name: the model's name, as the endpoint knows it.
        base_url: such as ``http://localhost:8000/v1``; None for OpenAI's own.
        key: sent as a bearer token; local servers often take any.
        temperature: None leaves it to the server.
        notice: told about waits and retries.
        cancelled: set it to end waits at once.
    """

    name: str
    base_url: str | None
    key: str
    rule: RetryRule = field(default_factory=RetryRule)
    temperature: float | None = None
    notice: Notice = lambda text: None
    cancelled: threading.Event = field(default_factory=threading.Event)
    _client: OpenAI | None = None
    _failed_in_a_row: int = 0

    @property
    def shown_url(self) -> str:
        """The URL without a user name or password in it."""
        if self.base_url is None:
            return "the default endpoint"
        parts = urlsplit(self.base_url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    def ask(self, question: Question) -> Reply:
        """As ``Model.ask``; tries again what may pass."""
        if self._failed_in_a_row >= self.rule.failures_to_open:
            raise EndpointFailed(f"{self.name} at {self.shown_url} failed {self._failed_in_a_row} times in a row")
        started = time.monotonic()
        jitter = random.Random(question.text)
        trouble = ""
        for attempt in range(1, self.rule.attempts + 1):
            left = self.rule.whole_s - (time.monotonic() - started)
            if left <= 0 or self.cancelled.is_set():
                break
            outcome = self._try(question, min(left, self.rule.answer_s))
            if isinstance(outcome, Reply):
                self._failed_in_a_row = 0
                return Reply(**{**vars(outcome), "seconds": time.monotonic() - started})
            trouble, wait = outcome.trouble, outcome.wait_s
            if wait is None:
                doubled = self.rule.first_wait_s * 2.0 ** (attempt - 1)
                wait = min(doubled, self.rule.longest_wait_s) * jitter.uniform(0.75, 1.0)
            if attempt < self.rule.attempts and time.monotonic() - started + wait < self.rule.whole_s:
                self.notice(f"{self.name}: {trouble}; trying again in {wait:.0f} s")
                self.cancelled.wait(wait)
            else:
                break
        self._failed_in_a_row += 1
        raise EndpointFailed(
            f"{self.name} at {self.shown_url} gave no reply after {attempt} tries: {trouble or 'cancelled'}",
            "check --base-url and that the server runs; kx resume goes on from here",
        )

    def recall(self, reply: Reply) -> None:
        """Nothing depends on how often this endpoint was asked."""

    def learn(self, reply: Reply, reward: float) -> None:
        """A single endpoint has nothing to choose."""

    def _try(self, question: Question, limit_s: float) -> Reply | _Passing:
        """One request, cut off at ``limit_s`` even where the server sends a byte now and then."""
        import openai

        received: list[ChatCompletion | openai.OpenAIError | ValueError] = []

        def request() -> None:
            try:
                received.append(self._create(question, limit_s))
            except (openai.OpenAIError, ValueError) as exc:
                received.append(exc)

        # A daemon: a server that never ends must not keep kx from ending.
        thread = threading.Thread(target=request, daemon=True)
        thread.start()
        deadline = time.monotonic() + limit_s
        while thread.is_alive() and time.monotonic() < deadline and not self.cancelled.is_set():
            thread.join(min(0.2, max(0.0, deadline - time.monotonic())))
        if not received:
            self._drop_client()
            return _Passing("cancelled" if self.cancelled.is_set() else f"no whole answer within {limit_s:.0f} s")
        return self._judge(received[0], limit_s)

    def _create(self, question: Question, limit_s: float) -> ChatCompletion:
        from openai import omit

        return self._opened().chat.completions.create(
            model=self.name,
            messages=[{"role": "user", "content": question.text}],
            temperature=omit if self.temperature is None else self.temperature,
            timeout=limit_s,
        )

    def _judge(self, received: object, limit_s: float) -> Reply | _Passing:
        import openai

        if isinstance(received, openai.APITimeoutError):
            return _Passing(f"no answer within {limit_s:.0f} s")
        if isinstance(received, openai.APIConnectionError):
            return _Passing(f"no connection ({received.__cause__ or received})")
        if isinstance(received, openai.APIStatusError):
            return self._judge_status(received)
        if isinstance(received, Exception):
            return _Passing(f"an answer that can't be read ({_one_line(str(received))})")
        return self._read(received)

    def _judge_status(self, error: APIStatusError) -> _Passing:
        """What a retry may mend, or the end of it.

        Raises:
            EndpointFailed: no retry can mend it.
        """
        status, said = error.status_code, _one_line(error.message)
        code = str(error.code or "")
        if code == "insufficient_quota":
            raise EndpointFailed(f"{self.shown_url} has no quota left for this key: {said}", "raise it there, or wait")
        if status in {TOO_MANY_REQUESTS, REQUEST_TIMEOUT, CONFLICT} or status >= SERVER_ERRORS:
            return _Passing(f"status {status}", self._retry_after(error))
        if status in {401, 403}:
            raise EndpointFailed(f"{self.shown_url} refuses the key: {said}", "set OPENAI_API_KEY to a valid one")
        if status == 404:
            raise EndpointFailed(
                f"{self.shown_url} knows no model {self.name!r}, or the URL is wrong: {said}", self._known_models()
            )
        raise EndpointFailed(f"{self.shown_url} refuses the request with status {status}: {said}", "see the message")

    def _retry_after(self, error: APIStatusError) -> float | None:
        value = error.response.headers.get("retry-after", "")
        try:
            return min(max(0.0, float(value)), self.rule.longest_wait_s)
        except ValueError:
            return None

    def _known_models(self) -> str:
        import openai

        try:
            known = sorted(item.id for item in self._opened().models.list(timeout=5))
        except (openai.OpenAIError, ValueError, AttributeError):
            return "check --base-url and --model"
        near = difflib.get_close_matches(self.name, known, n=3)
        return f"it has: {', '.join(near or known[:8])}" if known else "check --base-url and --model"

    def _read(self, completion: object) -> Reply | _Passing:
        choices = getattr(completion, "choices", None)
        if not choices:
            return _Passing("an answer without a choice in it")
        message, reason = choices[0].message, choices[0].finish_reason
        refusal = getattr(message, "refusal", None)
        flaw = ""
        if refusal:
            flaw = f"the model refused: {_one_line(str(refusal))}"
        elif reason == "length":
            flaw = "the reply was cut off at the endpoint's length limit"
        elif reason == "content_filter":
            flaw = "the endpoint's filter withheld the reply"
        elif not (message.content or "").strip():
            flaw = "the reply is empty"
        usage = getattr(completion, "usage", None)
        return Reply(
            text=message.content or "",
            model=self.name,
            prompt_tokens=getattr(usage, "prompt_tokens", 0) or 0,
            completion_tokens=getattr(usage, "completion_tokens", 0) or 0,
            flaw=flaw,
        )

    def _opened(self) -> OpenAI:
        if self._client is None:
            from openai import OpenAI

            self._client = OpenAI(api_key=self.key or "none", base_url=self.base_url, max_retries=0)
        return self._client

    def _drop_client(self) -> None:
        """Forget a client whose request hangs; its thread ends with its connection."""
        if self._client is not None:
            self._client.close()
            self._client = None


@dataclass(frozen=True)
class _Passing:
    """A trouble that a retry may mend; ``wait_s`` where the server says how long to wait."""

    trouble: str
    wait_s: float | None = None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
