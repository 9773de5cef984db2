"""Structural detectors of optimization concepts: every module here registers its detectors by slug."""

from __future__ import annotations

import importlib
import pkgutil

from ingest.registry import detect, registered, versions_digest

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["detect", "registered", "versions_digest"]
