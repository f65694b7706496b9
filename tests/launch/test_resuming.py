"""--resume: what a stopped run's directory goes on with, what is refused, and what a damaged checkpoint says."""

import hashlib
import json
import pickle
import resource
import shutil
import signal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from small_configs import SMALL
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

import raysim
from raysim.api import ClientHalf, Delta, Method, ServerHalf
from raysim.cli import main
from raysim.engine.events import RoundDone
from raysim.records.checkpoints import FORMAT, _digest
from raysim.system.errors import RunError
from raysim.system.footprint import Footprint
from raysim.system.state import decode, encode
from raysim.system.version import VERSION

CONFIG = SMALL | {
    "training": {"rounds_per_task": 4, "batch_size": 8, "optimizer": {"lr": 0.1}},
    "methods": {"er": {}},
    "evaluation": {"every_rounds": 1},
    "checkpoint": {"every_rounds": 2},
    "logging": {"dispatches": True, "memory": True},
}
TIMES = ("seconds", "seconds_per_round", "seconds_starting", "peak_memory_bytes", "recoveries", "rounds_recomputed")


class Power(Exception):
    """It fails."""


class Outage:
    """Ends a run after a round as if the power had failed: nothing is tidied up in its directory."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.said: list[str] = []

    def take(self, event: object) -> None:
        if isinstance(event, RoundDone) and event.round == self.after:
            raise Power

    def say(self, text: str) -> None:
        self.said.append(text)


def cut_off(out: Path, after: int, **overrides: object) -> None:
    with pytest.raises(Power):
        raysim.run(CONFIG, overrides, out=out, local=True, display=Outage(after))
    (out / "summary.json").unlink()


@pytest.fixture(scope="module")
def copy_cut_off(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, int], None]:
    """Copies the directory of a run that was cut off after a round. Each such run is carried out once."""

    @cache
    def run(after: int) -> Path:
        cut_off(out := tmp_path_factory.mktemp("cut_off") / "out", after)
        return out

    def copy(out: Path, after: int) -> None:
        shutil.copytree(run(after), out)

    return copy


def test_the_most_memory_is_of_the_time_before_the_outage_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Footprint, "peak_bytes", 2**50)
        cut_off(tmp_path / "run", 5)
    assert raysim.run(None, out=tmp_path / "run", local=True, resume=True).peak_memory_bytes == 2**50


def summary(out: Path) -> dict:
    read = json.loads((out / "summary.json").read_text())
    return {key: value for key, value in read.items() if key not in TIMES}


def lines(out: Path) -> list[dict]:
    return [json.loads(line) | {"seconds": 0} for line in (out / "rounds.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the run that nobody disturbed: 8 rounds."""
    out = tmp_path_factory.mktemp("whole") / "out"
    raysim.run(CONFIG, out=out, local=True)
    return out


@pytest.mark.parametrize(("after", "back_to"), [(1, 0), (2, 0), (3, 2), (5, 4), (7, 6)])
def test_the_directory_is_that_of_an_undisturbed_run(after: int, back_to: int, whole: Path, tmp_path: Path) -> None:
    """A round is written down before it is shown, and its checkpoint after it: of round 2 there is none."""
    out = tmp_path / "out"
    cut_off(out, after)
    result = raysim.run(None, out=out, local=True, resume=True)
    assert summary(out) == summary(whole)
    assert lines(out) == lines(whole)
    assert (result.recoveries, result.rounds_recomputed) == (1, after - back_to)
    assert (out / "model.pt").read_bytes() == (whole / "model.pt").read_bytes()


OF_THE_FIRST_VERSION = {
    1: "3e0a03ca78a06326cc0016c23cf0410c345921e61d1e5cc2839e05cb85e86a7d",
    None: "cecd6fc6f1ca54b54a0b7e1921f2b0bf0f52038120cf08c3b6f656c69dc9dee7",
}
"""What checkpoints had as the digest of this config when `evaluation.every` was a key."""


