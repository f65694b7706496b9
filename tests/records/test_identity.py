"""The identity of a run in its summary and its checkpoints, and what resumes with another identity."""

import hashlib
import importlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import raysim
from raysim.config import load
from raysim.engine.events import RoundDone
from raysim.engine.host import ClientHost
from raysim.engine.simulation import load_parts
from raysim.federation import data_digest
from raysim.models.mlp import mlp
from raysim.system import device
from raysim.system.device import describe_machine
from raysim.system.errors import ConfigError, RunError
from raysim.system.version import VERSION


class Power(Exception):
    """It fails."""


class Listener:
    """Keeps the messages, and ends a run after a round as if the power had failed."""

    def __init__(self, last: int | None = None) -> None:
        self.last = last
        self.said: list[str] = []

    def take(self, event: object) -> None:
        if isinstance(event, RoundDone) and event.round == self.last:
            raise Power

    def say(self, text: str) -> None:
        self.said.append(text)


def write(folder: Path, change: int = 0) -> dict[str, np.ndarray]:
    """Write 40 samples with 6 numbers, one of which is changed."""
    x = np.arange(240, dtype=np.float32).reshape(40, 6) / 240
    x[17, 3] += change
    arrays = {"x_train": x, "y_train": np.arange(40) % 4, "x_test": x[:20], "y_test": np.arange(20) % 4}
    np.savez(folder / "mine.npz", **arrays)
    return arrays


def config(folder: Path) -> dict[str, object]:
    return {
        "name": "tiny",
        "dataset": {"name": "npz", "path": str(folder / "mine.npz")},
        "scenario": {"kind": "class_incremental", "tasks": 2},
        "clients": {"count": 2},
        "model": {"name": "mlp", "hidden": [5]},
        "training": {"rounds_per_task": 2, "batch_size": 8, "optimizer": {"lr": 0.1}},
        "checkpoint": {"every_rounds": 2},
    }


