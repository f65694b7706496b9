"""Prompt modules by the formulas of their papers: what they choose, their sums, their gradients, their sizes."""

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional

import raysim
from raysim.config import load
from raysim.models.building import build_model
from raysim.models.flat import FlatModel
from raysim.models.orthonormal import draw_orthonormal_rows
from raysim.models.prompt_keys import CodaKeys, DualKeys, L2PKeys, PrefixKeys
from raysim.models.prompts import CodaPrompts, DualPrompts, L2PPrompts, make_prompts
from raysim.models.vit import vit
from raysim.system.errors import ConfigError

SMALL = {"name": "vit", "width": 16, "depth": 2, "heads": 2, "patch": 2, "input_size": 8}
L2P = {"kind": "l2p", "pool": 4, "length": 2, "top": 3}
DUAL = {"kind": "dual", "general_blocks": [0], "blocks": [1], "length": 3, "pool": 4}
CODA = {"kind": "coda", "blocks": [0, 1], "pool": 8, "per_task": 2, "length": 4}
PREFIX = {"kind": "prefix", "blocks": [0, 1], "length": 3, "initial": "unit"}
X = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.tensor([0, 1, 2, 3, 4])


@pytest.fixture
def built(tiny):
    """A function: the vision transformer with prompts, for the digits."""

    def make(prompts, seed=0):
        return build_model(tiny(seed=seed, model=SMALL | {"prompts": prompts}), (1, 8, 8), 10)

    return make


@pytest.mark.parametrize(
    ("keys", "length"),
    [
        (L2PKeys(kind="l2p"), 122_980),
        (DualKeys(kind="dual"), 1_021_540),
        (CodaKeys(kind="coda"), 3_916_900),
        (PrefixKeys(kind="prefix"), 844_900),
    ],
    ids=["l2p", "dual", "coda", "prefix"],
)
def test_what_is_sent_for_100_classes(keys, length):
    """Of ViT-B/16: the head 76,900 and, for L2P, 10 (5 + 1) 768; for DualPrompt, 2 * 2 * 5 * 768 of all tasks, 3 * 2 *
    10 * 20 * 768 of each task and 10 * 768 keys; for CODA-Prompt, 5 * 100 (8 + 2) 768; for prefixes, 5 * 200 * 768.

    The trunk is in no vector. So a narrow hidden layer and 5 of 12 blocks do not matter.
    """
    assert (
        length - 76_900
        == {
            "l2p": 10 * 6 * 768,
            "dual": 2 * 2 * 5 * 768 + 3 * 2 * 10 * 20 * 768 + 10 * 768,
            "coda": 5 * 100 * 10 * 768,
            "prefix": 5 * 2 * 100 * 768,
        }[keys.kind]
    )
    model = FlatModel(vit((3, 224, 224), 100, width=768, depth=5, mlp_ratio=0.01, prompts=keys))
    assert len(model.parameters) == length
    assert {name.partition(".")[0] for name in model.layout} == {"prompts", "head"}
    assert len(model.buffers) == len(model.integers) == 0