@pytest.mark.parametrize("every_rounds", OF_THE_FIRST_VERSION)
def test_a_run_goes_on_from_when_evaluation_every_was_a_key(every_rounds: int | None, tmp_path: Path) -> None:
    cut_off(tmp_path, 3, **{"evaluation.every_rounds": every_rounds})
    (manifest,) = tmp_path.glob("checkpoints/*/manifest.json")
    assert json.loads(manifest.read_text())["config"] == OF_THE_FIRST_VERSION[every_rounds]
    config, every = tmp_path / "config.yaml", "task" if every_rounds is None else "null"
    text = config.read_text()
    config.write_text(text.replace("evaluation:\n", f"evaluation:\n  every: {every}\n"))
    assert config.read_text() != text
    assert raysim.run(None, out=tmp_path, local=True, resume=True).recoveries == 1


def test_losses_add_up_over_several_outages(whole: Path, tmp_path: Path) -> None:
    """5 rounds, back to 4 (1 again); 7, back to 6 (1 again); 7 once more, back to 6 (1 again)."""
    out = tmp_path / "out"
    cut_off(out, 5)
    for _ in range(2):
        with pytest.raises(Power):
            raysim.run(None, out=out, local=True, resume=True, display=Outage(7))
        (out / "summary.json").unlink()
    result = raysim.run(None, out=out, local=True, resume=True)
    assert (result.recoveries, result.rounds_recomputed) == (3, 3)
    assert summary(out) == summary(whole)


def scalars(out: Path) -> dict[str, list[tuple[int, float]]]:
    board = EventAccumulator(str(out), size_guidance={"scalars": 0})
    board.Reload()
    return {tag: [(e.step, e.value) for e in board.Scalars(tag)] for tag in board.Tags()["scalars"] if tag[0] != "s"}


def test_tensorboard_shows_every_round_once(
    whole: Path, tmp_path: Path, copy_cut_off: Callable[[Path, int], None]
) -> None:
    """All but seconds/round; also what is shown against virtual time and bytes, whose steps are no rounds."""
    out = tmp_path / "out"
    copy_cut_off(out, 5)
    raysim.run(None, out=out, local=True, resume=True)
    shown = scalars(out)
    assert shown == scalars(whole)
    assert len(shown["class_il/accuracy_by_KiB"]) == 8
    files = sorted(out.glob("events.out.*"))
    assert len(files) == 2  # one of each process
    once = ["config/text_summary", "custom_scalars__config__", "_hparams_/session_start_info"]
    read = [event for file in files for event in EventFileLoader(str(file)).Load()]
    assert [value.tag for event in read for value in event.summary.value if value.tag in once] == once


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("{", "[", "JSONDecodeError: .*"),
        ('"round": 1,', '"round": 3,', "ValueError: line 1 is of round 3"),
        ('"cohort"', '"others"', "KeyError: 'cohort'"),
    ],
)
def test_rounds_that_raysim_did_not_write_are_told_in_one_line(
    before: str, after: str, problem: str, tmp_path: Path, copy_cut_off: Callable[[Path, int], None]
) -> None:
    """And nothing is changed."""
    out = tmp_path / "out"
    copy_cut_off(out, 5)
    rounds = out / "rounds.jsonl"
    text = rounds.read_text()
    assert before in text
    rounds.write_text(text.replace(before, after, 1))
    files = sorted((path, path.stat().st_mtime_ns) for path in out.rglob("*") if path.is_file())
    with pytest.raises(
        RunError, match=rf"rounds\.jsonl: found no rounds \({problem}\), allowed: the run's own file"
    ) as found:
        raysim.run(None, out=out, local=True, resume=True)
    assert "\n" not in str(found.value)
    assert sorted((path, path.stat().st_mtime_ns) for path in out.rglob("*") if path.is_file()) == files


def test_the_newest_checkpoints_are_kept(whole: Path) -> None:
    assert [path.name for path in sorted((whole / "checkpoints").iterdir())] == ["000004", "000006"]
    assert sorted(path.name for path in (whole / "checkpoints" / "000006").iterdir()) == [
        "clients.bin",
        "manifest.json",
        "server.bin",
    ]


