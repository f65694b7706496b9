"""Starting a cluster, joining one and preparing its actors: what Ray receives, and the error messages."""

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from raysim.actors import compat, joining, starting, workers
from raysim.actors.starting import divide_memory
from raysim.system.capacity import GIB, Capacity
from raysim.system.errors import RunError, Unreachable

SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # the first frame of HTTP/2, as gRPC sends it


@pytest.mark.parametrize(
    ("limit", "shared", "store"),
    [
        (3 * GIB, 2**34, int(0.3 * 3 * GIB)),
        (3 * GIB, 2**20, int(0.3 * 3 * GIB)),  # Ray puts it elsewhere
        (100 * GIB, 2**34, int(0.95 * 2**34)),
        (100 * GIB, 2**20, 10**10),  # Ray refuses more than this with so little shared memory
    ],
)
def test_the_object_store_is_a_part_of_the_jobs_memory(
    limit: int, shared: int, store: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting.os, "statvfs", lambda path: SimpleNamespace(f_bavail=shared // 4096, f_frsize=4096))
    assert divide_memory(limit) == (store, limit - store)
    assert divide_memory(None) == (None, None)


# joining


@contextmanager
def listening(answer: bytes | None) -> Iterator[str]:
    """The address of a server that accepts a connection and sends this; None keeps it open without a word."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                if answer is None:
                    over.wait()
                else:
                    client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            thread.join()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that Ray is asked to join."""
    asked: list[str] = []
    monkeypatch.setattr(starting.ray, "init", lambda address, **_: asked.append(address))
    monkeypatch.setattr(joining, "_only_here", lambda host, port: False)
    monkeypatch.setattr(joining, "ANSWER", 0.2)
    return asked


@pytest.mark.parametrize("answer", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", SETTINGS[:5]])
def test_a_port_that_is_not_rays_is_noticed_before_ray_is_asked(answer: bytes | None, asked: list[str]) -> None:
    """Ray would try for a minute, and hear no signal."""
    reason = "the program that listens there does not answer like Ray"
    with listening(answer) as address, pytest.raises(Unreachable) as refused:
        joining.join(address, [])
    assert str(refused.value).startswith(f"resources.address: no cluster answers at {address} ({reason}); start one ")
    assert asked == []


@pytest.mark.parametrize(("answer", "tls"), [(SETTINGS, "0"), (b"", "1")])
def test_a_port_that_may_be_rays_is_joined(
    answer: bytes, tls: str, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that uses TLS, nothing can be seen."""
    monkeypatch.setenv(compat.TLS, tls)
    with listening(answer) as address:
        joining.join(address, [])
    assert asked == [address]


# starting

UNKNOWN = RuntimeError("Unknown keyword argument(s): _node_ip_address")
ENDED = RuntimeError("The current node timed out during startup")
Started = Callable[..., tuple[int, str]]


@dataclass
class Process:
    """Stands for one of Ray's."""

    called: str
    pid: int = 1

    def name(self) -> str:
        return self.called


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Started:
    """A function: start Ray, whose attempts end so. The number of attempts, and the messages."""

    monkeypatch.setattr(starting.os, "getloadavg", lambda: (0.0, 0.0, 0.0))

    def start(*outcomes: Exception | list[str]) -> tuple[int, str]:
        left = list(outcomes)

        def init(*_: object, **__: object) -> None:
            if isinstance(left[0], Exception):
                raise left.pop(0)

        monkeypatch.setattr(starting.ray, "init", init)
        monkeypatch.setattr(starting.ray, "shutdown", lambda: None)
        monkeypatch.setattr(compat, "vital_processes", lambda _: [Process(name) for name in left.pop(0)])
        said = ""
        try:
            starting._start_ray(Capacity(1, 0, None), False, tmp_path)
        except RunError as error:
            said = str(error)
        return len(outcomes) - len(left), said

    return start


def test_a_start_that_fails_is_tried_again(started: Started) -> None:
    """Ray may raise an error, or have lost its raylet already."""
    assert started(["gcs_server", "raylet"]) == (1, "")
    assert started(ENDED, ["gcs_server", "raylet"]) == (2, "")
    assert started(["gcs_server"], ["gcs_server", "raylet"]) == (2, "")
    tries, said = started(["gcs_server"], ENDED, ["gcs_server", "raylet"])
    assert tries == 2
    assert said.startswith(f"Ray could not start ({ENDED}); see whether memory, ")
    assert said.endswith("then start the run again")


def test_a_busy_machine_has_more_tries_and_its_load_is_named(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray gives its processes 30 s, and two tries are not enough at a load of eleven times the CPUs."""
    monkeypatch.setattr(starting.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(starting.os, "getloadavg", lambda: (22.4, 9.0, 9.0))
    assert started(*[ENDED] * 4, ["gcs_server", "raylet"]) == (5, "")
    tries, said = started(*[ENDED] * 6)
    assert tries == 5
    assert "see whether CPUs (the load average is 22 on 2 CPUs), or memory, /dev/shm" in said


def test_a_runtime_environment_that_ray_took_from_elsewhere_is_named(started: Started) -> None:
    error = RuntimeError("Your pyproject.toml is not in the working_dir, so the workers will not have access")
    _, said = started(error, error)
    assert said.endswith(
        "raysim needs no runtime environment: unset RAY_RUNTIME_ENV_HOOK and RAY_ENABLE_UV_RUN_RUNTIME_ENV, then start "
        "the run again"
    )


def test_a_process_that_is_stopped_while_ray_starts_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Ray would wait for it without end."""
    killed = threading.Event()
    tries: list[int] = []

    def init(*_: object, **__: object) -> None:
        tries.append(len(tries))
        if len(tries) == 1:
            assert killed.wait(60)
            raise ENDED

    stopped = SimpleNamespace(kill=killed.set)
    monkeypatch.setattr(starting, "LONGEST_START", 0.1)
    monkeypatch.setattr(starting, "_processes_of", lambda folder: [stopped] if folder == tmp_path else [])
    monkeypatch.setattr(starting.ray, "init", init)
    monkeypatch.setattr(starting.ray, "shutdown", lambda: None)
    monkeypatch.setattr(compat, "vital_processes", lambda _: [Process("raylet")])
    starting._start_ray(Capacity(1, 0, None), False, tmp_path)
    assert tries == [0, 1]


def test_an_option_that_ray_does_not_know_is_not_tried_again(started: Started) -> None:
    tries, said = started(UNKNOWN, ["raylet"])
    assert tries == 1
    tested = "raysim was tested with Ray 2.56 to 2.60, and this is"
    assert said.startswith(f"Ray could not start ({UNKNOWN}); {tested} ")
    assert said.endswith(": install one of those")


# actors


def test_a_breakpoint_in_an_actor_is_an_error_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's debugger would wait for a terminal without end."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(sys, "breakpointhook", sys.breakpointhook)
    workers.prepare_actor(0)
    with pytest.raises(
        RunError, match=rf"^{__file__}:\d+: breakpoint\(\) needs a terminal, .*; use raysim run --local$"
    ):
        breakpoint()
