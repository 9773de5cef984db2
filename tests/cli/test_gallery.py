from __future__ import annotations

from pathlib import Path

from kx.cli.gallery import GALLERY, KERNELS, render_gallery
from metalsim.model import FindingKind


def test_the_gallery_has_not_drifted(home: Path) -> None:
    assert GALLERY.read_text(encoding="utf-8") == render_gallery(), "run make docs"


def test_the_gallery_shows_every_kind_of_finding() -> None:
    shown = GALLERY.read_text(encoding="utf-8")
    missing = [kind for kind in FindingKind.__args__ if f" {kind}: " not in shown]
    assert missing == []


def test_every_kernel_has_a_launch_file() -> None:
    assert {p.stem for p in KERNELS.glob("*.metal")} == {p.stem for p in KERNELS.glob("*.json")}
