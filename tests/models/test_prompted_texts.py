"""Prompts of a BERT: equal to a computation in NumPy, to the encoder without prompts, and with cached features."""

import copy
import math

import numpy as np
import pytest
import torch
from pretrained_folders import IDS, LENGTH, MASK, TEXTS, WIDTH, write_folder

from raysim.config import load
from raysim.models.arrays import Arrays, NamedArray
from raysim.models.building import build_model, check_model
from raysim.models.flat import FlatModel
from raysim.models.hugging_face.prefixed_attention import with_prefixes
from raysim.models.stages import names_left_out
from raysim.system.errors import ConfigError

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("quiet_torch")

ARRAYS = Arrays((NamedArray("input_ids", (LENGTH,), IDS), NamedArray("attention_mask", (LENGTH,), 2)))
ROWS = torch.cat([TEXTS, MASK], 1)
L2P = {"kind": "l2p", "pool": 4, "length": 2, "top": 2, "block": 1}
DUAL = {"kind": "dual", "general_blocks": [1], "general_length": 2, "blocks": [2], "length": 3, "pool": 4}
CODA = {"kind": "coda", "blocks": [1, 2], "pool": 6, "per_task": 2, "length": 4}
PREFIX = {"kind": "prefix", "blocks": [1, 2], "length": 3, "initial": "unit"}
KINDS = {"l2p": L2P, "dual": DUAL, "coda": CODA, "prefix": PREFIX}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("folders")
    return {kind: write_folder(root / kind, kind) for kind in ("bert", "roberta", "distilbert", "gpt2")}


@pytest.fixture
def config_of(folders):
    def make(prompts=None, kind="bert", **keys):
        model = {"name": "hugging_face", "path": str(folders[kind]), "prompts": prompts, **keys}
        return load(
            {
                "name": "prompted",
                "dataset": {"name": "digits"},
                "scenario": {"kind": "class_incremental", "tasks": 1},
                "clients": {"count": 1},
                "model": model,
                "training": {"rounds_per_task": 1},
            }
        )

    return make


@pytest.fixture
def built(config_of):
    """A function: the network with these prompts, of which the entries are not as small as usual."""

    def make(prompts=None, **keys):
        return build_model(config_of(prompts, **keys), (2 * LENGTH,), 3, ARRAYS).eval()

    return make


def norm(x, state, name):
    centered = x - x.mean(-1, keepdims=True)
    scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-12)
    return scaled * state[f"{name}.weight"] + state[f"{name}.bias"]


