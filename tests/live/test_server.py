"""The server: on loopback, for its own names alone, with a token for the button; what it sends, and how it ends."""

import json
import re
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from followed import TWO_TASKS

from raysim.cli import main
from raysim.live import http_server as serving
from raysim.live import watched as watching
from raysim.live.http_server import TOKEN, LiveServer, serve
from raysim.live.watched import Watched
from raysim.sweeps.sweep import sweep
from raysim.system.errors import ConfigError
from raysim.system.files import lock_directory

Copy = Callable[..., Path]
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(1)</script>"


@contextmanager
def asked(
    server: LiveServer, path: str, method: str = "GET", headers: Mapping[str, str] = {}
) -> Iterator[HTTPResponse]:
    with closing(HTTPConnection("127.0.0.1", server.server_port, timeout=30)) as connection:
        connection.request(method, path, headers=dict(headers))
        yield connection.getresponse()


def status_of(server: LiveServer, path: str, method: str = "GET", **headers: str) -> int:
    with asked(server, path, method, {key.replace("_", "-"): value for key, value in headers.items()}) as answer:
        return answer.status


def events(answer: HTTPResponse) -> Iterator[Any]:
    for line in answer:
        if line.startswith(b"data: "):
            yield json.loads(line.removeprefix(b"data: "))


@pytest.fixture
def server(two_tasks: Path) -> Iterator[LiveServer]:
    with serve(Watched(two_tasks), 0) as running:
        yield running


def test_it_listens_on_loopback_only(server: LiveServer) -> None:
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_port}/?token={server.token}"


def test_a_request_with_another_host_is_refused(server: LiveServer) -> None:
    port = server.server_port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LocalHost:{port}"):
        assert status_of(server, "/", Host=host) == 200
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1",
        f"localhost:{port + 1}",
        f"localhost:{port}.evil",
        "",
    ):
        for path in ("/", "/events"):
            assert status_of(server, path, Host=host) == 403
        assert status_of(server, "/stop?run=0", "POST", Host=host, X_Raysim_Token=server.token) == 403


def test_the_page_is_small_and_loads_nothing(server: LiveServer) -> None:
    """It has no address but that of SVG's names, no way from a text to markup, and a policy that allows its script."""
    with asked(server, "/") as answer:
        page, policy = answer.read().decode(), answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert len(page.encode()) <= 80_000
    assert set(re.findall(r"\w+://[^\s\"'`<)]+", page)) == {"http://www.w3.org/2000/svg"}
    assert not re.findall(r"<(?:link|script|img|iframe)[^>]* (?:src|href)=\"(?!data:,)", page)
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(", "Function("):
        assert way not in page
    nonce = re.findall(r'<script nonce="(\w{32})">', page)
    assert len(nonce) == 1
    assert (
        f"default-src 'none'; script-src 'nonce-{nonce[0]}'; style-src 'nonce-{nonce[0]}'; connect-src 'self'" in policy
    )
    assert "frame-ancestors 'none'" in policy
    assert server.token not in page
    with asked(server, "/") as answer:
        assert nonce[0] not in answer.read().decode()


@pytest.mark.parametrize(
    "path", ["/page.html", "/../config.yaml", "/%2e%2e/config.yaml", "//etc/passwd", "/stop", "/events/"]
)
def test_there_is_nothing_else(path: str, server: LiveServer) -> None:
    assert status_of(server, path) == 404
    assert status_of(server, path, "POST", X_Raysim_Token=server.token) == 404


def test_the_first_event_has_all_of_a_run(server: LiveServer, two_tasks: Path) -> None:
    summary = json.loads((two_tasks / "summary.json").read_text())
    for query in ("", "?run=0", "?run=x", "?run=../.."):
        with asked(server, "/events" + query) as answer:
            assert answer.headers["Content-Type"] == "text/event-stream"
            first = next(events(answer))
        ((_, head),) = first["head"]["items"]
        assert (head["state"], head["round"], head["name"]) == ("done", 8, "two")
        rows = [row[1]["class_il"] for _, row in first["rows"]["items"]]
        assert rows == summary["evaluation"]["class_il"]["accuracy"]


def test_later_events_have_what_is_new(two_tasks: Path, copied: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "SECONDS", 0.01)
    monkeypatch.setattr(serving, "SECONDS", 0.01)
    directory = copied(two_tasks, 6)
    with serve(Watched(directory), 0) as server, asked(server, "/events") as answer:
        stream = events(answer)
        assert len(next(stream)["rounds"]["items"]) == 6
        copied(two_tasks, 8)
        new = next(event for event in stream if "rounds" in event)
        assert [item[0] for _, item in new["rounds"]["items"]] == [7, 8]
        assert [place for place, _ in new["rows"]["items"]] == [1]
        assert not new["rounds"]["fresh"]
        shutil.rmtree(directory)
        gone = next(event for event in stream if event["head"]["items"][0][1]["state"] == "deleted")
        assert "rounds" not in gone


def test_the_end_of_the_server_is_sent_with_the_last_rounds(two_tasks: Path, copied: Copy) -> None:
    """As with --live, when the run ends: what was written in the last half second is not missing."""
    directory = copied(two_tasks, 6)
    with serve(Watched(directory), 0) as server, asked(server, "/events") as answer:
        stream = events(answer)
        next(stream)
        copied(two_tasks, 8)
        server.ending.set()
        (last,) = stream
    assert (last["end"], len(last["rounds"]["items"])) == (True, 2)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.server_port), timeout=5)


