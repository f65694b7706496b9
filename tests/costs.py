"""Costs of tests, of a config alone."""

from raysim.config import Config
from raysim.estimate.cost import Cost, foresee
from raysim.federation.federation import Federation, build_federation
from raysim.models.building import check_model


def cost_of(config: Config, federation: Federation | None = None) -> Cost:
    """Return what `raysim check` foresees."""
    data = federation or build_federation(config)
    return foresee(config, data, check_model(config, data.shape, data.classes, data.vocabulary))