def test_a_done_run_is_done(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (whole / "summary.json").read_bytes()
    assert main(["run", "--resume", "--out", str(whole)]) == 0
    assert "done: 8 rounds" in capsys.readouterr().out
    assert (whole / "summary.json").read_bytes() == before


def test_what_changes_no_result_may_be_given_differently(
    whole: Path, tmp_path: Path, copy_cut_off: Callable[[Path, int], None]
) -> None:
    out = tmp_path / "out"
    copy_cut_off(out, 5)
    given = ["resources.clients_per_actor=2", "checkpoint.every_rounds=1", "logging.tensorboard=false"]
    assert main(["run", *given, "--resume", "--out", str(out), "--local", "--quiet"]) == 0
    assert summary(out) == summary(whole)


def test_all_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], copy_cut_off: Callable[[Path, int], None]
) -> None:
    out = tmp_path / "out"
    copy_cut_off(out, 3)
    assert main(["run", "--resume", "--out", str(out), "seed=4"]) == 2
    error = capsys.readouterr().err
    assert error == (
        f"--resume: {out} has another config: seed: 0 there, 4 here; allowed: other resources, logging, checkpoint, "
        "callbacks\n"
    )
    assert len(lines(out)) == 3


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--resume"], "--resume: found no --out, allowed: --resume --out DIR"),
        (["--resume", "--out", "nowhere"], "there is no nowhere/config.yaml, allowed: a run's directory, or a config"),
        (["--out", "somewhere"], "the following arguments are required: CONFIG"),
    ],
)
def test_without_a_run_there_is_nothing_to_go_on_with(
    given: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *given]) == 2
    output, error = capsys.readouterr()
    assert words in error
    assert (output, error.count("\n")) == ("", 1)