def test_the_button_needs_the_token_and_a_run_at_work(two_tasks: Path, copied: Copy) -> None:
    directory = copied(two_tasks, 6)
    with lock_directory(directory, "run"), serve(Watched(directory), 0) as server:
        for token in ({}, {"X_Raysim_Token": ""}, {"X_Raysim_Token": "0" * 32}, {"X_Raysim_Token": "é"}):
            assert status_of(server, "/stop?run=0", "POST", **token) == 403
        for run in ("1", "-1", "99999999999", "x", ""):
            assert status_of(server, f"/stop?run={run}", "POST", X_Raysim_Token=server.token) in (404, 409)
        assert status_of(server, "/stop?run=0", "GET", X_Raysim_Token=server.token) == 404
        assert not (directory / "stop").exists()
        assert status_of(server, "/stop?run=0", "POST", X_Raysim_Token=server.token) == 200
        assert (directory / "stop").exists()
        (directory / "stop").unlink()
        (directory / "summary.json").write_text('{"status": "done"}')
        with asked(server, "/stop?run=0", "POST", {TOKEN: server.token}) as answer:
            assert (answer.status, answer.read()) == (409, b"the run is not running: done\n")
        assert not (directory / "stop").exists()


def test_only_the_printed_address_gives_the_token(server: LiveServer) -> None:
    """Other accounts of this machine can open the page, and must not be able to end a run."""
    for query in ("", "?token=", f"?token={'0' * 32}", "?token=%C3%A9", f"?other={server.token}"):
        with asked(server, f"/{query}") as answer:
            page = answer.read().decode()
        assert answer.status == 200
        assert server.token not in page
        assert 'KEY = "";' in page
    with asked(server, server.address.partition(str(server.server_port))[2]) as answer:
        assert f'KEY = "{server.token}";' in answer.read().decode()


@pytest.mark.parametrize("name", ["config.yaml", "clients.json", "rounds.jsonl", "summary.json"])
def test_no_link_leads_out_of_a_run(name: str, two_tasks: Path, copied: Copy, tmp_path: Path) -> None:
    """Whoever can write into the run's directory could else show files that only the page's user may read."""
    directory = copied(two_tasks, 6)
    (directory / "summary.json").write_text('{"status": "failed", "problem": "SECRET"}')
    secret = tmp_path / "secret"
    (directory / name).rename(secret)
    if name != "summary.json":
        (directory / "summary.json").unlink()
    (directory / name).symlink_to(secret)
    message, _ = Watched(directory, expected=True).message(0, {})
    head = message["head"]["items"][0][1]
    assert "SECRET" not in json.dumps(message)
    if name in ("config.yaml", "rounds.jsonl"):
        assert (head["state"], head["round"]) == ("unreadable", 0)
        assert "this is a link" in head["trouble"]
    else:
        assert head["round"] == 6  # as if there were no such file


def test_no_link_leads_out_of_a_sweep(tmp_path: Path, two_tasks: Path, copied: Copy) -> None:
    """A run's folder may become a link after the page has found it, and sweep.yaml may be one."""
    elsewhere = copied(two_tasks, 6)
    sweep_folder = tmp_path / "sweep"
    (sweep_folder / "one").mkdir(parents=True)
    (sweep_folder / "sweep.yaml").write_text("name: x\nruns: {one: {}}\n")
    watched = Watched(sweep_folder)
    watched.message(None, {})
    (sweep_folder / "one").rmdir()
    (sweep_folder / "one").symlink_to(elsewhere)
    message, _ = watched.message(0, {}, at_once=True)
    assert message["head"]["items"][0][1]["state"] == "unreadable"
    (sweep_folder / "sweep.yaml").rename(tmp_path / "other.yaml")
    (sweep_folder / "sweep.yaml").symlink_to(tmp_path / "other.yaml")
    with pytest.raises(ConfigError, match="this is a link, and the page follows none"):
        Watched(sweep_folder)


def test_the_button_writes_nowhere_else(two_tasks: Path, copied: Copy, tmp_path: Path) -> None:
    directory = copied(two_tasks, 6)
    (directory / "stop").symlink_to(tmp_path / "elsewhere")
    with lock_directory(directory, "run"), serve(Watched(directory), 0) as server:
        assert status_of(server, "/stop?run=0", "POST", X_Raysim_Token=server.token) == 409
    assert not (tmp_path / "elsewhere").exists()


