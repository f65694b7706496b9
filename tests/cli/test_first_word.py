"""Before torch and Ray are imported, which may take long, a command says on a terminal what it does."""

import json
import subprocess
import sys
from pathlib import Path

COMMANDS = {
    "run": ["run", "quickstart"],
    "quiet run": ["run", "quickstart", "--local", "--quiet"],
    "resumed run": ["run", "--resume", "--out", "none", "--local"],
    "check": ["check", "quickstart"],
    "sweep": ["sweep", "methods"],
    "report": ["report", "."],
    "evaluate": ["evaluate", "."],
    "show": ["show", "quickstart"],
    "list": ["list", "methods"],
    "download": ["download", "quickstart"],
    "help": ["--help"],
}
SCRIPT = """
import json, os, sys

class Wall:
    "Interrupts the import of what takes long."
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "ray", "matplotlib"):
            raise KeyboardInterrupt

sys.meta_path.insert(0, Wall())
from raysim.cli import main
main(["--help"])
light = "rich" not in sys.modules and "pydantic" not in sys.modules
found = {}
for name, argv in json.loads(sys.argv[1]).items():
    leader, follower = os.openpty()
    sys.stdout = os.fdopen(follower, "w")
    status = main(argv)
    sys.stdout.close()
    sys.stdout = sys.__stdout__
    shown = b""
    try:
        while piece := os.read(leader, 65536):
            shown += piece
    except OSError:  # the terminal's end of file
        pass
    found[name] = [status, shown.decode()]
print(json.dumps([light, found]), file=sys.stderr)
"""


def test_the_first_word_comes_before_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, json.dumps(COMMANDS)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    light, found = json.loads(done.stderr.splitlines()[-1])
    assert light  # the help imports neither the display nor the configs
    assert found.pop("help")[0] == 0
    assert found.pop("quiet run") == [130, ""]
    assert {status for status, _ in found.values()} == {130}
    for name, (_, shown) in found.items():
        assert "loading PyTorch 0:00:0" in shown, name
        assert shown.rstrip("\x1b[?25h").endswith("\x1b[2K"), name  # the line is deleted
