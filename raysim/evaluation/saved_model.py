"""A finished run's model in the layouts of other packages: peft's for adapters, transformers' for whole models."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from raysim.config import Config, load
from raysim.evaluation.finished_run import load_ended
from raysim.federation.federation import federation_without_clients
from raysim.models.adapters import merge_adapters
from raysim.models.building import build_model
from raysim.models.hugging_face.folder import quiet
from raysim.models.peft_layout import find_pretrained, save_adapters_of, write_head
from raysim.models.safetensors_file import write_safetensors
from raysim.system.errors import ConfigError
from raysim.system.home import expand
from raysim.system.hub_files import HUB, find_folder
from raysim.system.seeding import torch_untouched

WHOLE = "model.safetensors"


def save_adapters(directory: str | Path, folder: str | Path, *, trust: bool = False) -> Path:
    """Write a finished run's adapters to a folder that `PeftModel.from_pretrained` of the package peft reads.

    What is trained outside of the pretrained model, such as a classifier's head, is in the folder's head.safetensors.

    >>> model = {"name": "mlp", "hidden": [8], "adapters": {"rank": 2, "where": ["*"]}}
    >>> result = raysim.run("quickstart", model=model, local=True)
    >>> sorted(file.name for file in raysim.save_adapters(result.directory, "adapters").iterdir())
    ['adapter_config.json', 'adapter_model.safetensors']

    Args:
        directory: the run's directory, with its config.yaml and model.pt.
        folder: the folder, which is made if it does not exist. Its files of these names are replaced.
        trust: allow importing custom code named in the run's config.

    Returns:
        the folder.

    Raises:
        ConfigError: there is no such run, its data are missing, or the folder cannot be written. The model has no
            adapters, or the run has added those of finished tasks to frozen weights, which the layout cannot hold.
    """
    run_config, config = load_ended(Path(directory), (), trust)
    module, began = (_build(one) for one in (config, load(run_config, {"model.cache": False})))
    frozen = {name: p for name, p in began.named_parameters() if not p.requires_grad}
    if changed := [
        name for name, p in module.named_parameters() if name in frozen and not torch.equal(p, frozen[name])
    ]:
        problem = f"found {changed[0]} changed by the run, as by adapters of finished tasks that a method merged"
        raise ConfigError(f"{directory}: {problem}, allowed: frozen weights as they were; use raysim.save_pretrained")
    with _writing(folder) as made:
        save_adapters_of(module, made, _base(run_config))
    return made


def save_pretrained(directory: str | Path, folder: str | Path, *, trust: bool = False) -> Path:
    """Write a finished run's model, with its adapters merged into the weights, to a folder.

    A model of transformers is written by its own `save_pretrained`, for `from_pretrained` and `model.path`. Weights
    outside of it are in the folder's head.safetensors. Other models are written as the file model.safetensors, for
    `model.weights`.

    >>> model = {"name": "mlp", "hidden": [8], "adapters": {"rank": 2, "where": ["*"]}}
    >>> result = raysim.run("quickstart", model=model, local=True)
    >>> sorted(file.name for file in raysim.save_pretrained(result.directory, "merged").iterdir())
    ['model.safetensors']

    Args:
        directory: the run's directory, with its config.yaml and model.pt.
        folder: the folder, which is made if it does not exist. Its files of these names are replaced.
        trust: allow importing custom code named in the run's config.

    Returns:
        the folder.

    Raises:
        ConfigError: there is no such run, its data are missing, or the folder cannot be written.
    """
    module = _build(load_ended(Path(directory), (), trust)[1])
    merge_adapters(module)
    start = find_pretrained(module)
    with _writing(folder) as made:
        if start is not None:
            pretrained: Any = module.get_submodule(start.removesuffix("."))
            with quiet():
                pretrained.save_pretrained(made)
            write_head(made, {name: value for name, value in module.state_dict().items() if not name.startswith(start)})
        else:
            write_safetensors(made / WHOLE, module.state_dict())
    return made


def _build(config: Config) -> nn.Module:
    """Return the model of a config, for the data of the config."""
    with torch_untouched():
        federation = federation_without_clients(config)
        return build_model(config, federation.shape, federation.classes, federation.vocabulary, new_head=False)


def _base(config: Config) -> str | None:
    """Return the folder of the pretrained model, or its name on the hub, if the config has one."""
    path = config.model.keys().get("path")
    if not isinstance(path, str):
        return None
    return path.removeprefix(HUB).partition("@")[0] if path.startswith(HUB) else str(find_folder("model.path", path))


@contextmanager
def _writing(folder: str | Path) -> Iterator[Path]:
    """Make a folder to write to. Raises ConfigError if something cannot be written."""
    made = expand("folder", str(folder))
    try:
        made.mkdir(parents=True, exist_ok=True)
        yield made
    except OSError as error:
        raise ConfigError(f"{made}: {error.strerror or error}, allowed: a folder that can be written") from error
    except ValueError as error:
        raise ConfigError(f"{made}: {error}") from error