def test_with_a_config_and_no_run_it_begins(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    raysim.run(CONFIG, out=out, local=True, resume=True)
    assert summary(out) == summary(whole)


def test_a_stopped_run_goes_on_where_it_stopped(whole: Path, tmp_path: Path) -> None:
    """Ctrl-C after round 3: the round in progress ends, and its checkpoint is made at once."""
    out = tmp_path / "out"

    class Stop(Outage):
        def take(self, event: object) -> None:
            if isinstance(event, RoundDone) and event.round == self.after:
                signal.raise_signal(signal.SIGINT)

    first = raysim.run(CONFIG, out=out, local=True, display=Stop(3))
    assert first.status == "interrupted"
    assert 3 <= first.rounds < 8
    result = raysim.run(None, out=out, local=True, resume=True)
    assert (result.recoveries, result.rounds_recomputed) == (0, 0)
    assert summary(out) == summary(whole)


DAMAGES = {
    "a flipped bit in the clients": ("clients.bin", lambda data: bytes([data[0] ^ 1]) + data[1:]),
    "half a server": ("server.bin", lambda data: data[: len(data) // 2]),
    "no clients": ("clients.bin", None),
    "another round": ("manifest.json", lambda data: data.replace(b'"round": 4', b'"round": 6')),
    "no JSON": ("manifest.json", lambda data: data[:100]),
    "a list": ("manifest.json", lambda data: b"[]"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused(
    damage: str, tmp_path: Path, copy_cut_off: Callable[[Path, int], None]
) -> None:
    out = tmp_path / "out"
    copy_cut_off(out, 5)
    name, change = DAMAGES[damage]
    newest = out / "checkpoints" / "000004"
    if change is None:
        (newest / name).unlink()
    else:
        (newest / name).write_bytes(change((newest / name).read_bytes()))
    with pytest.raises(RunError, match=r"000004: this checkpoint is damaged \(.*\); delete its folder"):
        raysim.run(None, out=out, local=True, resume=True)
    assert len(lines(out)) == 5  # nothing was cut off


def test_without_the_newest_checkpoint_the_one_before_it_serves(
    whole: Path, tmp_path: Path, copy_cut_off: Callable[[Path, int], None]
) -> None:
    out = tmp_path / "out"
    copy_cut_off(out, 5)
    shutil.rmtree(out / "checkpoints" / "000004")
    assert raysim.run(None, out=out, local=True, resume=True).rounds_recomputed == 3
    assert summary(out) == summary(whole)


def tamper(name: str, value: object) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest.update({name: value})


def drop_clients(manifest: dict[str, Any]) -> None:
    manifest["clients"] = manifest["clients"][:1]


def move_client(manifest: dict[str, Any]) -> None:
    manifest["clients"][0][1] = -5


TAMPERED: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "clients are missing": (drop_clients, r"records of 1 clients, of 2 expected; missing: \[1\]"),
    "a client outside the file": (move_client, r"the records of clients \[0\] lie outside clients.bin"),
    "clients as a dict": (tamper("clients", {}), "records of 0 clients"),
    "clients as text": (tamper("clients", "abc"), "ValueError"),
    "nothing recorded": (tamper("recorded", {}), "KeyError: 'tally'"),
    "another round": (tamper("round", 6), "round 6"),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_tampered_manifest_with_the_right_digest_is_refused(
    what: str, tmp_path: Path, copy_cut_off: Callable[[Path, int], None]
) -> None:
    """Without the record of client 1 the run would resume with a new client, to another model."""
    out = tmp_path / "out"
    copy_cut_off(out, 5)
    path = out / "checkpoints" / "000004" / "manifest.json"
    change, words = TAMPERED[what]
    manifest = json.loads(path.read_text())
    kind = manifest.pop("format")
    del manifest["sha256"]
    change(manifest)
    path.write_text(json.dumps({"format": kind, **manifest, "sha256": _digest(manifest)}))
    with pytest.raises(RunError, match=rf"this checkpoint is damaged \(manifest.json has wrong contents: .*{words}"):
        raysim.run(None, out=out, local=True, resume=True)


def other_halves(state: dict[str, Any]) -> None:
    state["exchange"]["halves"] = {"fedprox": 3}


def other_shapes(state: dict[str, Any]) -> None:
    state["server"]["parameters"] = state["server"]["parameters"][:3]


def no_server(state: dict[str, Any]) -> None:
    state["server"] = 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_halves, "its halves is not the state of er"),
        (other_shapes, "its vectors have the shapes"),
        (no_server, "of type int"),
    ],
)
def test_a_servers_record_of_another_run_is_refused(
    change: Callable[[dict[str, Any]], None], words: str, tmp_path: Path, copy_cut_off: Callable[[Path, int], None]
) -> None:
    out = tmp_path / "out"
    copy_cut_off(out, 5)
    place = out / "checkpoints" / "000004"
    state = decode((place / "server.bin").read_bytes())
    change(state)
    (place / "server.bin").write_bytes(encode(state))
    manifest = json.loads((place / "manifest.json").read_text())
    kind = manifest.pop("format")
    del manifest["sha256"]
    manifest["files"]["server.bin"] = hashlib.sha256((place / "server.bin").read_bytes()).hexdigest()
    (place / "manifest.json").write_text(json.dumps({"format": kind, **manifest, "sha256": _digest(manifest)}))
    with pytest.raises(RunError, match=words):
        raysim.run(None, out=out, local=True, resume=True)


class Vector:
    """A custom state, which takes over its tensor in place."""

    def __init__(self, size: int = 3) -> None:
        self.values = torch.zeros(size)

    def state(self) -> dict[str, Any]:
        return {"values": self.values}

    def restore(self, state: dict[str, Any]) -> None:
        self.values.copy_(state["values"])


class Keeps(Method):
    """Keeps: every client and the server have a state of their own."""

    class Client(ClientHalf):
        def __init__(self, name: str, method: Method) -> None:
            super().__init__(name, method)
            self.kept = Vector()

    class Server(ServerHalf):
        def __init__(self, name: str, method: Method) -> None:
            super().__init__(name, method)
            self.kept = Vector()


@pytest.mark.parametrize(
    ("half", "whose"), [(Keeps.Client, "the saved state of client 0"), (Keeps.Server, "the checkpoint's state of the ")]
)
def test_a_state_of_ones_own_that_does_not_fit_is_refused_in_one_line(
    half: type, whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The half's vector had 3 numbers and now has 4. torch raises RuntimeError where a tensor is of another shape."""
    out = tmp_path / "out"
    cut_off(out, 3, methods={f"{__name__}:Keeps": {}})

    def longer(self: Any, name: str, method: Method) -> None:
        super(half, self).__init__(name, method)
        self.kept = Vector(4)

    monkeypatch.setattr(half, "__init__", longer)
    words = rf"^{whose}.*does not fit this run.*\(RuntimeError: .*Vector\.restore, "
    with pytest.raises(RunError, match=words) as refused:
        raysim.run(None, out=out, local=True, resume=True, trust=True)
    assert str(refused.value) == json.loads((out / "summary.json").read_text())["problem"]


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


CHANGES = {"there is no such file": Path.unlink, "it has 100 bytes, and had ": shorten, "this is a link": link}


@pytest.mark.parametrize("said", CHANGES)
def test_rounds_that_are_not_those_of_the_checkpoint_are_refused(
    said: str, tmp_path: Path, copy_cut_off: Callable[[Path, int], None]
) -> None:
    """They would be filled with zeros, begin in the middle, or be written somewhere else; nothing is changed."""
    out = tmp_path / "out"
    copy_cut_off(out, 5)
    CHANGES[said](out / "rounds.jsonl")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(RunError, match=f"rounds.jsonl: {said}.*; put back the run's own file"):
        raysim.run(None, out=out, local=True, resume=True)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


RUBBISH = {
    "text": b"rubbish\n",
    "a list": b"[]\n",
    "a number": b"3\n",
    "another key": b"{}\n",
    "no number": b'{"rounds_recomputed": null}\n',
    "bytes": b"\xff\xfe\x00\n",
    "nested": b"[" * 100_000 + b"\n",
    "beyond a float": b'{"rounds_recomputed": 1e400}\n',
}


@pytest.mark.parametrize("rubbish", RUBBISH)
@pytest.mark.parametrize("name", ["losses.jsonl", "000004/manifest.json", "summary"])
def test_rubbish_is_refused_in_one_line(
    name: str, rubbish: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    if name == "summary":
        (out / "summary.json").write_bytes(RUBBISH[rubbish])
        expected = 2, "summary.json: "
    else:
        (out / "summary.json").unlink()
        newest = sorted((out / "checkpoints").glob("0*"))[-1].name
        path = out / "checkpoints" / name.replace("000004", newest)
        path.write_bytes(RUBBISH[rubbish])
        expected = 1, f"{path.name}: found no interruptions" if name == "losses.jsonl" else "this checkpoint is damaged"
    assert main(["run", "--resume", "--out", str(out), "--local", "--quiet"]) == expected[0]
    said = capsys.readouterr().err
    assert expected[1] in said
    assert said.count("\n") == 1


def test_another_runs_checkpoint_is_refused(tmp_path: Path, copy_cut_off: Callable[[Path, int], None]) -> None:
    """And one of another format."""
    out, other = tmp_path / "out", tmp_path / "other"
    copy_cut_off(out, 3)
    cut_off(other, 3, seed=1)
    newest = out / "checkpoints" / "000002"
    shutil.rmtree(newest)
    shutil.copytree(other / "checkpoints" / "000002", newest)
    words = r"000002: this checkpoint is of another config \(.{12}\), allowed: the config.yaml that began the run; only"
    with pytest.raises(RunError, match=words):
        raysim.run(None, out=out, local=True, resume=True)
    manifest = json.loads((newest / "manifest.json").read_text())
    (newest / "manifest.json").write_text(json.dumps(manifest | {"format": 0}))
    with pytest.raises(RunError, match=f"format 0, allowed: {FORMAT}; resume with raysim {VERSION}, which wrote"):
        raysim.run(None, out=out, local=True, resume=True)


def test_a_checkpoint_executes_no_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy_cut_off: Callable[[Path, int], None]
) -> None:
    """A record whose unpickling would write a file, under checksums that are right."""
    out, trace = tmp_path / "out", tmp_path / "trace"
    copy_cut_off(out, 3)

    class Evil:
        def __reduce__(self) -> tuple:
            return Path.touch, (trace,)

    newest = out / "checkpoints" / "000002"
    record = pickle.dumps(Evil(), protocol=2)
    (newest / "server.bin").write_bytes(record)
    manifest = json.loads((newest / "manifest.json").read_text())
    del manifest["sha256"], manifest["format"]
    manifest["files"]["server.bin"] = hashlib.sha256(record).hexdigest()
    digest = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (newest / "manifest.json").write_text(json.dumps({"format": 4, **manifest, "sha256": digest}))
    with pytest.raises(RunError, match="a checkpoint's record cannot be read"):
        raysim.run(None, out=out, local=True, resume=True)
    assert not trace.exists()


def test_a_full_disk_leaves_the_last_good_one(
    whole: Path, tmp_path: Path, copy_cut_off: Callable[[Path, int], None]
) -> None:
    """Files may have 4 KiB at most, less than a checkpoint's; Linux says so as a full disk would."""
    out = tmp_path / "out"
    copy_cut_off(out, 3)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        with pytest.raises(RunError, match=r"the checkpoint of round 4 could not be written \(File too large\)"):
            raysim.run(None, ["logging.tensorboard=false"], out=out, local=True, resume=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert [path.name for path in sorted((out / "checkpoints").iterdir())] == ["000002", "losses.jsonl"]
    raysim.run(None, out=out, local=True, resume=True)
    assert summary(out) == summary(whole)


def test_a_diverging_run_keeps_its_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, out = tmp_path / "config.yaml", tmp_path / "out"
    config.write_text(json.dumps(CONFIG | {"methods": {"test_resuming:Bomb": {}}}))
    assert main(["run", str(config), "--out", str(out), "--local", "--quiet"]) == 1
    error = capsys.readouterr().err.splitlines()
    where = "client 1 diverged in round 6 (Bomb), in the update of its parameters returned by Bomb.Client.finish"
    assert error[-1].startswith(f"the run failed: {where} ({__file__}:")
    assert "): found nan, allowed: " in error[-1]
    assert error[:-1] == [f"resume from round 4: raysim run --resume --out {out} --local --trust"]
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["status"], error[-1]) == ("failed", f"the run failed: {summary['problem']}")


class Bomb(Method):
    """Client 1 sends NaN in round 6."""

    class Client(ClientHalf):
        def finish(self, client, delta):
            worth = float("nan") if (client.id, client.round) == (1, 6) else 1.0
            return Delta(delta.parameters * worth, delta.buffers), {}


OWN = """from raysim.api import ClientHalf, Method


class Mine(Method):
    class Client(ClientHalf):
        def gradient(self, step, gradient):
            return gradient * {factor}
"""


def test_a_run_that_resumes_with_other_custom_code_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code is compared with that of the checkpoint. Its digests are in the summary, also after a third process."""
    monkeypatch.syspath_prepend(tmp_path)
    out, code = tmp_path / "run", tmp_path / "mine_that_changes.py"
    code.write_text(OWN.format(factor="1.0"))
    cut_off(out, 3, methods={"mine_that_changes:Mine": {}})
    code.write_text(OWN.format(factor="2.0"))
    outage = Outage(5)
    with pytest.raises(Power):
        raysim.run(None, out=out, local=True, resume=True, trust=True, display=outage)
    assert "the custom code of the run changed since round 2, from which it resumes; its results" in outage.said[0]
    (out / "summary.json").unlink()
    raysim.run(None, out=out, local=True, resume=True, trust=True)
    digests = summary(out)["versions"]["code"].split(", then ")
    now = hashlib.sha256(hashlib.sha256(code.read_bytes()).digest()).hexdigest()
    assert len(digests) == 2
    assert digests[1] == now != digests[0]


def test_a_run_that_resumes_with_the_same_custom_code_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine_that_stays.py").write_text(OWN.format(factor="1.0"))
    cut_off(tmp_path / "run", 3, methods={"mine_that_stays:Mine": {}})
    ended = raysim.run(None, out=tmp_path / "run", local=True, resume=True, trust=True)  # a warning would be an error
    assert ", then" not in (ended.versions["code"] or "")
