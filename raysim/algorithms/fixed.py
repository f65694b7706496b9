"""Fixed: no training after task 1, the lower bound of Re-Fed's tables. Li et al., CVPR 2024."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from raysim.api import Method, Server, ServerHalf


@dataclass(frozen=True, kw_only=True)
class Fixed(Method):
    """Fixed: train on task 1 only (a baseline of Re-Fed; Li et al., CVPR 2024)."""

    needs: ClassVar = frozenset({"server_boundaries"})

    class Server(ServerHalf):
        """Selects no clients after task 1."""

        def select(self, server: Server) -> Sequence[int]:
            """Return the usual participants in task 1, then none."""
            return server.sample() if server.task == 0 else ()
