"""The build of the wheel: it has the JSON Schema of configs, which is not kept in git. pyproject.toml has all else."""

import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithSchema(build_py):
    """Copy the package, then write the schema into the copy.

    An isolated build does not have raysim's dependencies. `raysim new` then makes the schema when it is needed.
    """

    def run(self) -> None:
        """Build the package."""
        super().run()
        if self.editable_mode:  # nothing is copied
            return
        command = [sys.executable, "-B", "-m", "raysim", "check", "--schema"]
        done = subprocess.run(command, cwd=self.build_lib, capture_output=True, text=True)
        file = Path(self.build_lib, "raysim", "config", "raysim.schema.json")
        if done.returncode == 0:
            file.write_text(done.stdout, encoding="utf-8")
        else:
            file.unlink(missing_ok=True)  # of a build before
            reason = (done.stderr.strip().splitlines() or ["unknown"])[-1]
            self.warn(f"{file.name} is left out of the wheel ({reason}); raysim new makes it when it is needed")


setup(cmdclass={"build_py": BuildWithSchema})
