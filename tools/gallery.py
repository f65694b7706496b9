"""The site's figures: runs the commands of docs/gallery.md, as they are there, in the folder .gallery.

It also runs the commands of docs/scenarios.md that draw a stream. The page's runs are not needed for a figure.

python tools/gallery.py
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from raysim.system.console import make_console, print_line

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "gallery.md"
STREAMS = ROOT / "docs" / "scenarios.md"
FOLDER = ROOT / ".gallery"
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.DOTALL | re.MULTILINE)
DRAWING = re.compile(r"^raysim show .*\n", re.MULTILINE)


def make_figures(page: Path = PAGE, folder: Path = FOLDER, streams: Path | None = STREAMS) -> None:
    """Carry out the commands of a page's bash blocks in a new folder, and those of another page that draw a stream.

    Raises:
        CalledProcessError: one of them failed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    blocks: list[str] = BLOCK.findall(page.read_text(encoding="utf-8"))
    if streams is not None:
        blocks += DRAWING.findall(streams.read_text(encoding="utf-8"))
    console = make_console(sys.stdout)
    for number, commands in enumerate(blocks, 1):
        print_line(console, f"figures, commands {number} of {len(blocks)}: {commands.splitlines()[0]}")
        subprocess.run(["bash", "-ec", commands], cwd=folder, env={**os.environ, "PATH": programs}, check=True)


if __name__ == "__main__":
    make_figures()
