"""Precision and recall of the detectors against hand labels of public files.

    python benchmarks/detector_accuracy.py LABELS.jsonl SOURCES [--threshold 0.5] [--verbose]

SOURCES holds the labelled files as ``<owner>+<repository>/<path>``, at the labelled commits; they are
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
    near: int = 0

    def ratio(self, other: Counter[str]) -> float:
        """Hits over hits plus ``other``."""
        hits = self.hits.total()
        return hits / (hits + other.total()) if hits else 0.0


def score_file(label: dict[str, Any], detections: list[Detection], score: Score, verbose: bool) -> None:
    """Add one file to the score."""
    found = {d.slug: d for d in detections}
    sure = {slug for slug, entry in label["concepts"].items() if entry["sure"]}
    present = set(label["concepts"])
    ambiguous = set(label["ambiguous"])
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", type=Path)
    parser.add_argument("sources", type=Path)
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
    precision, recall = score.ratio(score.false_reports), score.ratio(score.misses)
    print(f"Python {platform.python_version()}, detectors {versions_digest()}, threshold {options.threshold}")
    print(f"{files} files in {seconds:.2f} s")
    print(
        f"precision {precision:.3f} ({score.hits.total()} right, {score.false_reports.total()} false, "
        f"{score.tempted.total()} of them tempting)"
    )
    print(f"recall    {recall:.3f} ({score.misses.total()} missed)")
    print(f"lines     {score.near} of {score.hits.total()} within 3 lines of the label")


if __name__ == "__main__":
    main()
