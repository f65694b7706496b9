"""A body of transformers as one network of raysim: a tensor or a dict of tensors in, logits or features out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from raysim.models.hugging_face.blocks import Blocks
from raysim.models.safetensors_file import read_safetensors
from raysim.models.stages import Stage, StagedNetwork
from raysim.system.errors import ConfigError

Pool = Literal["mean", "first", "last"]
TOLERANCE = 1e-4  # of a pass that begins late: its batches may have other shapes, and so other last bits


class PretrainedNetwork(StagedNetwork):
    """A body, and what makes logits of its hidden states.

    The body's own forward pass computes everything, so its masks and positions are those of transformers.

    Args:
        body: the module of transformers.
        pool: how the hidden states of a text become one vector; None for a causal language model.
        head: the linear layer on this vector, or None to return the vector.
        arrays: the names of a sample's arrays, such as input_ids and attention_mask.
        length: the tokens of a sample.

    Attributes:
        length: the tokens of a sample.
        files: the files of weights.
        notes: what of these files is not used, and whether the head is of a file, a phrase each.
    """

    body: Any
    head: nn.Linear | None

    def __init__(
        self, body: nn.Module, pool: Pool | None, head: nn.Linear | None, arrays: Sequence[str], length: int
    ) -> None:
        super().__init__()
        self.body = body
        self.head = head
        self.files: tuple[Path, ...] = ()
        self.notes: tuple[str, ...] = ()
        self._pool, self._arrays, self.length = pool, tuple(arrays), length
        self._blocks = Blocks(body)
        self.register_forward_hook(_at_least_float32)  # a hook, as `find_head` looks for the head's own output
        self._dtype: torch.dtype = self.body.dtype  # of the folder: model.precision changes that of single weights

    def forward(self, x: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Return the logits or features [B, n] of texts, or the logits [B, L, vocabulary] of all tokens.

        Args:
            x: the ids [B, L], or input_ids, attention_mask and token_type_ids [B, L] by name or one after the other.
                If the pass begins late, what `before` returns.
        """
        if self.begin > len(self._blocks):
            assert isinstance(x, Tensor)
            return self._finish(x)
        if self.begin:
            assert isinstance(x, Tensor)
            inputs = {"inputs_embeds": x[..., :-1].to(self._dtype), "attention_mask": x[..., -1].long()}
        else:
            inputs = self._inputs(x)
        mask = inputs["attention_mask"]
        if self.training:
            inputs = trimmed(inputs)
        with self._blocks.beginning_at(self.begin, inputs.get("inputs_embeds")):
            output = self._run(self.body, inputs)
        if self._pool is not None:
            return self._finish(self._pooled(output, inputs["attention_mask"]))
        logits: Tensor = output.logits
        missing = mask.shape[1] - logits.shape[1]
        return functional.pad(logits, (0, 0, 0, missing)) if missing else logits

    def before(self, x: Tensor) -> Tensor:
        """Return what the stages that are left out return for texts [B, total].

        This is the hidden states with the mask as a last column [B, L, W + 1], or what the head receives.
        """
        inputs = self._inputs(x)
        body = self.body if self._pool is not None else self.body.base_model  # without the output layer
        if self.begin > len(self._blocks):
            output = self._run(body, inputs)
            last: Tensor = output.last_hidden_state
            return last if self._pool is None else self._pooled(output, inputs["attention_mask"])
        with self._blocks.ending_at(self.begin) as reached:
            self._run(body, inputs)
        assert reached.reached is not None
        return torch.cat([reached.reached.float(), inputs["attention_mask"][..., None].float()], -1)

    def stages(self) -> Sequence[Stage]:
        """Return the stages: the embeddings with the first block, each other block, the final norm, and the head."""
        first, after = self._blocks.around(self._output)
        blocks, output = [*self._blocks], [] if self._output is None else [self._output]
        return [Stage(_in_one_pass, part) for part in ([*first, *blocks[:1]], *zip(blocks[1:]), after, output)]

    def begin_at(self, begin: int) -> None:
        """Have the forward pass begin at a stage, and check that it then returns the same.

        Raises:
            ConfigError: it does not, or is not known for this architecture.
        """
        ids = torch.arange(self.length).expand(2, -1) % 2
        mask = torch.ones_like(ids)
        mask[1, (self.length + 1) // 2 :] = 0
        rows = torch.cat(
            [mask if name == "attention_mask" else ids * (name == "input_ids") for name in self._arrays], 1
        )
        was = self.training
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            expected = self.eval()(rows)
            super().begin_at(begin)
            self._blocks.install()
            found = self(self.before(rows))
        self.train(was)
        if not torch.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE):
            problem = (
                f"found true for {self.body.config.model_type}, where later blocks need more than the hidden states"
            )
            raise ConfigError(f"model.cache: {problem}, allowed: false")

    def mapped_tensors(self) -> dict[str, Tensor]:
        """Return the tensors of the files of weights by the network's names. They are mapped into memory.

        Files have the names of another class of the architecture at times: with the body's prefix, or without it.
        """
        prefix = f"{self.body.base_model_prefix}."
        own = {*self.state_dict()}
        found = dict[str, Tensor]()
        for path in self.files:
            for name, tensor in read_safetensors(path).items():
                for candidate in (f"body.{name}", f"body.{name.removeprefix(prefix)}", f"body.{prefix}{name}"):
                    if candidate in own:
                        found[candidate] = tensor
                        break
        return found

    @property
    def _output(self) -> nn.Module | None:
        """What makes the logits: a linear layer, or this one after random features."""
        output: nn.Module | None = self.head if self._pool is not None else self.body.get_output_embeddings()
        return output

    def _run(self, body: nn.Module, inputs: Mapping[str, Tensor]) -> Any:
        """Return the outputs of a pass, without a cache of keys and values, which only generation needs."""
        cache = {"use_cache": False} if hasattr(body.config, "use_cache") else {}
        return body(**inputs, **cache)

    def _inputs(self, x: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the body's inputs by name, with a mask."""
        if isinstance(x, Tensor):
            x = dict(zip(self._arrays, x.chunk(len(self._arrays), 1), strict=True))
        inputs = dict(x)
        if "attention_mask" not in inputs:
            inputs["attention_mask"] = (inputs["input_ids"] != self.body.config.pad_token_id).long()
        return inputs

    def _pooled(self, output: Any, mask: Tensor) -> Tensor:
        assert self._pool is not None
        return pool_tokens(output.last_hidden_state, mask, self._pool)

    def _finish(self, x: Tensor) -> Tensor:
        """Return the logits of what the head receives, or the same without a head."""
        output = self._output
        if output is None:
            return x
        logits: Tensor = output(x.to(next(output.parameters()).dtype))
        return logits


def _at_least_float32(network: nn.Module, inputs: object, logits: Tensor) -> Tensor:
    """Return logits in which losses and likelihoods are not rounded, as in transformers' own loss."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _in_one_pass(x: Tensor) -> Tensor:
    """Stand for a stage's own pass: the network's pass runs its stages in one, as the body calls its blocks."""
    raise AssertionError("stages of a pretrained network run only in its forward pass")


def trimmed(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return inputs without the last positions, which no text of the batch has.

    Only training batches are trimmed. A client's streams decide which samples these have, so the shape is the same for
    any number of hosts. Chunks of evaluations keep a fixed shape.
    """
    used = inputs["attention_mask"].any(0).nonzero()
    length = int(used[-1]) + 1 if len(used) else 1
    return {name: tensor[:, :length] for name, tensor in inputs.items()}


def pool_tokens(hidden: Tensor, mask: Tensor, pool: Pool) -> Tensor:
    """Return a vector [B, W] for hidden states [B, L, W] of texts with a mask [B, L].

    `mean` is the mean of the tokens in the mask, as in Sentence-BERT (Reimers, Gurevych, EMNLP 2019). `first` is the
    first token, such as [CLS], and `last` is the last token in the mask. The result is float32 for lower precisions.
    """
    hidden = hidden.to(torch.promote_types(hidden.dtype, torch.float32))
    if pool == "first":
        return hidden[:, 0]
    if pool == "last":
        places = torch.arange(mask.shape[1], device=mask.device)
        last = (mask != 0).long().mul(places).amax(1)
        return hidden[torch.arange(len(hidden), device=hidden.device), last]
    weights = mask.to(hidden.dtype)[..., None]
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
