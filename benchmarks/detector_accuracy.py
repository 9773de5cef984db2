"""Precision and recall of the detectors against hand labels of public files.

    python -m benchmarks.detector_accuracy --labels FILE.jsonl --sources DIR [--threshold 0.5] [--verbose]

DIR holds the labelled files as ``<owner>+<repository>/<path>``, at the labelled commits; they are
other people's code and never part of this repository. Ambiguous concepts are not scored; labels that
are not sure count for neither precision nor recall.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest.detectors import detect, versions_digest
from ingest.model import Detection
from ingest.parse import parse
from ingest.text import decode


@dataclass
class Score:
    """Counts over all files: true and false reports, misses, and reports whose lines meet the label's."""

    hits: Counter[str] = field(default_factory=Counter)
    false_reports: Counter[str] = field(default_factory=Counter)
    misses: Counter[str] = field(default_factory=Counter)
    tempted: Counter[str] = field(default_factory=Counter)
    tempting: int = 0
    near: int = 0

    def precision(self, slug: str | None = None) -> float:
        """Share of the reports that a label confirms, over all concepts or for one; NaN without reports."""
        return share(self._count(self.hits, slug), self._count(self.false_reports, slug))

    def recall(self, slug: str | None = None) -> float:
        """Share of the sure labels that were reported, over all concepts or for one; NaN without labels."""
        return share(self._count(self.hits, slug), self._count(self.misses, slug))

    def f1(self, slug: str | None = None) -> float:
        """Harmonic mean of precision and recall (micro average where ``slug`` is None)."""
        hits = self._count(self.hits, slug)
        return share(2 * hits, self._count(self.false_reports, slug) + self._count(self.misses, slug))

    @staticmethod
    def _count(counts: Counter[str], slug: str | None) -> int:
        return counts.total() if slug is None else counts[slug]


def share(hits: int, others: int) -> float:
    """``hits`` over ``hits + others``, NaN where both are 0."""
    return hits / (hits + others) if hits + others else float("nan")


def score_file(label: dict[str, Any], detections: list[Detection], score: Score, verbose: bool) -> None:
    """Add one file to the score."""
    found = {d.slug: d for d in detections}
    sure = {slug for slug, entry in label["concepts"].items() if entry["sure"]}
    present = set(label["concepts"])
    ambiguous = set(label["ambiguous"])
    score.tempting += len(label["absent_but_tempting"])
    lines = []
    for slug, detection in sorted(found.items()):
        if slug in sure:
            score.hits[slug] += 1
            first, last = label["concepts"][slug]["lines"]
            score.near += detection.first_line <= last + 3 and detection.last_line >= first - 3
        elif slug not in present | ambiguous:
            score.false_reports[slug] += 1
            score.tempted[slug] += slug in label["absent_but_tempting"]
            reason = label["absent_but_tempting"].get(slug, "")
            lines.append(
                f"  false  {slug} {detection.first_line}-{detection.last_line} {detection.confidence} "
                f"{detection.why} | {reason}"
            )
    for slug in sorted(sure - set(found)):
        score.misses[slug] += 1
        lines.append(f"  missed {slug} {label['concepts'][slug]['lines']} {label['concepts'][slug]['why']}")
    if verbose and lines:
        print(f"{label['repo']} {label['path']}", *lines, sep="\n")


def print_score(score: Score) -> None:
    """Print the micro figures, the tempting absences that were reported, and a line per concept."""
    print(f"precision {score.precision():.3f} ({score.hits.total()} right, {score.false_reports.total()} false)")
    print(f"recall    {score.recall():.3f} ({score.misses.total()} missed)")
    print(f"F1        {score.f1():.3f} (micro)")
    tempted = score.tempted.total()
    print(f"tempting  {tempted} of {score.tempting} reported ({tempted / max(score.tempting, 1):.1%})")
    print(f"lines     {score.near} of {score.hits.total()} within 3 lines of the label")
    print(f"\n{'concept':32s} right false missed tempting precision recall    F1")
    for slug in sorted(set(score.hits) | set(score.false_reports) | set(score.misses)):
        counts = (score.hits[slug], score.false_reports[slug], score.misses[slug], score.tempted[slug])
        print(
            f"{slug:32s} {counts[0]:5d} {counts[1]:5d} {counts[2]:6d} {counts[3]:8d} "
            f"{score.precision(slug):9.2f} {score.recall(slug):6.2f} {score.f1(slug):5.2f}"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=Path, required=True, help="JSONL, one labelled file a line")
    parser.add_argument("--sources", type=Path, required=True, help="folder of <owner>+<repository>/<path>")
    parser.add_argument("--threshold", type=float, default=0.5, help="report detections of at least this confidence")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    score, files, started = Score(), 0, time.perf_counter()
    for text in options.labels.read_text(encoding="utf-8").splitlines():
        label = json.loads(text)
        path = options.sources / label["repo"].replace("/", "+") / label["path"]
        if not path.exists():
            print(f"absent: {path}")
            continue
        files += 1
        detections = [d for d in detect(parse(decode(path.read_bytes()))) if d.confidence >= options.threshold]
        score_file(label, detections, score, options.verbose)
    seconds = time.perf_counter() - started
    print(f"Python {platform.python_version()}, detectors {versions_digest()}, threshold {options.threshold}")
    print(f"{files} files in {seconds:.2f} s")
    print_score(score)


if __name__ == "__main__":
    main()
