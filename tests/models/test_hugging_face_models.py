"""Pretrained models of transformers: equality with transformers' own passes, what is refused, and late passes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pretrained_folders import (
    ARRAYS,
    DECODERS,
    IDS,
    LENGTH,
    MASK,
    NAMES,
    ROWS,
    TEXTS,
    WIDTH,
    built,
    config_for,
    write_folder,
)
from tiny_tokenizers import word_level
from torch import nn
from torch.nn import functional

from raysim.algorithms.parts.label_embeddings import encode_names
from raysim.config import load
from raysim.models.arrays import Arrays, NamedArray
from raysim.models.building import build_model, check_model
from raysim.models.flat import FlatModel
from raysim.models.freezing import frozen_bytes
from raysim.models.hugging_face.network import pool_tokens
from raysim.models.hugging_face.text_encoder import encode_texts
from raysim.system.errors import ConfigError
from raysim.system.hub_files import find_folder

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.usefixtures("quiet_torch")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each tested architecture, and of each decoder with its output layer."""
    root = tmp_path_factory.mktemp("folders")
    made = {kind: write_folder(root / kind, kind) for kind in NAMES}
    return made | {f"{kind} causal": write_folder(root / f"{kind}_causal", kind, causal=True) for kind in DECODERS}


@pytest.mark.parametrize("kind", NAMES)
def test_a_classifier_is_transformers_own_body_with_a_linear_layer(folders: dict[str, Path], kind: str) -> None:
    """Forward, loss and gradient to the bit in evaluation mode, where both compute on all positions."""
    model = built(folders[kind]).eval()
    body = transformers.AutoModel.from_pretrained(folders[kind], dtype=torch.float32).eval()
    head = nn.Linear(WIDTH, 3)
    head.load_state_dict(model.head.state_dict())
    keys = {} if kind == "distilbert" else {"use_cache": False}
    hidden = body(input_ids=TEXTS, attention_mask=MASK, **keys).last_hidden_state
    if kind in DECODERS:  # the last tokens of the three texts
        pooled = hidden[[0, 1, 2], [3, 3, 0]]
    else:
        pooled = torch.stack([hidden[0, :4].sum(0) / 4, hidden[1, :4].sum(0) / 4, hidden[2, 0]])
    expected = head(pooled)
    torch.testing.assert_close(model(ROWS), expected, rtol=1e-6, atol=1e-6)
    labels = torch.tensor([0, 2, 1])
    functional.cross_entropy(model(ROWS), labels).backward()
    functional.cross_entropy(expected, labels).backward()
    for name, parameter in model.body.named_parameters():
        torch.testing.assert_close(parameter.grad, body.get_parameter(name).grad, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", DECODERS)
def test_a_language_model_is_transformers_own(folders: dict[str, Path], kind: str) -> None:
    """Logits to the bit, and transformers' own loss of the shifted labels, which raysim's targets are already."""
    folder = folders[f"{kind} causal"]
    model = built(folder, IDS, objective="next_token", head="causal_lm").eval()
    own = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    labels = TEXTS.where(MASK.bool(), -100)
    expected = own(input_ids=TEXTS, attention_mask=MASK, labels=labels, use_cache=False)
    logits = model(ROWS)
    assert torch.equal(logits, expected.logits)
    targets = functional.pad(labels[:, 1:], (0, 1), value=-100)
    loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
    torch.testing.assert_close(loss, expected.loss, rtol=1e-6, atol=1e-6)
    loss.backward()
    expected.loss.backward()
    for name, parameter in model.body.named_parameters():
        torch.testing.assert_close(parameter.grad, own.get_parameter(name).grad, rtol=1e-5, atol=1e-6)
    before = model.body.get_input_embeddings().weight.detach().clone()
    for network in (model, own):
        torch.optim.SGD(network.parameters(), lr=0.1).step()
    step = model.body.get_input_embeddings().weight
    assert not torch.equal(step, before)
    torch.testing.assert_close(step, own.get_input_embeddings().weight, rtol=1e-5, atol=1e-6)


def test_tied_weights_are_in_the_vector_once_and_are_no_head(folders: dict[str, Path]) -> None:
    """Qwen2's table is its output layer, Llama has both. Rotary frequencies and positions are in no vector."""
    objective = {"objective": "next_token", "head": "causal_lm"}
    tied, untied, encoder = (
        check_model(config_for(folders[name], **keys), (2 * LENGTH,), classes, ARRAYS)
        for name, keys, classes in [
            ("qwen2 causal", objective, IDS),
            ("llama causal", objective, IDS),
            ("bert", {}, 3),
        ]
    )
    assert tied.head == ()
    assert untied.head == ("body.lm_head.weight",)
    assert encoder.head == ("head.weight", "head.bias")
    own = transformers.AutoModelForCausalLM.from_pretrained(folders["qwen2 causal"])
    assert len(tied.parameters) == sum(parameter.numel() for parameter in own.parameters())
    tied.parameters.zero_()
    assert not tied.module.body.lm_head.weight.any()
    for model in (tied, untied, encoder):
        assert [*model.module.named_buffers()]
        assert [len(model.buffers), len(model.integers)] == [0, 0]
    # BERT without its pooler: tables (29 + 16 + 2) of 8, norm 16; a block: 4 layers of 72, norm 16, 144 + 136, norm 16
    assert len(encoder.parameters) == 47 * 8 + 16 + 3 * (4 * 72 + 16 + 144 + 136 + 16) + 3 * 8 + 3


@pytest.mark.parametrize("kind", ["bert", "llama"])
def test_training_batches_are_trimmed_to_their_longest_text(folders: dict[str, Path], kind: str) -> None:
    model, seen = built(folders[kind], dropout=0.0), list[tuple[int, ...]]()
    hook = model.body.register_forward_pre_hook(lambda m, a, k: seen.append(k["input_ids"].shape), with_kwargs=True)
    trained, tested = model.train()(ROWS), model.eval()(ROWS)
    hook.remove()
    assert seen == [(3, 4), (3, LENGTH)]
    torch.testing.assert_close(trained, tested, rtol=1e-6, atol=1e-6)


def test_logits_of_trimmed_positions_are_zero(folders: dict[str, Path]) -> None:
    model = built(folders["llama causal"], IDS, objective="next_token", head="causal_lm")
    logits = model.train()(ROWS)
    assert logits.shape == (3, LENGTH, IDS)
    assert not logits[:, 4:].any()
    torch.testing.assert_close(logits[:, :4], model.eval()(ROWS)[:, :4], rtol=1e-6, atol=1e-6)


def test_ids_without_a_mask_are_padded_with_the_folders_id(folders: dict[str, Path]) -> None:
    plain = built(folders["bert"], vocabulary=IDS, pool="mean").eval()
    masked = built(folders["bert"]).eval()
    assert torch.equal(plain(TEXTS), masked(ROWS))
    with pytest.raises(ConfigError, match=r"model.path: .* has no pad_token_id, which samples of ids without a mask"):
        built(folders["gpt2"], vocabulary=IDS)


def test_pooling() -> None:
    """Texts of 2 and of no tokens. Numbers by hand."""
    hidden = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [9.0, 9.0]], [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]])
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])
    assert pool_tokens(hidden, mask, "mean").tolist() == [[2.0, 4.0], [0.0, 0.0]]
    assert pool_tokens(hidden, mask, "first").tolist() == [[1.0, 2.0], [1.0, 1.0]]
    assert pool_tokens(hidden, mask, "last").tolist() == [[3.0, 6.0], [1.0, 1.0]]
    assert pool_tokens(hidden, torch.tensor([[0, 0, 1], [0, 1, 1]]), "last").tolist() == [[9.0, 9.0], [3.0, 3.0]]


