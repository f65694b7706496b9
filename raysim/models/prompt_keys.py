"""The config keys of prompts, by their kind: below `model.prompts` of vit and hugging_face."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from raysim.config.block import Block, Count, WholeNumber

BlockNumbers = Annotated[tuple[WholeNumber, ...], Field(strict=False)]


class TokenPoolKeys(Block):
    """A pool of tokens, chosen for each sample."""

    kind: Literal["l2p"]
    """L2P (Wang et al., CVPR 2022): tokens from a pool, in front of those of the sample."""
    pool: Count = 10
    """The number of entries of the pool."""
    length: WholeNumber = 5
    """The tokens of an entry."""
    top: Count = 5
    """The number of entries for a sample: those with keys of the largest cosine with its query."""


class TextL2PKeys(TokenPoolKeys):
    """L2P for texts: the tokens are in front of those of the text, at the input of a block."""

    block: Count = 1
    """The block, from 0, at the input of which the prompts are. They have no position codes."""
    average: Literal["text_and_prompts", "prompts"] = "text_and_prompts"
    """The head's input is the mean of these outputs: those of the text that `pool` takes and the prompts, or the
    prompts."""


class L2PKeys(TokenPoolKeys):
    """L2P for images: the tokens are in front of the patches."""

    average: Literal["class_and_prompts", "prompts"] = "class_and_prompts"
    """The head's input is the mean of these output tokens: the class token and the prompts, or the prompts."""
    faithful_positions: bool = False
    """Whether position codes are shifted by one token, as in fed-mammoth: the class token has the first prompt's code
    and the last prompt has the class token's."""


class DualKeys(Block):
    """DualPrompt: prefixes for all tasks, and prefixes of each task."""

    kind: Literal["dual"]
    """DualPrompt (Wang et al., ECCV 2022): prefixes of attention, some for all tasks and some for each task."""
    general_blocks: BlockNumbers = (0, 1)
    """The blocks, from 0, that have the prefixes of all tasks."""
    general_length: Count = 5
    """The length of the prefixes of all tasks."""
    blocks: BlockNumbers = (2, 3, 4)
    """The blocks that have the prefixes of each task."""
    length: Count = 20
    """The length of the prefixes of each task."""
    pool: Count = 10
    """The number of entries of the pool. Task t trains entry t. Tasks beyond the pool train the entry with the nearest
    key. Evaluation always uses that one."""


class CodaKeys(Block):
    """CODA-Prompt: prefixes that are weighted sums of components."""

    kind: Literal["coda"]
    """CODA-Prompt (Smith et al., CVPR 2023): prefixes of attention, each a weighted sum of components."""
    blocks: BlockNumbers = (0, 1, 2, 3, 4)
    """The blocks, from 0, that have prefixes."""
    pool: Count = 100
    """The number of components of a block."""
    per_task: Count = 10
    """The number of components that a task adds and trains. Those of earlier tasks are used and stay."""
    length: Annotated[int, Field(ge=2, multiple_of=2)] = 8
    """The rows of a component, an even number: half of them are keys, half are values."""
    attention: Literal["plain", "softmax"] = "plain"
    """What the query is multiplied with: the attention vector, or its softmax, as in Fed-CPrompt."""
    initial: Literal["by_task", "orthogonal"] = "by_task"
    """by_task draws orthonormal rows for the first task and leaves the others at zero until their task redraws them;
    orthogonal draws all rows at once, as in Fed-CPrompt."""


class PrefixKeys(Block):
    """Prefix tuning: the same prefixes for all samples and tasks, without a query."""

    kind: Literal["prefix"]
    """Prefix tuning (Li and Liang, ACL 2021), as in HGP: the same trained prefixes of attention for all samples."""
    blocks: BlockNumbers = (0, 1, 2, 3, 4)
    """The blocks, from 0, that have prefixes."""
    length: Count = 100
    """The number of keys, and of values, of a block's prefix."""
    initial: Literal["zero", "unit"] = "zero"
    """zero as in HGP's code, with which all rows of a prefix stay equal up to rounding; unit draws a direction at
    random for a block's keys and values together."""


PromptKeys = L2PKeys | DualKeys | CodaKeys | PrefixKeys
TextPromptKeys = TextL2PKeys | DualKeys | CodaKeys | PrefixKeys
