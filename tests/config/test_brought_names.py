"""Names and ways of writing that people bring from other frameworks: what each of them is answered, and what works."""

from pathlib import Path

import pytest

from raysim.cli import main
from raysim.command_line import COMMANDS as REAL_COMMANDS
from raysim.config import ConfigError, load
from raysim.config.brought_names import BLOCKS, COMMANDS, KEYS, NAMES, NONE_NEEDED
from raysim.config.lookup import table

UNCHOSEN = ", which this config does not choose"

MEANT = {
    # Mammoth
    "methods=er buffer_size=500": "'memory.capacity'",
    "methods.er.buffer_size=500": "'memory.capacity'",
    "methods=er methods.er.mem_size=500": "'memory.capacity'",
    "methods=er bufer_size=500": "'memory.capacity'",
    "memory.buffer_size=500": "'memory.capacity'",
    "minibatch_size=32": "'methods.er.sample_size'",
    "n_epochs=5": "'training.local_epochs'",
    "optim_wd=0.1": "'training.optimizer.weight_decay'",
    "optim_mom=0.9": "'training.optimizer.momentum'",
    "backbone=resnet18": "'model'",
    "permute_classes=true": "'scenario.class_order'",
    "dataset=seq-cifar10": "'cifar10' with 'scenario={kind: class_incremental, tasks: 5}'",
    "dataset=perm-mnist": "'mnist' with 'scenario={kind: domain_incremental, tasks: 20, shift: permutation}'",
    "methods=derpp": "'der' with 'methods.der.beta=0.5'",
    "methods=agem": "'a_gem'",
    "methods=ewc_on": "'ewc'",
    # Avalanche
    "mem_size=200": "'memory.capacity'",
    "train_mb_size=32": "'training.batch_size'",
    "train_epochs=2": "'training.local_epochs'",
    "n_experiences=5": "'scenario.tasks'",
    "dataset=SplitMNIST": "'mnist' with 'scenario={kind: class_incremental, tasks: 5}'",
    "methods=Naive": "'fedavg'",
    "methods=Replay": "'er'",
    # PyCIL
    "memory_size=2000": "'memory.capacity'",
    "init_cls=50": "'scenario.first_task_classes'",
    "lrate=0.1": "'training.optimizer.lr'",
    "convnet_type=resnet18": "'model'",
    "milestones=[60]": "'training.lr_decay'",
    # Flower and FLGo
    "num_clients=20": "'clients.count'",
    "num-supernodes=20": "'clients.count'",
    "numClients=20": "'clients.count'",
    "clients.num=20": "'clients.count'",
    "num_rounds=3": "'training.rounds_per_task'",
    "num-server-rounds=3": "'training.rounds_per_task'",
    "fraction_fit=0.5": "'participation.fraction'",
    "fraction-train=0.5": "'participation.fraction'",
    "min_fit_clients=2": "'participation.count'",
    "participation.num_clients=2": "'participation.count'",
    "local_epochs=5": "'training.local_epochs'",
    "local-epochs=5": "'training.local_epochs'",
    "strategy=FedProx": "'methods'",
    "proximal_mu=0.1": "'methods.fedprox.mu'",
    "client_resources.num_gpus=1": "'resources.gpus_per_actor'",
    "dirichlet_alpha=0.1": "'partition={kind: dirichlet, alpha: ...}'",
    "partition=non-iid": "'dirichlet' or 'shards' or 'pathological'",
    "methods=FedProx": "'fedprox'",
    # PyTorch and others
    "n_tasks=5": "'scenario.tasks'",
    "epochs=3": "'training.local_epochs'",
    "training.epochs=3": "'training.local_epochs'",
    "lr=0.1": "'training.optimizer.lr'",
    "learning_rate=0.1": "'training.optimizer.lr'",
    "batch=16": "'training.batch_size'",
    "batch_size=16": "'training.batch_size'",
    "gpus=1": "'resources.gpus_per_actor'",
    "device=cuda": "'resources.gpus_per_actor'",
    "optimizer=adam": "'training.optimizer'",
    "random_seed=1": "'seed'",
    "eval_every=5": "'evaluation.every_rounds'",
    "dataset=celeba": "'leaf'",
    "model=cnn": "'mnist_cnn' or 'mcmahan_cnn'",
    "memory.policy=fifo": "'sliding_window'",
    "objective=cross_entropy": "'classification'",
}
"""KEY=VALUE, changes of quickstart: what the answer asks "did you mean"."""