@pytest.mark.parametrize("prompts", [L2P, DUAL, CODA, PREFIX], ids=lambda keys: keys["kind"])
def test_the_trunk_keeps_its_bits_and_prompts_and_head_learn(built, prompts):
    network = built(prompts).train()
    before = copy.deepcopy(network.state_dict())
    optimizer = torch.optim.Adam([p for p in network.parameters() if p.requires_grad], 0.01)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = functional.cross_entropy(network(X), Y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.1
    changed = {name for name, tensor in network.state_dict().items() if not torch.equal(tensor, before[name])}
    learned = {name for name in before if name.startswith("head.")} | {
        "l2p": {"prompts.entries"},
        "dual": {"prompts.general", "prompts.entries"},
        "coda": {name for name in before if name.startswith("prompts.")},
        "prefix": {"prompts.prefixes"},
    }[prompts["kind"]]
    assert changed == learned


@pytest.mark.parametrize("prompts", [L2P, DUAL, CODA], ids=lambda keys: keys["kind"])
def test_the_query_is_the_class_token_of_the_trunk_without_prompts(built, prompts):
    """The trunk with the same seed has the same weights."""
    plain, network = built(None), built(prompts).train()
    queries = []
    network.prompts.register_forward_pre_hook(lambda module, given: queries.append(*given))
    network(X)
    assert torch.equal(queries[0], plain.features(X))
    assert not queries[0].requires_grad


@pytest.mark.parametrize("prompts", [L2P, DUAL], ids=lambda keys: keys["kind"])
def test_a_pool_keeps_the_queries_of_the_pass_that_it_listens_to(built, prompts):
    """The next one in training mode alone. The 5 queries of X stay until it listens again."""
    network = built(prompts)
    for training, x, kept in ((True, X, 5), (False, X[:2], 5), (True, X[:3], 5)):
        network.train(training)(x)
        assert len(network.prompts.query) == len(network.prompts.chosen) == kept
    network.prompts.listens = True
    network.eval()(X[:2])
    assert len(network.prompts.query) == 5
    network.train()(X[:3])
    assert len(network.prompts.query) == 3
    copy.deepcopy(network)  # a graph on the module could not be copied


@pytest.mark.parametrize("prompts", [L2P, DUAL, CODA], ids=lambda keys: keys["kind"])
def test_prompts_are_each_images_own(built, prompts):
    network = built(prompts).eval()
    with torch.no_grad():
        together = network(X)
        for row in range(len(X)):
            torch.testing.assert_close(network(X[row : row + 1])[0], together[row])


# L2P


def test_the_nearest_keys_are_chosen_and_pulled():
    """q = (1, 0), keys (1, 0), (0, 1), (.6, .8), top 2: entries 1 and 3, cosines 1 and .6; -.1 times 1.6 is -.16."""
    prompts = L2PPrompts(L2PKeys(kind="l2p", pool=3, length=1, top=2), 2)
    with torch.no_grad():
        prompts.keys.copy_(torch.tensor([[1, 0], [0, 1], [0.6, 0.8]]))
    filled = prompts(torch.tensor([[1.0, 0.0]]))
    assert prompts.chosen.tolist() == [[0, 2]]
    assert torch.equal(filled.tokens, prompts.entries[[0, 2]].transpose(0, 1))
    assert -0.1 * prompts.pull().item() == pytest.approx(-0.16, abs=1e-7)
    filled.tokens.sum().backward()
    assert prompts.keys.grad is None  # without the pull term, keys have no gradient at all
    (0 * prompts.pull()).backward()
    assert torch.equal(prompts.keys.grad, torch.zeros(3, 2))


def test_the_pull_is_a_mean_over_images():
    """Queries (1, 0) and (0, 3), top 1, keys (1, 0) and (.6, .8): cosines 1 and .8."""
    prompts = L2PPrompts(L2PKeys(kind="l2p", pool=2, length=1, top=1), 2)
    with torch.no_grad():
        prompts.keys.copy_(torch.tensor([[1, 0], [0.6, 0.8]]))
    prompts(torch.tensor([[1.0, 0.0], [0.0, 3.0]]))
    assert prompts.chosen.tolist() == [[0], [1]]
    assert prompts.pull().item() == pytest.approx(0.9)


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("average", ["class_and_prompts", "prompts"])
def test_tokens_stand_after_the_class_token_with_their_codes(built, shifted, average):
    """Written out for one image: [CLS], the entries in order of falling cosine, the patches; mean of 7 or 6 outputs."""
    network = built(L2P | {"faithful_positions": shifted, "average": average}).eval()
    prompts, codes = network.prompts, network.pos_embed[0]
    with torch.no_grad():
        plain = network.patch_embed(X[:1])[0]
        class_token = network.cls_token[0, 0]
        query = network._run(torch.cat([class_token[None], plain])[None] + codes, {})[0, 0].numpy()
        keys = prompts.keys.numpy()
        cosines = keys @ query / np.linalg.norm(keys, axis=1) / np.linalg.norm(query)
        tokens = [token for entry in np.argsort(-cosines)[:3] for token in prompts.entries[entry]]
        drawn = list(prompts.codes)
        places = [*drawn, codes[0]] if shifted else [codes[0], *drawn]
        front = [token + code for token, code in zip([class_token, *tokens], places, strict=True)]
        output = network._run(torch.cat([torch.stack(front), plain + codes[1:]])[None], {})[0]
        expected = network.head(output[int(average == "prompts") : 7].mean(0))
        torch.testing.assert_close(network(X[:1])[0], expected)


def test_a_pool_of_one_empty_entry_is_a_linear_probe(built):
    """The same logits, and the same gradient of the head, as the trunk without prompts."""
    network, plain = (built(keys) for keys in ({"kind": "l2p", "pool": 1, "length": 0, "top": 1}, None))
    gradients = []
    for one in (network, plain):
        logits = one(X)
        gradients.append(torch.autograd.grad(functional.cross_entropy(logits, Y), one.head.parameters()))
        gradients[-1] += (logits,)
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected)


# DualPrompt


