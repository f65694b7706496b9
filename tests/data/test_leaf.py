"""LEAF's JSON in its original layout: which samples, labels and users it becomes, and the notes on odd files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from raysim.config import load
from raysim.data.dataset import Dataset
from raysim.data.leaf import leaf
from raysim.data.loading import load_dataset
from raysim.federation.federation import build_federation
from raysim.system.errors import ConfigError

Users = dict[str, tuple[list[Any], list[Any]]]


def document(users: Users, **keys: Any) -> dict[str, Any]:
    """Return what LEAF writes of users with their x and y."""
    data = {user: {"x": x, "y": y} for user, (x, y) in users.items()}
    return {"users": [*users], "num_samples": [len(x) for x, _ in users.values()], "user_data": data, **keys}


def write(root: Path, train: Any, test: Any, name: str = "all_data_0") -> None:
    for part, content in (("train", train), ("test", test)):
        (root / "data" / part).mkdir(parents=True, exist_ok=True)
        file = root / "data" / part / f"{name}_{part}_9.json"
        file.write_text(content if isinstance(content, str) else json.dumps(content))


def read(root: Path, **keys: Any) -> Dataset:
    return load_dataset(leaf, str(root), False, {"path": "data", **keys})


def refusal(root: Path, **keys: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        read(root, **keys)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_shakespeare_is_characters_with_the_next_one_as_label(tmp_path: Path) -> None:
    """x are 80 characters and y is the next one, in its case. The test file's num_samples counts the dropped 79 too."""
    line = "To be, or not to be, that is the question: Whether 'tis nobler in the mind to suffer"
    play = {"HAMLET_Ham": ([line[:80], line[1:81]], [line[80], line[81]]), "MACBETH_Mac": ([line[:80]], ["u"])}
    plays = ["HAMLET", "MACBETH"]
    tests: Users = {"HAMLET_Ham": ([line[4:84]], ["T"]), "MACBETH_Mac": ([line[:80]], ["f"])}
    write(
        tmp_path,
        document(play, hierarchies=plays),
        document(tests, hierarchies=plays, num_samples=[80, 80]),
    )
    dataset = read(tmp_path, token="(?s).", lower=False, length=80)
    assert dataset.words is not None
    spelled = "".join(dataset.words[number - 2] for number in dataset.train.x[1])
    assert spelled == line[1:81]
    labels = [line[80], line[81], "u"]
    assert dataset.names == tuple(sorted({*labels, "T", "f"}))  # those of both splits
    assert [dataset.names[label] for label in dataset.train.y] == labels
    assert dataset.train.clients is not None
    assert dataset.train.clients.tolist() == ["HAMLET_Ham"] * 2 + ["MACBETH_Mac"]
    assert dataset.train.columns["hierarchy"].tolist() == ["HAMLET", "HAMLET", "MACBETH"]
    assert dataset.doubts == ()
    assert "cut 5 of 5 texts to 64 tokens" in read(tmp_path, token="(?s).").notes
    assert "num_samples in the folder test is larger than the lists of 2 users by 79, as in LEAF's Shakesp" in (
        "; ".join(dataset.notes)
    )


def test_femnist_is_images_of_floats_and_users_may_be_in_one_split_only(tmp_path: Path) -> None:
    """Users are in two files; one has tests only. Labels 3 and 61 stay as they are, so there are 62 classes."""
    images = np.random.default_rng(0).random((4, 784)).round(6)
    x = images.tolist()
    write(tmp_path, document({"f00_1": (x[:2], [3, 61])}), document({"f00_1": ([x[2]], [3])}))
    write(tmp_path, document({"f00_2": ([x[3]], [0])}), document({"f00_9": ([x[3]], [0])}), name="all_data_1")
    (tmp_path / "data" / "train" / "README").write_text("")
    dataset = read(tmp_path, shape=[28, 28])
    assert dataset.train.x.dtype == np.float32
    assert (dataset.shape, dataset.classes) == ((1, 28, 28), 62)
    np.testing.assert_array_equal(dataset.train.x.reshape(3, 784), images[[0, 1, 3]].astype(np.float32))
    assert dataset.train.y.tolist() == [3, 61, 0]
    assert dataset.notes == (
        "3 users",
        "1 of them in the training only, such as 'f00_2'",
        "1 of them in the tests only, such as 'f00_9'",
        "used 2 of 3 entries of the folder train, the .json files",
    )
    assert read(tmp_path).shape == (784,)
    assert "dataset.shape: found [27, 28], allowed: height and width, or these and channels, of 784 numbers" in (
        refusal(tmp_path, shape=[27, 28])
    )
    scenario = {"kind": "domain_incremental", "tasks": 1}
    config = {"name": "l", "dataset": {"name": "leaf", "root": str(tmp_path), "path": "data", "shape": [28, 28]}}
    config |= {"scenario": scenario, "partition": "natural", "clients": {"count": 2}, "model": "mlp"}
    federation = build_federation(load({**config, "training": {"rounds_per_task": 1}}))
    assert [sum(len(rows) for rows in stream.rows) for stream in federation.streams] == [2, 1]