def test_no_head_returns_the_vector_of_a_text(folders: dict[str, Path]) -> None:
    body = transformers.AutoModel.from_pretrained(folders["bert"]).eval()
    vector = built(folders["bert"], head="none", pool="first").eval()(ROWS)
    assert torch.equal(vector, body(input_ids=TEXTS, attention_mask=MASK).last_hidden_state[:, 0])


CACHED = [
    *((kind, ["body.*"], 4, (WIDTH,)) for kind in NAMES),
    *((kind, ["*embed*", "*.0.*", "*.1.*"], 2, (LENGTH, WIDTH + 1)) for kind in ["bert", "llama"]),
]


@pytest.mark.parametrize(("kind", "freeze", "begin", "shape"), CACHED)
def test_the_late_pass_over_features_is_the_whole_pass(
    folders: dict[str, Path], kind: str, freeze: list[str], begin: int, shape: tuple[int, ...]
) -> None:
    """The same bits in evaluation: the same operations on the same numbers. To 1e-6 where a batch is trimmed."""
    keys = {"freeze": freeze, "dropout": 0.0}
    compare_late(built(folders[kind], **keys), built(folders[kind], cache=True, **keys), begin, shape)


@pytest.mark.parametrize(
    ("kind", "freeze", "begin"),
    [
        ("gpt2", ["*.wte.*", "*.wpe.*", "*.h.[01].*"], 2),
        ("llama", ["*.embed_tokens.*", "*.layers.[01].*"], 2),
        ("llama", ["body.model.*"], 4),
    ],
)
def test_late_passes_of_language_models(folders: dict[str, Path], kind: str, freeze: list[str], begin: int) -> None:
    keys = {"freeze": freeze, "dropout": 0.0, "objective": "next_token", "head": "causal_lm"}
    shape = (LENGTH, WIDTH) if begin == 4 else (LENGTH, WIDTH + 1)
    folder = folders[f"{kind} causal"]
    compare_late(built(folder, IDS, **keys), built(folder, IDS, cache=True, **keys), begin, shape)