def test_a_task_trains_its_entry_and_evaluation_takes_the_nearest():
    prompts = DualPrompts(DualKeys(kind="dual", general_blocks=[], blocks=[0], length=1, pool=3), 2)
    with torch.no_grad():
        prompts.keys.copy_(torch.tensor([[1, 0], [0, 1], [0.6, 0.8]]))
    queries, entries = torch.tensor([[1.0, 0.0], [0.5, 1.0]]), prompts.entries[0]  # [2, pool, 1, W]
    for task, chosen in ((1, [1, 1]), (None, [0, 2]), (3, [0, 2])):  # task 4 of a pool of 3 has no entry
        prompts.at_task(task, 2)
        prompts.listens = True
        keys, values = prompts(queries).prefixes[0]
        assert prompts.chosen[:, 0].tolist() == chosen
        assert torch.equal(keys, entries[0, chosen])
        assert torch.equal(values, entries[1, chosen])
    prompts.at_task(1, 2)
    prompts.listens = True
    prompts(queries)
    # cosines with (0, 1): 0 and 1 / sqrt(1.25)
    assert prompts.pull().item() == pytest.approx(0.5 / 1.25**0.5)


def test_all_tasks_share_the_general_prefixes(built):
    network = built(DUAL)
    filled = network.prompts(torch.randn(2, 16))
    assert {block: tuple(keys.shape) for block, (keys, _) in filled.prefixes.items()} == {0: (2, 5, 16), 1: (2, 3, 16)}
    for part, pair in zip(filled.prefixes[0], network.prompts.general[0], strict=True):
        assert torch.equal(part, torch.stack([pair, pair]))


# CODA-Prompt


def with_tables(components, keys, vectors, **more):
    """Return prompts of width 2 for one block, with all rows of a component filled with one number."""
    prompts = CodaPrompts(CodaKeys(kind="coda", blocks=[0], pool=2, length=2, **more), 2)
    with torch.no_grad():
        prompts.components[0].copy_(torch.tensor(components)[:, None, None].expand(2, 2, 2))
        prompts.keys[0].copy_(torch.tensor(keys))
        prompts.attention[0].copy_(torch.tensor(vectors))
    return prompts


