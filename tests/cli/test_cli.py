"""The commands as a user types them: what they print, where, and with which exit status."""

import itertools
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, TextIO

import pytest
import torch
from rich.console import Console

import raysim
from raysim.algorithms import GROUPS, METHODS
from raysim.cli import main
from raysim.config import Config, load
from raysim.data import DATASETS
from raysim.launch import run as running
from raysim.launch.bar import open_run_display
from raysim.launch.resuming import resume_command
from raysim.models import MODELS
from raysim.system.errors import RunError

LIMIT = 60  # seconds until a hang is a hang
SCRIPT = str(Path(sys.executable).with_name("raysim"))
ESCAPE = "\x1b"

CONFIG = """
name: tiny
dataset: {name: synthetic, classes: 4, shape: [6], train: 40, test: 20}
scenario: {kind: class_incremental, tasks: 2}
clients: {count: 2}
model: {name: mlp, hidden: [5]}
training: {rounds_per_task: 2, batch_size: 4}
"""

MINE = '''
from __future__ import annotations
from dataclasses import dataclass
from pathlib import Path
import numpy as np
from torch import nn
from raysim.api import ClientHalf, Delta, Method
from raysim.data.dataset import Dataset, Split


def dots(root: Path, download: bool, *, samples: int = 40) -> Dataset:
    """Dots."""
    y = np.arange(samples, dtype=np.int64) % 4
    x = np.eye(4, dtype=np.float32)[y]
    return Dataset(Split(x, y), Split(x, y), 4)


def line(shape: tuple[int, ...], classes: int, *, bias: bool = True) -> nn.Module:
    """Line."""
    return nn.Linear(shape[0], classes, bias=bias)


@dataclass(frozen=True, kw_only=True)
class Still(Method):
    """Still: nobody moves."""

    class Client(ClientHalf):
        def finish(self, client, delta):
            return Delta(delta.parameters * 0, delta.buffers), {}
'''

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with a good config, some bad ones and a package of the user's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "200")
    Path("tiny.yaml").write_text(CONFIG)
    Path("empty.yaml").write_text("# nothing yet\n")
    Path("broken.yaml").write_text("name: [tiny\n")
    Path("object.yaml").write_text("name: tiny\nseed: !!python/object/apply:os.system [touch owned]\n")
    Path("sweep.yaml").write_text("name: many\nbase: gone.yaml\ngrid: {seed: [0, 1]}\n")
    Path("binary.yaml").write_bytes(b"\xff\xfe\x00name")
    Path("twice.yaml").write_text(CONFIG + "seed: 1\nseed: 2\n")
    Path("taken").mkdir()
    Path("taken/notes.txt").write_text("mine")
    Path("nothing_here").mkdir()
    for name in ("begun", "ended"):
        Path(name).mkdir()
        Path(name, "config.yaml").write_text(CONFIG)
    Path("ended/model.pt").write_bytes(b"PK no more")
    Path("mine").mkdir()
    Path("mine/parts.py").write_text(MINE)


def process(*command: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, **more)


WINDOWS = ["training.rounds_per_task=null", "scenario.boundaries={asynchronous: {window: 5}}"]
NO_GPU = "found 64, and this machine has no GPU that torch can use; allowed: 0"
if torch.cuda.is_available():
    NO_GPU = "the cluster has"
