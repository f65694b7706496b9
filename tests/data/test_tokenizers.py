"""Texts as ids of a tokenizer: ids, masks, what is cut, the next tokens as targets, and what is refused."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_tokenizers import byte_level, for_answers, word_level
from transformers import AutoTokenizer

from raysim.data.dataset import Dataset
from raysim.data.loading import load_dataset
from raysim.data.scenario import domains
from raysim.data.text import text_jsonl
from raysim.data.tokenizers import TextTokenizer
from raysim.objectives.tokenizer import Tokenizer
from raysim.system.errors import ConfigError
from raysim.system.hub_files import find_folder

LINES = [
    {"text": "a cat", "label": "animals", "split": "train"},
    {"text": "a big old tree", "label": "plants", "split": "train"},
    {"text": "tree", "label": "plants", "split": "test"},
    {"text": "", "label": "animals", "split": "test"},
]
WORDS = ["a", "cat", "tree", "big", "unused"]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tokenizer: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, a 4, cat 5, tree 6, big 7, unused 8."""
    return word_level(tmp_path_factory.mktemp("words"), WORDS)


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tokenizer of bytes without merges: <end> is 0, and each of the 256 bytes has an id from 1 on."""
    return byte_level(tmp_path_factory.mktemp("bytes"), [], size=257)


def read(folder: Path, lines: list[dict[str, object]] = LINES, **keys: object) -> Dataset:
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return load_dataset(text_jsonl, str(folder), False, {"path": "t.jsonl", **keys})


def arrays_of(dataset: Dataset, x: np.ndarray) -> dict[str, list[list[int]]]:
    ends = np.cumsum([shape[0] for _, shape, _ in dataset.arrays])[:-1]
    return {name: part.tolist() for (name, _, _), part in zip(dataset.arrays, np.split(x, ends, axis=1), strict=True)}


def test_texts_are_ids_with_special_tokens_and_a_mask(tmp_path: Path, words: str) -> None:
    """ "a cat" is [CLS] a cat [SEP]. Of "a big old tree" two words fit, and [SEP]. No text has the last of 9 ids."""
    dataset = read(tmp_path, tokenizer=words, length=4)
    assert dataset.arrays == (("input_ids", (4,), 9), ("attention_mask", (4,), 2))
    assert arrays_of(dataset, dataset.train.x) == {
        "input_ids": [[2, 4, 5, 3], [2, 4, 7, 3]],
        "attention_mask": [[1, 1, 1, 1], [1, 1, 1, 1]],
    }
    assert arrays_of(dataset, dataset.test.x) == {
        "input_ids": [[2, 6, 3, 0], [2, 3, 0, 0]],
        "attention_mask": [[1, 1, 1, 0], [1, 1, 0, 0]],
    }
    assert (dataset.vocabulary, dataset.classes, dataset.names) == (9, 2, ("animals", "plants"))
    assert (dataset.train.y.tolist(), dataset.test.y.tolist()) == ([0, 1], [1, 0])
    assert dataset.notes == ("cut 1 of 4 texts to 4 tokens", "classes 0 to 1: animals, plants")


def test_the_digest_is_not_that_of_the_last_call(tmp_path: Path, words: str) -> None:
    """Files of the hub, such as MiniLM's, have a truncation and a padding, which each call replaces."""
    saved = AutoTokenizer.from_pretrained(words)
    saved(["a cat"], truncation=True, max_length=3, padding="max_length")
    saved.save_pretrained(tmp_path)
    used, dataset_of = Tokenizer(str(tmp_path)), TextTokenizer(words)
    assert used.digest == dataset_of.digest
    used.ids("a big cat")
    assert used.digest == dataset_of.digest


def test_a_sample_may_have_token_types(tmp_path: Path, words: str) -> None:
    dataset = read(tmp_path, tokenizer=words, length=4, token_types=True)
    assert arrays_of(dataset, dataset.train.x)["token_type_ids"] == [[0, 0, 0, 0], [0, 0, 0, 0]]
    assert [name for name, _, _ in dataset.arrays] == ["input_ids", "attention_mask", "token_type_ids"]


def test_next_tokens_are_targets_and_labels_a_column(tmp_path: Path, words: str) -> None:
    """y[t] is the id at t + 1, and -100 where that is padding. The empty text, [CLS] [SEP], has one target."""
    dataset = read(tmp_path, tokenizer=words, length=5, target="next_token")
    assert dataset.train.y.tolist() == [[4, 5, 3, -100, -100], [4, 7, 1, 3, -100]]
    assert dataset.test.y.tolist() == [[6, 3, -100, -100, -100], [3, -100, -100, -100, -100]]
    assert dataset.train.columns["label"].tolist() == ["animals", "plants"]
    assert dataset.test.columns["label"].tolist() == ["plants", "animals"]
    assert (dataset.classes, dataset.names) == (9, None)


