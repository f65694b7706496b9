"""Learning objectives: a loss, a prediction from a model's outputs, and a metric."""

from raysim.objectives.objective import IGNORED, Metric, Objective, OfAllSamples

__all__ = ["IGNORED", "OBJECTIVES", "Metric", "Objective", "OfAllSamples"]

OBJECTIVES: dict[str, str] = {
    "classification": "raysim.objectives.classification:Classification",
    "regression": "raysim.objectives.regression:Regression",
    "multi_label": "raysim.objectives.multi_label:MultiLabel",
    "detection": "raysim.objectives.detection:Detection",
    "next_token": "raysim.objectives.next_token:NextToken",
}
"""Name in YAML -> `module:class`: a subclass of Objective, constructed with its keys."""
