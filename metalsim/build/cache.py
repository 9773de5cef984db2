"""The folder of compiled kernels: entries are checked when read, appear by rename, and old ones go.

An entry is a description (JSON) and the library that it names; the library's name holds its own hash. Whatever is
cut short, empty or changed does not fit and is built again, so a crash at any moment costs one compilation only.
The folder can be deleted at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from metalsim.build.blocks import BlockProfile
from metalsim.build.instrument import Instrumented, Site
from metalsim.errors import EnvironmentLacking

MAX_BYTES = 2 << 30
"""Above this, entries that were not used for longest are removed."""

_FORMAT = 1
_IN_USE_S = 3600.0
_ABANDONED_S = 86400.0
_HASH_LENGTH = 24
_PRUNE_EVERY = 64  # stored entries, by chance of their keys


class CacheFolder:
    """Files by key, under ``metalsim`` in a cache folder.

    Args:
        root: the cache folder; created when needed.

    Raises:
        EnvironmentLacking: it cannot be created.
    """

    def __init__(self, root: Path) -> None:
        self.path = root.resolve() / "metalsim"
        with explained(self.path):
            self.path.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def workplace(self) -> Iterator[Path]:
        """A folder to build in, on the same file system; removed at the end.

        Raises:
            EnvironmentLacking: files cannot be written there.
        """
        with explained(self.path):
            name = tempfile.mkdtemp(prefix="build-", dir=self.path)
        try:
            with explained(self.path):
                yield Path(name)
        finally:
            shutil.rmtree(name, ignore_errors=True)

    def object_file(self, key: str) -> Path | None:
        """The object file stored under a key, if it is whole."""
        return next((path for path in self.path.glob(f"{key}-*.o") if _is_whole(path)), None)

    def store_object(self, key: str, built: Path) -> Path:
        """Move an object file into the cache."""
        return self._store(key, built, ".o")

    def kernel(self, key: str) -> tuple[Path, Instrumented] | None:
        """The library stored under a key, and its sites and blocks; None when there is none or it is damaged."""
        try:
            described = json.loads((self.path / f"{key}.json").read_text(encoding="utf-8"))
            library = self.path / str(described["library"])
            if described["format"] != _FORMAT or library.parent != self.path or not _is_whole(library):
                return None
            sites = tuple(Site(**item) for item in described["sites"])
            blocks = tuple(BlockProfile(**_with_tuples(item)) for item in described["blocks"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        for path in (library, self.path / f"{key}.json"):
            with contextlib.suppress(OSError):
                os.utime(path)
        return library, Instrumented("", sites, blocks)

    def store_kernel(self, key: str, built: Path, instrumented: Instrumented) -> Path:
        """Move a library into the cache; its description comes last, so that it never lacks its library."""
        library = self._store(key, built, ".so")
        described = {
            "format": _FORMAT,
            "library": library.name,
            "sites": [asdict(site) for site in instrumented.sites],
            "blocks": [asdict(block) for block in instrumented.blocks],
        }
        text = built.with_suffix(".json")
        text.write_text(json.dumps(described), encoding="utf-8")
        text.replace(self.path / f"{key}.json")
        if int(key[:4], 16) % _PRUNE_EVERY == 0:
            self.prune(MAX_BYTES)
        return library

    def _store(self, key: str, built: Path, suffix: str) -> Path:
        target = self.path / f"{key}-{_hash(built)}{suffix}"
        built.replace(target)
        return target

    def prune(self, max_bytes: int) -> None:
        """Remove what was used least recently until ``max_bytes`` remain; nothing used within the last hour."""
        now, files = time.time(), []
        for path in self.path.iterdir():
            with contextlib.suppress(OSError):
                status = path.stat()
                if path.name.startswith("build-") and now - status.st_mtime > _ABANDONED_S:
                    shutil.rmtree(path, ignore_errors=True)
                elif path.is_file():
                    files.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for used, size, path in sorted(files):
            if total <= max_bytes or now - used < _IN_USE_S:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:_HASH_LENGTH]


def _is_whole(path: Path) -> bool:
    try:
        return _hash(path) == path.stem.rpartition("-")[2]
    except OSError:
        return False


def _with_tuples(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _tuple(value) for name, value in item.items()}


def _tuple(value: Any) -> Any:
    return tuple(_tuple(part) for part in value) if isinstance(value, list) else value


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn a file error into one that says what to do."""
    try:
        yield
    except OSError as exc:
        raise EnvironmentLacking(
            f"cannot write to the cache folder {folder}: {exc.strerror or exc}",
            "free some space, or choose another cache folder",
        ) from exc