def linear(x, state, name):
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def block(x, mask, state, number, prefix=None):
    """A block of BERT with two heads for one text x [L, W] with a mask [L]; a prefix is keys and values [P, W]."""
    name = f"body.encoder.layer.{number}"
    query, key, value = (linear(x, state, f"{name}.attention.self.{part}") for part in ("query", "key", "value"))
    if prefix is not None:
        key, value = np.concatenate([prefix[0], key]), np.concatenate([prefix[1], value])
        mask = np.concatenate([np.ones(len(prefix[0])), mask])
    heads = []
    for part in (slice(0, WIDTH // 2), slice(WIDTH // 2, WIDTH)):
        scores = query[:, part] @ key[:, part].T / np.sqrt(WIDTH // 2)
        weights = np.exp(scores) * mask
        heads.append(weights / weights.sum(1, keepdims=True) @ value[:, part])
    x = norm(
        x + linear(np.concatenate(heads, 1), state, f"{name}.attention.output.dense"),
        state,
        f"{name}.attention.output.LayerNorm",
    )
    wide = linear(x, state, f"{name}.intermediate.dense")
    wide = wide * (1 + np.vectorize(math.erf)(wide / np.sqrt(2))) / 2
    return norm(x + linear(wide, state, f"{name}.output.dense"), state, f"{name}.output.LayerNorm")


def mean(x, mask):
    return (x * mask[:, None]).sum(0) / mask.sum()


def known(network):
    """A network's tensors, and by text: the hidden states at block 1, the mask, and the query, all in float64."""
    state = {name: tensor.double().numpy() for name, tensor in network.state_dict().items()}
    body = copy.deepcopy(network.body)
    body.set_attn_implementation("eager")
    with torch.no_grad():
        output = body.embeddings(input_ids=TEXTS).double().numpy()
    for hidden, mask in zip(output, MASK.double().numpy(), strict=True):
        first = block(hidden, mask, state, 0)
        plain = block(block(first, mask, state, 1), mask, state, 2)
        yield state, first, mask, mean(plain, mask)


def cosines(query, keys):
    return keys @ query / np.linalg.norm(keys, axis=1) / np.linalg.norm(query)


@pytest.mark.parametrize("average", ["text_and_prompts", "prompts"])
def test_tokens_of_a_pool_by_hand(built, average):
    """Four prompts in front of the text at block 1: those of the two nearest keys. The mean is of all, or of them."""
    network = built(L2P | {"average": average})
    found = network(ROWS).detach().numpy()
    for (state, hidden, mask, query), logits in zip(known(network), found, strict=True):
        nearest = np.argsort(-cosines(query, state["prompts.keys"]))[:2]
        x = np.concatenate([state["prompts.entries"][nearest].reshape(4, WIDTH), hidden])
        mask = np.concatenate([np.ones(4), mask])
        x = block(block(x, mask, state, 1), mask, state, 2)
        pooled = x[:4].mean(0) if average == "prompts" else mean(x, mask)
        np.testing.assert_allclose(logits, linear(pooled, state, "head"), atol=2e-6)


def test_prefixes_of_all_tasks_and_of_the_nearest_key_by_hand(built):
    network = built(DUAL)
    found = network(ROWS).detach().numpy()
    for (state, hidden, mask, query), logits in zip(known(network), found, strict=True):
        nearest = np.argmax(cosines(query, state["prompts.keys"]))
        x = block(hidden, mask, state, 1, state["prompts.general"][0])
        x = block(x, mask, state, 2, state["prompts.entries"][0, :, nearest])
        np.testing.assert_allclose(logits, linear(mean(x, mask), state, "head"), atol=2e-6)


def test_sums_of_components_by_hand(built):
    """At first two components are used, those of task 1. Half of a component's rows are keys, half are values."""
    network = built(CODA)
    found = network(ROWS).detach().numpy()
    for (state, hidden, mask, query), logits in zip(known(network), found, strict=True):
        x = hidden
        for place, number in enumerate((1, 2)):
            keys, attention = (state[f"prompts.{part}.{place}"][:2] for part in ("keys", "attention"))
            weights = [cosines(query * a, k[None])[0] for a, k in zip(attention, keys, strict=True)]
            prompt = np.tensordot(weights, state[f"prompts.components.{place}"][:2], 1)
            x = block(x, mask, state, number, (prompt[:2], prompt[2:]))
        np.testing.assert_allclose(logits, linear(mean(x, mask), state, "head"), atol=2e-6)


def test_prefixes_of_all_texts_by_hand(built):
    """The query plays no part."""
    network = built(PREFIX)
    found = network(ROWS).detach().numpy()
    for (state, hidden, mask, _), logits in zip(known(network), found, strict=True):
        x = hidden
        for place, number in enumerate((1, 2)):
            x = block(x, mask, state, number, state["prompts.prefixes"][place])
        np.testing.assert_allclose(logits, linear(mean(x, mask), state, "head"), atol=2e-6)


@pytest.mark.parametrize("blocks", [[0, 1], [1, 2]])
def test_prefixes_of_all_texts_need_one_pass(built, blocks):
    """Every block runs once in a step."""
    network, calls = built(PREFIX | {"blocks": blocks}), []
    for number, layer in enumerate(network.body.encoder.layer):
        layer.attention.self.register_forward_hook(lambda *_, number=number: calls.append(number))
    network.train()(ROWS)
    assert calls == [0, 1, 2]


def test_without_prompts_the_network_is_the_plain_one(built):
    """No tokens, or attention that may have prefixes and has none: the same logits, the latter to the bit."""
    plain, empty, prefixed = built(), built(L2P | {"length": 0}), built(DUAL)
    for network in (empty, prefixed):
        network.head.load_state_dict(plain.head.state_dict())
    torch.testing.assert_close(empty(ROWS), plain(ROWS), atol=1e-6, rtol=0)
    with with_prefixes({}):
        states = [network.body(TEXTS, MASK).last_hidden_state for network in (prefixed, plain)]
    assert torch.equal(*states)
    assert not torch.allclose(prefixed(ROWS), plain(ROWS), atol=1e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_and_head_are_trained_and_padding_changes_nothing(built, kind):
    """Other ids in the padding, and texts without their padding in training: the same logits."""
    network = built(KINDS[kind])
    trained = {name for name, p in network.named_parameters() if p.requires_grad}
    assert trained == {name for name, _ in network.named_parameters() if name.startswith(("prompts.", "head."))}
    assert [*FlatModel(network).layout][-2:] == ["head.weight", "head.bias"]
    logits = network(ROWS)
    other = ROWS.clone()
    other[:, :LENGTH] += 7 * (1 - MASK)
    torch.testing.assert_close(network(other), logits, atol=1e-6, rtol=0)
    torch.testing.assert_close(network.train()(ROWS), logits, atol=1e-6, rtol=0)
    logits.square().sum().backward()
    moved = {name for name, p in network.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
    assert moved >= trained - {"prompts.keys"}  # a pool's keys move by the method's pull


@pytest.mark.parametrize("kind", KINDS)
def test_features_have_query_and_hidden_states(built, kind):
    """The pass begins at block 1 with [1 + 6, 8 + 1] numbers a text, and gives the same logits and gradients."""
    whole, late = built(KINDS[kind]), built(KINDS[kind], cache=True)
    assert late.begin == 1
    assert late.feature_shape == (1 + LENGTH, WIDTH + 1)
    features = late.before(ROWS)
    torch.testing.assert_close(late(features), whole(ROWS), atol=1e-6, rtol=0)
    left_out = names_left_out(late)
    assert {name.split(".")[3] for name in left_out if ".layer." in name} == {"0"}
    for network, x in ((whole, ROWS), (late, features)):
        network.train()(x).square().sum().backward()
    of_late = dict(late.named_parameters())
    compared = {name: p.grad for name, p in whole.named_parameters() if p.grad is not None}
    for name, gradient in compared.items():
        torch.testing.assert_close(gradient, of_late[name].grad, atol=1e-5, rtol=1e-4)
    assert len(compared) >= 3


@pytest.mark.parametrize("kind", KINDS)
def test_features_follow_from_all_blocks_if_prompts_ask(built, kind):
    """The query passes through the last block, which is not left out. Prefixes alone have no query."""
    late = built(KINDS[kind], cache=True)
    used = {id(tensor) for tensor in late.tensors_before()}
    last = [id(p) for p in late.body.encoder.layer[2].parameters()]
    assert [number in used for number in last] == [kind != "prefix"] * len(last)
    assert not any(id(p) in used for p in (*late.prompts.parameters(), *late.head.parameters()))


@pytest.mark.parametrize("architecture", ["roberta", "distilbert"])
@pytest.mark.parametrize("kind", KINDS)
def test_other_encoders(built, architecture, kind):
    """The prompts of a late pass and of a whole one are the same."""
    whole, late = (built(KINDS[kind], kind=architecture, cache=cache) for cache in (False, True))
    torch.testing.assert_close(late(late.before(ROWS)), whole(ROWS), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "prompts", [{**DUAL, "general_blocks": [0]}, {**CODA, "blocks": [0]}, {**PREFIX, "blocks": [0]}]
)
def test_prefixes_of_the_first_block(built, prompts):
    """Then no block is before the prompts: nothing can be cached."""
    network = built(prompts)
    assert network(ROWS).isfinite().all()
    with pytest.raises(ConfigError, match="which trains its first layer"):
        built(prompts, cache=True)


def test_a_copy_has_its_own_prompts(built):
    network = built(DUAL)
    other = copy.deepcopy(network)
    expected = network(ROWS)
    with torch.no_grad():
        network.prompts.general.zero_()
    assert torch.equal(other(ROWS), expected)
    assert not torch.equal(network(ROWS), expected)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"prompts": L2P | {"block": 3}}, "model.prompts.block: found 3, allowed: 1 to 2, a block of the model"),
        ({"prompts": L2P | {"block": 0}}, "model.prompts.block: found 0, allowed: a whole number >= 1"),
        ({"prompts": L2P | {"top": 5}}, "model.prompts.top: found 5, allowed: at most pool (4)"),
        (
            {"prompts": L2P | {"top": 4, "length": 3}},
            "model.prompts.top: found 12 tokens of prompts and 6 of texts, allowed: 16 in all",
        ),
        ({"prompts": DUAL | {"blocks": [3]}}, "model.prompts.blocks: found 3, allowed: below the model's depth (3)"),
        (
            {"prompts": CODA | {"pool": 9}},
            "model.prompts.pool: found 9, allowed: at most the model's width (8), as its",
        ),
        (
            {"prompts": L2P, "adapters": {"rank": 2, "where": ["query"]}},
            "model.adapters: found adapters with model.prompts of hugging_face, whose blocks are frozen, allowed: null",
        ),
        ({"prompts": L2P, "head": "none"}, "model.head: found none, allowed: classifier with model.prompts"),
        ({"prompts": L2P, "pool": "last"}, "model.pool: found last, allowed: mean or first with model.prompts"),
        ({"prompts": DUAL, "attention": "eager"}, "model.attention: found eager, allowed: sdpa with prefixes"),
        ({"prompts": L2P, "dropout": 0.1}, "model.dropout: found 0.1, allowed: 0 or null with model.prompts"),
        ({"prompts": L2P, "kind": "gpt2", "pool": "mean"}, "model.prompts: found gpt2, in which tokens see only those"),
        (
            {"prompts": L2P, "checkpointing": True},
            "model.checkpointing: found true, allowed: false with model.prompts of",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(config_of, keys, words):
    with pytest.raises(ConfigError) as caught:
        check_model(config_of(**keys), (2 * LENGTH,), 3, ARRAYS)
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)
