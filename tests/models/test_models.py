import hashlib

import pytest
import torch

import raysim
from raysim.federation.federation import build_federation
from raysim.models.building import build_model, check_model
from raysim.system.errors import ConfigError

MNIST = (1, 28, 28)


@pytest.fixture
def built(tiny):
    """A function: the module of a model block for samples of a shape."""

    def make(shape=MNIST, classes=10, seed=0, **model):
        return build_model(tiny(seed=seed, model=model), shape, classes)

    return make


@pytest.fixture
def refused(tiny):
    """A function: the one line that a model block is refused with."""

    def make(shape=(6,), classes=4, batch_size=4, **model):
        with pytest.raises(ConfigError) as found:
            check_model(tiny(model=model, training__batch_size=batch_size), shape, classes)
        assert "\n" not in str(found.value)
        return str(found.value)

    return make


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_parameter_counts(built):
    """mnist_cnn: 10*25+10 + 20*250+20 + 320*50+50 + 50*10+10 = 21,840.

    mcmahan_cnn: 32*25+32 + 64*800+64 + 3136*512+512 + 5130 = 1,663,370. mlp (McMahan's 2NN): 784*200+200 + 200*200+200
    + 200*10+10 = 199,210. critic on 32 x 32: 64*16+64 + 128*1024+128 + 256*2048+256 + 4096*10+10 = 697,802; for CIFAR
    9 (3*16 + 16*32 + 32*64 + 64*128 + 128*256 + 256*512) + 2 (32+64+128+256+512) + 8192*10+10 = 1,655,674.
    """
    assert count(built(name="critic", shape=(1, 32, 32))) == 697_802
    assert count(built(name="critic", variant="cifar", shape=(3, 32, 32))) == 1_655_674
    assert count(built(name="mnist_cnn")) == 21_840
    assert count(built(name="mcmahan_cnn")) == 1_663_370
    assert count(built(name="mlp")) == 199_210


@pytest.mark.parametrize("name", ["mnist_cnn", "mcmahan_cnn", "mlp", "critic"])
def test_outputs_are_finite_logits_that_depend_on_the_input(built, name):
    module = built(name=name).eval()
    with torch.no_grad():
        out = module(torch.rand(3, *MNIST, generator=torch.Generator().manual_seed(0)))
    assert out.shape == (3, 10)
    assert out.isfinite().all()
    assert not torch.allclose(out[0], out[1])


def test_the_mnist_cnn_is_what_its_text_says(built):
    """In evaluation: conv - pool - ReLU - conv - pool - ReLU - fc - ReLU - fc, written out with functions."""
    module = built(name="mnist_cnn").eval()
    p = {name: value.detach() for name, value in module.named_parameters()}
    f = torch.nn.functional
    x = torch.rand(2, *MNIST, generator=torch.Generator().manual_seed(1))
    h = f.max_pool2d(f.conv2d(x, p["conv1.weight"], p["conv1.bias"]), 2).clamp(min=0)
    h = f.max_pool2d(f.conv2d(h, p["conv2.weight"], p["conv2.bias"]), 2).clamp(min=0)
    h = (h.reshape(2, 320) @ p["fc1.weight"].T + p["fc1.bias"]).clamp(min=0)
    assert torch.allclose(module(x), h @ p["fc2.weight"].T + p["fc2.bias"], atol=1e-6)


def test_the_mnist_cnn_drops_out_in_training_only(built):
    module = built(name="mnist_cnn")
    x = torch.rand(2, *MNIST, generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        assert not torch.equal(module.train()(x), module(x))
        assert torch.equal(module.eval()(x), module(x))


def test_the_mlps_keys(built):
    layers = [type(layer).__name__ for layer in built((3, 4), 2, name="mlp", hidden=[7], dropout=0.25, batch_norm=True)]
    assert layers == ["Flatten", "Linear", "BatchNorm1d", "ReLU", "Dropout", "Linear"]
    module = built((3, 4), 2, name="mlp", hidden=[])
    assert count(module) == 12 * 2 + 2
    assert built((3, 4), 2, name="mlp", hidden=[7], dropout=0.25)[3].p == 0.25


def test_a_model_of_ones_own_by_name(built):
    assert count(built((6,), 4, name="probes:own")) == (6 * 3 + 3) + (3 * 4 + 4)
    assert count(built((6,), 4, name="probes:own", width=1)) == (6 + 1) + (4 + 4)


def test_initial_weights_are_the_seeds_and_nobody_elses(built):
    def weights(**more):
        return torch.cat([p.detach().reshape(-1) for p in built(name="mlp", **more).parameters()])

    state = torch.random.get_rng_state()
    first = weights()
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.rand(5)
    assert torch.equal(first, weights())
    assert not torch.equal(first, weights(seed=1))


def test_weights_from_a_file(built, tmp_path):
    module = built((6,), 4, name="mlp", hidden=[3], seed=5)
    torch.save(module.state_dict(), tmp_path / "w.pt")
    loaded = built((6,), 4, name="mlp", hidden=[3], weights=str(tmp_path / "w.pt"))
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), loaded.parameters(), strict=True))


