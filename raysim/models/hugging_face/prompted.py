"""An encoder of transformers with trained prompts: tokens in front of a block's input, or prefixes of attention.

The encoder is frozen. What a text receives depends on its query: the text's vector (`model.pool`) by the same encoder
without prompts. The blocks before the first one with prompts are equal in both passes and computed once. So a step is
a pass over all blocks, and another one over those from the first one with prompts on. Prompts of the kind prefix ask
for no query: a step is one pass.

With `model.cache` the query is cached, too. A text's features [1 + L, W + 1] are the query and the hidden states at the
input of this block. Their last column is the mask. A step is then the second pass only.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from raysim.models.hugging_face.network import Pool, PretrainedNetwork, pool_tokens, trimmed
from raysim.models.hugging_face.prefixed_attention import use_prefixes, with_prefixes
from raysim.models.prompt_keys import TextL2PKeys, TextPromptKeys
from raysim.models.prompts import make_prompts
from raysim.models.stages import Stage


class PromptedNetwork(PretrainedNetwork):
    """A frozen encoder with prompts, and what makes logits of its hidden states.

    Args:
        body: the encoder.
        pool: how the hidden states of a text become one vector.
        head: the linear layer on this vector.
        arrays: the names of a sample's arrays.
        length: the tokens of a sample.
        keys: the prompts.

    Attributes:
        prompts: the module that fills the slots.
    """

    def __init__(
        self, body: nn.Module, pool: Pool, head: nn.Linear, arrays: Sequence[str], length: int, keys: TextPromptKeys
    ) -> None:
        super().__init__(body, pool, None, arrays, length)
        body.requires_grad_(False)
        self.prompts = make_prompts(keys, self.body.config.hidden_size, len(self._blocks))
        del self.head  # its place is after the prompts
        self.head = head
        self._first, self._alone = self.prompts.first_block, False
        if isinstance(keys, TextL2PKeys):
            self._alone = keys.average == "prompts"
        else:
            use_prefixes(body, [*self._blocks])
        self._blocks.install()

    def forward(self, x: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Return the logits [B, n] of texts. If the pass begins late, x is what `before` returns."""
        if self.begin:
            assert isinstance(x, Tensor)
            inputs = {"hidden": x[:, 1:, :-1].to(self._dtype), "attention_mask": x[:, 1:, -1].long()}
            query = x[:, 0, :-1]
            inputs = trimmed(inputs) if self.training else inputs
        else:
            inputs = self._inputs(x)
            inputs = trimmed(inputs) if self.training else inputs
            query, hidden = self._query(inputs)
            inputs = inputs | {"hidden": hidden}
        return self._finish(self._prompted(query, inputs))

    def before(self, x: Tensor) -> Tensor:
        """Return the features [B, 1 + L, W + 1] of texts [B, total]: queries and hidden states, with the mask."""
        inputs = self._inputs(x)
        query, hidden = self._query(inputs)
        mask = torch.cat([torch.zeros_like(query[:, :1]), inputs["attention_mask"].to(query)], 1)
        return torch.cat([torch.cat([query[:, None], hidden.to(query)], 1), mask[..., None]], -1)

    def tensors_before(self) -> Iterator[Tensor]:
        """Yield what `before` computes with. A query passes through all blocks, also those that are not left out."""
        if self.prompts.asks:
            yield from (*self.body.parameters(), *self.body.buffers())
        else:
            yield from super().tensors_before()

    def stages(self) -> Sequence[Stage]:
        """Return the stages of the encoder, of which the first one with prompts has them among its parts."""
        stages = [*super().stages()]
        stages[self._first] = Stage(stages[self._first].run, [*stages[self._first].parts, self.prompts])
        return stages

    def _query(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the queries [B, W] of texts, and the hidden states [B, L, W] at the first block with prompts.

        If this is the first block of all, the hidden states are not known: a pass then begins with the ids. Prompts
        that do not ask have the first token's hidden state in place of the query, or its mask.
        """
        with torch.no_grad():
            if not self._first:
                if not self.prompts.asks:
                    return inputs["attention_mask"][:, :1], inputs["attention_mask"][:, :0]
                output = self._run(self.body, inputs)
                return self._pooled(output, inputs["attention_mask"]), output.last_hidden_state[:, :0]
            with self._blocks.ending_at(self._first) as reached:
                self._run(self.body, inputs)
            assert reached.reached is not None
            if not self.prompts.asks:
                return reached.reached[:, 0], reached.reached
            output = self._from_first(reached.reached, inputs["attention_mask"])
            return self._pooled(output, inputs["attention_mask"]), reached.reached

    def _from_first(self, hidden: Tensor, mask: Tensor) -> Any:
        """Return the outputs of the blocks from the first one with prompts on, for its input [B, L, W]."""
        with self._blocks.beginning_at(self._first, hidden):
            return self._run(self.body, {"inputs_embeds": hidden, "attention_mask": mask})

    def _prompted(self, query: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return the head's inputs [B, W] for queries [B, W] and what `_query` has returned."""
        filled, mask, hidden = self.prompts(query.detach()), inputs["attention_mask"], inputs["hidden"]
        if filled.tokens is not None:
            hidden = torch.cat([filled.tokens.to(hidden), hidden], 1)
            front = mask.new_ones(filled.tokens.shape[:2])
            states = self._from_first(hidden, torch.cat([front, mask], 1)).last_hidden_state
            return self._averaged(states, front, mask)
        with with_prefixes(filled.prefixes):
            if self._first:
                output = self._from_first(hidden, mask)
            else:
                output = self._run(self.body, {name: one for name, one in inputs.items() if name != "hidden"})
        return self._pooled(output, mask)

    def _averaged(self, states: Tensor, front: Tensor, mask: Tensor) -> Tensor:
        """Return the mean [B, W] of the prompts' outputs, and of those that `pool` takes of the text unless left out.

        Args:
            states: the outputs [B, P + L, W] of the prompts and the text.
            front: ones [B, P].
            mask: of the text [B, L].
        """
        taken = torch.zeros_like(mask) if self._alone else mask
        if self._pool == "first" and not self._alone:
            taken = torch.zeros_like(mask)
            taken[:, 0] = 1
        return pool_tokens(states, torch.cat([front, taken], 1), "mean")