def test_next_tokens_need_no_labels(tmp_path: Path, words: str) -> None:
    lines = [{"text": text, "split": part} for text, part in (("a cat", "train"), ("tree", "test"))]
    dataset = read(tmp_path, lines, tokenizer=words, length=4, target="next_token", label=None)
    assert (dataset.train.y.tolist(), dataset.test.y.tolist()) == ([[4, 5, 3, -100]], [[6, 3, -100, -100]])
    assert (dataset.train.columns, dataset.notes) == ({}, ())
    with pytest.raises(ConfigError, match=r"dataset\.label: found null, allowed: a key, or dataset\.target=next_token"):
        read(tmp_path, lines, tokenizer=words, length=4, label=None)


def test_a_tokenizer_without_padding_pads_with_its_end(tmp_path: Path, letters: str) -> None:
    """A byte is a token: "tree" has 4, and "é" 2. The empty text is the token <end>, which nothing follows."""
    lines = [*LINES, {"text": "é", "label": "plants", "split": "train"}]
    dataset = read(tmp_path, lines, tokenizer=letters, length=5)
    assert dataset.vocabulary == 257
    train, test = (arrays_of(dataset, split.x) for split in (dataset.train, dataset.test))
    assert test["attention_mask"] == [[1, 1, 1, 1, 0], [1, 0, 0, 0, 0]]
    assert train["attention_mask"][2] == [1, 1, 0, 0, 0]
    assert test["input_ids"][1] == [0] * 5
    assert test["input_ids"][0][4] == 0
    assert TextTokenizer(letters).inner.decode(test["input_ids"][0][:4]) == "tree"
    assert "1 of 5 texts without a token are the token '<end>'" in dataset.notes
    assert "cut 1 of 5 texts to 5 tokens" in dataset.notes  # of "a big old tree"; "a cat" has 5
    learned = read(tmp_path, lines, tokenizer=letters, length=5, target="next_token")
    assert (len(learned.train), len(learned.test)) == (3, 1)
    assert learned.test.columns["label"].tolist() == ["plants"]
    assert "left out: 1 texts of one token, which none follows" in learned.notes


def test_ids_are_those_of_the_library(tmp_path: Path) -> None:
    """Of MiniLM's tokenizer, called by transformers itself with its own padding and truncation."""
    texts = ["How do I reset my PIN?", "naïve café", "", "x " * 40]
    lines = [{"text": text, "label": 0, "split": part} for text in texts for part in ("train", "test")]
    dataset = read(tmp_path, lines, tokenizer="minilm-l6", length=12, token_types=True)
    folder = find_folder("dataset.tokenizer", "minilm-l6")
    expected = AutoTokenizer.from_pretrained(folder, local_files_only=True)(
        texts, padding="max_length", truncation=True, max_length=12
    )
    assert arrays_of(dataset, dataset.train.x) == {name: expected[name] for name, _, _ in dataset.arrays}
    assert dataset.vocabulary == 30522


def test_a_tokenizer_that_pads_and_cuts_on_the_left_does_so_on_the_right(tmp_path: Path) -> None:
    folder = word_level(tmp_path / "left", WORDS, padding_side="left", truncation_side="left")
    dataset = read(tmp_path, tokenizer=folder, length=4)
    assert arrays_of(dataset, dataset.train.x)["input_ids"] == [[2, 4, 5, 3], [2, 4, 7, 3]]
    assert arrays_of(dataset, dataset.test.x)["attention_mask"] == [[1, 1, 1, 0], [1, 1, 0, 0]]


@pytest.mark.parametrize("before", [None, "true"])
def test_the_environment_stays(tmp_path: Path, words: str, monkeypatch: pytest.MonkeyPatch, before: str | None) -> None:
    """The tokenizer may start no threads while it runs, and what was set is set again."""
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if before is not None:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", before)
    read(tmp_path, tokenizer=words, length=4)
    assert os.environ.get("TOKENIZERS_PARALLELISM") == before


@pytest.mark.parametrize(
    ("keys", "words_of_error"),
    [
        ({"token": "."}, r"dataset\.token: found '\.', allowed: null with dataset\.tokenizer, which decides it"),
        ({"lower": False}, r"dataset\.lower: found false, allowed: null with dataset\.tokenizer"),
        ({"vocabulary": 100}, r"dataset\.vocabulary: found 100, allowed: null with dataset\.tokenizer"),
        ({"length": 2}, r"dataset\.length: found 2, allowed: 3 or more, as .* adds 2 tokens to each text"),
        ({"tokenizer": None, "token_types": True}, r"token_types: found true, allowed: false without dataset\.tok"),
        ({"tokenizer": None, "target": "next_token"}, r"found 'next_token', allowed: 'label' without dataset\.tok"),
    ],
)
def test_keys_that_mean_nothing_are_refused(
    tmp_path: Path, words: str, keys: dict[str, object], words_of_error: str
) -> None:
    with pytest.raises(ConfigError, match=words_of_error):
        read(tmp_path, **{"tokenizer": words, "length": 4, **keys})


