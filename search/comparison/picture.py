"""The curves as a PNG; the only module that imports matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kx.errors import EnvironmentLacking
from search.comparison.contest import Summary


def draw(path: Path, summaries: Sequence[Summary], title: str, target: float) -> None:
    """Best score so far over evaluations: the median of each strategy with its interval.

    Args:
        path: of the PNG; title: above it.
        target: a dotted line.

    Raises:
        EnvironmentLacking: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as exc:
        raise EnvironmentLacking("matplotlib is not installed", "pip install 'kx[plots]'") from exc
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for item in summaries:
        counts = range(1, len(item.median) + 1)
        (line,) = axes.step(counts, item.median, where="post", label=f"{item.strategy} ({item.seeds} seeds)")
        axes.fill_between(counts, item.low, item.high, step="post", alpha=0.15, color=line.get_color())
    axes.axhline(target, linestyle=":", color="gray", label=f"{target:.2f}x")
    axes.set_xlabel("programs evaluated")
    axes.set_ylabel("best score so far (times the seed's speed)")
    axes.set_title(title)
    axes.legend(loc="lower right")
    axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
