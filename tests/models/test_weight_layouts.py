"""Files of vision transformers' weights in the layouts of torchvision, Hugging Face and timm.

Each is made of our own network by hand, name by name as these libraries write them, and read back. torchvision's own
network computes the same.
"""

import pytest
import torch
from torch import nn

from raysim.models.building import build_model
from raysim.models.mlp import mlp
from raysim.models.prompt_keys import L2PKeys
from raysim.models.vit import vit
from raysim.models.weight_layouts import fit_weights

WIDTH, DEPTH = 8, 2
KINDS = ("weight", "bias")


def network(seed=1, *, size=8, channels=3, **keys):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = vit((channels, size, size), 3, width=WIDTH, depth=DEPTH, heads=2, patch=2, input_size=None, **keys)
        for parameter in module.parameters():
            nn.init.normal_(parameter, std=0.3)  # so that biases and codes matter
    return module.eval()


def as_hugging_face(state, version, prefix="vit."):
    """The names in files of ViTForImageClassification, which transformers 4 and 5 write."""
    layer, (parts, joined, first, second) = {
        4: (
            "encoder.layer",
            ("attention.attention.{}", "attention.output.dense", "intermediate.dense", "output.dense"),
        ),
        5: ("layers", ("attention.{}_proj", "attention.o_proj", "mlp.fc1", "mlp.fc2")),
    }[version]
    words = ("query", "key", "value") if version == 4 else ("q", "k", "v")
    file = {
        f"{prefix}embeddings.cls_token": state["cls_token"],
        f"{prefix}embeddings.position_embeddings": state["pos_embed"],
    }
    for kind in KINDS:
        file[f"{prefix}embeddings.patch_embeddings.projection.{kind}"] = state[f"patch_embed.proj.{kind}"]
        file[f"{prefix}layernorm.{kind}"] = state[f"norm.{kind}"]
        file[f"classifier.{kind}"] = state[f"head.{kind}"]
        for number in range(DEPTH):
            block, at = f"blocks.{number}", f"{prefix}{layer}.{number}"
            file[f"{at}.layernorm_before.{kind}"] = state[f"{block}.norm1.{kind}"]
            file[f"{at}.layernorm_after.{kind}"] = state[f"{block}.norm2.{kind}"]
            for word, part in zip(words, state[f"{block}.attn.qkv.{kind}"].split(WIDTH), strict=True):
                file[f"{at}.{parts.format(word)}.{kind}"] = part
            file[f"{at}.{joined}.{kind}"] = state[f"{block}.attn.proj.{kind}"]
            file[f"{at}.{first}.{kind}"] = state[f"{block}.mlp.fc1.{kind}"]
            file[f"{at}.{second}.{kind}"] = state[f"{block}.mlp.fc2.{kind}"]
    return file


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("prefix", ["vit.", "deit.", ""], ids=["vit", "deit", "bare"])
def test_hugging_faces_names(version, prefix):
    """ViTModel and DeiTModel have no prefix and a pooler, which is left out."""
    module = network()
    file = as_hugging_face(module.state_dict(), version, prefix)
    file[f"{prefix}pooler.dense.weight"] = torch.ones(WIDTH, WIDTH)
    file[f"{prefix}embeddings.mask_token"] = torch.ones(1, 1, WIDTH)
    assert_same(fit_weights(module, file), module.state_dict())


def test_a_distillation_token_is_left_out():
    """DeiT's position codes are those of the class token, the distillation token and the patches."""
    module = network()
    state = module.state_dict()
    codes = torch.cat([state["pos_embed"][:, :1], torch.ones(1, 1, WIDTH), state["pos_embed"][:, 1:]], 1)
    file = as_hugging_face(state, 4, "deit.") | {
        "deit.embeddings.position_embeddings": codes,
        "deit.embeddings.distillation_token": torch.ones(1, 1, WIDTH),
    }
    for kind in KINDS:
        file[f"cls_classifier.{kind}"] = file.pop(f"classifier.{kind}")
        file[f"distillation_classifier.{kind}"] = torch.ones(3)
    assert_same(fit_weights(module, file), state)
    of_timm = state | {"pos_embed": codes, "dist_token": torch.ones(1, 1, WIDTH), "head_dist.bias": torch.ones(3)}
    assert_same(fit_weights(module, of_timm), state)


def test_timms_names_are_ours():
    """The names in timm's files of vit_* (1.0)."""
    block = ["norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"]
    layers = ["patch_embed.proj", *(f"blocks.{number}.{layer}" for number in range(DEPTH) for layer in block)]
    names = {f"{layer}.{kind}" for layer in [*layers, "norm", "head"] for kind in KINDS} | {"cls_token", "pos_embed"}
    module = network()
    assert {*module.state_dict()} == names
    assert_same(fit_weights(module, module.state_dict()), module.state_dict())


