"""Estimates of tests, of a config alone."""

from raysim.config import Config
from raysim.estimate.memory import MemoryNeed, estimate_memory
from raysim.federation.federation import Federation, build_federation
from raysim.models.building import check_model
from raysim.models.flat import FlatModel


def made(config: Config) -> tuple[Config, Federation, FlatModel]:
    federation = build_federation(config)
    return config, federation, check_model(config, federation.shape, federation.classes)


def memory_of(config: Config) -> MemoryNeed:
    return estimate_memory(*made(config))