WRONG = {
    "no such command": (["rnu"], "unknown command 'rnu'; did you mean 'run'? `raysim --help` lists all"),
    "no config": (["run"], "raysim run: the following arguments are required: CONFIG; see"),
    "no config to check": (["check"], "raysim check: the following arguments are required: CONFIG; see"),
    "no config to show": (["show"], "raysim show: the following arguments are required: CONFIG; see"),
    "no run to evaluate": (["evaluate"], "raysim evaluate: the following arguments are required: DIR; see"),
    "an option as command": (["--quiet"], "unknown command '--quiet'; allowed: run"),
    "an unknown option": (["run", "tiny.yaml", "--fast"], "--fast"),
    "an abbreviated option": (["run", "tiny.yaml", "--qui"], "--qui"),
    "an option without its value": (["run", "tiny.yaml", "--out"], "--out: expected one argument"),
    "a flag with a value": (["run", "tiny.yaml", "--local=yes"], "--local"),
    "an option of another command": (["check", "tiny.yaml", "--out", "x"], "--out"),
    "a key as an option": (
        ["run", "tiny.yaml", "--methods", "er"],
        "--methods er; did you mean 'methods=er'? see raysim",
    ),
    "a dotted key as an option": (["run", "tiny.yaml", "--clients.count=3"], "did you mean 'clients.count=3'?"),
    "a misspelled option": (["run", "tiny.yaml", "--quite"], "--quite; did you mean '--quiet'? see raysim run --help"),
    "an unknown shell": (["completion", "tcsh"], "invalid choice: 'tcsh'"),
    "an unknown kind": (["list", "clients"], "unknown kind 'clients'; allowed: methods, datasets, models, "),
    "no such file": (["run", "tinny.yaml"], "tinny.yaml"),
    "no such name": (["run", "quickstrat"], "did you mean 'quickstart'? `raysim configs` lists all"),
    "no such name to check": (["check", "splitdigits"], "did you mean 'split_digits'?"),
    "no such sweep": (["sweep", "sweeps/refed", "--list"], "did you mean 'sweeps/re_fed'?"),
    "no such name to copy": (["new", "mine.yaml", "--from", "quickstrat"], "did you mean 'quickstart'?"),
    "a copy over a file": (
        ["new", "tiny.yaml"],
        "tiny.yaml: this exists already and was left as it is, allowed: a new",
    ),
    "a copy of a folder": (["new", "mine.yaml", "--from", "taken"], "taken: this is a directory, allowed: a YAML file"),
    "a copy without a name": (["new"], "raysim new: the following arguments are required: FILE"),
    "a name to list configs of": (["configs", "papers"], "raysim configs: unrecognized arguments: papers"),
    "a folder as config": (["run", "mine"], "mine"),
    "an empty file": (["run", "empty.yaml"], "the file is empty"),
    "a broken file": (["run", "broken.yaml"], "broken.yaml:2: broken YAML"),
    "a binary file": (["run", "binary.yaml"], "binary.yaml"),
    "a key given twice": (["run", "twice.yaml"], "twice.yaml:9: the key 'seed' is given twice"),
    "no equals sign": (["run", "tiny.yaml", "seed"], "allowed: KEY=VALUE"),
    "more threads than CPUs": (
        ["run", "tiny.yaml", "--local", "resources.server_cpus=9999"],
        "resources.server_cpus: found 9999, allowed with --local: at most",
    ),
    "broken YAML on the command line": (["run", "tiny.yaml", "methods={fedprox"], "methods={fedprox"),
    "an unknown key": (["run", "tiny.yaml", "trainin.batch_size=3"], "did you mean 'training'?"),
    "a wrong type": (["run", "tiny.yaml", "seed=abc"], "found 'abc', allowed: a whole number"),
    "a bad value": (["run", "tiny.yaml", "clients.count=0"], "found 0, allowed: a whole number >= 1"),
    "an unknown method": (["run", "tiny.yaml", "methods={fedprx: {}}"], "did you mean 'fedprox'?"),
    "an unknown dataset": (["run", "tiny.yaml", "dataset.name=digitss"], "did you mean 'digits'?"),
    "an unknown model": (["run", "tiny.yaml", "model={name: mpl}"], "did you mean 'mlp'?"),
    "a module that is not there": (["run", "tiny.yaml", "model={name: 'ours:net'}"], "the module ours cannot be"),
    "a name that is not there": (["run", "tiny.yaml", "model={name: 'mine.parts:lime'}"], "did you mean 'line'?"),
    "more participants than clients": (["run", "tiny.yaml", "participation={count: 3}"], "at most clients.count (2)"),
    "GPUs that are not there": (["run", "tiny.yaml", "resources.gpus_per_actor=64"], NO_GPU),
    "CPUs that are not there": (["run", "tiny.yaml", "resources.cpus_per_actor=4096"], "the cluster has"),
    "more memory than there is": (["run", "tiny.yaml", "clients.count=1000000"], "clients_per_actor=auto"),
    "a cluster that is not there": (["run", "tiny.yaml", "resources.address=127.0.0.1:1"], "no cluster answers"),
    "a missing data file": (["run", "tiny.yaml", "dataset={name: npz, path: gone.npz}"], "gone.npz"),
    "a missing folder": (["run", "tiny.yaml", "dataset={name: mnist, root: gone}"], "there is no folder"),
    "no files in the folder": (
        ["run", "tiny.yaml", "dataset={name: mnist, root: nothing_here, download: false}"],
        "nothing_here",
    ),
    "weights that are not there": (["run", "tiny.yaml", "model.weights=gone.pt"], "there is no file gone.pt"),
    "a model that does not fit": (
        ["run", "tiny.yaml", "model={name: mnist_cnn}"],
        "of shape (6,), allowed for mnist_cnn",
    ),
    "crops of what is no image": (
        ["run", "tiny.yaml", "--local", "dataset.augment=[crop]"],
        "dataset.augment: crop needs images (C, H, W), the samples have shape (6,)\n",
    ),
    "more tasks than classes": (["run", "tiny.yaml", "scenario.tasks=5"], "scenario.tasks"),
    "a directory that is taken": (["run", "tiny.yaml", "--out", "taken"], "this directory is not empty"),
    "a file as directory": (["run", "tiny.yaml", "--out", "tiny.yaml"], "this is a file"),
    "a directory below a file": (
        ["run", "tiny.yaml", "--out", "tiny.yaml/x"],
        "--out tiny.yaml/x: Not a directory, allowed: a directory that can be made and written to\n",
    ),
    "a directory that nobody can make": (
        ["run", "tiny.yaml", "--out", "/proc/x"],
        "--out /proc/x: No such file or directory, allowed: a directory that can be made and written to\n",
    ),
    "a name that is too long": (["run", "tiny.yaml", "--out", "x" * 300], "...: File name too long, allowed: a"),
    "a directory with a null byte": (
        ["run", "tiny.yaml", "--out", "a\0b"],
        "--out a\\x00b: found a null byte, allowed",
    ),
    "a look at no cluster": (
        ["check", "tiny.yaml", "--cluster"],
        "found null, allowed with --cluster: the address of a",
    ),
    "an empty command": (
        [""],
        "raysim: unknown command ''; allowed: run, sweep, reproduce, check, download, evaluate, show, report, ",
    ),
    "an empty config": (
        ["run", ""],
        "raysim run: found nothing after run, as with an unset variable, allowed: a value;",
    ),
    "an empty directory": (["run", "tiny.yaml", "--local", "--out", ""], "raysim run: found nothing after --out, as"),
    "an empty directory after =": (["sweep", "sweep.yaml", "--list", "--out="], "found nothing after --out=, as"),
    "an empty directory to report": (["report", ""], "raysim report: found nothing after report, as with an unset"),
    "a config too many": (["run", "tiny.yaml", "tiny.yaml"], "tiny.yaml: found no '=', allowed: KEY=VALUE"),
    "nothing to go on from": (["run", "--resume"], "--resume: found no --out, allowed: --resume --out DIR"),
    "a directory without a run": (["run", "--resume", "--out", "taken"], "--resume: there is no taken/config.yaml"),
    "a Python object": (
        ["run", "object.yaml"],
        "object.yaml:2: unknown tag '!!python/object/apply:os.system'; tags are not needed here\n",
    ),
    "more than fits into memory": (
        ["run", "tiny.yaml", "dataset.train=1000000000000"],
        "dataset.train: found 1000000000000 of 6 features, which takes 178,813.9 GiB, allowed: what fits into ",
    ),
    "too many dimensions": (
        ["run", "tiny.yaml", f"dataset.shape={[1] * 9}"],
        "found [1, 1, 1, 1, 1, 1, 1, 1, 1], allowed: a list of whole numbers >= 1, at most 8\n",
    ),
    "too many layers": (
        ["run", "tiny.yaml", f"model.hidden={[1] * 20_000}"],
        "allowed: a list of whole numbers >= 1, at most 1000\n",
    ),
    "too many rounds in windows": (
        ["run", "tiny.yaml", *WINDOWS, "clients.arrive={at: [{round: 9000000, clients: [1]}]}"],
        "found 20, with which the run has 9000079 rounds, allowed: at most 1000000; lower it, or clients.arrive's",
    ),
    "a sweep that is a run's config": (["sweep", "tiny.yaml"], "did you mean `raysim run tiny.yaml`?"),
    "a run of a sweep": (["run", "sweep.yaml"], "did you mean `raysim sweep sweep.yaml`?"),
    "a list of many names": (["run", "tiny.yaml", "methods=fedporx"], "'fedprox'? `raysim list methods` lists all\n"),
    "a sweep without a base": (["sweep", "sweep.yaml", "--list"], "sweep.yaml:2: base: found 'gone.yaml', and there"),
    "no runs at a time": (["sweep", "sweep.yaml", "--jobs", "0"], "--jobs: found '0', allowed: a whole number >= 1"),
    "nothing to evaluate": (["evaluate"], "required: DIR"),
    "a model that is not there": (
        ["evaluate", "taken"],
        "taken/config.yaml: there is no such file; allowed: the directory of a run that is done\n",
    ),
    "a run without a model": (
        ["evaluate", "begun"],
        "begun/model.pt: there is no such file, which a run writes at its end (a killed one continues with --resume); ",
    ),
    "training after the end": (
        ["evaluate", "ended", "training.batch_size=2"],
        "training.batch_size=2: found a key of training, which the trained model cannot change, allowed: keys of ",
    ),
    "a model that is no model": (
        ["evaluate", "ended"],
        "model.weights: ended/model.pt is cut off: it begins as a file",
    ),
    "accuracies over a file": (["evaluate", "ended", "--out", "tiny.yaml"], "--out tiny.yaml: this is there already"),
    "no directory to report": (["report"], "required: DIR"),
    "a directory that is not there": (
        ["report", "gone"],
        "gone: there is no such directory, allowed: ",
    ),
    "a report of no runs": (
        ["report", "taken"],
        "taken: found no finished run, so nothing was written; allowed: directories that hold",
    ),
    "a report of a file": (["report", "tiny.yaml"], "tiny.yaml: this is a file, allowed: a directory with runs"),
    "an unknown paper": (
        ["report", "taken", "--against", "nobody"],
        "--against nobody: found no figures of such a paper, allowed: c_flag, fed_a_gem, re_fed, special\n",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_told_in_one_line(case: str, capsys: Captured) -> None:
    argv, fragment = WRONG[case]
    assert main(argv) == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.count("\n") == 1
    assert errors.endswith("\n")
    assert fragment in errors
    assert not {"runs", "owned", "x" * 300} & {path.name for path in Path().iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        "no such command",
        "a broken file",
        "a directory that is taken",
        *(
            pytest.param(case, marks=pytest.mark.soak)
            for case in (
                "an unknown option",
                "a Python object",
                "an unknown method",
                "a wrong type",
                "more than fits into memory",
                "a sweep without a base",
                "a report of no runs",
            )
        ),
    ],
)
def test_what_is_wrong_is_told_in_one_line_by_the_command_itself(case: str) -> None:
    argv, fragment = WRONG[case]
    done = process(SCRIPT, *argv)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert fragment in done.stderr


WITHOUT_RAY = """
import sys
from raysim.cli import main
status = main(sys.argv[1:])
assert "ray" not in sys.modules, "Ray was imported"
sys.exit(status)
"""


@pytest.mark.slow
def test_a_missing_data_file_is_found_before_ray_is_imported() -> None:
    done = process(sys.executable, "-c", WITHOUT_RAY, *WRONG["a missing data file"][0])
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.slow
def test_check_starts_nothing_and_says_what_would_start() -> None:
    done = process(sys.executable, "-c", WITHOUT_RAY, "check", "tiny.yaml", "resources.clients_per_actor=2")
    assert (done.returncode, done.stderr) == (0, "")
    said = dict(line.split(None, 1) for line in done.stdout.splitlines())
    assert said["run"] == "tiny, seed 0, methods: none (FedAvg)"
    assert said["rounds"] == "4 with 8 client updates"
    assert said["steps"] == "24 gradient steps"
    assert said["actors"].startswith("1 coordinator and 1 host on this machine")
    assert {"bytes", "memory", "time"} <= set(said)
    assert sorted(path.name for path in Path().glob("runs*")) == []


def test_a_command_to_copy_is_quoted_for_the_shell(capsys: Captured) -> None:
    assert main(["new", "FL + ER.yaml"]) == 0
    assert capsys.readouterr().out.endswith("then raysim check 'FL + ER.yaml'\n")
    assert main(["new", "my sweep.yaml", "--from", "sweeps/re_fed"]) == 0
    assert capsys.readouterr().out.endswith("then raysim sweep 'my sweep.yaml' --list\n")
    config, resume = load("FL + ER.yaml"), "raysim run --resume --out 'FL + ER'"
    assert [resume_command(config, Path("FL + ER"), local) for local in (False, True)] == [resume, f"{resume} --local"]


def test_the_schema_is_json_that_describes_every_block(capsys: Captured) -> None:
    assert main(["check", "--schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert main(["check", "tiny.yaml", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema
    assert set(schema["properties"]) == set(Config.model_fields)
    assert {"name", "dataset", "scenario", "clients", "model", "training"} <= set(schema["required"])


@pytest.mark.parametrize(("kind", "table"), [("methods", METHODS), ("datasets", DATASETS), ("models", MODELS)])
def test_list_prints_what_exists(kind: str, table: dict[str, str], capsys: Captured) -> None:
    assert main(["list", kind]) == 0
    printed = capsys.readouterr().out.splitlines()
    lines = [line for line in printed if not line.endswith(":")]
    assert [line.split()[0] for line in lines] == list(table)
    assert all(len(line.split()) > 3 for line in lines)
    headings = [line.removesuffix(":") for line in printed if line not in lines]
    assert headings == ([*GROUPS] if kind == "methods" else [])


def test_help_and_version(capsys: Captured) -> None:
    assert main(["--help"]) == 0
    usage = capsys.readouterr().out
    assert all(f"\n  {command} " in usage for command in ("run", "check", "list", "sweep", "report", "evaluate"))
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"raysim {raysim.__version__}\n"
    assert main([]) == 0
    assert tuple(capsys.readouterr()) == (usage, "")
    for command in ("run", "check", "list", "sweep", "report", "evaluate"):
        assert main([command, "--help"]) == 0
        assert f"usage: raysim {command}" in capsys.readouterr().out


@pytest.mark.slow
def test_python_m_raysim_is_raysim() -> None:
    command, module = process(SCRIPT, "configs"), process(sys.executable, "-m", "raysim", "configs")
    assert command.stdout == module.stdout != ""
    assert process(sys.executable, "-m", "raysim", "rnu").returncode == 2


def test_options_and_overrides_come_in_any_order(capsys: Captured) -> None:
    pieces = [["--out", "DIR"], ["--local", "--quiet"], ["seed=3", "training.optimizer.lr=0.5"]]
    for number, order in enumerate(itertools.permutations(pieces)):
        first, *others = itertools.chain(*order)
        before = [first] if first == "--local" else []
        argv = ["run", *before, "tiny.yaml", *([] if before else [first]), *others]
        out = f"out-{number}"
        assert main([out if word == "DIR" else word for word in argv]) == 0
        assert tuple(capsys.readouterr()) == ("", "")
        resolved = load(Path(out, "config.yaml"))
        assert (resolved.seed, resolved.training.optimizer.lr) == (3, 0.5)


def test_a_run_without_a_terminal_prints_plain_lines(capsys: Captured) -> None:
    assert main(["run", "tiny.yaml", "--local"]) == 0
    output, errors = capsys.readouterr()
    assert errors == ""
    assert ESCAPE not in output
    assert "\r" not in output
    for task in (1, 2):
        assert re.search(
            rf"^task {task}, round {2 * task} of 4, loss \d\.\d+, class-IL \d+\.\d%, task-IL", output, re.M
        )
    first, second, *_ = output.splitlines()
    assert first == ("tiny, seed 0: FedAvg with mlp on synthetic; 2 clients, 2 class-incremental tasks, 4 rounds")
    assert re.fullmatch(r"running in this process, without Ray; files go to runs/tiny/seed-0/\S+", second)
    assert re.search(r"^done: 4 rounds in \d+ s, ", output, re.M)
    (directory,) = Path("runs/tiny/seed-0").iterdir()
    assert f"run directory: {directory}\n" in output
    for command in ("raysim report", "raysim evaluate", "tensorboard --logdir"):
        assert f" {command} {directory}\n" in output
    assert raysim.load(directory).status == "done"
    assert torch.load(directory / "model.pt", weights_only=True).keys() == {"1.weight", "1.bias", "3.weight", "3.bias"}


@pytest.mark.slow
def test_on_a_terminal_a_bar_shows_task_round_loss_accuracy_and_time_left() -> None:
    leader, follower = pty.openpty()
    run = subprocess.Popen(
        [SCRIPT, "run", "tiny.yaml", "--local", "--out", "out", "evaluation={every_rounds: 1}"],
        stdout=follower,
        stderr=subprocess.PIPE,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160"},
    )
    os.close(follower)
    pieces = []
    try:
        while piece := os.read(leader, 65536):
            pieces.append(piece)
    except OSError:  # the terminal's end of file
        pass
    os.close(leader)
    _, errors = run.communicate(timeout=LIMIT)
    assert (run.returncode, errors) == (0, b"")
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", b"".join(pieces).decode())
    assert re.search(
        r"task 2/2 ━+ round 4/4 loss \d\.\d+  class-IL \d+\.\d%, task-IL \d+\.\d% +0:00:\d\d · left", shown
    )


def test_the_live_display_takes_every_event(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def terminal(stream: TextIO) -> Console:
        return Console(file=stream, force_terminal=True, width=160)

    monkeypatch.setattr("raysim.launch.bar.make_console", terminal)
    with open_run_display(load("tiny.yaml"), quiet=False) as shown:
        raysim.run("tiny.yaml", out="out", local=True, display=shown)
        shown.say("stopping after this round")
    output = capsys.readouterr().out
    assert ESCAPE in output
    assert "stopping after this round" in output
    assert "4/4" in output


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (RunError("client 1 diverged"), 1, "the run failed: client 1 diverged\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_a_failure_has_its_own_exit_status(
    raised: BaseException, status: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def carry_out(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(running, "carry_out", carry_out)
    assert main(["run", "tiny.yaml"]) == status
    assert tuple(capsys.readouterr()) == ("", said)


@pytest.mark.parametrize("command", [["report"], ["evaluate"], ["live"], ["run", "--resume", "--local", "--out"]])
def test_a_name_that_is_too_long_for_a_file_is_one_line(command: list[str], capsys: Captured) -> None:
    assert main([*command, "x" * 300]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("x" * 100)
    assert line.endswith(": File name too long, allowed: a path that can be reached")


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"'{SCRIPT}' configs | head -1; exit ${{PIPESTATUS[0]}}"
    done = process("bash", "-c", command)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


MY_OWN = [
    "dataset={name: 'mine.parts:dots', samples: 24}",
    "model={name: 'mine.parts:line', bias: false}",
    "methods={'mine.parts:Still': {}}",
]


@pytest.mark.slow
@pytest.mark.parametrize("where", ["local", pytest.param("ray", marks=[pytest.mark.ray, pytest.mark.soak])])
def test_what_is_my_own_comes_from_the_working_directory(where: str) -> None:
    local = ["--local"] if where == "local" else []
    done = process(SCRIPT, "run", "tiny.yaml", *MY_OWN, "--quiet", "--out", "out", *local)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    result = raysim.load("out")
    assert result.methods == ["mine.parts:Still"]
    assert torch.load("out/model.pt", weights_only=True)["weight"].shape == (4, 4)
    accuracy = result.evaluation["class_il"]["accuracy"]
    assert accuracy[0] == accuracy[1]  # nobody moved


def test_numpy_has_one_thread() -> None:
    """OpenBLAS starts its threads when NumPy is imported, one for each CPU."""
    code = """
import sys
from raysim.cli import main
sys.argv = ["raysim", "configs"]
main()
import numpy, psutil
print(psutil.Process().num_threads())
"""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert ended.stdout.splitlines()[-1] == "1"