def test_a_file_for_other_classes_fits_but_for_the_head(built, tmp_path):
    """Any model's; the head is the seed's own."""
    file = built((6,), 4, name="mlp", hidden=[3], seed=5)
    torch.save(file.state_dict(), tmp_path / "w.pt")
    keys = {"name": "mlp", "hidden": [3]}
    loaded, plain = (built((6,), 9, **keys, weights=weights) for weights in (str(tmp_path / "w.pt"), None))
    assert torch.equal(loaded[1].weight, file[1].weight)
    assert torch.equal(loaded[3].weight, plain[3].weight)


def test_misfits_are_one_line(refused, tmp_path):
    images = "images [channels, height, width]"
    for name, size in (
        ("mcmahan_cnn", " of at least 4 x 4 pixels"),
        ("mnist_cnn", " of 28 x 28 pixels"),
        ("resnet18", ""),
    ):
        words = f"model.name: found samples of shape (6,), allowed for {name}: {images}{size}"
        assert refused(name=name) == words
    assert "found samples of shape (1, 8, 8), allowed for mnist_cnn" in refused((1, 8, 8), name="mnist_cnn")
    assert "found samples of shape (1, 3, 8), allowed for mcmahan_cnn" in refused((1, 3, 8), name="mcmahan_cnn")
    assert "returns (2, 5) for 2 samples, allowed: a tensor of (2, 4)" in refused(name="probes:wrong_output")
    assert "returns a tuple for 2 samples, allowed: a tensor of (2, 4)" in refused(name="probes:two_outputs")
    assert "probes:quits could not be built for samples of shape (6,): SystemExit: 3 (quits, " in refused(
        name="probes:quits"
    )
    assert "returned str, allowed: a torch.nn.Module" in refused(name="probes:no_module")
    assert "there is no file" in refused(name="mlp", weights=str(tmp_path / "none.pt"))
    (tmp_path / "bad.pt").write_bytes(b"not a state_dict")
    assert "holds more than tensors, or is no file of torch's" in refused(name="mlp", weights=str(tmp_path / "bad.pt"))
    torch.save({"a": tmp_path}, tmp_path / "object.pt")
    assert "weights_only" not in (said := refused(name="mlp", weights=str(tmp_path / "object.pt")))
    assert said.endswith(
        "object.pt holds more than tensors, or is no file of torch's; allowed: a state_dict that torch.save wrote"
    )
    torch.save(torch.nn.Linear(6, 4).state_dict(), tmp_path / "other.pt")
    assert "does not fit the model" in refused(name="mlp", hidden=[3], weights=str(tmp_path / "other.pt"))
    broken = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 4))
    broken[1].bias.data[2] = torch.nan
    torch.save(broken.state_dict(), file := tmp_path / "nan.pt")
    words = f"model.weights: {file} has NaN in 1.bias, allowed: finite values"
    assert refused(name="mlp", hidden=[], weights=str(file)) == words


def test_a_frozen_part_may_be_of_low_precision(tiny, tmp_path):
    """Nothing is computed on it but by the model itself; its bytes are hashed with the others."""
    result = raysim.run(tiny(model={"name": "probes:half_frozen"}), out=tmp_path / "run", local=True)
    state = torch.load(tmp_path / "run" / "model.pt", weights_only=True)
    assert state["0.weight"].dtype == torch.bfloat16
    whole = b"".join(tensor.view(torch.uint8).numpy().tobytes() for tensor in state.values())
    assert result.model_sha256 == hashlib.sha256(whole).hexdigest()


def test_batchnorm_with_batches_of_one_is_refused(refused, tiny):
    words = refused(name="mlp", batch_norm=True, batch_size=1)
    assert words == "training.batch_size: found 1, allowed with BatchNorm in the model: 2 and more"
    check_model(tiny(model__batch_norm=True, training__batch_size=2), (6,), 4)


def test_checking_leaves_torchs_generator_alone_and_the_model_untouched(tiny):
    config = tiny(model__dropout=0.5, model__batch_norm=True)
    state = torch.random.get_rng_state()
    federation = build_federation(config)
    model = check_model(config, federation.shape, federation.classes)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert model.integers.tolist() == [0]
