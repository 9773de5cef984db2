"""Settings of a data folder: ``settings.toml`` in it, overridden by environment variables."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from kx.errors import DataMalformed
from kx.paths import Home

SETTINGS_FILE = "settings.toml"


@dataclass(frozen=True)
class Settings:
    """What a user can set once instead of with every command.

    Attributes:
        embedding_model: folder of a sentence-transformers model (``KX_EMBEDDING_MODEL``); empty for the
            installed all-MiniLM-L6-v2. A relative path counts from the data folder in the file, from
            the current folder in the variable.
        chip: slug of the chip that commands assume when none is named (``KX_CHIP``); empty for none.
    """

    embedding_model: str = ""
    chip: str = ""

    @classmethod
    def load(cls, home: Home) -> Settings:
        """Settings of ``home``.

        Raises:
            DataMalformed: the file does not parse, has a key that kx does not know, or a value that is
                not text.
        """
        values = _read(home.root / SETTINGS_FILE)
        if values.get("embedding_model"):
            values["embedding_model"] = str(home.root / Path(values["embedding_model"]).expanduser())
        for name in (field.name for field in fields(cls)):
            if variable := os.environ.get(f"KX_{name.upper()}"):
                values[name] = variable
        return cls(**values)

    @property
    def embedding_folder(self) -> Path | None:
        """Folder of the embedding model, None for the installed default."""
        return Path(self.embedding_model).expanduser() if self.embedding_model else None


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
