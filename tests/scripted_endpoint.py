"""A real HTTP server that speaks the chat completions protocol and follows a script, faults included."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "sk-test-0123456789"


@dataclass(frozen=True)
class Answer:
    """One scripted reaction.

    Attributes:
        text: content of the reply; status: HTTP status; headers: more of them.
        stall_s: silence before anything is sent; dribble: then bytes one by one, without end.
        close: hang up instead of answering; raw: send this body as it is.
    """

    text: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    finish_reason: str = "stop"
    refusal: str | None = None
    stall_s: float = 0.0
    dribble: bool = False
    close: bool = False
    raw: bytes | None = None
    error_code: str | None = None


Script = Callable[[str], Answer]
"""From the prompt to the answer."""


@dataclass
class Endpoint:
    """A running server: where it listens, and what it was asked."""

    url: str
    prompts: list[str]
    keys: list[str]
    models: list[str]
    ended: threading.Event


def in_order(*answers: Answer) -> Script:
    """The answers one after another; the last one for ever."""
    left = list(answers)

    def next_answer(prompt: str) -> Answer:
        return left.pop(0) if len(left) > 1 else left[0]

    return next_answer


@contextmanager
def serve(script: Script, known: Sequence[str] = ("scripted",)) -> Iterator[Endpoint]:
    """Run the server for the length of the block.

    Args:
        script: how to react.
        known: names of the models it has; others are answered with 404.
    """
    endpoint = Endpoint("", [], [], [], threading.Event())
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(endpoint, script, known))
    server.daemon_threads = True
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(endpoint: Endpoint, script: Script, known: Sequence[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in known]}, {})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = request["messages"][-1]["content"]
            endpoint.prompts.append(prompt)
            endpoint.models.append(request["model"])
            endpoint.keys.append(self.headers.get("Authorization", "").removeprefix("Bearer "))
            if request["model"] not in known:
                self._send(404, {"error": {"message": "no such model", "code": "model_not_found"}}, {})
                return
            self._react(script(prompt), request["model"])

        def _react(self, answer: Answer, model: str) -> None:
            endpoint.ended.wait(answer.stall_s)
            if answer.close:
                self.close_connection = True
                self.connection.close()
                return
            if answer.dribble:
                self._dribble()
                return
            if answer.raw is not None:
                self.send_response(answer.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer.raw)))
                self.end_headers()
                self.wfile.write(answer.raw)
                return
            if answer.status != 200:
                body = {"error": {"message": answer.text or "scripted", "code": answer.error_code}}
                self._send(answer.status, body, answer.headers)
                return
            message = {"role": "assistant", "content": answer.text or None, "refusal": answer.refusal}
            choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason}
            usage = {"prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200}
            body = {"id": "x", "object": "chat.completion", "created": 0, "model": model, "choices": [choice],
                    "usage": usage}  # fmt: skip
            self._send(200, body, answer.headers)

        def _dribble(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            while not endpoint.ended.is_set():
                try:
                    self.wfile.write(b" ")
                    self.wfile.flush()
                except OSError:
                    return
                time.sleep(0.05)

        def _send(self, status: int, body: dict[str, Any], headers: dict[str, str]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    return Handler