def compare_late(plain: Any, late: Any, begin: int, shape: tuple[int, ...]) -> None:
    """Compare logits and gradients of a network with those of an equal one that begins late."""
    assert (late.begin, late.feature_shape) == (begin, shape)
    assert [*late.state_dict()] == [*plain.state_dict()]
    features = late.eval().before(ROWS)
    assert torch.equal(late(features), plain.eval()(ROWS))
    plain.train(), late.train()
    whole, logits = plain(ROWS), late(features)
    real = MASK.bool() if whole.dim() == 3 else slice(None)
    torch.testing.assert_close(logits[real], whole[real], rtol=1e-6, atol=1e-6)
    whole[real].square().sum().backward(), logits[real].square().sum().backward()
    gradients = {name: p.grad for name, p in plain.named_parameters() if p.grad is not None}
    assert gradients
    for name, gradient in gradients.items():
        torch.testing.assert_close(late.get_parameter(name).grad, gradient, rtol=1e-5, atol=1e-6)


def test_a_late_pass_does_not_need_the_blocks_that_it_leaves_out(folders: dict[str, Path]) -> None:
    keys = {"freeze": ["*embeddings*", "*layer.[01]*"], "dropout": 0.0}
    late = built(folders["bert"], cache=True, **keys).eval()
    features = late.before(ROWS)
    expected = late(features)
    with torch.no_grad():
        for block in late.body.encoder.layer[:2]:
            for parameter in block.parameters():
                parameter.fill_(float("nan"))
    assert torch.equal(late(features), expected)


