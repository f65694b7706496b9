"""The gallery's figures: runs the commands of docs/gallery.md, as they are there, in the folder .gallery.

python tools/gallery.py
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "gallery.md"
FOLDER = ROOT / ".gallery"
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.DOTALL | re.MULTILINE)


def make_figures(page: Path = PAGE, folder: Path = FOLDER) -> None:
    """Carry out the commands of a page's bash blocks in a new folder.

    Raises:
        CalledProcessError: one of them failed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for commands in BLOCK.findall(page.read_text(encoding="utf-8")):
        subprocess.run(["bash", "-ec", commands], cwd=folder, env={**os.environ, "PATH": programs}, check=True)


if __name__ == "__main__":
    make_figures()
