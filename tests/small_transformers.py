"""Random small models of transformers, and the layers that tests adapt in each."""

import pytest
import torch

transformers = pytest.importorskip("transformers")

IDS = torch.randint(0, 50, (3, 7), generator=torch.Generator().manual_seed(1))
SMALL = {"vocab_size": 50, "num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}
SMALL |= {"intermediate_size": 24, "max_position_embeddings": 16}
ROTARY = SMALL | {"num_key_value_heads": 1}
MODELS = {
    "bert": (
        lambda: transformers.BertModel(transformers.BertConfig(**SMALL), add_pooling_layer=False),
        ["query", "value", "output.dense"],
        2 * 4,  # output.dense is the attention's and the feed-forward part's
    ),
    "gpt2": (
        lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=50, n_layer=2, n_head=2, n_embd=16, n_positions=16, bos_token_id=0, eos_token_id=0
            )
        ),
        ["c_attn", "mlp.c_proj"],
        2 * 2,
    ),
    "qwen2": (
        lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**ROTARY)),
        ["q_proj", "down_proj"],
        2 * 2,
    ),
    "llama": (lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**ROTARY)), ["q_proj", "v_proj"], 2 * 2),
}
"""Name -> how to build it, patterns of layers, and the number of layers that they fit."""


def build(name):
    """The model with weights of one seed, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return MODELS[name][0]().eval()


def outputs(model, ids=IDS):
    """The logits, or an encoder's hidden states."""
    return model(ids)[0]
