"""Costs of tests, of a config alone."""

from raysim.config import Config
from raysim.estimate.cost import Cost, foresee, plan_rehearsals
from raysim.federation.federation import Federation, build_federation
from raysim.models.building import check_model
from raysim.system.children import in_turn


def cost_of(config: Config, federation: Federation | None = None) -> Cost:
    """Return what `raysim check` foresees."""
    data = federation or build_federation(config)
    model = check_model(config, data.shape, data.classes, data.vocabulary)
    return foresee(config, data, model, in_turn(plan_rehearsals(config, data, model)))