def test_celeba_is_the_images_of_a_folder(tmp_path: Path) -> None:
    """Its labels are floats, as LEAF computes them by a division."""
    (tmp_path / "raw").mkdir()
    for name, gray in (("1.png", 0), ("2.png", 200)):
        Image.new("RGB", (6, 8), (gray, gray, gray)).save(tmp_path / "raw" / name)
    write(tmp_path, document({"7": (["1.png", "2.png"], [0.0, 1.0])}), document({"7": (["2.png"], [1.0])}))
    dataset = read(tmp_path, images="raw", size=4)
    assert dataset.train.x[:, :, 0, 0].tolist() == [[0] * 3, [200] * 3]
    assert (dataset.train.y.tolist(), dataset.test.y.tolist(), dataset.shape) == ([0, 1], [1], (3, 4, 4))
    assert "dataset.images: found null, and the image name '1.png' " in refusal(tmp_path)
    (tmp_path / "raw" / "1.png").unlink()
    assert "user '7', x[0]: there is no image" in refusal(tmp_path, images="raw")


def test_sent140_is_the_text_among_the_fields(tmp_path: Path) -> None:
    def fields(text: str) -> list[str]:
        return ["1467", "Mon Apr 06 22:19:45 PDT 2009", "NO_QUERY", "someone", text]

    users: Users = {"someone": ([fields("so sad"), fields("so good")], [0, 1])}
    write(tmp_path, document(users), document({"someone": ([fields("so so")], [0])}))
    dataset = read(tmp_path, text=4, length=2)
    assert dataset.words == ("so", "good", "sad")
    assert (dataset.train.x.tolist(), dataset.test.x.tolist()) == ([[2, 4], [2, 3]], [[2, 2]])
    said = refusal(tmp_path)
    assert "user 'someone', x[0]: found 'Mon Apr 06 22:19:45 PDT 2009', allowed: tokens without spaces" in said
    assert "set dataset.text to the place of the text, such as 4 for Sent140" in said
    assert "allowed: a list with a text at 5 (dataset.text)" in refusal(tmp_path, text=5)


def test_reddit_is_lists_of_tokens_with_a_label_among_others(tmp_path: Path) -> None:
    """A comment is divided into sequences; <PAD> fills the last one and is left out. val is left out and said."""
    comment = [["<BOS>", "a", "cat"], ["<EOS>", "<PAD>", "<PAD>"]]
    users: Users = {"1": ([comment, comment], [{"subreddit": "pics", "score": 1}, {"subreddit": "aww"}])}
    write(tmp_path, document(users), document({"1": ([comment], [{"subreddit": "aww"}])}))
    (tmp_path / "data" / "val").mkdir()
    dataset = read(tmp_path, label="subreddit", length=5)
    assert dataset.words is not None
    assert dataset.train.x[0].tolist() == [dataset.words.index(word) + 2 for word in ("<bos>", "a", "cat", "<eos>")] + [
        0
    ]
    assert (dataset.names, dataset.train.y.tolist()) == (("aww", "pics"), [1, 0])
    assert "left out the folder val" in dataset.notes
    assert "y[0]: found {subreddit: 'pics', score: 1}, allowed: a whole number from 0, or a text; dataset.label is" in (
        refusal(tmp_path)
    )


def test_a_folder_for_validation_is_for_testing_if_there_is_no_other(tmp_path: Path) -> None:
    users: Users = {"u": (["a b", "c"], [0, 1])}
    write(tmp_path, document(users), document(users))
    (tmp_path / "data" / "test").rename(tmp_path / "data" / "val")
    dataset = read(tmp_path)
    assert len(dataset.test) == 2
    assert "tested on the folder val, as there is no folder test" in dataset.notes
    (tmp_path / "data" / "val").rename(tmp_path / "data" / "other")
    assert "data has no folder test, allowed: both folders that LEAF's preprocess.sh writes" in refusal(tmp_path)
    assert f"is {tmp_path / 'data'} the path that was meant?" in refusal(tmp_path, path=".")


