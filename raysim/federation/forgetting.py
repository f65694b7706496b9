"""The requests of `clients.forget`, as positions in the clients' streams."""

from collections.abc import Mapping, Sequence

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

Requests = Mapping[int, Mapping[int, Tensor]]
"""Round -> client -> the positions (int64 [n], ascending) that are forgotten after it, and by no earlier request."""


def plan_forgetting(
    config: Config, dataset: Dataset, streams: Sequence[Stream], availability: Availability
) -> Requests:
    """Return the positions that each request newly names.

    Raises:
        ConfigError: a request is after the run's end, or names samples in no client's stream or a client that has not
            arrived. Also if a client has sent such samples and is absent in the request's round.
    """
    known = [np.zeros(len(stream), dtype=bool) for stream in streams]
    planned: dict[int, dict[int, Tensor]] = {}
    order = sorted(enumerate(config.clients.forget), key=lambda numbered: numbered[1].round)
    for number, request in order:
        key = f"clients.forget.{number}"
        if request.round > availability.rounds:
            problem = f"found {request.round}, allowed: 1 to {availability.rounds}, the rounds of the run"
            raise ConfigError(f"{key}.round: {problem}")
        for client, positions in _find(key, request, dataset, streams, availability).items():
            new = positions[~known[client][positions]]
            known[client][new] = True
            _check_present(key, client, new, request.round, streams[client], availability)
            if len(new):
                of_round = planned.setdefault(request.round, {})
                earlier = of_round.get(client, torch.zeros(0, dtype=torch.int64))
                of_round[client] = torch.cat([earlier, torch.from_numpy(new)]).sort().values
    return planned


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
    clients = sorted({client for client, _ in named})
    return {client: np.unique([position for k, position in named if k == client]) for client in clients}


def _check_present(
    key: str, client: int, positions: np.ndarray, round: int, stream: Stream, availability: Availability
) -> None:
    """Refuse a request if an absent client holds samples that it has sent at a task's end."""
    if availability.window(client, round) is not None:
        return
    windows = [availability.window(client, end) for end in availability.rows if end <= round]
    sent = max((stream.end(window) for window in windows if window is not None), default=0)
    if bool((positions < sent).any()):
        problem = f"found round {round}, in which client {client} has no data but samples of the request in the sums"
        raise ConfigError(f"{key}: {problem}, allowed: a round in which it can answer")
