"""``python -m kx.cli.gallery``: write docs/metalsim-gallery.md from the kernels in docs/gallery and what they give."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

from kx.cli import main
from kx.paths import write_atomically

_DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
KERNELS = _DOCS / "gallery"
GALLERY = _DOCS / "metalsim-gallery.md"
_TIME_LIMIT_S = "2"
_HEADING = """# Gallery: what the checks find

Each kernel of [gallery/](gallery) with one fault, and what `kx metal run FILE --launch FILE.json` says of it; the
last one has none. Written by `make docs` from real runs. The checks are described in [metalsim.md](metalsim.md), the
launch files in [metalsim-launch.md](metalsim-launch.md).
"""


def render_gallery() -> str:
    """The text of docs/metalsim-gallery.md; runs every kernel."""
    sections = [_HEADING]
    with contextlib.chdir(KERNELS):
        for path in sorted(Path().glob("*.metal")):
            title = path.stem.partition("-")[2].replace("-", " ")
            text = path.read_text(encoding="utf-8").rstrip("\n")
            launch = f"{path.stem}.json"
            said = _run(
                "metal", "run", path.name, "--launch", launch, "--chip", "m1-max", "--time-limit", _TIME_LIMIT_S
            )
            sections.append(
                f"## {title.capitalize()}\n\n```cpp\n{text}\n```\n\n"
                f"```text\n$ kx metal run {path.name} --launch {launch}\n{said}\n```\n"
            )
    return "\n".join(sections)


def _run(*arguments: str) -> str:
    said = io.StringIO()
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        contextlib.suppress(SystemExit),
    ):
        main.main(list(arguments), prog_name="kx")
    return "\n".join(line.rstrip() for line in said.getvalue().splitlines()).strip("\n")


if __name__ == "__main__":
    os.environ.pop("KX_CHIP", None)
    write_atomically(GALLERY, render_gallery())