def test_folders_without_a_tokenizer_are_refused(tmp_path: Path, words: str) -> None:
    """One that is absent, empty, damaged, or asks for code of its own; and weights without a tokenizer."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "broken" / name).write_text((Path(words) / name).read_text()[:100])
    (tmp_path / "remote").mkdir()
    own = {"auto_map": {"AutoTokenizer": ["code.Own", None]}, "tokenizer_class": "Own"}
    (tmp_path / "remote" / "tokenizer_config.json").write_text(json.dumps(own))
    (tmp_path / "remote" / "code.py").write_text("raise SystemExit('this code was run')")
    for name in ("empty", "broken", "remote"):
        told = "no tokenizer that can be read"
        if name == "empty":  # transformers before 5.2 makes a tokenizer of nothing, which raysim refuses
            told = f"({told}|neither )"
        with pytest.raises(ConfigError, match=rf"dataset\.tokenizer: found '.*', which has {told}") as error:
            read(tmp_path, tokenizer=str(tmp_path / name))
        assert len(str(error.value)) < 500
    with pytest.raises(
        ConfigError, match=r"dataset\.tokenizer: found '.*absent', which is no folder, allowed: a folder"
    ):
        read(tmp_path, tokenizer=str(tmp_path / "absent"))
    with pytest.raises(
        ConfigError, match=r"found 'efficientnet-lite0', which has no tokenizer, allowed: a folder with"
    ):
        read(tmp_path, tokenizer="efficientnet-lite0")


@pytest.mark.parametrize(("kind", "absent"), [("bert", "vocab.txt"), ("gpt2", "merges.txt"), ("qwen2", "merges.txt")])
def test_a_folder_of_weights_alone_is_no_tokenizer(tmp_path: Path, kind: str, absent: str) -> None:
    """transformers makes a tokenizer of its class, of which all words are unknown."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    words = f"has neither tokenizer.json nor {absent}, allowed: a folder with tokenizer.json"
    with pytest.raises(ConfigError, match=words):
        read(tmp_path, tokenizer=str(tmp_path))


@pytest.mark.filterwarnings("ignore:Deprecated in 0.9.0:DeprecationWarning")  # transformers 5.0 calls it
def test_a_vocabulary_without_tokenizer_json_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat"]))
    assert TextTokenizer(str(tmp_path)).encode(["a cat"], 5).ids.tolist() == [[2, 5, 6, 3, 0]]


def test_a_tokenizer_with_another_end_is_another_one(tmp_path: Path) -> None:
    """A chat model at times has the tokens of its base model, and one of them as its end. Answers then never end."""
    folder = Path(for_answers(tmp_path / "base", ["a"]))
    other = Path(shutil.copytree(folder, tmp_path / "chat"))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (other / "tokenizer_config.json").write_text(json.dumps(settings | {"eos_token": "<s>"}))
    assert (TextTokenizer(str(other)).end, TextTokenizer(str(folder)).end) == ([0], [1])
    assert TextTokenizer(str(other)).digest != TextTokenizer(str(folder)).digest


def test_a_tokenizer_that_finds_nothing_is_refused(tmp_path: Path, letters: str) -> None:
    lines = [{"text": text, "label": 0, "split": part} for text, part in (("", "train"), ("", "train"), ("a", "test"))]
    with pytest.raises(
        ConfigError, match=r"dataset\.tokenizer: found '.*', which finds none in .*t\.jsonl, allowed: a to"
    ):
        read(tmp_path, lines, tokenizer=letters, length=4)


def test_texts_longer_than_the_model_takes_are_doubted(tmp_path: Path) -> None:
    folder = word_level(tmp_path / "short", WORDS, model_max_length=5)
    assert read(tmp_path, tokenizer=folder, length=5).doubts == ()
    (doubt,) = read(tmp_path, tokenizer=folder, length=6).doubts
    assert doubt.startswith("dataset.length: found 6, more than the 5 tokens for which")


def test_domains_share_a_tokenizer_and_keep_columns(tmp_path: Path, words: str) -> None:
    """prompt_length and labels are columns, which every domain has; another tokenizer has other ids."""
    named = []
    for name in ("news", "talk"):
        (tmp_path / name).mkdir()
        named.append((name, read(tmp_path / name, tokenizer=words, length=4, target="next_token")))
    dataset, _ = domains(named, 0)
    assert dataset.arrays == named[0][1].arrays
    assert dataset.train.columns["label"].tolist() == ["animals", "plants"] * 2
    other = read(tmp_path, tokenizer=for_answers(tmp_path / "other", [*WORDS, "x", "y"]), length=4, target="next_token")
    assert other.vocabulary == named[0][1].vocabulary
    with pytest.raises(ConfigError, match="talk has texts of another tokenizer or length than news; give all the same"):
        domains([named[0], ("talk", other)], 0)