def test_too_many_streams_are_refused(two_tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_STREAMS", 1)
    with serve(Watched(two_tasks), 0) as server, asked(server, "/events") as answer:
        next(events(answer))
        assert status_of(server, "/events") == 503
        assert status_of(server, "/") == 200


def test_names_are_sent_as_text(two_tasks: Path, copied: Copy) -> None:
    """JSON, which the page parses; test_live_browser.py looks at what it shows."""
    directory = copied(two_tasks, 6, name=HOSTILE)
    with serve(Watched(directory), 0) as server:
        with asked(server, "/events") as answer:
            assert next(events(answer))["head"]["items"][0][1]["name"] == HOSTILE
        with asked(server, "/") as answer:
            assert "alert" not in answer.read().decode()


def test_a_sweep_has_a_row_for_each_run(tmp_path: Path) -> None:
    """Two runs, one of them done; the other one is listed, and does not exist."""
    sweep({"name": "few", "base": TWO_TASKS, "grid": {"seed": [0, 1]}}, out=tmp_path / "few", local=True)
    gone, left = sorted(path.parent for path in (tmp_path / "few").rglob("summary.json"))
    shutil.rmtree(gone)
    summary = json.loads((left / "summary.json").read_text())
    with serve(Watched(tmp_path / "few"), 0) as server:
        with asked(server, "/events") as answer:
            first = next(events(answer))
        assert first.keys() == {"folder", "runs", "states", "end"}
        labels = {run["run"]: run["label"] for _, run in first["runs"]["items"]}
        states = {labels[run]: rest for _, (run, *rest) in first["states"]["items"]}
        assert {label: state[0] for label, state in states.items()} == {gone.name: "waiting", left.name: "done"}
        mean = summary["evaluation"]["class_il"]["average_accuracy"]
        number = next(run for run, label in labels.items() if label == left.name)
        assert (states[left.name][1], states[left.name][2]["class_il"][0]) == (8, mean)
        with asked(server, f"/events?run={number}") as answer:
            assert next(events(answer))["head"]["items"][0][1]["label"] == left.name


def test_a_sweep_may_not_lead_elsewhere(tmp_path: Path, two_tasks: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(f"name: x\nruns: {{../elsewhere: {{}}, {two_tasks}: {{}}}}\n")
    watched = Watched(tmp_path)
    watched.message(None, {})
    assert watched.runs == []


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("absent", "there is no such directory"),
        ("file", "this is a file"),
        ("empty", "found no config.yaml and no sweep.yaml, and no run below it"),
        ("broken", "sweep.yaml"),
    ],
)
def test_what_is_no_run_is_refused_in_a_line(
    path: str, found: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "sweep.yaml").write_text("runs: 3\n")
    assert main(["live", str(tmp_path / path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(str(tmp_path / path))
    assert found in line


@pytest.mark.parametrize("port", ["taken", "-1", "70000"])
def test_a_port_that_cannot_be_had_is_refused_in_a_line(
    port: str, server: LiveServer, two_tasks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = str(server.server_port) if port == "taken" else port
    assert main(["live", str(two_tasks), "--port", given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"--port {given}: ")
    assert "allowed: a free port" in line


def test_without_a_port_any_free_one_does(server: LiveServer, two_tasks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PORT", server.server_port)
    with serve(Watched(two_tasks)) as other:
        assert status_of(other, "/") == 200
    with pytest.raises(ConfigError):
        LiveServer(Watched(two_tasks), server.server_port)


def test_ctrl_c_ends_the_command(
    two_tasks: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Pressed:
        def wait(self) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr("raysim.cli.threading", SimpleNamespace(Event=Pressed))
    assert main(["live", str(two_tasks)]) == 0
    assert re.fullmatch(
        rf"Ctrl-C .* {two_tasks} is at http://127.0.0.1:\d+/\?token=\w{{32}}\n", capsys.readouterr().out
    )


def test_a_run_with_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page is there during the run, and gone after it; the run is the same."""
    (tmp_path / "two.yaml").write_text(json.dumps(TWO_TASKS))
    states = []
    end = LiveServer.end

    def ended(server: LiveServer) -> None:
        message, _ = server.watched.message(0, {}, at_once=True)
        states.append(message["head"]["items"][0][1]["state"])
        end(server)

    monkeypatch.setattr(LiveServer, "end", ended)
    command = ["run", str(tmp_path / "two.yaml"), "--local", "--quiet", "--live", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    said = capsys.readouterr()
    assert re.fullmatch(r"live: http://127.0.0.1:\d+/\?token=\w{32}\n", said.err)
    assert states == ["done"]
