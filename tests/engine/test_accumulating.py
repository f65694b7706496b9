"""training.accumulate: a batch that passes in parts has the gradient of the batch."""

import numpy as np
import pytest
import torch
from softmax_oracle import batch_order, local_phase
from test_training import data_of, phase
from torch import nn
from torch.nn import functional

from raysim.api import ClientHalf, Method
from raysim.engine.compatibility import check_fit, check_methods
from raysim.models.building import check_model
from raysim.objectives.classification import Classification
from raysim.objectives.next_token import NextToken
from raysim.system.errors import ConfigError

LOG = []


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_a_phase_in_parts_is_that_of_numpy(host_of, tiny, quiet_torch, parts):
    """12 samples in batches of 5, 5 and 2. Three parts of 5 samples have 2, 2 and 1, and three of 2 samples 1 and 1."""
    host = host_of(tiny(model={"name": "probes:softmax"}, seed=3, training__batch_size=5, training__accumulate=parts))
    start = host.model.parameters.numpy().copy()
    x, y = data_of(host, 0)
    delta, loss = local_phase(start, x, y, batch_order(3, 0, 1, len(y), 1, 5), 0.1, 4)
    found, its_loss = phase(host, 0)
    np.testing.assert_allclose(found, delta, rtol=0, atol=1e-12)
    assert its_loss == pytest.approx(loss, abs=1e-12)


def test_one_part_is_the_usual_step_to_the_bit(host_of, tiny, quiet_torch):
    found, plain = (phase(host_of(tiny(**keys)), 0)[0] for keys in ({"training__accumulate": 1}, {}))
    np.testing.assert_array_equal(found, plain)


class Counting(Method):
    """Notes the rows and the logits of each step."""

    class Client(ClientHalf):
        def batch(self, step):
            step.x, step.y = torch.cat([step.x, step.x[:2]]), torch.cat([step.y, step.y[:2]])

        def gradient(self, step, gradient):
            model = step.client.model
            with torch.no_grad():
                LOG.append((step.logits, model(step.x), step.loss, functional.cross_entropy(model(step.x), step.y)))
            assert gradient is model.gradient
            return gradient


def test_hooks_see_the_whole_batch_with_the_rows_that_were_added(host_of, tiny, quiet_torch):
    """Batches of 4 and 2 more rows in two parts of 3: the hook's own pass over 6 rows returns the same."""
    LOG.clear()
    keys = {"methods": {"test_accumulating:Counting": {}}, "training__accumulate": 2}
    phase(host_of(tiny(**keys)), 0)
    assert [len(logits) for logits, *_ in LOG] == [6, 6, 6]
    for logits, again, loss, its_own in LOG:
        torch.testing.assert_close(logits, again)
        torch.testing.assert_close(loss, its_own)
        assert not logits.requires_grad


def tokens(shape, classes):
    """Logits of the next token from the token alone."""
    return nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, classes))


def test_parts_of_texts_are_weighted_by_their_tokens():
    """The first text has 1 token that counts, the second 3: the mean over 4 is 1/4 of the first and 3/4 of the second.

    Means over the texts would weight both with 1/2.
    """
    torch.manual_seed(0)
    model = tokens((4,), 7).double()
    x = torch.randint(7, (2, 4))
    y = torch.tensor([[3, -100, -100, -100], [1, 2, 5, -100]])
    objective = NextToken()
    assert [int(objective.terms(part)) for part in (y, y[:1], y[1:])] == [4, 1, 3]

    def gradient(rows):
        loss = objective.loss(model(x[rows]), y[rows])
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, [*model.parameters()])])

    whole, first, second = (gradient(rows) for rows in (slice(0, 2), slice(0, 1), slice(1, 2)))
    torch.testing.assert_close(whole, first / 4 + 3 * second / 4)
    assert (whole - (first + second) / 2).abs().max() > 1e-3


def test_labels_that_the_loss_leaves_out_have_no_weight():
    assert int(Classification().terms(torch.tensor([2, -100, 0]))) == 2


def texts():
    """24 texts of 5 tokens, of which the first 1 to 4 count."""
    generator = np.random.default_rng(0)
    x = generator.integers(1, 7, (24, 5))
    y = np.where(np.arange(5) < 1 + np.arange(24)[:, None] % 4, (x + 1) % 7, -100)
    return x, y


def stream_of_texts(tmp_path):
    x, y = texts()
    np.savez(tmp_path / "texts.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return {"name": "npz", "path": str(tmp_path / "texts.npz")}


@pytest.mark.parametrize("parts", [2, 4])
def test_a_phase_on_texts_in_parts_is_that_of_whole_batches(host_of, tiny, quiet_torch, tmp_path, parts):
    keys = {
        "dataset": stream_of_texts(tmp_path),
        "objective": "next_token",
        "scenario": {"kind": "test_texts:halves", "tasks": 1},
        "clients__count": 1,
        "model": {"name": "transformer", "width": 8, "layers": 1, "heads": 2, "causal": True, "output": "token"},
    }
    whole, _ = phase(host_of(tiny(**keys)), 0)
    found, _ = phase(host_of(tiny(**keys, training__accumulate=parts)), 0)
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-6)
    assert np.abs(whole).max() > 1e-3


@pytest.mark.parametrize(
    ("methods", "why"),
    [
        ({"der": {}}, r"der, which changes the loss of a whole batch \(penalty\): 1"),
        ({"lwf": {}}, r"lwf, which changes the loss of a whole batch \(penalty\): 1"),
        ({"fed_l2p": {}}, r"fed_l2p, which changes the loss of a whole batch \(penalty\): 1"),
        ({"fedtrack": {}}, r"fedtrack, which replaces the local loop: 1"),
    ],
)
def test_methods_that_need_the_whole_batch_are_refused(tiny, methods, why):
    config = tiny(methods=methods, training__accumulate=2)
    with pytest.raises(ConfigError, match=rf"^training\.accumulate: found 2, allowed with {why}$"):
        check_methods(config)


def test_methods_on_rows_and_gradients_are_allowed(tiny):
    check_methods(tiny(methods={"er": {}, "scaffold": {}}, training__accumulate=2))


def test_batch_norm_is_refused_unless_it_is_frozen(tiny):
    config = tiny(model={"name": "mlp", "hidden": [5], "batch_norm": True}, training__accumulate=2)
    model = check_model(config, (6,), 4)
    with pytest.raises(
        ConfigError, match=r"^training\.accumulate: found 2, allowed with BatchNorm in the model: 1, as"
    ):
        check_fit(config, model, 4)
    names = [name for name, _ in model.module.named_parameters()]
    frozen = tiny(
        model={"name": "mlp", "hidden": [5], "batch_norm": True, "freeze": names[:-2]}, training__accumulate=2
    )
    check_fit(frozen, check_model(frozen, (6,), 4), 4)
