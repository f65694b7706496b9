"""Names that moved: importing one from where it was fails with the line that says where it is now."""

from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

API = "raysim.api"
MODULES = {
    "raysim.client": API,
    "raysim.messages": API,
    "raysim.method": API,
    "raysim.server": API,
    "raysim.training": API,
    "raysim.errors": "raysim.system.errors",
    "raysim.iag": "raysim.algorithms.parts.gradient_table",
    "raysim.projection": "raysim.algorithms.parts.projection",
    "raysim.replay": "raysim.algorithms.parts.replay",
    "raysim.sample_gradients": "raysim.algorithms.parts.sample_gradients",
    "raysim.evaluating": "raysim.evaluation.evaluate",
    "raysim.metrics": "raysim.evaluation.metrics",
    "raysim.result": "raysim.records.result",
    "raysim.running": "raysim.launch.run",
    "raysim.sampling": "raysim.engine.samplers",
    "raysim.stream": "raysim.federation.stream",
    "raysim.vector": "raysim.models.flat",
}
NAMES = dict.fromkeys(("Ask", "ClientHalf", "Delta", "Method", "Plan", "Post", "ServerHalf", "Term"), API)


def where(old: str, new: str) -> str:
    """Return the line that sends the reader of an old import to the new one."""
    return f"{old} has moved: import from {new} instead"


class Signpost(MetaPathFinder):
    """Finds no module, and says of one that moved where it is. It stands last, after all that do find modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find nothing.

        Raises:
            ImportError: the module has moved.
        """
        if fullname in MODULES:
            raise ImportError(where(fullname, MODULES[fullname]), name=fullname)
        return None
