import pytest
import torch
from torch import nn

from raysim.models.flat import FlatModel, Weights
from raysim.system.errors import ConfigError


class Tied(nn.Module):
    """An encoder and a decoder with one weight [3, 3], a frozen scale [3], a head [2, 3] and its bias [2]."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(3, 3, bias=False)
        self.decoder = nn.Linear(3, 3, bias=False)
        self.decoder.weight = self.encoder.weight
        self.scale = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]), requires_grad=False)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.decoder(self.encoder(x)) * self.scale)


def with_statistics():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_the_vector_holds_the_parameters_in_order():
    module = nn.Linear(3, 2)
    expected = torch.cat([module.weight.detach().reshape(-1), module.bias.detach()])
    assert torch.equal(FlatModel(module).parameters, expected)


def test_what_is_written_to_the_vector_is_in_the_module_and_the_other_way():
    flat = FlatModel(nn.Linear(3, 2))
    flat.parameters.copy_(torch.arange(8.0))
    assert flat.module.weight.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert flat.module.bias.tolist() == [6, 7]
    with torch.no_grad():
        flat.module.bias[1] = 70.0
    assert flat.parameters[7] == 70.0


def test_gradients_arrive_in_the_vector():
    """loss = sum(W x + b) with x = (1, 2, 3): dL/dW is x in each row, dL/db is 1."""
    flat = FlatModel(nn.Linear(3, 2))
    flat.module(torch.tensor([[1.0, 2.0, 3.0]])).sum().backward()
    assert flat.gradient.tolist() == [1, 2, 3, 1, 2, 3, 1, 1]
    flat.module(torch.tensor([[1.0, 2.0, 3.0]])).sum().backward()  # accumulates, as torch does
    assert flat.gradient.tolist() == [2, 4, 6, 2, 4, 6, 2, 2]
    flat.gradient.zero_()
    assert flat.module.weight.grad.abs().sum() == 0


def test_tied_parameters_are_one_and_frozen_ones_are_in_no_vector():
    torch.manual_seed(0)
    module, twin = Tied(), Tied()
    twin.load_state_dict(module.state_dict())
    flat = FlatModel(module)
    assert flat.parameters.shape == (9 + 6 + 2,)
    assert list(flat.layout) == ["encoder.weight", "head.weight", "head.bias"]
    x = torch.randn(5, 3)
    flat.module(x).sum().backward()
    twin(x).sum().backward()
    wanted = torch.cat([p.grad.reshape(-1) for p in (twin.encoder.weight, twin.head.weight, twin.head.bias)])
    assert torch.equal(flat.gradient, wanted)
    flat.parameters.zero_()
    assert flat.module.encoder.weight is flat.module.decoder.weight
    assert flat.module.decoder.weight.abs().sum() == 0
    assert flat.module.scale.tolist() == [1, 2, 3]
    assert flat.module.scale.grad is None


def test_statistics_are_views_and_move_in_training():
    """BatchNorm: mean' = 0.9 * 0 + 0.1 * m, var' = 0.9 * 1 + 0.1 * unbiased variance of the linear layer's output."""
    torch.manual_seed(1)
    flat = FlatModel(with_statistics())
    assert flat.buffers.tolist() == [0] * 4 + [1] * 4
    assert flat.integers.tolist() == [0]
    x = torch.randn(6, 3)
    hidden = flat.module[0](x).detach()
    flat.module.train()
    flat.module(x)
    wanted = torch.cat([0.1 * hidden.mean(0), 0.9 + 0.1 * hidden.var(0, unbiased=True)])
    assert torch.allclose(flat.buffers, wanted, atol=1e-6)
    assert flat.integers.tolist() == [1]
    flat.buffers.zero_()
    flat.integers.fill_(5)
    assert flat.module[1].running_var.tolist() == [0] * 4
    assert flat.module[1].num_batches_tracked == 5
    assert flat.normalises
    assert not FlatModel(nn.Linear(2, 2)).normalises


def test_weights_are_copies_and_load_puts_them_back():
    flat = FlatModel(with_statistics())
    kept = flat.weights()
    parameters = flat.parameters.clone()
    flat.module.train()
    flat.module(torch.randn(4, 3))
    flat.parameters.add_(1.0)
    assert torch.equal(kept.parameters, parameters)
    assert kept.integers.tolist() == [0]
    flat.load(kept)
    assert torch.equal(flat.parameters, parameters)
    assert flat.buffers.tolist() == [0] * 4 + [1] * 4
    assert flat.integers.tolist() == [0]


def test_bytes_are_those_of_the_three_vectors():
    """(12 + 4) + (4 + 4) + (8 + 2) = 34 float32, 8 float32 statistics, one int64: 4 * 34 + 4 * 8 + 8 = 176."""
    assert FlatModel(with_statistics()).weights().nbytes == 176
    assert Weights(torch.zeros(3, dtype=torch.float64), torch.zeros(0), torch.zeros(0)).nbytes == 24


def test_the_state_dict_is_the_modules_and_stands_alone():
    module = Tied()
    names = list(module.state_dict())
    flat = FlatModel(module)
    state = flat.state_dict()
    assert list(state) == names
    assert all(t.untyped_storage().nbytes() == t.nbytes and t.is_contiguous() for t in state.values())
    fresh = Tied()
    fresh.load_state_dict(state)
    x = torch.randn(2, 3)
    assert torch.equal(fresh(x), flat.module(x))
    flat.parameters.zero_()
    assert state["head.weight"].abs().sum() > 0


