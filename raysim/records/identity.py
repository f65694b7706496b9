"""The identity of a run: everything that decides its bits besides its config, as one mapping of names to texts.

summary.json (`versions`) and each checkpoint have it. A run that resumes compares it with that of its checkpoint.

| name | what it is of |
|---|---|
| code | the digest of custom code |
| data | the digest of samples, targets, client ids and columns |
| names | the digest of the classes' names, which a method may read |
| weights | the digest of the file `model.weights` |
| path/FILE | the digest of a file of the folder `model.path`: its config or weights |
| METHOD.KEY | the digest of a file that a method reads, such as lander.embeddings |
| forget | the digest of the samples that `clients.forget` names, some of them in files |
| features | the digest of the features of `model.cache` |
| model | the digest of the initial model, with what a custom model reads from files of its own |
| machine | the kinds of CPUs and GPUs that compute, with torch's version and instruction set |
| settings | the settings of `resources` that may change the last bits |
| numpy | NumPy's version, on which its random streams depend |
"""

import hashlib
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from shlex import quote

import torch

from raysim.config import Config
from raysim.config.lookup import names_for_actors
from raysim.federation.data_digest import digest_data
from raysim.federation.federation import Federation
from raysim.federation.forgetting import merge_positions
from raysim.models.flat import FlatModel
from raysim.system.custom_code import digest_custom_code
from raysim.system.device import describe_machine
from raysim.system.errors import ConfigError

Identity = Mapping[str, str]

THEN = ", then "  # between the texts of a run that resumed with another
SURROUNDINGS = {
    "code": "custom code",
    "machine": "kind of machine",
    "settings": "settings of resources",
    "numpy": "version of NumPy",
}
"""What may change when a run resumes: its results are then of both."""
DERIVED = {"features": "features (model.cache)", "model": "initial model"}
"""What follows from the inputs and the surroundings."""


def identify(config: Config, federation: Federation, model: FlatModel) -> dict[str, str]:
    """Return the identity of a run that has not begun to train; `model` is its initial model.

    `machine` is absent as long as only the run's processes know it: with GPUs, and on a cluster that is joined.
    """
    resources = config.resources
    found = {
        "code": digest_custom_code(names_for_actors(config)),
        "data": digest_data(federation),
        "names": _digest_names(federation.dataset.names),
        **{file.name: file.sha256 for file in federation.files if file.name != "cache"},
        "forget": _digest_requests(federation),
        "features": federation.cached.get("features"),
        "model": _digest_model(model),
        "settings": f"server_cpus {max(1, resources.server_cpus)}"
        + ", deterministic false" * (not resources.deterministic),
        "numpy": version("numpy"),
    }
    if resources.address is None and not resources.gpus_per_actor and not resources.server_gpus:
        found["machine"] = describe_machine(torch.device("cpu"))
    return {name: text for name, text in found.items() if text is not None}


def _digest_names(names: Sequence[str] | None) -> str | None:
    return None if names is None else hashlib.sha256(repr([*names]).encode(errors="surrogatepass")).hexdigest()


def _digest_requests(federation: Federation) -> str | None:
    """Return the digest of the positions in clients' streams that requests name. None if there are no requests."""
    if not federation.forgetting:
        return None
    named = [
        (round, client, positions.tolist())
        for round, requests in sorted(federation.forgetting.items())
        for client, positions in merge_positions(requests).items()
    ]
    return hashlib.sha256(repr(named).encode()).hexdigest()


def _digest_model(model: FlatModel) -> str:
    """Return the digest of all tensors, with their names."""
    digest = hashlib.sha256()
    for name, tensor in model.module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {[*tensor.shape]}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def find_changed(before: Identity, now: Identity) -> list[str]:
    """Return what is other than it last was. What an older raysim did not know has not changed."""
    return [name for name in now if name in before and before[name].rpartition(THEN)[2] != now[name]]


def join_identities(before: Identity, now: Identity) -> dict[str, str]:
    """Return the identity of a run that was one until its checkpoint and is another since."""
    both = {name: f"{before[name]}{THEN}{now[name]}" for name in find_changed(before, now)}
    return {**now, **before, **both}


def refuse_other_inputs(config: Config, federation: Federation, before: Identity, now: Identity, out: Path) -> None:
    """Refuse to resume a run with other data or files than those of its checkpoint.

    What follows from them is refused, too, if nothing else is known to have changed that it follows from.

    Raises:
        ConfigError: one of them differs.
    """
    changed = find_changed(before, now)
    explained = "machine" not in now or any(name in SURROUNDINGS for name in changed)
    for name in changed:
        if name in SURROUNDINGS or (name in DERIVED and explained):
            continue
        found = f"found SHA-256 {now[name][:12]}, expected {before[name].rpartition(THEN)[2][:12]}"
        what = _name_input(config, federation, name)
        advice = f"put back what the run began with, or start a new run instead of resuming {quote(str(out))}"
        raise ConfigError(f"--resume: {what} changed since the checkpoint: {found}; {advice}")


def describe_changes(changed: Sequence[str], round: int) -> str:
    """Return the warning of a run that resumes from a round in other surroundings."""
    what = " and the ".join({**SURROUNDINGS, **DERIVED}[name] for name in changed)
    results = "its results are of both, which are in summary.json (versions)"
    return f"the {what} of the run changed since round {round}, from which it resumes; {results}"


def _name_input(config: Config, federation: Federation, name: str) -> str:
    """Return what a user calls an input, with its file."""
    if name in ("data", "names"):
        path = config.dataset.keys().get("path")
        what = "data" if name == "data" else "names of the classes"
        return f"the {what} of dataset {config.dataset.named}{f' {path}' if path else ''}"
    if name in DERIVED:
        return f"the {DERIVED[name]}"
    if name == "forget":
        paths = [request.samples for request in config.clients.forget if request.samples is not None]
        return f"the samples of clients.forget ({', '.join(paths)})"
    file = next(file for file in federation.files if file.name == name)
    return f"{file.key}: {file.path}"