def test_users_without_samples_are_left_out_and_said(tmp_path: Path) -> None:
    """LEAF's splitting leaves them in user_data, and leaves hierarchies of all users."""
    kept = document({"u": (["a", "b"], [0, 1])}, hierarchies=["p", "q"])
    kept["user_data"]["v"] = {"x": [], "y": []}
    write(tmp_path, kept, document({"u": (["a"], [0])}))
    assert {
        "left out 1 users of the folder train without samples",
        "left out hierarchies of 'all_data_0_train_9.json': 2 for 1 users",
    } <= {*read(tmp_path).notes}


def test_numbers_of_samples_are_compared_with_the_lists(tmp_path: Path) -> None:
    """LEAF's Reddit writes the numbers of all parts into each file, so larger ones are doubted and not refused."""
    users: Users = {"u": (["a", "b"], [0, 1])}
    write(tmp_path, document(users, num_samples=[5]), document(users))
    (doubt,) = read(tmp_path).doubts
    assert "num_samples in the folder train is larger than the lists of 1 users, by 3 for 'u'; the lists count" in doubt
    write(tmp_path, document(users, num_samples=[1]), document(users))
    assert "user 'u': found 2 samples, and 1 in num_samples, allowed: the same number" in refusal(tmp_path)


GOOD = document({"u": (["a", "b"], [0, 1]), "v": (["c"], [0])})
ODD: list[tuple[Any, str]] = [
    ("", "cannot be read ("),
    ("[" * 100_000, "cannot be read ("),
    ("1" * 5000, "cannot be read ("),
    ('{"users": [], "users": []}', "the key 'users' twice"),
    ('{"users": "\\ud800"}', "cannot be read ("),
    ([], "found [], allowed: an object with users and user_data"),
    ({"users": ["u"]}, "found no user_data among ['users'], allowed: an object user_data"),
    ({**GOOD, "users": "uv"}, "found 'uv', allowed: a list users"),
    ({**GOOD, "users": ["u", 5]}, "users[1]: found 5, allowed: a text that is not empty and is a key of user_data"),
    ({**GOOD, "users": ["u", "u"]}, "user 'u': found the user in "),
    ({**GOOD, "users": ["u"], "num_samples": [2]}, "user 'v': found samples of a user who is not in users"),
    ({**GOOD, "user_data": {"u": [], "v": []}}, "user 'u': found [], allowed: an object with the lists x and y"),
    ({**GOOD, "user_data": {"u": {"x": ["a"], "y": []}, "v": 0}}, "user 'u': found 1 x and 0 y, allowed: one y"),
    ({**GOOD, "num_samples": [2]}, "num_samples: found [2], allowed: a list of 2 whole numbers, one for each user"),
    ({**GOOD, "num_samples": [2, True]}, "num_samples: found [2, true], allowed: a list of 2 whole numbers"),
    ({**GOOD, "hierarchies": 5}, "hierarchies: found 5, allowed: a list of texts, one for each user"),
    (document({"u": (["a", "b"], [0, "x"])}), "y[1]: found 'x', allowed: whole numbers, as the first label"),
    (document({"u": (["a", "b"], [0, -1])}), "y[1]: found -1, allowed: a whole number from 0, or a text"),
    (document({"u": (["a", "b"], [0, 10**30])}), "y[1]: found 1"),
    (document({"u": (["a", "b"], [0, 0.5])}), "y[1]: found 0.5, allowed: a whole number"),
    (document({"u": (["a", 7], [0, 1])}), "x[1]: found 7, allowed: a text or a list of tokens"),
    (document({"u": ([[1, 2], [1]], [0, 1])}), "x[1]: found 1 numbers, allowed: 2 numbers, as the first sample has"),
    (document({"u": ([[1, 2], "b"], [0, 1])}), "x[1]: found 'b', allowed: 2 numbers"),
    (document({"u": ([[1, float("nan")]], [0])}), "x[0]: found a number that is not finite"),
    (document({"u": ([[1, 10**400]], [0])}), "x[0]: found a number that is not finite"),
    (document({"u": ([[1, 1e39]], [0])}), "x[0][1]: found 1e+39, allowed: -3.4e38 to 3.4e38"),
    (document({"u": ([], [])}), "train holds no samples"),
]


@pytest.mark.parametrize(("content", "words"), ODD, ids=[words for _, words in ODD])
def test_an_odd_file_is_refused_in_one_line(tmp_path: Path, content: Any, words: str) -> None:
    write(tmp_path, content, GOOD)
    said = refusal(tmp_path)
    assert said.startswith("dataset.path: ")
    assert words in said
    assert len(said) < 400


def test_a_shape_is_for_numbers_only(tmp_path: Path) -> None:
    write(tmp_path, GOOD, GOOD)
    assert "dataset.shape: found [28, 28], and 'a' (dataset.path" in refusal(tmp_path, shape=[28, 28])
