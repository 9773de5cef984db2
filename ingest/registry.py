"""Registry of detectors: one function per concept, with a version.

A detector takes a ``SyntaxView`` and yields findings, the clearest first or not; the most confident
one is reported. A file added to this folder registers itself: the package imports every module in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ingest.model import Detection
from ingest.syntax import Function, Span, SyntaxView


@dataclass(frozen=True)
class Finding:
    """One place where a technique shows.

    Attributes:
        span: the telling code.
        why: what convinced the detector, with the identifiers it saw.
        confidence: 0 to 1; below 0.5 means that reasonable readers may differ.
    """

    span: Span
    why: str
    confidence: float = 0.9


Detector = Callable[[SyntaxView], Iterator[Finding]]


@dataclass(frozen=True)
class Registered:
    """A detector with its identity ``slug@version``."""

    slug: str
    version: int
    find: Detector

    @property
    def name(self) -> str:
        """Identity in evidence."""
        return f"{self.slug}@{self.version}"


_REGISTRY: dict[str, Registered] = {}


def detector(slug: str, version: int = 1) -> Callable[[Detector], Detector]:
    """Register the decorated function as the detector of ``slug``."""

    def register(find: Detector) -> Detector:
        if slug in _REGISTRY:
            raise ValueError(f"two detectors for {slug}")
        _REGISTRY[slug] = Registered(slug, version, find)
        return find

    return register


def registered() -> tuple[Registered, ...]:
    """All detectors, by slug."""
    return tuple(_REGISTRY[slug] for slug in sorted(_REGISTRY))


def versions_digest() -> str:
    """A name of the whole set of detectors and their versions; changes when any of them does."""
    names = " ".join(entry.name for entry in registered())
    return hashlib.sha256(names.encode("utf-8")).hexdigest()[:16]


def detect(view: SyntaxView) -> tuple[Detection, ...]:
    """The most confident finding of every detector that found something, by first line, then slug."""
    detections = []
    for entry in registered():
        findings = list(entry.find(view))
        if findings:
            best = max(findings, key=lambda finding: finding.confidence)
            detections.append(_as_detection(view, entry, best))
    return tuple(sorted(detections, key=lambda d: (d.first_line, d.slug)))


def _as_detection(view: SyntaxView, entry: Registered, finding: Finding) -> Detection:
    function = view.function_at(finding.span.start)
    last = max(finding.span.start, finding.span.end - 1)
    return Detection(
        slug=entry.slug,
        first_line=view.line(finding.span.start),
        last_line=view.line(last),
        confidence=round(finding.confidence, 2),
        why=" ".join(finding.why.split()),
        kernel=_owner(view, function),
        detector=entry.name,
    )


def _owner(view: SyntaxView, function: Function | None) -> str:
    """Name of the kernel that code serves: its own, or the only one that reaches it; else the function's name."""
    if function is None:
        return ""
    if function.is_kernel:
        return function.name
    kernels = [kernel.name for kernel in view.kernels if function.name in view.reached_from(kernel)]
    return kernels[0] if len(kernels) == 1 else function.name