def test_components_are_weighted_by_cosines():
    """q = (1, 2), A = (1, 0), (1, 1), K = (1, 0), (0, 2): the cosines are 1 and 2 / sqrt(5) = .894427, so 1 and 2
    become 2.788854. The first row of the sum is a key. The second row is a value, of thrice the size here.
    """
    prompts = with_tables([1.0, 2.0], [[1.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [1.0, 1.0]], per_task=2)
    with torch.no_grad():
        prompts.components[0][:, 1] *= 3
    keys, values = prompts(torch.tensor([[1.0, 2.0]])).prefixes[0]
    torch.testing.assert_close(keys, torch.full((1, 1, 2), 2.788854))
    torch.testing.assert_close(values, 3 * keys)


def test_attention_vectors_of_zero_leave_the_query_under_softmax():
    """softmax(0) is constant: the weights are cos(q, K_i) = 1 / sqrt(5) and 2 / sqrt(5), so the sum is sqrt(5)."""
    more = {"attention": "softmax", "per_task": 2}
    prompts = with_tables([1.0, 2.0], [[1.0, 0.0], [0.0, 2.0]], [[0.0, 0.0], [0.0, 0.0]], **more)
    keys, _ = prompts(torch.tensor([[1.0, 2.0]])).prefixes[0]
    torch.testing.assert_close(keys, torch.full((1, 1, 2), 5**0.5))


def test_earlier_components_are_used_and_stay(built):
    """At task 2 of 4: rows 0 and 1 have no gradient, 2 and 3 have one, 4 to 7 are neither used nor trained."""
    network = built(CODA | {"initial": "orthogonal"})
    prompts = network.prompts
    prompts.at_task(1, 2)
    functional.cross_entropy(network(X), Y).backward()
    for table in prompts.tables:
        moved = table.grad.flatten(1).abs().sum(1) > 0
        assert moved.tolist() == [False, False, True, True, False, False, False, False]
    with torch.no_grad():
        trained = network(X)
        prompts.at_task(None, 2)  # in evaluation after two tasks, the same components are used
        assert torch.equal(network(X), trained)
        for table in prompts.tables:
            table[4:] += 1
        assert torch.equal(network(X), trained)
        prompts.at_task(None, 3)
        assert not torch.equal(network(X), trained)


def test_plain_adam_keeps_the_bits_of_earlier_components(built):
    network = built(CODA | {"initial": "orthogonal"})
    network.prompts.at_task(1, 2)
    before = [table.detach().clone() for table in network.prompts.tables]
    optimizer = torch.optim.Adam(network.prompts.parameters(), 0.01)
    for _ in range(3):
        optimizer.zero_grad()
        functional.cross_entropy(network(X), Y).backward()
        optimizer.step()
    for table, old in zip(network.prompts.tables, before, strict=True):
        assert torch.equal(table[:2], old[:2])
        assert not torch.equal(table[2:4], old[2:4])


def test_initial_rows_are_orthonormal_and_later_ones_zero(built):
    for table in built(CODA).prompts.tables:
        rows = table.detach().flatten(1).double()
        torch.testing.assert_close(rows[:2] @ rows[:2].T, torch.eye(2, dtype=torch.float64), atol=1e-6, rtol=0)
        assert not rows[2:].any()
    for table in built(CODA | {"initial": "orthogonal"}).prompts.tables:
        rows = table.detach().flatten(1).double()
        torch.testing.assert_close(rows @ rows.T, torch.eye(8, dtype=torch.float64), atol=1e-6, rtol=0)


def test_a_tasks_rows_are_redrawn_against_the_earlier_ones():
    """Earlier rows (3, 0, 0, 0) and 0: new rows are of norm 1, and orthogonal to (3, 0, 0, 0) and to each other."""
    table = torch.zeros(5, 2, 2)
    table[0, 0, 0] = 3
    table[4] = 7
    torch.manual_seed(0)
    new = draw_orthonormal_rows(table, 2, 4)
    assert torch.equal(new[[0, 1, 4]], table[[0, 1, 4]])
    assert not table[2:4].any()  # the table given stays
    rows = new.flatten(1)[2:4]
    torch.testing.assert_close(rows @ rows.T, torch.eye(2))
    torch.testing.assert_close(rows[:, 0], torch.zeros(2))
    torch.manual_seed(0)
    assert torch.equal(new, draw_orthonormal_rows(table, 2, 4))


def test_the_penalty_is_a_mean_square():
    """Three tables of rows M = 2 I: M M^T - I = 3 I, with a mean square of 2 * 9 / 4 = 4.5 each.

    Task 1 of 2 has the first row alone: (4 - 1)^2 = 9 each.
    """
    for per_task, each in ((2, 4.5), (1, 9.0)):
        prompts = with_tables([0.0, 0.0], [[2.0, 0.0], [0.0, 2.0]], [[2.0, 0.0], [0.0, 2.0]], per_task=per_task)
        with torch.no_grad():
            prompts.components[0].zero_()
            prompts.components[0][0, 0, 0] = prompts.components[0][1, 0, 1] = 2
        assert prompts.orthogonality().item() == 3 * each


def test_a_task_beyond_the_pool_is_refused():
    prompts = make_prompts(CodaKeys(kind="coda", blocks=[0], pool=3, per_task=2), 4, 1)
    assert isinstance(prompts, CodaPrompts)
    assert prompts.rows_of(0) == (0, 2)
    with pytest.raises(ConfigError, match=r"^model.prompts.pool: found 3, allowed for task 2: at least 4, per_task"):
        prompts.at_task(1, 2)


def test_a_run(tmp_path):
    """Prompts in a run of raysim: the trunk that the run writes is the initial one, and the head is trained."""
    config = {
        "name": "tiny",
        "dataset": {"name": "digits", "train_samples": 60},
        "scenario": {"kind": "class_incremental", "tasks": 2},
        "clients": {"count": 2},
        "model": SMALL | {"prompts": L2P},
        "training": {"rounds_per_task": 1},
        "logging": {"tensorboard": False},
    }
    raysim.run(config, out=tmp_path / "run", local=True)
    state = torch.load(tmp_path / "run" / "model.pt", weights_only=True)
    initial = build_model(load(config), (1, 8, 8), 10).state_dict()
    changed = {name for name, tensor in state.items() if not torch.equal(tensor, initial[name])}
    assert changed == {"head.weight", "head.bias", "prompts.entries"}


def test_rows_of_a_prefix_that_begin_at_zero_stay_equal(built):
    """All keys of a block have one gradient, and so have all values. A block that begins at random has norm 1."""
    network = built(PREFIX | {"initial": "zero"})
    functional.cross_entropy(network(X), Y).backward()
    gradient = network.prompts.prefixes.grad
    torch.testing.assert_close(gradient[:, :, :1].expand_as(gradient), gradient, atol=1e-8, rtol=1e-5)
    assert gradient[0, 1].abs().max() > 0
    drawn = built(PREFIX).prompts.prefixes
    torch.testing.assert_close(drawn.flatten(1).norm(dim=1), torch.ones(2))


def test_prefixes_of_all_images_need_one_pass(built):
    calls, network = [], built(PREFIX)
    for number, block in enumerate(network.blocks):
        block.register_forward_hook(lambda *_, number=number: calls.append(number))
    network(X)
    assert calls == [0, 1]