def contents(out: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def cut_off(folder: Path) -> Path:
    write(folder)
    with pytest.raises(Power):
        raysim.run(config(folder), out=folder / "run", local=True, display=Listener(3))
    (folder / "run" / "summary.json").unlink()
    return folder / "run"


def expected(arrays: dict[str, np.ndarray]) -> str:
    """Return the digest: of each array its dtype and shape as text, then its bytes in C order."""
    digest = hashlib.sha256()
    for name in ("x_train", "y_train", "x_test", "y_test"):
        digest.update(f"{arrays[name].dtype} {arrays[name].shape}".encode() + arrays[name].tobytes())
    return digest.hexdigest()


def test_the_summary_has_the_digest_of_all_arrays(tmp_path: Path) -> None:
    arrays = write(tmp_path)
    assert raysim.run(config(tmp_path), out=tmp_path / "run", local=True).versions["data"] == expected(arrays)


def test_of_a_large_array_equally_spaced_samples_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 x 6 float32 are 960 bytes, 3.75 times 256: every fourth row. The labels (320 bytes): every second."""
    arrays = write(tmp_path)
    monkeypatch.setattr(data_digest, "READ", 256)
    digest = hashlib.sha256()
    for name, step in (("x_train", 4), ("y_train", 2), ("x_test", 2), ("y_test", 1)):
        array = arrays[name]
        digest.update(f"{array.dtype} {array.shape}".encode() + array[::step].tobytes())
    found = raysim.run(config(tmp_path), out=tmp_path / "run", local=True).versions["data"]
    assert found == digest.hexdigest()


def test_a_run_does_not_resume_with_other_data(tmp_path: Path) -> None:
    """One number of one sample is another. Nothing in the directory changes, and the same data may resume."""
    out = cut_off(tmp_path)
    files = contents(out)
    before = expected(write(tmp_path))
    after = expected(write(tmp_path, change=1))
    with pytest.raises(ConfigError) as caught:
        raysim.run(None, out=out, local=True, resume=True)
    assert str(caught.value) == (
        f"--resume: the data of dataset npz {tmp_path}/mine.npz changed since the checkpoint: found SHA-256 "
        f"{after[:12]}, expected {before[:12]}; put back what the run began with, or start a new run instead of "
        f"resuming {out}"
    )
    assert contents(out) == files
    write(tmp_path)
    assert raysim.run(None, out=out, local=True, resume=True).status == "done"


def test_a_run_does_not_resume_with_other_names_of_classes(tmp_path: Path) -> None:
    """LANDER's embeddings are of the names. Here the numbers of the classes are the same."""
    path = tmp_path / "mine.csv"
    table = "size,kind\n" + "".join(f"{number},{'abcd'[number % 4]}\n" for number in range(40))
    path.write_text(table)
    dataset = {"name": "csv", "path": str(path), "test": str(path), "target": "kind"}
    with pytest.raises(Power):
        raysim.run(config(tmp_path) | {"dataset": dataset}, out=tmp_path / "run", local=True, display=Listener(3))
    (tmp_path / "run" / "summary.json").unlink()
    path.write_text(table.replace(",d", ",e"))
    with pytest.raises(ConfigError, match=r"^--resume: the names of the classes of dataset csv .*mine.csv changed"):
        raysim.run(None, out=tmp_path / "run", local=True, resume=True)


def test_a_run_does_not_resume_with_other_requests_to_forget(tmp_path: Path) -> None:
    """The file is named in the config. The same samples in another order are the same requests."""
    path, out = tmp_path / "requests.csv", tmp_path / "run"
    path.write_text("0,1\n1,3\n")
    write(tmp_path)
    forgetting = {
        "clients": {"count": 2, "forget": [{"round": 2, "samples": str(path)}]},
        "methods": {"analytic": {"grid": 8}},
    }
    with pytest.raises(Power):
        raysim.run(config(tmp_path) | forgetting, out=out, local=True, display=Listener(3))
    (out / "summary.json").unlink()
    path.write_text("0,1\n1,4\n")
    with pytest.raises(ConfigError, match=r"^--resume: the samples of clients.forget \(.*requests.csv\) changed since"):
        raysim.run(None, out=out, local=True, resume=True)
    path.write_text("1,3\n0,1\n")
    assert raysim.run(None, out=out, local=True, resume=True).status == "done"


def test_a_run_that_resumes_with_the_same_data_says_nothing(tmp_path: Path) -> None:
    out = cut_off(tmp_path)
    versions = raysim.run(None, out=out, local=True, resume=True).versions  # a warning would be an error
    assert versions["data"] == expected(write(tmp_path))


def test_client_ids_are_part_of_the_digest(tmp_path: Path) -> None:
    """They decide which client has which samples."""
    digests = []
    for first, second in (("north", "south"), ("south", "north")):
        np.savez(tmp_path / "mine.npz", **write(tmp_path), client_train=np.array([first, second] * 20))
        run = config(tmp_path) | {"partition": {"kind": "natural"}}
        digests.append(raysim.run(run, out=tmp_path / first, local=True).versions["data"])
    assert digests[0] != digests[1]


FROZEN = "1.weight"  # of the layer from 6 numbers to 5
CPU = torch.device("cpu")


def write_weights(folder: Path, seed: int = 0) -> Path:
    """Write weights of the model; with another seed, others of the same size."""
    path = folder / "w.pt"
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        torch.save(mlp((6,), 4, hidden=[5]).state_dict(), path)
    return path


def frozen(folder: Path) -> dict[str, object]:
    """A run whose frozen layer is mapped from the file of weights."""
    model = {"name": "mlp", "hidden": [5], "freeze": [FROZEN], "weights": str(write_weights(folder))}
    return config(folder) | {"model": model}


class Changes(Listener):
    """Does something to a file after a round."""

    def __init__(self, round: int, change: Callable[[], object]) -> None:
        super().__init__()
        self.round, self.change = round, change

    def take(self, event: object) -> None:
        if isinstance(event, RoundDone) and event.round == self.round:
            self.change()


def write_over(path: Path, offset: int = 0) -> None:
    """Change a byte of the first frozen number in the file, in place."""
    number = torch.load(path, weights_only=True)[FROZEN].numpy().tobytes()
    content = path.read_bytes()
    place = content.index(number) + 3 + offset
    with path.open("r+b") as file:
        file.seek(place)
        file.write(bytes([content[place] ^ 1]))


def put_back(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def test_weights_that_change_during_a_run_end_it(tmp_path: Path) -> None:
    """Round 3 is computed with the file as it was. With the old content back, the run resumes and has the same bits."""
    write(tmp_path)
    run, out = frozen(tmp_path), tmp_path / "run"
    path = tmp_path / "w.pt"
    content = path.read_bytes()
    undisturbed = raysim.run(run, out=tmp_path / "whole", local=True)
    with pytest.raises(RunError, match=r"^model\.weights: .*w\.pt is not the file that the run began with: found SHA-"):
        raysim.run(run, out=out, local=True, display=Changes(3, lambda: write_over(path)))
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["status"], summary["rounds"]) == ("failed", 3)
    with pytest.raises(
        ConfigError, match=r"^--resume: model\.weights: .*w\.pt changed since the checkpoint: found SHA"
    ):
        raysim.run(None, out=out, local=True, resume=True)
    put_back(path, content)
    assert raysim.run(None, out=out, local=True, resume=True).model_sha256 == undisturbed.model_sha256
    assert undisturbed.versions["weights"] == hashlib.sha256(content).hexdigest()


def test_weights_that_become_shorter_or_go_end_a_run_in_one_line(tmp_path: Path) -> None:
    """Their missing pages are not read, which would kill the process."""
    write(tmp_path)
    for number, change in enumerate((lambda path: os.truncate(path, 100), Path.unlink)):
        run, path = frozen(tmp_path), tmp_path / "w.pt"
        with pytest.raises(RunError, match=r"^model\.weights: .*(is not the file|cannot be read any more)") as caught:
            raysim.run(
                run, out=tmp_path / str(number), local=True, display=Changes(2, lambda path=path, do=change: do(path))
            )
        assert "\n" not in str(caught.value)


def test_other_weights_with_the_old_time_and_size_end_a_run(tmp_path: Path) -> None:
    """As of rsync --times --inplace: only the inode's own time shows it."""
    write(tmp_path)
    run, path = frozen(tmp_path), tmp_path / "w.pt"
    before = path.stat()

    def change() -> None:
        write_over(path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(RunError, match=r"w\.pt is not the file that the run began with"):
        raysim.run(run, out=tmp_path / "run", local=True, display=Changes(2, change))


def test_an_error_that_other_weights_may_have_caused_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    (tmp_path / "fails_with_others.py").write_text("""
from raysim.api import ClientHalf, Method

class Fails(Method):
    class Client(ClientHalf):
        def start(self, client, message):
            with open("w.pt", "ab") as file:
                file.write(b"more")
            raise ValueError("diverged")
""")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    run = frozen(tmp_path) | {"methods": {"fails_with_others:Fails": {}}}
    with pytest.raises(RunError, match=r"^model\.weights: .*w\.pt is not the file that the run began with"):
        raysim.run(run, out=tmp_path / "run", local=True)


def test_weights_that_are_only_touched_or_copied_over_themselves_do_not_matter(tmp_path: Path) -> None:
    write(tmp_path)
    run, path = frozen(tmp_path), tmp_path / "w.pt"
    content = path.read_bytes()
    raysim.run(run, out=tmp_path / "a", local=True, display=Changes(1, lambda: os.utime(path, (1, 1))))
    copy = tmp_path / "copy.pt"
    copy.write_bytes(content)
    assert raysim.run(run, out=tmp_path / "b", local=True, display=Changes(1, lambda: copy.replace(path))).rounds == 4


def test_a_host_with_another_file_than_the_driver_does_not_start(tmp_path: Path) -> None:
    """Also if the file was replaced after the driver read it, and so the driver's own mapping is unchanged."""
    write(tmp_path)
    run = load(frozen(tmp_path))
    federation, _ = load_parts(run)
    (file,) = federation.files
    assert (file.key, file.sha256) == ("model.weights", hashlib.sha256((tmp_path / "w.pt").read_bytes()).hexdigest())
    host = ClientHost(run, federation, [0], CPU)
    other = replace(federation, files=[replace(file, stamp=(0, 0, 0, 0))])  # another node has other numbers
    ClientHost(run, other, [0], CPU)
    (tmp_path / "other").mkdir()
    write_weights(tmp_path / "other", seed=1).replace(tmp_path / "w.pt")
    for known in (federation, other):
        with pytest.raises(RunError, match=r"is not the file that the run began with"):
            ClientHost(run, known, [0], CPU)
    with pytest.raises(RunError, match=r"is not the file that the run began with"):
        host.evaluate([])


def test_a_file_that_a_method_reads_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server reads it in the first round; hosts, which may be on other nodes, do not need it."""
    (tmp_path / "reads_a_table.py").write_text("""
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from raysim.api import Method, ServerHalf

@dataclass(frozen=True, kw_only=True)
class Reads(Method):
    table: str | None = None
    files: ClassVar = ("table",)

    class Server(ServerHalf):
        def update(self, server, delta, reply):
            delta.parameters.mul_(float(Path(self.method.table).read_text()))
            return delta
""")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.invalidate_caches()
    write(tmp_path)
    table = tmp_path / "table.txt"
    table.write_text("0.5")
    run = config(tmp_path) | {"methods": {"reads_a_table:Reads": {"table": str(table)}}}
    done = raysim.run(run, out=tmp_path / "whole", local=True)
    assert done.versions["Reads.table"] == hashlib.sha256(b"0.5").hexdigest()
    out = tmp_path / "run"
    with pytest.raises(RunError, match=r"^methods\.Reads\.table: .*table\.txt is not the file that the run began"):
        raysim.run(run, out=out, local=True, display=Changes(3, lambda: table.write_text("0.7")))
    with pytest.raises(ConfigError, match=r"^--resume: methods\.Reads\.table: .*table\.txt changed since the check"):
        raysim.run(None, out=out, local=True, resume=True, trust=True)
    federation, _ = load_parts(load(run))
    table.unlink()
    ClientHost(load(run), federation, [0], CPU)


def test_the_summary_and_the_checkpoint_have_the_same_identity(tmp_path: Path) -> None:
    write(tmp_path)
    versions = raysim.run(frozen(tmp_path), out=tmp_path / "run", local=True).versions
    manifest = json.loads((tmp_path / "run" / "checkpoints" / "000002" / "manifest.json").read_text())
    identity = manifest["recorded"]["identity"]
    assert {*identity} == {"data", "weights", "model", "machine", "settings", "numpy"}
    assert identity == {name: versions[name] for name in identity}
    assert identity["machine"] == describe_machine(CPU)
    assert (identity["settings"], identity["numpy"], versions["raysim"]) == ("server_cpus 1", np.__version__, VERSION)


def test_a_run_that_resumes_on_another_kind_of_cpu_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So does one with other settings that may change the last bits."""
    out, before = cut_off(tmp_path), describe_machine(CPU)
    monkeypatch.setattr(device, "_find_cpu", lambda: "Another CPU")
    display = Listener()
    raysim.run(None, {"resources.server_cpus": 2}, out=out, local=True, resume=True, display=display)
    changed = "the settings of resources and the kind of machine of the run changed since round 2, from which it resume"
    assert [line for line in display.said if changed in line and "which are in summary.json (versions)" in line]
    versions = json.loads((out / "summary.json").read_text())["versions"]
    assert versions["machine"] == f"{before}, then {describe_machine(CPU)}"
    assert versions["settings"] == "server_cpus 1, then server_cpus 2"


def test_variables_that_choose_instructions_are_part_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    before = describe_machine(CPU)
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "BF16")
    assert describe_machine(CPU) == f"{before}, ONEDNN_DEFAULT_FPMATH_MODE=BF16"


def test_what_a_custom_model_reads_is_part_of_the_initial_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frozen layer is in no checkpoint. Only the model has its file."""
    (tmp_path / "reads_a_file.py").write_text("""
from pathlib import Path
from torch import nn

def net(shape, classes, *, scale):
    layer = nn.Linear(6, 5)
    nn.init.constant_(layer.weight, float(Path(scale).read_text()))
    return nn.Sequential(layer, nn.Linear(5, classes))
""")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.invalidate_caches()
    write(tmp_path)
    (tmp_path / "scale").write_text("0.5")
    model = {"name": "reads_a_file:net", "scale": str(tmp_path / "scale"), "freeze": ["0.*"]}
    out = tmp_path / "run"
    with pytest.raises(Power):
        raysim.run(config(tmp_path) | {"model": model}, out=out, local=True, display=Listener(3))
    (out / "summary.json").unlink()
    (tmp_path / "scale").write_text("0.7")
    with pytest.raises(ConfigError, match=r"^--resume: the initial model changed since the checkpoint: found SHA-256 "):
        raysim.run(None, out=out, local=True, resume=True, trust=True)


def test_an_older_checkpoint_has_digests_of_code_and_data_only(tmp_path: Path) -> None:
    """Its manifest is written as it was then; nothing is said of what it does not know."""
    out = cut_off(tmp_path)
    path = out / "checkpoints" / "000002" / "manifest.json"
    manifest = json.loads(path.read_text())
    recorded = manifest["recorded"]
    recorded |= {"code": None, "data": recorded.pop("identity")["data"]}
    body = {key: value for key, value in manifest.items() if key not in ("format", "sha256")}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    path.write_text(json.dumps({"format": 4, **body, "sha256": digest}))
    versions = raysim.run(None, out=out, local=True, resume=True).versions  # a warning would be an error
    assert versions["data"] == recorded["data"]
    write(tmp_path, change=1)
    (out / "summary.json").unlink()
    with pytest.raises(ConfigError, match=r"^--resume: the data of dataset npz .* changed since the checkpoint"):
        raysim.run(None, out=out, local=True, resume=True)


@pytest.mark.parametrize("name", ["checkpoints", "checkpoints/000002", "checkpoints/000002/clients.bin"])
def test_a_link_in_place_of_a_checkpoint_is_refused(name: str, tmp_path: Path) -> None:
    """A run directory may come from somebody else. Nothing is read or written where the link leads."""
    out, elsewhere = cut_off(tmp_path), tmp_path / "elsewhere"
    (out / name).rename(elsewhere)
    (out / name).symlink_to(elsewhere)
    before = contents(tmp_path)
    with pytest.raises(
        RunError, match=f"^{out / name}: this is a link to {elsewhere}, allowed: the run's own folder; "
    ):
        raysim.run(None, out=out, local=True, resume=True)
    assert contents(tmp_path) == before