def test_a_state_dict_loaded_into_the_module_is_in_the_vectors():
    torch.manual_seed(2)
    source = with_statistics()
    source(torch.randn(4, 3))
    flat = FlatModel(with_statistics())
    flat.module.load_state_dict(source.state_dict())
    assert torch.equal(flat.parameters, torch.cat([p.detach().reshape(-1) for p in source.parameters()]))
    assert torch.equal(flat.buffers[:4], source[1].running_mean)
    assert flat.integers.tolist() == [1]


def test_named_views_have_names_shapes_and_share_memory():
    flat = FlatModel(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1, bias=False)))
    vector = torch.arange(10.0)
    views = flat.named(vector)
    assert {name: tuple(view.shape) for name, view in views.items()} == {
        "0.weight": (2, 3),
        "0.bias": (2,),
        "1.weight": (1, 2),
    }
    views["1.weight"].zero_()
    assert vector.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 0]
    with pytest.raises(RuntimeError, match="split"):
        flat.named(torch.zeros(11))


def test_float64_models_stay_float64():
    flat = FlatModel(with_statistics().double())
    assert flat.dtype == flat.parameters.dtype == flat.gradient.dtype == flat.buffers.dtype == torch.float64
    assert flat.weights().nbytes == 8 * 34 + 8 * 8 + 8


@pytest.mark.parametrize("module", [nn.Flatten(), nn.Linear(2, 2).requires_grad_(False)])
def test_nothing_to_train_is_an_error(module):
    with pytest.raises(ConfigError, match="found no trainable parameter, allowed: trainable parameters of one dtype"):
        FlatModel(module)


def test_two_dtypes_are_an_error():
    with pytest.raises(ConfigError, match=r"found torch\.float32, torch\.float64"):
        FlatModel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.complex64])
def test_parameters_of_low_precision_are_an_error(dtype):
    with pytest.raises(ConfigError, match=f"found {dtype}, allowed: .* torch.float32 or torch.float64; torch.autocast"):
        FlatModel(nn.Linear(2, 2, dtype=dtype))


def test_a_lazy_layer_is_an_error():
    with pytest.raises(
        ConfigError, match=r"model: 1\.weight has no shape yet, allowed: layers that are told all sizes"
    ):
        FlatModel(nn.Sequential(nn.Flatten(), nn.LazyLinear(3)))


def test_transposed_parameters_are_laid_out_by_their_shape():
    module = nn.Linear(2, 3, bias=False)
    module.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
    flat = FlatModel(module)
    assert flat.parameters.tolist() == [0, 3, 1, 4, 2, 5]
    flat.module(torch.tensor([[1.0, 10.0]])).sum().backward()
    assert flat.gradient.tolist() == [1, 10] * 3


class Drawing(nn.Sequential):
    """With BatchNorm, dropout, a layer that is kept in evaluation mode, and tied layers."""

    def __init__(self):
        tied = nn.Linear(4, 4)
        super().__init__(nn.Linear(3, 4), nn.BatchNorm1d(4), tied, nn.Dropout(0.5), nn.BatchNorm1d(4).eval(), tied)
        self.append(nn.Linear(4, 2))


def twins():
    """Two models whose weights and statistics differ, x, and the logits that the second gives by itself."""
    torch.manual_seed(0)
    first, second = FlatModel(Drawing()), FlatModel(Drawing())
    for _ in range(3):
        second.module(torch.randn(8, 3) + 2)
    x = torch.randn(5, 3)
    modes = [layer.training for layer in second.module.modules()]
    wanted = second.module.eval()(x).detach()
    for layer, mode in zip(second.module.modules(), modes, strict=True):
        layer.training = mode
    return first, second, x, wanted


def test_a_teachers_logits_are_those_of_the_module_with_its_weights_in_evaluation_mode():
    first, second, x, wanted = twins()
    found = first.logits(x, second.parameters, second.buffers)
    assert torch.equal(found, wanted)
    assert not found.requires_grad
    assert not torch.equal(found, first.module.eval()(x))


def test_a_teachers_pass_leaves_the_model_as_it_is_between_forward_and_backward():
    """Its vectors and the teacher's, every layer's mode, torch's generator, and the gradient that comes after."""
    first, second, x, _ = twins()
    modes = [layer.training for layer in first.module.modules()]
    assert len(set(modes)) == 2

    def gradient(aside):
        torch.manual_seed(1)
        first.gradient.zero_()
        loss = first.module(x).square().sum()
        kept = [v.clone() for flat in (first, second) for v in (flat.parameters, flat.buffers, flat.integers)]
        if aside:
            state = torch.get_rng_state()
            first.logits(x, second.parameters, second.buffers)
            assert torch.equal(torch.get_rng_state(), state)
            now = [v for flat in (first, second) for v in (flat.parameters, flat.buffers, flat.integers)]
            assert all(map(torch.equal, now, kept))
            assert [layer.training for layer in first.module.modules()] == modes
        loss.backward()
        return first.gradient.clone()

    assert torch.equal(gradient(True), gradient(False))


def test_a_teachers_pass_that_fails_leaves_the_modes():
    first, second, _, _ = twins()
    modes = [layer.training for layer in first.module.modules()]
    with pytest.raises(RuntimeError):
        first.logits(torch.zeros(1, 7), second.parameters, second.buffers)
    assert [layer.training for layer in first.module.modules()] == modes