@pytest.mark.parametrize("old_names", [False, True])
def test_torchvisions_network_computes_the_same(old_names):
    """torchvision named the feedforward layers linear_1 and linear_2 at first."""
    models = pytest.importorskip("torchvision.models")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = models.VisionTransformer(8, 2, DEPTH, 2, WIDTH, 4 * WIDTH, num_classes=3).eval()
        nn.init.normal_(theirs.heads.head.weight)  # it is zero at first
    state = theirs.state_dict()
    if old_names:
        renamed = {"mlp.0": "mlp.linear_1", "mlp.3": "mlp.linear_2"}
        for old, new in renamed.items():
            state = {name.replace(old, new): tensor for name, tensor in state.items()}
    ours = network()
    ours.load_state_dict(fit_weights(ours, state))
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert theirs(x).abs().max() > 0.1
        torch.testing.assert_close(ours(x), theirs(x), atol=1e-5, rtol=0)


def test_codes_of_another_grid_are_interpolated():
    """Codes that are a linear function of the place stay one inside: a 4 x 4 grid doubled has steps of half the size.

    With edges replicated, cubic interpolation is exact for linear functions two places away from the edges. Place i of
    8 is at (i + 1/2) / 2 - 1/2 of 4.
    """
    module = network(size=16)
    state = network(size=8).state_dict()
    rows = torch.arange(4.0)[:, None, None].expand(4, 4, WIDTH)
    state["pos_embed"][:, 1:] = rows.reshape(1, 16, WIDTH)
    codes = fit_weights(module, state)["pos_embed"]
    assert codes.shape == (1, 65, WIDTH)
    assert torch.equal(codes[:, 0], state["pos_embed"][:, 0])
    grid = codes[0, 1:].unflatten(0, (8, 8))
    expected = ((torch.arange(8) + 0.5) / 2 - 0.5)[3:5]
    torch.testing.assert_close(grid[3:5], expected[:, None, None].expand(2, 8, WIDTH))
    module.load_state_dict(fit_weights(module, state))


def test_codes_become_those_of_a_grid_that_is_no_square():
    with torch.random.fork_rng(devices=[]):
        module = vit((3, 8, 12), 3, width=WIDTH, depth=DEPTH, heads=2, patch=2, input_size=None)
    state = network().state_dict()
    state["pos_embed"][:, 1:] = torch.arange(4.0)[:, None, None].expand(4, 4, WIDTH).reshape(1, 16, WIDTH)
    grid = fit_weights(module, state)["pos_embed"][0, 1:].unflatten(0, (4, 6))
    torch.testing.assert_close(grid, torch.arange(4.0)[:, None, None].expand(4, 6, WIDTH))


def test_gray_images_are_as_rgb_ones():
    """The patches' weights are summed: the logits are those of gray images in all three channels."""
    gray, color = network(2, channels=1), network()
    gray.load_state_dict(fit_weights(gray, color.state_dict()))
    x = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(gray(x), color(x.expand(-1, 3, -1, -1)))


def test_prompts_that_a_file_lacks_keep_their_values():
    prompted, plain = network(2, prompts=L2PKeys(kind="l2p")), network()
    before = prompted.state_dict()
    fitted = fit_weights(prompted, plain.state_dict())
    for name, tensor in fitted.items():
        assert torch.equal(tensor, (before if name.startswith("prompts.") else plain.state_dict())[name])
    assert fitted.keys() == before.keys()


def test_what_is_unknown_stays():
    """The loader names what does not fit."""
    module = network()
    file = {"blocks.0.attn.q.weight": torch.ones(1), "other": torch.ones(1), "pos_embed": torch.ones(1, 4, WIDTH)}
    assert_same(fit_weights(module, file), file)
    other = mlp((4,), 2)
    assert_same(fit_weights(other, {"classifier.weight": torch.ones(1)}), {"classifier.weight": torch.ones(1)})


def test_a_runs_model_reads_them(tiny, tmp_path):
    """`model.weights` is a file of Hugging Face's for 3 classes and a 4 x 4 grid; the model has 5 and an 8 x 8 grid.

    Its head and prompts keep their initial values. The trunk is frozen and the file's.
    """
    file, path = network(size=8), tmp_path / "weights.pt"
    torch.save(as_hugging_face(file.state_dict(), 4), path)
    model = {"name": "vit", "width": WIDTH, "depth": DEPTH, "heads": 2, "patch": 2, "input_size": 16}
    prompts = {"kind": "l2p", "pool": 2, "top": 1}
    loaded, plain = (
        build_model(tiny(model=model | {"prompts": prompts, "weights": weights}), (3, 8, 8), 5)
        for weights in (str(path), None)
    )
    drawn = {name for name in plain.state_dict() if name.startswith(("head.", "prompts."))}
    assert_same({name: loaded.state_dict()[name] for name in drawn}, {name: plain.state_dict()[name] for name in drawn})
    for name, parameter in loaded.named_parameters():
        if name not in {*drawn, "pos_embed"}:
            assert torch.equal(parameter, file.state_dict()[name]), name
            assert not parameter.requires_grad
