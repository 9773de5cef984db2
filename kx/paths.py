"""Where kx keeps its data: one folder, named by ``KX_HOME``, ``.kx`` of the current folder by default."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kx.errors import FileUnreadable, StoreUnreachable


@dataclass(frozen=True)
class Home:
    """The data folder. Nothing is created until something is written.

    Attributes:
        root: the folder itself.
    """

    root: Path

    @classmethod
    def from_environment(cls) -> Home:
        """The folder that ``KX_HOME`` names, else ``.kx`` in the current folder.

        Raises:
            FileUnreadable: the name is taken by something that is not a folder.
        """
        home = cls.named_by_environment()
        if home.root.exists() and not home.root.is_dir():
            raise FileUnreadable(
                f"the data folder {home.root} is not a folder", "set KX_HOME to a folder, or to a new name"
            )
        return home

    @classmethod
    def named_by_environment(cls) -> Home:
        """As ``from_environment``, whatever is there: for a command that examines it."""
        return cls(Path(os.environ.get("KX_HOME") or ".kx").resolve())

    @property
    def graph(self) -> Path:
        """Named graphs: one Turtle file per ingested source, and the observations."""
        return self.root / "graph"

    @property
    def index(self) -> Path:
        """The vector store and the lexical index."""
        return self.root / "index"

    @property
    def cache(self) -> Path:
        """Compiled kernels; safe to delete at any time."""
        return self.root / "cache"

    @property
    def runs(self) -> Path:
        """One folder per search run."""
        return self.root / "runs"


def write_atomically(path: Path, text: str) -> None:
    """Write ``text`` (UTF-8) so that a reader sees the old file or the new one, never a part.

    The parent folder is created. The data is fsynced before the rename.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise


@contextlib.contextmanager
def exclusive(lock_file: Path) -> Iterator[None]:
    """Hold an advisory lock on ``lock_file`` (created when absent) for the length of the block."""
    import fcntl

    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("w", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(stream, fcntl.LOCK_UN)


@contextlib.contextmanager
def waiting_lock(lock_file: Path, *, shared: bool, timeout_s: float, what: str) -> Iterator[None]:
    """Hold an advisory lock for the length of the block, with others (``shared``) or alone.

    Args:
        lock_file: created when absent.
        shared: whether other holders of shared locks are let in.
        timeout_s: how long to wait for others.
        what: what the lock guards, in words.

    Raises:
        StoreUnreachable: others hold it longer than ``timeout_s``.
    """
    import fcntl

    lock_file.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + timeout_s
    with lock_file.open("a+", encoding="utf-8") as stream:
        while True:
            try:
                fcntl.flock(stream, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
                break
            except BlockingIOError as exc:
                if time.monotonic() > deadline:
                    raise StoreUnreachable(
                        f"{what} is in use by another kx for more than {timeout_s:g} s",
                        "wait for that process to end, or end it, then run the command again",
                    ) from exc
                time.sleep(_LOCK_POLL_S)
        try:
            yield
        finally:
            fcntl.flock(stream, fcntl.LOCK_UN)


_LOCK_POLL_S = 0.02
