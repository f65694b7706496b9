"""The choice of a run's mode of local training."""

from collections.abc import Mapping

from raysim.api.method import Method
from raysim.config import Config
from raysim.engine.hook_calls import HookCalls
from raysim.engine.one_at_a_time import OneAtATime
from raysim.engine.phases import Phases
from raysim.engine.trainer import Trainer
from raysim.engine.vectorised.block import ClientBlock
from raysim.engine.vectorised.support import clients_together
from raysim.engine.vectorised.together import Together
from raysim.models.flat import FlatModel


def choose_trainer(
    config: Config, methods: Mapping[str, Method], phases: Phases, model: FlatModel, calls: HookCalls
) -> Trainer:
    """Return what trains a host's clients: one at a time, or together if `training.vectorise` has an effect."""
    graphs = config.resources.cuda_graphs and model.device.type == "cuda"
    if clients_together(config, methods) == 1:
        return OneAtATime(phases, model, graphs)
    return Together(methods, phases, ClientBlock(model, config.training, calls, graphs), model)
