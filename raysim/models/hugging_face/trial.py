"""A trial of a pretrained network on few samples, so that an unsuitable architecture is refused before a run."""

import torch
from torch import nn

from raysim.models.hugging_face.network import PretrainedNetwork
from raysim.system.errors import ConfigError, describe_error

TESTED = ("bert", "distilbert", "roberta", "gpt2", "llama", "qwen2")
"""The architectures of raysim's own tests."""
TRIED = 4  # tokens of a sample, at most


def try_pass(network: PretrainedNetwork, causal: bool) -> None:
    """Try an architecture: a step if it is not tested, and that a language model's tokens see only earlier ones.

    Modules without values, on torch's device "meta", are not tried.

    Raises:
        ConfigError: the step fails, or it changes buffers that hosts do not exchange; or a token sees later ones.
    """
    if next(network.parameters()).device.type == "meta":
        return
    kind = network.body.config.model_type
    length = min(TRIED, network.length)
    x = {
        "input_ids": torch.zeros(2, length, dtype=torch.int64),
        "attention_mask": torch.ones(2, length, dtype=torch.int64),
    }
    x["input_ids"][1, -1] = 1
    if kind not in TESTED:
        _try_step(network, x, kind)
    if causal and length > 1:
        with torch.no_grad():
            logits = network.eval()(x)
        network.train()
        if not torch.allclose(logits[0, :-1], logits[1, :-1], rtol=1e-3, atol=1e-3):
            problem = f"found causal_lm for {kind}, in which tokens see those after them"
            raise ConfigError(
                f"model.head: {problem}, allowed: classifier or none; or a causal language model's folder"
            )


def _try_step(network: nn.Module, x: dict[str, torch.Tensor], kind: str) -> None:
    """Run a forward and a backward pass in training mode."""
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    try:
        with torch.random.fork_rng(devices=[]):
            network.train()(x).sum().backward()
    except Exception as error:
        raise ConfigError(f"model.path: {kind} fails in a trial step: {describe_error(error)}") from error
    network.zero_grad()
    changed = [name for name, buffer in network.named_buffers() if not torch.equal(buffer, buffers[name])]
    if changed:
        problem = f"{kind} changes its buffer {changed[0]} in a step, which raysim does not exchange"
        raise ConfigError(f"model.path: {problem}, allowed: architectures such as {', '.join(TESTED)}")
