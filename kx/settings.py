"""Settings of a data folder: ``settings.toml`` in it, overridden by environment variables."""

from __future__ import annotations

import base64
import math
import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from urllib.parse import urlsplit

from kx.errors import DataMalformed
from kx.paths import Home

SETTINGS_FILE = "settings.toml"
FILES, OXIGRAPH, CHROMA = "files", "oxigraph", "chroma"
_QUERY_ENDINGS = ("query", "sparql")


@dataclass(frozen=True)
class Settings:
    """What a user can set once instead of with every command.

    Attributes:
        embedding_model: folder of a sentence-transformers model (``KX_EMBEDDING_MODEL``); empty for the
            installed all-MiniLM-L6-v2. A relative path counts from the data folder in the file, from
            the current folder in the variable.
        chip: slug of the chip that commands assume when none is named (``KX_CHIP``); empty for none.
        graph_store: where ingested sources and observations live (``KX_GRAPH_STORE``): ``files``,
            ``oxigraph``, or the query URL of a SPARQL 1.1 endpoint.
        graph_update: the endpoint's update URL (``KX_GRAPH_UPDATE``); empty for ``graph_store`` with
            ``update`` in place of a last ``query`` or ``sparql``, or else the same URL.
        graph_timeout_s: seconds that a request to an endpoint may take (``KX_GRAPH_TIMEOUT_S``).
        vector_store: where vectors live (``KX_VECTOR_STORE``): ``chroma`` for a folder in the data
            folder, or the URL of a Chroma server.
    """

    embedding_model: str = ""
    chip: str = ""
    graph_store: str = FILES
    graph_update: str = ""
    graph_timeout_s: str = "30"
    vector_store: str = CHROMA

    @classmethod
    def load(cls, home: Home) -> Settings:
        """Settings of ``home``.

        Raises:
            DataMalformed: the file does not parse, has a key that kx does not know, or a value that is
                not text; a value, here or in a variable, is none that the key can have.
        """
        path = home.root / SETTINGS_FILE
        values = _read(path)
        origins = {name: f"{path}: {name}" for name in values}
        if values.get("embedding_model"):
            values["embedding_model"] = str(home.root / Path(values["embedding_model"]).expanduser())
        for name in (field.name for field in fields(cls)):
            if variable := os.environ.get(f"KX_{name.upper()}"):
                values[name], origins[name] = variable, f"KX_{name.upper()}"
        for name, value in values.items():
            if problem := _problem(name, value):
                raise DataMalformed(f"{origins[name]} is {_without_password(value)!r}", problem)
        return cls(**values)

    @property
    def embedding_folder(self) -> Path | None:
        """Folder of the embedding model, None for the installed default."""
        return Path(self.embedding_model).expanduser() if self.embedding_model else None

    @property
    def graph_update_url(self) -> str:
        """URL that takes SPARQL updates; as ``graph_store`` where that is no URL."""
        if self.graph_update:
            return self.graph_update
        base, _, last = self.graph_store.rpartition("/")
        return f"{base}/update" if last in _QUERY_ENDINGS else self.graph_store

    @property
    def graph_timeout(self) -> float:
        """Seconds that a request to an endpoint may take."""
        return float(self.graph_timeout_s)


def credentials(prefix: str) -> dict[str, str]:
    """The Authorization header that ``<prefix>_TOKEN`` or ``<prefix>_USER`` and ``<prefix>_PASSWORD`` make.

    Raises:
        DataMalformed: only one of user and password is set.
    """
    if token := os.environ.get(f"{prefix}_TOKEN"):
        return {"Authorization": f"Bearer {token}"}
    user, password = os.environ.get(f"{prefix}_USER"), os.environ.get(f"{prefix}_PASSWORD")
    if user and password:
        pair = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
        return {"Authorization": f"Basic {pair}"}
    if user or password:
        missing = "PASSWORD" if user else "USER"
        raise DataMalformed(f"{prefix}_{missing} is not set", f"set both {prefix}_USER and {prefix}_PASSWORD")
    return {}


def checked(settings: Settings) -> Settings:
    """The same settings.

    Raises:
        DataMalformed: a value is none that its key can have.
    """
    for field in fields(Settings):
        value = str(getattr(settings, field.name))
        if problem := _problem(field.name, value):
            raise DataMalformed(f"{field.name} is {_without_password(value)!r}", problem)
    return settings


def _problem(name: str, value: str) -> str:
    """What is wrong with a value, as what to do about it; empty for a good one."""
    named = {"graph_store": (FILES, OXIGRAPH), "vector_store": (CHROMA,), "graph_update": ("",)}.get(name)
    if named is not None and value not in named:
        return _problem_of_url(value, " or ".join([*filter(None, named), "an http:// or https:// URL"]))
    if name == "graph_timeout_s":
        try:
            seconds = float(value)
        except ValueError:
            seconds = 0.0
        return "" if 0 < seconds < math.inf else "it must be a number of seconds above 0"
    return ""


def _problem_of_url(value: str, expected: str) -> str:
    try:
        url = urlsplit(value)
        well_formed = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        well_formed = False
    if not well_formed or any(character.isspace() for character in value):
        return f"it must be {expected}"
    if url.username or url.password:
        return "user and password are set in the environment, not in the URL (docs/stores.md)"
    return ""


def _without_password(value: str) -> str:
    return "…@".join([value.partition("//")[0] + "//", value.rpartition("@")[2]]) if "@" in value else value


def _read(path: Path) -> dict[str, str]:
    try:
        parsed = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as exc:
        raise DataMalformed(f"{path}: {exc}", "mend the file, or delete it to use the defaults") from exc
    known = [field.name for field in fields(Settings)]
    for key, value in parsed.items():
        if key not in known:
            raise DataMalformed(f"{path}: unknown key {key}", f"known keys: {', '.join(known)}")
        if not isinstance(value, str):
            raise DataMalformed(f"{path}: {key} is not text", f'write {key} = "..."')
    return parsed
