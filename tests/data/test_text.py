"""Texts in JSON lines: which tokens, ids and labels they become, and what is said of lines that are none."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from raysim.data import json_lines
from raysim.data.dataset import Dataset, Split
from raysim.data.loading import check_dataset, load_dataset
from raysim.data.scenario import domains
from raysim.data.text import reword, text_jsonl
from raysim.data.tokens import TokenKeys
from raysim.system import capacity
from raysim.system.capacity import this_machine
from raysim.system.errors import ConfigError

LINES = [
    {"text": "The cat, the DOG.", "label": "animals", "split": "train"},
    {"text": "don't the dog", "label": "animals", "split": "train"},
    {"text": "A tree", "label": "plants", "split": "train"},
    {"text": "the moss, a dog", "label": "plants", "split": "test"},
    {"text": "...", "label": "animals", "split": "test"},
    {"text": "shark", "label": "fish", "split": "val"},
]


def write(path: Path, lines=LINES) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def read(path: Path, **keys) -> Dataset:
    return load_dataset(text_jsonl, str(path.parent), False, {"path": path.name, **keys})


def test_words_become_ids_by_how_often_the_training_texts_have_them(tmp_path):
    """Training tokens: the 3, dog 2, then a, cat, don't, tree once each, in the order of their text: ids 2 to 7.

    "moss" is in a test text only, so unknown (1); "..." has no token and is one unknown one; val is left out.
    """
    dataset = read(write(tmp_path / "t.jsonl"), length=4)
    assert dataset.words == ("the", "dog", "a", "cat", "don't", "tree")
    assert dataset.vocabulary == 8
    assert dataset.train.x.dtype == np.int64
    assert dataset.train.x.tolist() == [[2, 5, 2, 3], [6, 2, 3, 0], [4, 7, 0, 0]]
    assert dataset.test.x.tolist() == [[2, 1, 4, 3], [1, 0, 0, 0]]
    assert (dataset.classes, dataset.names) == (2, ("animals", "plants"))
    assert (dataset.train.y.tolist(), dataset.test.y.tolist()) == ([0, 0, 1], [1, 0])
    assert dataset.dimensions == "4 of 8 ids"


def test_the_vocabulary_keeps_the_most_frequent_words_of_what_is_read(tmp_path):
    """Of two tokens a text: the 3 (twice, once), then a, cat, don't, tree; four ids leave room for the and a."""
    dataset = read(write(tmp_path / "t.jsonl"), length=2, vocabulary=4)
    assert dataset.words == ("the", "a")
    assert dataset.vocabulary == 4
    assert dataset.train.x.tolist() == [[2, 1], [1, 2], [3, 1]]


def test_a_token_is_what_a_regular_expression_finds(tmp_path):
    dataset = read(write(tmp_path / "t.jsonl"), length=3, token=".")
    assert dataset.train.x[2].tolist() == [dataset.words.index(letter) + 2 for letter in "a t"]
    with pytest.raises(ConfigError, match=r"dataset\.token: found '\(', allowed: a regular expression"):
        read(tmp_path / "t.jsonl", token="(")


@pytest.mark.parametrize(("token", "text"), [(r"[A-Z]\d", "W1 W2"), ("", "a b"), (r"\w+", "...")])
def test_training_texts_without_any_token_are_refused(tmp_path, token, text):
    """Texts are in lower case, an empty match is no token, and a text may have no word."""
    lines = [{"text": text, "label": 0, "split": "train"}, {"text": "w3", "label": 0, "split": "test"}]
    with pytest.raises(ConfigError, match=r"dataset\.token: found '.*', which finds nothing in the train"):
        read(write(tmp_path / "t.jsonl", lines), token=token)


def test_other_keys_another_test_file_and_gzip(tmp_path):
    """Lines that say they are of another part are left out; labels -3 and 10 are classes 0 and 1."""
    train = [{"q": "one two", "n": 10, "split": "train"}, {"q": "two", "n": -3}]
    train += [{"q": "four", "n": 10, "split": part} for part in ("test", "val")]
    with gzip.open(tmp_path / "train.jsonl.gz", "wt") as stream:
        stream.write("\n\n".join(map(json.dumps, train)) + "\n")
    write(tmp_path / "test.jsonl", [{"q": "two three", "n": 10}, {"q": "one", "n": 10, "split": "train"}])
    dataset = read(tmp_path / "train.jsonl.gz", test="test.jsonl", text="q", label="n", length=2)
    assert dataset.train.x.tolist() == [[3, 2], [2, 0]]
    assert dataset.test.x.tolist() == [[2, 1]]
    assert (dataset.train.y.tolist(), dataset.test.y.tolist(), dataset.names) == ([1, 0], [1], None)
    write(tmp_path / "test.jsonl", train[:1])
    with pytest.raises(
        ConfigError, match=r"dataset.test: found only lines of \['train'\] in .*, allowed: lines of test"
    ):
        read(tmp_path / "train.jsonl.gz", test="test.jsonl", text="q", label="n", length=2)


