"""Greedy continuation: by hand, hidden targets, and the same tokens as `generate` of transformers."""

from collections.abc import Mapping

import pytest
import torch
import transformers
from answer_data import END, IDS, LENGTH, ByLastId, split_of
from torch import Tensor

from raysim.objectives import IGNORED
from raysim.objectives.continuation import Continuation, continue_greedily, find_runs, references_in, without_none

PROMPTS = [([8, 1], [2, 3, END]), ([4], [5, 6, 7, 1, 2, 3, END]), ([2, 8], [7, 7])]


def rows_of(pairs: list[tuple[list[int], list[int]]]) -> tuple[Mapping[str, Tensor], Tensor]:
    ids, masks, targets = map(torch.from_numpy, split_of(pairs))
    return {"input_ids": ids, "attention_mask": masks}, targets


def test_the_reference_is_the_first_run_of_counted_targets() -> None:
    """A second answer, after another prompt, is not generated."""
    off = IGNORED
    targets = torch.tensor([[off, off, 3, 4, off, 5], [7, 8, off, off, off, off], [1, 2, 3, 4, 5, 6]])
    first, lengths = find_runs(targets)
    assert (first.tolist(), lengths.tolist()) == ([2, 0, 0], [2, 2, 6])
    assert references_in(targets) == [[3, 4], [7, 8], [1, 2, 3, 4, 5, 6]]


def test_tokens_follow_one_another_until_the_end() -> None:
    """After 8 1 come 2 3 9 by SUCCESSORS. After 4 come seven ids, until the row is full. After 8 comes 8, up to `most`.

    Without an end, 9 is followed by 0, and 0 by 4: 2 3 9 0 4.
    """
    x, targets = rows_of(PROMPTS)
    start, model = find_runs(targets)[0], ByLastId(IDS)
    with torch.no_grad():
        found = continue_greedily(model, Continuation(x, start), 20, END)
        assert without_none(found) == [[2, 3, 9], [5, 6, 7, 1, 2, 3, 9], [8] * 7]  # 8 positions, 2 of the prompt
        assert model.passes == 8 - 1  # all rows ended before 20 tokens
        short = continue_greedily(model, Continuation(x, start), 5, None)
        assert without_none(short) == [[2, 3, 9, 0, 4], [5, 6, 7, 1, 2], [8] * 5]
        alone = continue_greedily(model, Continuation(x["input_ids"], start), 5, None)
        assert torch.equal(alone, short)


def test_what_comes_after_the_prompt_is_hidden() -> None:
    """A model of the number of real tokens and of the sum of all ids sees the prompt, then one token more each pass."""
    seen = []

    def model(x: object) -> Tensor:
        assert isinstance(x, Mapping)
        seen.append((x["attention_mask"].sum(1).tolist(), x["input_ids"].sum(1).tolist()))
        return ByLastId(IDS)(x)

    x, targets = rows_of(PROMPTS)
    given = {name: array.clone() for name, array in x.items()}
    with torch.no_grad():
        continue_greedily(model, Continuation(x, find_runs(targets)[0]), 3, None)
    assert seen == [([2, 1, 2], [9, 4, 10]), ([3, 2, 3], [11, 9, 18]), ([4, 3, 4], [14, 15, 26])]
    assert all(torch.equal(x[name], given[name]) for name in x)


def test_the_lowest_id_wins_a_tie() -> None:
    def model(x: object) -> Tensor:
        return torch.tensor([0.0, 1.0, 0.5, 1.0]).expand(1, LENGTH, 4)

    found = continue_greedily(model, Continuation(torch.full((1, LENGTH), 3), torch.tensor([0])), 3, None)
    assert found.tolist() == [[1, 1, 1]]


SMALL = {"num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 16, "vocab_size": 30}
CONFIGS = {
    "gpt2": {"n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 30},
    "llama": {**SMALL, "hidden_size": 16, "intermediate_size": 24},
    "qwen2": {**SMALL, "hidden_size": 16, "intermediate_size": 24, "num_key_value_heads": 1},
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_tokens_are_those_of_transformers(kind: str) -> None:
    """Rows of prompts of different lengths, padded at the right, against `generate` of each prompt alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        keys = {**CONFIGS[kind], "bos_token_id": 0, "eos_token_id": 5, "pad_token_id": None}
        config = transformers.AutoConfig.for_model(kind, **keys)
        network = transformers.AutoModelForCausalLM.from_config(config).eval()
        ids = torch.randint(1, 30, (6, 14))
    ends = torch.tensor([2, 5, 0, 7, 3, 1])
    mask = (torch.arange(14) <= ends[:, None] + 2).long()  # the answer in the data has two tokens
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter *= 10  # or a random network repeats itself

        def model(x: object) -> Tensor:
            assert isinstance(x, Mapping)
            logits: Tensor = network(**x, use_cache=False).logits
            return logits

        found = continue_greedily(model, Continuation({"input_ids": ids, "attention_mask": mask}, ends), 6, 5)
        for row, end, answer in zip(ids, ends.tolist(), without_none(found), strict=True):
            wanted = network.generate(
                row[None, : end + 1], attention_mask=torch.ones(1, end + 1, dtype=torch.int64), do_sample=False,
                max_new_tokens=6, eos_token_id=5, pad_token_id=0,
            )  # fmt: skip
            assert answer == wanted[0, end + 1 :].tolist()
    assert len({*map(tuple, without_none(found))}) > 4
