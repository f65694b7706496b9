"""The list of runs has all that a config can name: what is new there needs a run here.

docs/config.md and the methods' pages say what there is; another test holds them to the schema. The policies and fills
that each method admits are its own to say: each policy is run with each fill.
"""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from bits.reference import RUNS, chosen
from bits.run import BASE, Run, leaves

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "config.md").read_text(encoding="utf-8")
METHODS = re.findall(r"^\| \[`(\w+)`\]\(methods/", PAGE, re.M)
KEYS = re.compile("<!-- keys, written by make docs -->(.*?)<!-- end of keys -->", re.DOTALL)
NO_FILES = {"mnist", "fashion_mnist", "kmnist", "emnist", "usps", "svhn", "cifar10", "cifar100"}  # would be downloaded
NO_FILES |= {"hugging_face", "parquet"}  # needs its package, too
NO_FILES |= {  # official files: tests/data/test_image_sets.py, test_leaf_sets.py
    *("imagenet_r", "imagenet_a", "cub200", "cars", "domainnet", "office_home", "office31", "core50", "eurosat"),
    *("resisc45", "femnist", "shakespeare"),
}
NO_FILES |= {"instructions"}  # tests/actors/test_tokenized_texts_on_ray.py
NO_FILES |= {"coco", "yolo", "carla"}  # boxes from files: tests/data/detection; the runs with boxes are of "driving"
NO_BITS = {  # where a run's files and processes are; or what needs a cluster or a GPU
    *("name", "dataset.download", "logging", "checkpoint.keep", "checkpoint.tries"),
    *("resources.address", "resources.cpus_per_actor", "resources.custom", "resources.dashboard"),
    *("resources.cuda_graphs", "resources.deterministic", "resources.gpus_per_actor", "resources.placement"),
    *("resources.memory", "resources.patience", "resources.server_cpus", "resources.server_gpus"),
    *("dataset.image", "dataset.client"),  # of hugging_face
    # of texts with a tokenizer: transformers makes their ids
    *("dataset.tokenizer", "dataset.token_types", "dataset.target", "dataset.template"),
    *("dataset.instruction", "dataset.input", "dataset.output", "dataset.messages"),
    "objective.tokenizer",  # a folder
    "dataset.domain",  # of official files
    # of a folder of transformers: tests/engine/test_pretrained.py, tests/actors/test_pretrained_on_ray.py
    *("model.head", "model.pool", "model.dtype", "model.attention"),
    "model.prompts.block",
    *("dataset.boxes", "dataset.boxes.most", "dataset.boxes.outside"),  # of coco, yolo and carla
    *("callbacks.mlflow.uri", "callbacks.mlflow.experiment", "callbacks.wandb.project", "callbacks.wandb.mode"),
}
REFUSED = {
    ("methods.glfc.old_model", "proxy"),  # what a paper has and raysim has not
    ("dataset.label", "category"),  # of core50, whose files are not here
}


def taken() -> dict[str, set[str]]:
    """By key, the values that it has in some run, as text."""
    found: dict[str, set[str]] = {}
    for run in RUNS.values():
        for key, value in leaves(run.config()):
            key = key.removesuffix(".N")  # a list has the words that it holds
            found.setdefault(key, set()).add(str(value).lower() if isinstance(value, bool | None) else str(value))
    return found


TAKEN = taken()


def names(title: str) -> list[str]:
    """The components of a kind: the headings below that of the kind; methods have a table."""
    if title == "Methods":
        return METHODS
    return re.findall(r"^#### `(\w+)`$", re.split("^###? ", PAGE.partition(f"### {title}\n")[2], flags=re.M)[0], re.M)


