"""The check that custom code of the server leaves the global model as it is.

Hosts receive each version of the model once. A change in place would reach them in a local run only.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from raysim.api.server import Server
from raysim.models.flat import Weights
from raysim.system.errors import WrongResult
from raysim.system.shared_memory import first_difference, separate

INSTEAD = "a delta that update returns, or server.replace_model(weights)"


class KeptModel:
    """Compares the server's model with a copy of its version."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._seen: tuple[int, Weights] | None = None  # the version, and a copy of its weights

    @contextmanager
    def kept_by(self, describe: Callable[[], str]) -> Iterator[None]:
        """Check that the code in this context leaves the model as it is, unless it makes another version.

        `describe` returns what the code is, for the error.

        Raises:
            WrongResult: it has changed the parameters or buffers.
        """
        server = self._server
        if self._seen is None or self._seen[0] != server.version:
            self._seen = server.version, separate(self._weights())
        try:
            yield
        except StopIteration:  # the end of a plan
            self._check(describe)
            raise
        self._check(describe)

    def _check(self, describe: Callable[[], str]) -> None:
        assert self._seen is not None
        version, weights = self._seen
        if self._server.version == version and (path := first_difference(self._weights(), weights)) is not None:
            raise WrongResult(f"{describe()} changed server{path}, of which hosts have a copy, allowed: {INSTEAD}")

    def _weights(self) -> Weights:
        return Weights(self._server.parameters, self._server.buffers, self._server.integers)
