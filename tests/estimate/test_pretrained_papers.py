"""The configs of papers with large pretrained models can be priced: on a narrow transformer and data of their size."""

from pathlib import Path

import pytest
from costs import cost_of

from raysim.config import load

PAPERS = Path(__file__).parents[2] / "configs" / "papers"
CLASSES = {"lorm_cifar100": 100, "pilora_cifar100": 100, "coda_prompt_imagenet_r": 200, "hgp_imagenet_r": 200}
SMALL = {"model.weights": None, "model.width": 128, "model.depth": 6, "model.input_size": 32}


@pytest.mark.soak
@pytest.mark.parametrize("paper", CLASSES)
def test_a_papers_run_has_a_price(paper: str) -> None:
    """It has ten tasks, and ten clients in each round."""
    classes = CLASSES[paper]
    data = {"name": "synthetic", "classes": classes, "shape": [3, 8, 8], "train": 40 * classes, "test": classes}
    cpu = {"resources.gpus_per_actor": 0}
    config = load(PAPERS / f"{paper}.yaml", {"dataset": data, "partition.min_samples": 1, **SMALL, **cpu})
    cost = cost_of(config)
    assert cost.rounds == 10 * (config.training.rounds_per_task or 0)
    assert cost.steps > cost.updates == 10 * cost.rounds
    assert cost.up["model"] > 0