def rows() -> Iterator[tuple[str, str, str, str]]:
    """Key, default, allowed values and description."""
    pages = [(DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8") for name in METHODS]
    tables = [PAGE, *(block for page in pages for block in KEYS.findall(page))]
    for line in "\n".join(tables).splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            yield cells[0].strip("`"), cells[3].strip("`"), cells[2], cells[1]


def choices(allowed: str) -> list[str]:
    """The words that a key can be set to; kinds of blocks stand in headings."""
    words = re.split(
        ", | or ", re.sub(r"^a list of ((numbers|strings).*)?|a (list of )?a? ?block with .*|your own .*", "", allowed)
    )
    return [word for word in words if re.fullmatch(r"[a-z][\w]*(/[a-z]+)?|1/task", word)]


def test_the_page_is_read() -> None:
    assert {"fedprox", "fixed"} < set(names("Methods"))
    assert {"digits", "synthetic"} < set(names("Datasets"))
    assert {"mlp", "resnet18"} < set(names("Models"))
    assert choices("average, worst or off") == ["average", "worst", "off"]
    assert choices("a list of crop or flip") == ["crop", "flip"]
    assert choices("a whole number >= 1 or null") == ["null"]
    assert choices("synchronous or a block with the keys asynchronous, jittered") == ["synchronous"]
    assert len(list(rows())) > 120


def test_every_method_is_run_alone() -> None:
    alone = {name for run in RUNS.values() if len(run.config().get("methods", {})) == 1 for name in run.keys["methods"]}
    assert set(names("Methods")) - alone == set()


def test_every_method_is_run_in_company() -> None:
    company = {
        name for run in RUNS.values() if len(run.config().get("methods", {})) > 1 for name in run.keys["methods"]
    }
    # fedtrack owns the loop, as c_flag does; analytic sends no model
    assert set(names("Methods")) - company == {"fedtrack", "analytic"}


def test_every_data_set_and_model_is_run() -> None:
    assert set(names("Datasets")) - TAKEN["dataset.name"] == NO_FILES
    assert set(names("Models")) - TAKEN["model.name"] == set()


def test_every_key_is_set_in_some_run() -> None:
    """A key of no run would show no bit that moves by it: such a run belongs into tools/bits."""
    asked = {key for key, *_ in rows() if key not in NO_BITS and not key.startswith("dataset.split")}
    assert {key for key in asked if not TAKEN.get(key)} == set()


def test_every_word_that_a_key_can_be_is_taken_in_some_run() -> None:
    missing = [
        f"{key}={word}"
        for key, default, allowed, _ in rows()
        if key not in NO_BITS and key != "dataset.split"
        for word in choices(allowed)
        if word not in {default, "true", "false", "null", "auto", *TAKEN[key], *TAKEN.get(f"{key}.name", ())}
        if (key, word) not in REFUSED
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("title", "key"),
    [
        ("Partitions", "partition.kind"),
        ("Optimizers", "training.optimizer.name"),
        ("Rate schedules", "training.lr_decay.name"),
    ],
)
def test_every_component_is_taken(title: str, key: str) -> None:
    """But the first, the default, which need not be named."""
    _, *others = names(title)
    assert len(others) >= 2
    assert {*others} <= TAKEN[key]


def test_every_kind_of_a_block_is_taken_in_some_run() -> None:
    kinds = re.findall(r"^### `([\w.]+)` with `(\w+): (\w+)`$", PAGE, re.M)
    assert len(kinds) > 8
    for block, key, kind in kinds:
        default = next((default for path, default, *_ in rows() if path == f"{block}.{key}" and default == kind), None)
        assert kind in TAKEN[f"{block}.{key}"] or default == kind, f"{block}.{key}={kind}"


def test_every_sampler_is_taken() -> None:
    (described,) = [words for key, _, _, words in rows() if key == "participation.sampler"]
    samplers = described.partition(": ")[2].partition(", or a custom")[0].split(", ")
    assert len(samplers) >= 3
    assert set(samplers) - {"uniform"} <= TAKEN["participation.sampler"]


def test_every_policy_is_run_with_every_fill() -> None:
    """Importance fills at boundaries only, with the method that says what is important."""
    (policies,) = [choices(allowed) for key, _, allowed, _ in rows() if key == "memory.policy"]
    (fills,) = [choices(allowed) for key, _, allowed, _ in rows() if key == "memory.fill"]
    wanted = set(product(policies, fills)) - {("importance", "arrival")}
    run = {(memory.get("policy"), memory.get("fill")) for memory in (run.config()["memory"] for run in RUNS.values())}
    assert {(policy, fill) for policy, fill in wanted if "null" not in (policy, fill)} <= run


def test_every_way_is_taken() -> None:
    assert {run.way for run in RUNS.values()} == {"local", "ray", "command"}
    for ways in ({"local"}, {"ray", "command"}):
        assert any(run.cut_after for run in RUNS.values() if run.way in ways)
        assert any(run.evaluate for run in RUNS.values() if run.way in ways)
    packed = {run.config()["resources"]["clients_per_actor"] for run in RUNS.values() if run.on_ray}
    assert {1, "auto"} < packed


def test_whoever_is_on_ray_shows_whose_code_it_has() -> None:
    for name, run in RUNS.items():
        assert not run.on_ray or run.config()["model"]["name"].startswith("bits.own:"), name


def test_no_two_runs_are_the_same() -> None:
    runs = list(RUNS.values())
    assert [name for number, (name, run) in enumerate(RUNS.items()) if run in runs[:number]] == []
    assert len(runs) >= 40
    assert all(run == Run() or run.config() != BASE for run in runs)


def test_some_can_be_chosen() -> None:
    assert list(chosen("^FedA(vg|sync)$")) == ["fedavg", "fedasync"]
    assert {run.way for run in chosen(ray=False).values()} == {"local"}
    assert chosen() == RUNS
