"""One line per family and element type of raw results: ``python -m benchmarks.mlx_families.summary FILE...``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def rows(launches: list[dict[str, Any]]) -> list[str]:
    """Markdown lines, in the order in which families and types first appear."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for launch in launches:
        groups.setdefault((launch["family"], launch["dtype"]), []).append(launch)
    lines = []
    for (family, dtype), members in groups.items():
        compared = [m for m in members if not m["stopped"] and not m["failure"]]
        right = sum(m["error"] <= m["tolerance"] for m in compared)
        worst = max(compared, key=lambda m: m["error"] / m["tolerance"] if m["tolerance"] else m["error"])
        findings = sum(len(m["findings"]) for m in members)
        lines.append(
            f"| {family} | {dtype} | {len({m['entry'] for m in members})} | {len(members)} | {right} "
            f"| {worst['error']:.1g} / {worst['tolerance']:.1g} | {findings - sum(m['known'] for m in members)} "
            f"| {sum(m['known'] for m in members)} |"
        )
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    launches = [
        x for file in parser.parse_args().files for x in json.loads(file.read_text(encoding="utf-8"))["launches"]
    ]
    print("| family | dtype | kernels | launches | right | worst error / tolerance | other findings | real faults |")
    print("|---|---|---|---|---|---|---|---|", *rows(launches), sep="\n")


if __name__ == "__main__":
    main()