ANSWERS = {
    "dataset.test_samples=100": "and none is needed: tests use all samples of the test set",
    "num_workers=2": "and none is needed: clients read their batches",
    "buffer_sizes=3": "did you mean 'memory.capacity'?",
    "schedule={kind: asynchronous} buffer_size=3": "did you mean 'memory.capacity' or 'schedule.buffer_size'?",
    "concurrency=3": f"this is a key of schedule.kind=asynchronous{UNCHOSEN}",
    "mu=0.1": f"this is a key of methods.fed_coda_prompt or methods.fedprox{UNCHOSEN}",
    "scenario.kind=cil": "did you mean 'class_incremental'?",
    "scenario.kind=task-il": "did you mean 'class_incremental' with 'training.logits=task'?",
    "clients.rate=1": "allowed: count, arrive, leave, forget, dropout",
    "evaluation.rounds=3": "did you mean 'evaluation.every_rounds'?",
    "patience=3": "did you mean 'callbacks.early_stopping.patience' or 'resources.patience'?",
    "trian_samples=100": "did you mean 'dataset.train_samples'?",
}

FORMS = {
    "clients=20": "clients=20: found 20, allowed: a block with the keys count, arrive, leave, forget, dropout; "
    "did you mean 'clients.count=20'?",
    "memory=500": "did you mean 'memory.capacity=500'?",
    "participation=0.5": "did you mean 'participation.fraction' or 'participation.count'?",
    "scenario=class_incremental": "did you mean 'scenario={kind: class_incremental, tasks: 5}'?",
    "scenario=class-incremental": "did you mean 'scenario={kind: class_incremental, tasks: 5}'?",
    "scenario=cil": "did you mean 'scenario={kind: class_incremental, tasks: 5}'?",
    "scenario=task_il": "'scenario={kind: class_incremental, tasks: 5}' with 'training.logits=task'?",
    "scenario=by_column": "did you mean 'scenario={kind: by_column, tasks: 5, column: time}'?",
    "scenario.boundaries=asynchronous": "did you mean 'scenario.boundaries={asynchronous: ...}'?",
    "schedule.speeds=pareto": "did you mean 'schedule.speeds={kind: pareto}'?",
    "schedule=asynchronous": "did you mean 'schedule={kind: asynchronous}'?",
    "methods=er,ewc": "methods=er,ewc: found 'er,ewc', allowed: a block of the methods; "
    "did you mean 'methods={er: {}, ewc: {}}'?",
    "methods.er=8": "found 8, allowed: a block of the method's keys; did you mean 'methods.er.sample_size=8'?",
    "methods.der=0.5": "did you mean 'methods.der.alpha=0.5' or 'methods.der.beta=0.5'?",
    "methods.ewc=3": "allowed: a block of the method's keys (strength, ",
    "methods.zzz=8": "unknown method 'zzz'; allowed: ",
    "model.adapters=lora": "or null; did you mean 'model.adapters={rank: 4, where: [LAYER]}'?",
    "methods=er,": "did you mean 'methods={er: {}}'?",
    "aggregation=samples": "did you mean 'aggregation.weights=samples'?",
    "methods=er+ewc": "did you mean 'methods={er: {}, ewc: {}}'?",
    "methods=[er,lwf]": "did you mean 'methods={er: {}, lwf: {}}'?",
    "callbacks=[wandb]": "did you mean 'callbacks={wandb: {}}'?",
    "clients.count = 10": "clients.count: found no '=', allowed: KEY=VALUE, such as seed=1; "
    "did you mean 'clients.count=10', without spaces?",
    "clients.count =10": "did you mean 'clients.count=10', without spaces?",
    "clients.count= 10": "did you mean 'clients.count=10', without spaces?",
    "clients.count:10": "did you mean 'clients.count=10'?",
    "er": "did you mean 'methods=er'?",
}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory without configs."""
    monkeypatch.chdir(tmp_path)


def refusal(line: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load("quickstart", _split(line))
    return str(caught.value)


def _split(line: str) -> list[str]:
    """Return the arguments in a line, of which those in braces have spaces."""
    parts: list[str] = []
    for part in line.split(" "):
        if parts and parts[-1].count("{") > parts[-1].count("}"):
            parts[-1] += f" {part}"
        else:
            parts.append(part)
    return parts


@pytest.mark.parametrize("line", MEANT)
def test_a_name_from_elsewhere_is_answered_by_its_meaning(line: str) -> None:
    assert f"; did you mean {MEANT[line]}?" in refusal(line).replace(" at the top level", "")


@pytest.mark.parametrize("line", ANSWERS)
def test_no_hint_leads_to_another_simulation(line: str) -> None:
    assert ANSWERS[line] in refusal(line)


@pytest.mark.parametrize("line", FORMS)
def test_another_way_of_writing_is_answered_with_the_line_to_type(line: str) -> None:
    assert FORMS[line] in refusal(line)


def test_many_names_are_one_short_line() -> None:
    assert len(refusal("methods=" + ",".join(["er"] * 10_000))) < 500


def test_a_name_has_keys_in_what_follows() -> None:
    config = load("quickstart", ["methods=er", "methods.er.sample_size=8", "callbacks=early_stopping"])
    assert config.methods["er"]["sample_size"] == 8
    config = load("quickstart", {"callbacks": "early_stopping", "callbacks.early_stopping.patience": 7})
    assert config.callbacks["early_stopping"]["patience"] == 7


COMMAND_LINES = {
    "train quickstart": "unknown command 'train'; did you mean 'run'?",
    "ls": "did you mean 'list'?",
    "list er": "unknown kind 'er'; did you mean 'raysim list methods er'?",
    "list cifar10": "did you mean 'raysim list datasets cifar10'?",
    "plot runs": "did you mean 'report'?",
    "help nothing": "unknown command 'nothing'",
    "run quickstart --buffer_size 500": "--buffer_size 500; did you mean 'memory.capacity=500'?",
    "run quickstart --num-clients=20": "did you mean 'clients.count=20'?",
    "run quickstart --lr 0.1": "did you mean 'training.optimizer.lr=0.1'?",
    "run quickstart --epochs 5": "did you mean 'training.local_epochs=5'?",
    "run quickstart --strategy er": "did you mean 'methods=er'?",
    "run quickstart --seed 3": "did you mean 'seed=3'?",
    "run quickstart --debug": "; add the option --local, which needs no Ray; see raysim run --help",
    "new quickstart": "quickstart: found a name without .yaml, and nothing was written; did you mean "
    "`raysim new my.yaml --from quickstart`?",
}


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_a_command_from_elsewhere_is_answered(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 2
    output, said = capsys.readouterr()
    assert COMMAND_LINES[line] in said
    assert (output, len(said.splitlines())) == ("", 1)


def test_help_is_a_command_too(capsys: pytest.CaptureFixture[str]) -> None:
    for given, same in ((["help"], ["--help"]), (["help", "run"], ["run", "--help"])):
        assert main(given) == 0
        told = capsys.readouterr().out
        assert main(same) == 0
        assert told == capsys.readouterr().out


TASKS = {"scenario": {"kind": "class_incremental", "tasks": 2}, "methods": {"er": {}, "ewc": {}, "fedprox": {}}}
IN_BLOCKS = [key for keys in BLOCKS.values() for key in keys]


@pytest.mark.parametrize("key", [key for key in (*KEYS, *IN_BLOCKS) if "=" not in key])
def test_every_key_of_the_table_is_one(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load("quickstart", {**TASKS, key: [["no value"]]})
    assert "unknown key" not in str(caught.value)


def test_every_name_of_the_table_means_one_thing_and_is_no_key_of_its_block() -> None:
    for found in (KEYS, *NAMES.values(), COMMANDS):
        names = [name for names in found.values() for name in names]
        assert len(names) == len(set(names))
        assert not set(names) & set(found)
    assert not NONE_NEEDED.keys() & {name for names in KEYS.values() for name in names}
    for kind in set(NAMES) - {"task scenario"}:
        known = {*table(kind), "fedavg"}
        meant = {one for own in NAMES[kind] for one in own.partition(" with ")[0].split(" or ")}
        assert meant <= known
        assert not known & {name for names in NAMES[kind].values() for name in names}
    assert COMMANDS.keys() <= REAL_COMMANDS.keys()
    assert not REAL_COMMANDS.keys() & {name for names in COMMANDS.values() for name in names}
