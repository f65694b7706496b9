"""The requests of `clients.forget`, as positions in the clients' streams."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from raysim.config import Config
from raysim.config.timing import Forget
from raysim.data.dataset import Dataset
from raysim.federation.availability import Availability
from raysim.federation.stream import Stream
from raysim.system.errors import ConfigError
from raysim.system.home import expand


@dataclass(frozen=True)
class ForgetRequest:
    """One entry of `clients.forget`."""

    number: int
    """Its place in `clients.forget`, from 0."""
    round: int
    """The round after which it acts."""
    what: str
    """What it names, such as "client 7", "class 5" or "the samples of requests.csv"."""
    positions: Mapping[int, Tensor]
    """Client -> the positions (int64 [n], ascending) in its stream that no earlier request named."""
    clients: tuple[int, ...] = ()
    """The clients that take no further part, ascending."""

    def asked(self) -> Mapping[int, Tensor]:
        """Return the positions by client, also of clients that take no further part and have none left."""
        none = torch.zeros(0, dtype=torch.int64)
        return {client: self.positions.get(client, none) for client in sorted({*self.positions, *self.clients})}


Requests = Mapping[int, Sequence[ForgetRequest]]
"""Round -> its requests, in the order in which they act."""


def plan_forgetting(
    config: Config, dataset: Dataset, streams: Sequence[Stream], availability: Availability
) -> Requests:
    """Return the requests by round, with the positions that each newly names.

    Raises:
        ConfigError: a request is after the run's end, or names samples in no client's stream or a client that has not
            arrived. Also if samples have no classes, or if clients open their streams, as no one knows what is in them.
    """
    if config.scenario.stream is not None:
        allowed = "allowed with a custom stream: none, as raysim does not know its samples before they arrive"
        raise ConfigError(f"clients.forget: found requests, {allowed}")
    known = [np.zeros(len(stream), dtype=bool) for stream in streams]
    planned: dict[int, list[ForgetRequest]] = {}
    order = sorted(enumerate(config.clients.forget), key=lambda numbered: numbered[1].round)
    for number, request in order:
        key = f"clients.forget.{number}"
        if request.round > availability.rounds:
            problem = f"found {request.round}, allowed: 1 to {availability.rounds}, the rounds of the run"
            raise ConfigError(f"{key}.round: {problem}")
        if request.classes is not None and not config.objective.has("classes"):
            problem = f"found {request.classes[0]}, but samples have no class with objective={config.objective.named}"
            raise ConfigError(f"{key}.classes: {problem}, allowed: a request with clients or samples")
        named = {}
        for client, positions in _find(key, request, dataset, streams, availability).items():
            new = positions[~known[client][positions]]
            known[client][new] = True
            if len(new):
                named[client] = torch.from_numpy(new)
        gone = tuple(sorted({*(request.clients or ())}))
        planned.setdefault(request.round, []).append(
            ForgetRequest(number, request.round, _describe(request), named, gone)
        )
    return planned


def merge_positions(requests: Sequence[ForgetRequest]) -> Mapping[int, Tensor]:
    """Return the positions that these requests name, by client, ascending."""
    named: dict[int, list[Tensor]] = {}
    for request in requests:
        for client, positions in request.positions.items():
            named.setdefault(client, []).append(positions)
    return {client: torch.cat(parts).sort().values for client, parts in sorted(named.items())}


def _describe(request: Forget) -> str:
    """Return what a request names."""
    for kind, numbers in (("client", request.clients), ("class", request.classes)):
        if numbers is not None:
            more = ("es" if kind == "class" else "s") * (len(numbers) > 1)
            return f"{kind}{more} {', '.join(map(str, numbers))}"
    assert request.samples is not None
    return f"the samples of {Path(request.samples).name}"


def _find(
    key: str, request: Forget, dataset: Dataset, streams: Sequence[Stream], availability: Availability
) -> dict[int, np.ndarray]:
    """Return the positions that a request names, by client."""
    if request.clients is not None:
        for client in request.clients:
            if all(availability.window(client, round) is None for round in range(1, request.round + 1)):
                problem = f"found client {client} in round {request.round}, before which it has no data"
                raise ConfigError(f"{key}.clients: {problem}, allowed: clients that have arrived")
        return {client: np.arange(len(streams[client])) for client in request.clients}
    if request.classes is not None:
        labels = [dataset.train.y[_rows(stream)] for stream in streams]
        for label in request.classes:
            if not any((y == label).any() for y in labels):
                raise ConfigError(f"{key}.classes: found {label}, allowed: classes that some client has samples of")
        return {client: np.flatnonzero(np.isin(y, request.classes)) for client, y in enumerate(labels)}
    assert request.samples is not None
    return _read(f"{key}.samples", request.samples, streams)


def _rows(stream: Stream) -> np.ndarray:
    return np.concatenate(stream.rows) if stream.rows else np.zeros(0, np.int64)


def _read(key: str, path: str, streams: Sequence[Stream]) -> dict[int, np.ndarray]:
    """Return the positions that a file of lines `client,position` names, by client."""
    try:
        text = expand(key, path).read_text(encoding="utf-8")
        pairs = [[int(part) for part in line.split(",")] for line in text.splitlines() if line.strip()]
        named = [(client, position) for client, position in pairs]
    except (OSError, ValueError) as error:
        problem = f"found {path}, which cannot be read ({error})"
        raise ConfigError(f"{key}: {problem}, allowed: a file with lines client,position") from error
    if not named:
        raise ConfigError(f"{key}: found {path}, which names no sample, allowed: a file with lines client,position")
    for client, position in named:
        if not 0 <= client < len(streams):
            allowed = f"clients 0 to {len(streams) - 1} (clients.count is {len(streams)})"
        elif not 0 <= position < len(streams[client]):
            allowed = f"positions in the stream of client {client}, which has {len(streams[client]):,} samples"
        else:
            continue
        raise ConfigError(f"{key}: found {client},{position}, which is in no client's stream, allowed: {allowed}")
    found: dict[int, list[int]] = {}
    for client, position in sorted(named):
        found.setdefault(client, []).append(position)
    return {client: np.unique(positions) for client, positions in found.items()}