@pytest.mark.parametrize("said", [{}, {"split": "test"}])
def test_without_a_split_a_part_of_each_class_is_drawn(tmp_path, said):
    """Of 10 and 5 texts a fifth is 2 and 1; every text is in one part, in the file's order, and seeds draw others."""
    lines = [{"text": f"w{number:02d}", "label": int(number % 3 == 0), **said} for number in range(15)]
    path = write(tmp_path / "t.jsonl", lines)

    def held(seed):
        dataset = read(path, seed=seed)
        texts = [dataset.words[number - 2] for number in dataset.train.x[:, 0]]
        assert texts == sorted(texts)
        assert (len(dataset.train), np.bincount(dataset.test.y).tolist()) == (12, [2, 1])
        return frozenset(line["text"] for line in lines) - frozenset(texts)

    assert held(0) == held(0)
    assert len({held(seed) for seed in range(5)}) > 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 3: found '{', allowed: a JSON object"),
        ("[1]", r"line 3: found \[1\], allowed: a JSON object, such as \{text: ..., label: ...\}"),
        (
            '{"label": 1}',
            r"line 3: found no key 'text' among \['label'\], allowed: a text \(dataset.text is its key\)",
        ),
        ('{"text": 5, "label": 1}', "line 3: found 'text': 5, allowed: a text"),
        ('{"text": "a"}', r"line 3: found no key 'label' among \['text'\], allowed: a whole number or a name"),
        ('{"text": "a", "label": 1.5}', "line 3: found 'label': 1.5, allowed: a whole number or a name"),
        ('{"text": "a", "label": true}', "line 3: found 'label': true"),
        ('{"text": "a", "label": "x"}', "line 3: found the label 'x', allowed: whole numbers, as the first line's"),
        ('{"text": "a", "label": 7}', "line 3: found the only text of the label 7, allowed: two and more"),
        ('{"text": "\xff", "label": 1}'.encode("latin-1"), "line 3: found .*, allowed: a JSON object in UTF-8"),
        pytest.param("[" * 100_000, "line 3: found .*, allowed: a JSON object", id="deep"),
    ],
    ids=str,
)
def test_a_line_that_is_none_is_named(tmp_path, line, words):
    path = write(tmp_path / "t.jsonl", [{"text": "a", "label": 1}, {"text": "b", "label": 1}])
    with path.open("ab") as stream:
        stream.write(b"\n" + (line if isinstance(line, bytes) else line.encode()))
    with pytest.raises(ConfigError, match=rf"dataset\.path: .*t\.jsonl, {words}") as error:
        read(path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_lines_that_do_not_go_together_are_named(tmp_path):
    without = [*LINES, {"text": "a", "label": "plants"}]
    with pytest.raises(ConfigError, match="line 7: found no 'split', allowed: train, test or another"):
        read(write(tmp_path / "t.jsonl", without))
    unknown = [*LINES, {"text": "a", "label": "fish", "split": "test"}]
    with pytest.raises(ConfigError, match="line 7: found the label 'fish', allowed: one that a training text has"):
        read(write(tmp_path / "t.jsonl", unknown))
    with pytest.raises(ConfigError, match=r"dataset\.split: found \['val'\] in the lines' 'split', allowed: train"):
        read(write(tmp_path / "t.jsonl", LINES[-1:]))


def test_files_that_cannot_be_read_are_named(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"dataset\.path: there is no file .*absent\.jsonl; a relative path starts"):
        read(tmp_path / "absent.jsonl")
    path = write(tmp_path / "t.jsonl")
    with pytest.raises(ConfigError, match=r"dataset\.test: there is no file .*gone\.jsonl"):
        read(path, test="gone.jsonl")
    with pytest.raises(ConfigError, match=r"dataset\.path: .*empty\.jsonl holds no lines"):
        read(write(tmp_path / "empty.jsonl", [" "]))
    whole = gzip.compress(path.read_bytes())
    for content in (whole[:-9], b"no gzip", whole[:20] + b"\0\0\0" + whole[23:]):
        (tmp_path / "cut.jsonl.gz").write_bytes(content)
        with pytest.raises(ConfigError, match=r"dataset\.path: .*cut\.jsonl\.gz cannot be read \(.*\), allowed: JSON"):
            read(tmp_path / "cut.jsonl.gz")
    monkeypatch.setattr(json_lines, "LONGEST", 60)
    with pytest.raises(ConfigError, match=r"line 1: found 60 bytes or more, allowed: fewer"):
        read(path)


def test_ids_are_checked(tmp_path):
    """Those of a user's own: int64 from 0 on; their number is the largest and one, if it is not stated."""

    def found(*rows, vocabulary=None):
        split = Split(np.array(rows, np.int64), np.zeros(len(rows), np.int64))
        return check_dataset(Dataset(split, split, 1, vocabulary=vocabulary), "mine")

    assert found([0, 4], [1, 2]).vocabulary == 5
    assert found([0, 4], vocabulary=9).vocabulary == 9
    for rows, stated, words in (([-1, 2], None, "from -1 to 2"), ([0, 5], 5, r"from 0 to 5; allowed are 0\.\.4")):
        with pytest.raises(ConfigError, match=rf"dataset mine: ids \(int64\) run {words}"):
            found(rows, vocabulary=stated)
    with pytest.raises(ConfigError, match=r"dataset mine: found 1000000000001 ids, which takes 931,322\.6 GiB"):
        found([0, 10**12])


def test_texts_of_several_domains_share_a_vocabulary(tmp_path):
    """news: b 2, a 1, so b and a are 2 and 3; talk: a and c once each, so they were 2 and 3, and become 3 and 4."""
    files = {"news": ["b b a", "b"], "talk": ["c a", "c"]}
    named = []
    for name, (train, test) in files.items():
        lines = [{"text": train, "label": 0, "split": "train"}, {"text": test, "label": 0, "split": "test"}]
        named.append((name, read(write(tmp_path / f"{name}.jsonl", lines), length=3)))
    assert [found.words for _, found in named] == [("b", "a"), ("a", "c")]
    dataset, tasks = domains(named, 0)
    assert (dataset.words, dataset.vocabulary) == (("b", "a", "c"), 5)
    assert dataset.train.x.tolist() == [[2, 2, 3], [4, 3, 0]]
    assert dataset.test.x.tolist() == [[2, 0, 0], [4, 0, 0]]
    assert [task.name for task in tasks] == ["news", "talk"]
    assert reword(named[1][1], ("c", "z")).train.x.tolist() == [[2, 1, 0]]


def test_other_ids_keep_the_clients_and_the_columns():
    split = Split(np.array([[2]]), np.array([0]), clients=np.array(["a"]), columns={"day": np.array([3])})
    found = reword(Dataset(split, split, 1, vocabulary=3, words=("b",)), ("c", "b")).train
    assert found.x.tolist() == [[3]]
    assert found.clients is not None
    assert (found.clients.tolist(), found.columns["day"].tolist()) == (["a"], [3])


def test_words_keep_their_marks_and_have_composed_letters(tmp_path):
    """Thai and Hindi vowel signs are marks, which Python's \\w leaves out. A decomposed é is the same letter."""
    texts = ["สวัสดี हिन्दी cafe\u0301", "Café don't"]
    lines = [{"text": text, "label": 0, "split": part} for text, part in zip(texts, ("train", "test"), strict=True)]
    dataset = read(write(tmp_path / "t.jsonl", lines), length=3)
    assert dataset.words == ("café", "हिन्दी", "สวัสดี")
    assert dataset.train.x.tolist() == [[4, 3, 2]]
    assert dataset.test.x.tolist() == [[2, 1, 0]]


def test_words_of_ascii_are_as_by_the_pattern_of_python(tmp_path):
    """Random texts of all ASCII characters: what re finds by the pattern without marks is what the default finds."""
    draws = np.random.default_rng(0)
    tokens = TokenKeys().splitter()
    for _ in range(200):
        text = "".join(map(chr, draws.choice([*range(128), *b"''''aab"], 40)))
        assert tokens(text) == re.findall(r"\w+(?:'\w+)*", text.lower())


def test_letters_may_keep_their_case(tmp_path):
    lines = [{"text": text, "label": 0, "split": part} for text, part in (("A a", "train"), ("a", "test"))]
    assert read(write(tmp_path / "t.jsonl", lines), lower=False).words == ("A", "a")


def test_lines_may_have_a_client_id(tmp_path):
    """Numbers and texts are one id if they are written alike; test lines have them too."""
    lines = [{**line, "user": user} for line, user in zip(LINES, (5, "ann", "5", "ann", 5, "bo"), strict=True)]
    dataset = read(write(tmp_path / "t.jsonl", lines), client="user")
    assert (dataset.train.clients.tolist(), dataset.test.clients.tolist()) == (["5", "ann", "5"], ["ann", "5"])
    assert read(tmp_path / "t.jsonl").train.clients is None
    for odd, found in (("", "'user': ''"), (None, "'user': null"), (True, "'user': true"), (1.5, "'user': 1.5")):
        path = write(tmp_path / "t.jsonl", [{**lines[0], "user": odd}, *lines])
        with pytest.raises(ConfigError, match=f"line 1: found {found}, allowed: a whole number or a text that is not"):
            read(path, client="user")
    with pytest.raises(ConfigError, match=r"found no key 'user' among .*dataset.client is its key"):
        read(write(tmp_path / "t.jsonl"), client="user")


@pytest.mark.parametrize("name", ["validation", "val", "valid", "dev"])
def test_lines_for_validation_are_for_testing_if_no_line_is_for_tests(tmp_path, name):
    lines = [{**line, "split": {"test": name}.get(line["split"], line["split"])} for line in LINES[:5]]
    dataset = read(write(tmp_path / "t.jsonl", lines))
    assert (len(dataset.train), len(dataset.test)) == (3, 2)
    assert f"tested on 2 lines of '{name}', as none say test" in dataset.notes
    (tmp_path / "t.jsonl").rename(tmp_path / "s.jsonl")
    found = read(write(tmp_path / "t.jsonl", lines[:3]), test="s.jsonl")
    assert f"tested on 2 lines of '{name}', as none say test" in found.notes
    assert "left out of dataset.test: 3 lines of 'train'" in found.notes


@pytest.mark.parametrize(("train", "test"), [("Train", "TEST"), ("train", "Test"), ("training", "testing")])
def test_lines_may_name_their_part_as_folders_do(tmp_path, train, test):
    """Otherwise lines that say Test would be left out, and training lines drawn to test on."""
    lines = [{**line, "split": {"train": train, "test": test}.get(line["split"], line["split"])} for line in LINES]
    dataset = read(write(tmp_path / "t.jsonl", lines))
    assert (len(dataset.train), len(dataset.test)) == (3, 2)


def test_lines_of_other_parts_are_said(tmp_path):
    assert read(write(tmp_path / "t.jsonl")).notes == (
        "left out: 1 lines of 'val'",
        "classes 0 to 1: animals, plants",
    )
    drawn = [{"text": "a", "label": 0, "split": part} for part in ("train", "train", "extra")]
    assert "left out: 1 lines of 'extra'" in read(write(tmp_path / "t.jsonl", drawn)).notes


def test_names_that_are_numbers_are_in_order_of_their_value(tmp_path):
    lines = [{"text": "a", "label": label, "split": part} for label in ("10", "9") for part in ("train", "test")]
    assert read(write(tmp_path / "t.jsonl", lines)).names == ("9", "10")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"text": "a", "label": 1, "label": 0}', r"\(the key 'label' twice\), allowed: a JSON object"),
        ('{"text": "\\ud83d", "label": 1}', "line 1: found .*, allowed: a JSON object in UTF-8"),
        ('{"text": "a", "label": ' + "1" * 5000 + "}", "line 1: found .*, allowed: a JSON object"),
        ('{"text": "a", "label": ""}', "line 1: found 'label': '', allowed: a whole number or a name"),
        ('{"text": "a", "label": NaN}', r"line 1: found 'label': \.nan, allowed: a whole number or a name"),
    ],
)
def test_json_that_means_nothing_certain_is_refused(tmp_path, line, words):
    with pytest.raises(ConfigError, match=words):
        read(write(tmp_path / "t.jsonl", [line, *LINES]))


def test_many_short_lines_are_refused_before_they_fill_the_memory(tmp_path, monkeypatch):
    """2,000 lines of 25 bytes are 50 kB, and 1.2 MB as rows."""
    monkeypatch.setattr(json_lines, "OFTEN", 1000)
    monkeypatch.setattr(capacity, "MOST_FOR_DATA", 1e6 / (this_machine().memory or 1e6))
    path = write(tmp_path / "t.jsonl", [{"text": "a", "label": 0}] * 2000)
    with pytest.raises(ConfigError, match=r"dataset\.path: found .*t\.jsonl, which takes"):
        read(path)