def test_frozen_dropout_is_not_constant(folders: dict[str, Path], tmp_path: Path) -> None:
    """It may be a module, or a number of attention, or in a block as in BLOOM."""
    with pytest.raises(ConfigError, match=r"model.cache: .* dropout in its first layer, .*model.dropout=0"):
        built(folders["bert"], cache=True, freeze=["body.*"])
    with pytest.raises(ConfigError, match=r"model.cache: .* dropout in its first layer"):
        built(folders["llama"], cache=True, freeze=["body.*"], dropout=0.5)  # a number of the fused attention alone
    assert built(folders["llama"], cache=True, freeze=["body.*"]).begin == 4
    sizes = {"vocab_size": IDS, "hidden_size": WIDTH, "n_layer": 1, "n_head": 2, "pad_token_id": 0}
    bloom = transformers.BloomConfig(**sizes, hidden_dropout=0.3, attention_dropout=0.0)
    transformers.AutoModel.from_config(bloom, attn_implementation="eager").save_pretrained(tmp_path)
    keys = {"cache": True, "freeze": ["body.*"], "attention": "eager"}
    with pytest.raises(ConfigError, match=r"model.cache: .* dropout in its first layer"):
        built(tmp_path, **keys)
    assert built(tmp_path, **keys, dropout=0.0).begin == 2


def test_the_files_of_a_run_are_those_that_are_loaded(tmp_path: Path) -> None:
    """Of a folder with model.safetensors and with shards, transformers loads the first one."""
    folder = write_folder(tmp_path / "shards", "bert", shards=True)
    single = write_folder(tmp_path / "single", "bert", initializer_range=0.5) / "model.safetensors"
    (folder / single.name).write_bytes(single.read_bytes())
    model = built(folder, freeze=["body.*"])
    assert [file.name for file in model.files] == [single.name]
    assert frozen_bytes(model)[1] == 0
    expected = built(single.parent).body.embeddings.word_embeddings.weight
    assert torch.equal(model.body.embeddings.word_embeddings.weight, expected)


@pytest.mark.parametrize("kind", ["bert", "qwen2"])
def test_frozen_weights_are_mapped_from_the_files_also_from_shards(tmp_path: Path, kind: str) -> None:
    whole, shards = (write_folder(tmp_path / str(cut), kind, shards=cut) for cut in (False, True))
    assert len([*shards.glob("*.safetensors")]) > 1
    first, second = (built(folder, freeze=["body.*"]) for folder in (whole, shards))
    assert all(map(torch.equal, first.state_dict().values(), second.state_dict().values()))
    nbytes = sum(parameter.nbytes for parameter in first.body.parameters())
    assert frozen_bytes(first) == frozen_bytes(second) == (nbytes, 0)
    adapted = built(whole, adapters={"rank": 2, "where": ["query" if kind == "bert" else "q_proj"]})
    assert frozen_bytes(adapted) == (nbytes, 0)


def test_files_of_other_classes_of_the_architecture(folders: dict[str, Path], tmp_path: Path) -> None:
    """A language model's file has the body's names with a prefix, and what a classifier does not use is a note."""
    model = built(folders["llama causal"], freeze=["body.*"])
    nbytes = sum(parameter.nbytes for parameter in model.body.parameters())
    assert frozen_bytes(model) == (nbytes, 0)
    assert model.notes == ("weights: not used of the file: lm_head.weight",)
    # safetensors maps files, too, so names are compared besides: transformers may copy in other versions
    assert {*model.mapped_tensors()} == {f"body.{name}" for name in model.body.state_dict()}
    causal = {"objective": "next_token", "head": "causal_lm"}
    whole = built(folders["llama causal"], IDS, **causal)
    assert {*whole.mapped_tensors()} == {f"body.{name}" for name in whole.body.state_dict()}
    pooled = check_model(config_for(write_folder(tmp_path, "bert")), (2 * LENGTH,), 3, ARRAYS)
    assert pooled.notes == ("weights: not used of the file: pooler.dense.bias, pooler.dense.weight",)


