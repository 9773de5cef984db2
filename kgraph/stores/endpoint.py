"""A SPARQL 1.1 endpoint over HTTP, by the standard library: a few whole requests need no more.

Credentials come from the environment only, so that none stands in a file: ``KX_GRAPH_TOKEN``, or
``KX_GRAPH_USER`` and ``KX_GRAPH_PASSWORD``. A redirect is an error, not followed: it would turn an update
into a reading, or carry the credentials elsewhere.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from typing import IO, Any
from urllib.parse import urlencode

from kgraph.stores.embedded import triples_of
from kgraph.stores.sparql import Answer, declared, plain, refused
from kgraph.triples import Node, Value
from kx.errors import DataMalformed, KxError, StoreUnreachable
from kx.settings import Settings, credentials

_TRIPLES = "application/n-triples"
_ACCEPTED = f"application/sparql-results+json, {_TRIPLES};q=0.9"
# How servers are told that patterns outside of GRAPH match in all graphs: Oxigraph's parameter, which others
# ignore (many match so anyway), then Jena's name for the union.
_UNIONS: tuple[Mapping[str, str], ...] = (
    {"union-default-graph": "true"},
    {"default-graph-uri": "urn:x-arq:UnionGraph"},
)
_SHOWN = 200


class Endpoint:
    """`kgraph.stores.sparql.Engine` of a remote server.

    Args:
        query_url: answers queries.
        update_url: takes updates.
        timeout_s: for a request, without connection or answer.
        headers: sent with each request.
    """

    def __init__(self, query_url: str, update_url: str, timeout_s: float, headers: Mapping[str, str]) -> None:
        self.place = f"SPARQL endpoint {query_url}"
        self.is_shared = True
        self._query_url = query_url
        self._update_url = update_url
        self._timeout_s = timeout_s
        self._headers = dict(headers)
        self._union: Mapping[str, str] | None = None
        self._opener = urllib.request.build_opener(_NoRedirect)

    @classmethod
    def of(cls, settings: Settings) -> Endpoint:
        """The endpoint that the settings name, with the credentials of the environment."""
        return cls(settings.graph_store, settings.graph_update_url, settings.graph_timeout, credentials("KX_GRAPH"))

    def query(self, text: str) -> Answer:
        """As ``Engine.query``."""
        if self._union is None:
            self._union = self._find_union()
        return self._query(text, self._union)

    def update(self, text: str) -> None:
        """As ``Engine.update``; atomic where the server carries out a request as one transaction."""
        self._send(self._update_url, text, "application/sparql-update", writes=True)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """As ``Engine.reading``; there is nothing to keep open."""
        yield

    @contextmanager
    def writing(self) -> Iterator[None]:
        """As ``Engine.writing``; others are kept out by comparing revisions."""
        yield

    def close(self) -> None:
        """As ``Engine.close``."""

    def _find_union(self) -> Mapping[str, str]:
        """The parameters under which the default graph is the union of all; the first if there is no data yet."""
        inside = "ASK { GRAPH ?g { ?s ?p ?o } }"
        if not self._query(inside, {}).truth:
            return _UNIONS[0]
        for parameters in _UNIONS:
            if self._query("ASK { ?s ?p ?o }", parameters).truth:
                return parameters
        return {}

    def _query(self, text: str, parameters: Mapping[str, str]) -> Answer:
        url = self._query_url
        if parameters:
            url += ("&" if "?" in url else "?") + urlencode(parameters)
        body, kind = self._send(url, declared(text), "application/sparql-query", writes=False)
        try:
            return triples_of(body) if kind == _TRIPLES else _decode(json.loads(body))
        except (ValueError, KeyError, TypeError, AttributeError, SyntaxError) as exc:
            raise self._not_sparql(_first_line(body)) from exc

    def _send(self, url: str, text: str, kind: str, *, writes: bool) -> tuple[bytes, str]:
        headers = {**self._headers, "Content-Type": f"{kind}; charset=utf-8", "Accept": _ACCEPTED, "User-Agent": "kx"}
        request = urllib.request.Request(url, text.encode("utf-8"), headers, method="POST")
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                return bytes(response.read()), response.headers.get_content_type()
        except urllib.error.HTTPError as exc:
            with exc:
                raise self._refusal(exc, writes=writes) from exc
        except TimeoutError as exc:
            raise self._lost(f"did not answer within {self._timeout_s:g} s", writes=writes) from exc
        except urllib.error.URLError as exc:
            if isinstance(exc.reason, TimeoutError):
                raise self._lost(f"cannot be reached within {self._timeout_s:g} s", writes=False) from exc
            raise self._lost(f"cannot be reached: {_reason(exc)}", writes=False) from exc
        except (http.client.HTTPException, ConnectionError) as exc:
            raise self._lost(f"dropped the connection: {_reason(exc)}", writes=writes) from exc
        except UnicodeError as exc:
            raise DataMalformed(f"{url} is no URL: {exc}", "mend graph_store") from exc

    def _refusal(self, error: urllib.error.HTTPError, *, writes: bool) -> KxError:
        said = f"HTTP {error.code}: {_first_line(error.read()) or error.reason}"
        setting = "graph_update" if writes else "graph_store"
        if error.code in (401, 403):
            return StoreUnreachable(
                f"{self.place} refuses {'to be written' if writes else 'to be read'} ({said})",
                "set KX_GRAPH_TOKEN, or KX_GRAPH_USER and KX_GRAPH_PASSWORD, to credentials that may",
            )
        if error.code == http.HTTPStatus.BAD_REQUEST and not writes:
            return refused(said)
        if error.code in range(300, 400):
            return DataMalformed(f"{self.place} redirects to {error.headers.get('Location')}", f"set {setting} to that")
        if error.code in (404, 405, 406, 410, 415):
            url = self._update_url if writes else self._query_url
            return DataMalformed(
                f"{url} takes no SPARQL {'update' if writes else 'query'} ({said})",
                f"set {setting} to the server's URL for that, such as https://host/{'update' if writes else 'query'}",
            )
        return StoreUnreachable(
            f"{self.place} failed ({said})", _AGAIN if writes else "look into the server's log, then run it again"
        )

    def _lost(self, what: str, *, writes: bool) -> StoreUnreachable:
        if writes:
            return StoreUnreachable(f"{self.place} {what}; whether the last change arrived is not known", _AGAIN)
        return StoreUnreachable(f"{self.place} {what}", "start the server, mend graph_store, or raise graph_timeout_s")

    def _not_sparql(self, said: str) -> DataMalformed:
        return DataMalformed(
            f"{self._query_url} does not answer as a SPARQL endpoint does: {said}",
            "set graph_store to the server's URL for queries, such as https://host/query",
        )


_AGAIN = "run the command again: each graph is replaced as a whole, so nothing is left half done"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Follow none."""


def _decode(answer: Mapping[str, Any]) -> Answer:
    if "boolean" in answer:
        return Answer(truth=bool(answer["boolean"]))
    columns = tuple(answer["head"]["vars"])
    rows = tuple(
        tuple(_plain(binding[column]) if column in binding else None for column in columns)
        for binding in answer["results"]["bindings"]
    )
    return Answer(columns, rows)


def _plain(term: Mapping[str, str]) -> Value:
    if term["type"] == "uri":
        return Node(term["value"])
    if term["type"] == "bnode":
        return Node(f"_:{term['value']}")
    return plain(term["value"], term.get("datatype", ""))


def _first_line(body: bytes) -> str:
    text = body.decode("utf-8", errors="replace").strip()
    first = text.splitlines()[0] if text else ""
    return first if len(first) <= _SHOWN else f"{first[:_SHOWN]}…"


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    return str(getattr(reason, "strerror", None) or reason) or type(error).__name__
