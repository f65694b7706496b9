"""Evaluation on a host: the correct predictions of the server's model and of its clients' personalized models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raysim.api.messages import Broadcast
from raysim.config import Config
from raysim.data.pixels import Source
from raysim.engine.hosted_client import HostedClient
from raysim.evaluation.scoring import Chunk, Scores, score
from raysim.federation.federation import Federation
from raysim.models.flat import FlatModel, Weights
from raysim.system.errors import locate_errors
from raysim.system.seeding import guard_globals

EVALUATED = "evaluated model"  # the broadcast with the weights that a method evaluates instead of the model


@dataclass(frozen=True)
class Tested:
    """A model that was tested. Equal ones have equal scores."""

    client: int | None  # whose personalized model it is; None for the server's model
    version: object  # the client's `tuned`, or the version of the server's model
    so_far: int | None  # as in Chunk


class HostEvaluation:
    """Counts the correct predictions of models that it loads into a host's model instance.

    Args:
        config: the resolved config.
        federation: the data.
        model: the host's model.
    """

    def __init__(self, config: Config, federation: Federation, model: FlatModel) -> None:
        self._federation = federation
        self._model = model
        self._top_k = config.evaluation.top_k
        self._test: Source | None = None  # the test split, once it is needed
        self._scored: dict[Tested, Scores] = {}  # of the last `test_clients`

    def test_model(self, chunks: Sequence[Chunk], broadcasts: Mapping[str, Broadcast]) -> Scores:
        """Return the counts of the evaluated model, or else of the server's, on parts of the test sets."""
        sent = broadcasts.get(EVALUATED) or broadcasts["model"]
        return self._test_weights(chunks, sent.value, f"the model after {sent.version} updates")

    def test_clients(
        self, chunks: Sequence[Chunk], server_model: Broadcast, clients: Mapping[int, HostedClient]
    ) -> dict[int, Scores]:
        """Return the counts of each client's personalized model on parts of the test sets.

        A client that has never trained is tested with the server's model. Scores are reused while a model is unchanged:
        a personalized model until the client's next training, and the server's model until its next version.
        """
        earlier, self._scored = self._scored, {}
        by_client: dict[int, Scores] = {}
        so_far = chunks[0].so_far
        for number, client in clients.items():
            if own := client.personalized:
                tested, weights = Tested(number, client.tuned, so_far), Weights(*own)
            else:
                tested, weights = Tested(None, server_model.version, so_far), server_model.value
            if tested not in earlier:
                earlier[tested] = self._test_weights(chunks, weights, f"client {number}'s personalized model")
            self._scored[tested] = by_client[number] = earlier[tested]
        return by_client

    def _test_weights(self, chunks: Sequence[Chunk], weights: Weights, whose: str) -> Scores:
        """Load weights, and count their correct predictions. `whose` names them in errors."""
        model, who = self._model, "the model, the objective or the test samples, in an evaluation"
        model.load(weights)
        with locate_errors(f"evaluation of {whose}"):
            if self._test is None:
                self._test = self._federation.source("test", model.device)
            with guard_globals(who, None, instead="no draws"):
                return score(model.module, model.dtype, self._test, self._federation, chunks, self._top_k)