def test_an_output_layer_that_is_in_no_file_is_noted(folders: dict[str, Path]) -> None:
    """A folder of a body alone: the output layer of Llama is drawn, that of GPT-2 is its table of embeddings."""
    notes = {
        kind: check_model(config_for(folders[kind], "next_token", head="causal_lm"), (2 * LENGTH,), IDS, ARRAYS).notes
        for kind in ("llama", "gpt2", "llama causal")
    }
    said = ("weights: initial values where the files have none: lm_head.weight",)
    assert notes == {"llama": said, "gpt2": (), "llama causal": ()}


def test_random_features_are_before_the_head(folders: dict[str, Path]) -> None:
    model = built(folders["bert"], freeze=["body.*"], dropout=0.0, random_features=7).eval()
    layer, _, head = model.head
    hidden = model.body(input_ids=TEXTS, attention_mask=MASK).last_hidden_state
    expected = head(torch.relu(pool_tokens(hidden, MASK, "mean") @ layer.weight.T))
    torch.testing.assert_close(model(ROWS), expected)
    late = built(folders["bert"], freeze=["body.*"], dropout=0.0, random_features=7, cache=True).eval()
    assert late.feature_shape == (WIDTH,)
    torch.testing.assert_close(late(late.before(ROWS)), expected)


def test_weights_from_the_seed(folders: dict[str, Path]) -> None:
    one, again = (built(folders["gpt2"], pretrained=False) for _ in range(2))
    assert all(map(torch.equal, one.state_dict().values(), again.state_dict().values()))
    other = build_model(load(config_for(folders["gpt2"], pretrained=False), {"seed": 1}), (2 * LENGTH,), 3, ARRAYS)
    name = "body.h.0.attn.c_attn.weight"
    assert not torch.equal(one.state_dict()[name], other.state_dict()[name])
    assert not torch.equal(one.state_dict()[name], built(folders["gpt2"]).state_dict()[name])


def test_likelihoods_of_a_language_model_in_bfloat16_are_not_rounded(folders: dict[str, Path]) -> None:
    """The logits are those of transformers in bfloat16, as float32: in bfloat16 a log p of -3.4 has steps of 1/64."""
    folder, adapters = folders["qwen2 causal"], {"rank": 1, "where": ["*q_proj"], "head": False}
    model = built(folder, IDS, objective="next_token", head="causal_lm", dtype="bfloat16", adapters=adapters).eval()
    own = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
    logits = model(ROWS)
    assert logits.dtype == torch.float32
    assert torch.equal(logits, own(input_ids=TEXTS, attention_mask=MASK, use_cache=False).logits.float())


def test_attention_and_dtype(folders: dict[str, Path]) -> None:
    """A body of lower precision is frozen, and its head is float32."""
    fused, plain = (built(folders["bert"], attention=one).eval() for one in ("sdpa", "eager"))
    torch.testing.assert_close(fused(ROWS), plain(ROWS), rtol=1e-5, atol=1e-6)
    assert plain.body.config._attn_implementation == "eager"
    config = config_for(folders["bert"], dtype="bfloat16", freeze=["body.*"])
    model = check_model(config, (2 * LENGTH,), 3, ARRAYS)
    assert (model.dtype, model.module.body.dtype) == (torch.float32, torch.bfloat16)
    with pytest.raises(
        ConfigError, match=r"model: found torch.bfloat16, torch.float32, allowed: trainable parameters of"
    ):
        check_model(config_for(folders["bert"], dtype="bfloat16"), (2 * LENGTH,), 3, ARRAYS)


def test_a_model_may_have_more_ids_than_the_data(folders: dict[str, Path]) -> None:
    """As Qwen2's published ones have, whose tables are rounded up. A loss is over all of them, as in transformers."""
    config = config_for(folders["llama causal"], objective="next_token", head="causal_lm")
    fewer = Arrays((NamedArray("input_ids", (LENGTH,), 20), NamedArray("attention_mask", (LENGTH,), 2)))
    assert check_model(config, (2 * LENGTH,), 20, fewer).head == ("body.lm_head.weight",)


