"""Real servers on this machine for the tests of remote stores, and one that misbehaves on demand."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

import pytest

_START_S = 60.0
T = TypeVar("T")


def program(name: str, package: str) -> str:
    """Path of a program of this environment; without it the test is skipped, except in CI."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        reason = f"{name} is not installed (pip install {package})"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def started(command: Callable[[int], list[str]], ready: str, log: Path) -> Iterator[str]:
    """Run a server for the length of the block; yields its address.

    Args:
        command: for a port.
        ready: path that answers once the server is up.
        log: file for what it prints.
    """
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with log.open("wb") as output:
        process = subprocess.Popen(command(port), stdout=output, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + _START_S
            while not _answers(address + ready):
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"the server did not start: {log.read_text(errors='replace')[-2000:]}")
                time.sleep(0.05)
            yield address
        finally:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


@contextmanager
def oxigraph_server(folder: Path, *options: str) -> Iterator[str]:
    """Oxigraph's SPARQL server with data in memory; yields its address."""
    binary = program("oxigraph", "oxigraph")
    with started(
        lambda port: [binary, "serve", "--bind", f"127.0.0.1:{port}", *options], "/", folder / "oxigraph.log"
    ) as address:
        yield address


@contextmanager
def chroma_server(folder: Path) -> Iterator[str]:
    """Chroma's own server; yields its address."""
    binary = program("chroma", "chromadb")
    with started(
        lambda port: [binary, "run", "--host", "127.0.0.1", "--port", str(port), "--path", str(folder / "data")],
        "/api/v2/heartbeat",
        folder / "chroma.log",
    ) as address:
        yield address


Respond = Callable[[BaseHTTPRequestHandler, bytes], None]


@contextmanager
def serving(respond: Respond) -> Iterator[str]:
    """An HTTP server that answers each request as ``respond`` does; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            respond(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

        do_GET = do_POST = do_DELETE = do_PUT = _answer

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def send(handler: BaseHTTPRequestHandler, code: int, body: bytes, **headers: str) -> None:
    handler.send_response(code)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def guarded(target: str, authorization: str) -> Respond:
    """Passes requests on to a server, if they bear the expected Authorization header."""

    def respond(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if handler.headers.get("Authorization") != authorization:
            send(handler, 401, b"who are you?", Content_Type="text/plain")
            return
        kept = {name: handler.headers[name] for name in ("Content-Type", "Accept") if name in handler.headers}
        request = urllib.request.Request(target + handler.path, body or None, kept, method=handler.command)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                send(handler, answer.status, answer.read(), Content_Type=answer.headers.get("Content-Type") or "")
        except urllib.error.HTTPError as error:
            send(handler, error.code, error.read(), Content_Type="text/plain")

    return respond