def test_a_text_has_the_mean_of_its_tokens(tmp_path: Path) -> None:
    """[CLS] is 2, a 4, cat 5 and [SEP] 3: the mean of their hidden states by transformers itself.

    Names have spaces for underscores, and with 8 entries of the root mean square 0.5 a length of 0.5 sqrt(8).
    """
    folder = write_folder(tmp_path / "encoder", "bert")
    word_level(folder, ["a", "cat"])
    body = transformers.AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        mean = body(input_ids=torch.tensor([[2, 4, 5, 3]])).last_hidden_state[0].mean(0)
    before = torch.get_rng_state()
    found = encode_texts("encoder", str(folder), ["a cat", "cat"])
    torch.testing.assert_close(found[0], mean)
    assert found.shape == (2, 8)
    assert torch.equal(encode_texts("encoder", str(folder), ["cat"])[0], found[1])  # it depends on no other text
    named = encode_names(["a_cat"], str(folder), 0.5)
    torch.testing.assert_close(named[0], mean / mean.norm() * 0.5 * 8**0.5)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow
def test_the_packaged_encoder_has_its_published_vectors() -> None:
    """The sentence's vector as sentence-transformers computes it before it normalizes, with its norm.

    The batch's other text has 3 tokens, so that padding is in it. Then loss and a step as with transformers alone.
    """
    pytest.importorskip("all_minilm_l6_v2")
    folder = find_folder("model.path", "minilm-l6")
    tokens = transformers.AutoTokenizer.from_pretrained(folder)
    texts = tokens(["a man walks his dog in the park", "hello"], padding="max_length", max_length=12)
    rows = torch.cat([torch.tensor(texts["input_ids"]), torch.tensor(texts["attention_mask"])], 1)
    arrays = Arrays((NamedArray("input_ids", (12,), 30522), NamedArray("attention_mask", (12,), 2)))
    config = config_for(Path("minilm-l6"), head="none")
    vectors = build_model(config, (24,), 3, arrays).eval()(rows).detach()
    torch.testing.assert_close(vectors[0, :3], torch.tensor([0.2237, -0.1605, 0.3229]), atol=6e-5, rtol=0)
    torch.testing.assert_close(vectors.norm(dim=1), torch.tensor([5.9773, 6.0268]), atol=6e-5, rtol=0)
    assert abs(float(functional.cosine_similarity(vectors[0], vectors[1], dim=0)) - 0.0011) < 6e-5

    flat = check_model(config_for(Path("minilm-l6"), dropout=0.0), (24,), 3, arrays)
    model: Any = flat.module.eval()
    body = transformers.AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()
    head = nn.Linear(384, 3)
    head.load_state_dict(model.head.state_dict())
    mask = rows[:, 12:, None].float()
    hidden = body(input_ids=rows[:, :12], attention_mask=rows[:, 12:]).last_hidden_state
    expected = head((hidden * mask).sum(1) / mask.sum(1))
    labels = torch.tensor([2, 0])
    losses = [functional.cross_entropy(logits, labels) for logits in (flat(rows), expected)]
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-6, atol=1e-6)
    for loss in losses:
        loss.backward()
    with torch.no_grad():
        flat.parameters -= 0.1 * flat.gradient
    for layer in (body, head):
        torch.optim.SGD(layer.parameters(), lr=0.1).step()
    for name, parameter in body.named_parameters():
        torch.testing.assert_close(model.body.get_parameter(name), parameter, rtol=1e-5, atol=1e-6)


def test_the_vector_of_a_constant_buffer_is_empty() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.register_buffer("moment", torch.ones(3))
            for name, dtype in (("a", torch.float16), ("b", torch.int32), ("c", torch.float32)):
                self.register_buffer(name, torch.ones(2, dtype=dtype), persistent=False)

    assert [*map(len, FlatModel(Own()).vectors)] == [6, 3, 0]
