"""Instructions: prompts by templates, masked prompts, what is left out, files, columns, and what is refused."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tiny_tokenizers import CHAT, for_answers, word_level

from raysim.data.dataset import Dataset
from raysim.data.instructions import instructions
from raysim.data.loading import load_dataset
from raysim.system.errors import ConfigError

WORDS = ["?", "copy", "red", "blue", "<user>", "<assistant>", "<system>"]
# <s> 0, </s> 1, ? 2 (also unknown), copy 3, red 4, blue 5, <user> 6, <assistant> 7, <system> 8
SAMPLES = [
    {"prompt": "copy red", "answer": "red", "split": "train"},
    {"prompt": "copy blue", "answer": "blue red red", "split": "train"},
    {"prompt": "copy red", "answer": "blue", "split": "test"},
]


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> str:
    return for_answers(tmp_path_factory.mktemp("words"), WORDS)


def write(folder: Path, samples: str | Sequence[object], name: str = "t.jsonl") -> None:
    (folder / name).write_text(samples if isinstance(samples, str) else "\n".join(map(json.dumps, samples)))


def read(folder: Path, samples: str | Sequence[object] = SAMPLES, **keys: object) -> Dataset:
    write(folder, samples)
    return load_dataset(instructions, str(folder), False, {"path": "t.jsonl", **keys})


def test_only_answers_and_their_end_are_targets(tmp_path: Path, words: str) -> None:
    """<s> copy red | red </s>: the answer begins at place 3, so the targets at 2 and 3 are red and </s>.

    The second sample has 7 tokens; six are kept, without its end. Padding is </s> with the mask 0, and is no target.
    """
    dataset = read(tmp_path, tokenizer=words, length=6)
    assert dataset.arrays == (("input_ids", (6,), 9), ("attention_mask", (6,), 2))
    assert dataset.train.x.tolist() == [
        [0, 3, 4, 4, 1, 1, 1, 1, 1, 1, 1, 0],
        [0, 3, 5, 5, 4, 4, 1, 1, 1, 1, 1, 1],
    ]
    assert dataset.train.y.tolist() == [[-100, -100, 4, 1, -100, -100], [-100, -100, 5, 4, 4, -100]]
    assert dataset.test.y.tolist() == [[-100, -100, 5, 1, -100, -100]]
    assert dataset.train.columns["prompt_length"].tolist() == [3, 3]
    assert (dataset.classes, dataset.vocabulary, dataset.doubts) == (9, 9, ())
    assert dataset.notes == ("cut 1 of 2 training samples to 6 tokens, without an end",)


def test_samples_without_place_or_answer_are_left_out(tmp_path: Path, words: str) -> None:
    """A prompt of four tokens with <s> leaves a place of five, one of five none. No sample reaches a model masked."""
    more = [
        {"prompt": "copy copy red", "answer": "red", "split": "train"},
        {"prompt": "copy copy copy red", "answer": "red", "split": "train"},
        {"prompt": "copy red", "answer": " ", "split": "train"},
        {"prompt": "copy red", "answer": "", "split": "test"},
    ]
    dataset = read(tmp_path, [*SAMPLES, *more], tokenizer=words, length=5)
    assert dataset.train.columns["prompt_length"].tolist() == [3, 3, 4]
    assert (dataset.train.y >= 0).any(1).all()
    assert dataset.train.y[2].tolist() == [-100, -100, -100, 4, -100]
    assert dataset.notes[:3] == (
        "left out: 1 training samples without an answer",
        "left out: 1 training samples with a prompt of no tokens, or of 5 and more",
        "cut 2 of 3 training samples to 5 tokens, without an end",
    )
    assert "left out: 1 test samples without an answer" in dataset.notes
    with pytest.raises(ConfigError, match=r"dataset\.length: found 3, with which no training sample is left"):
        read(tmp_path, tokenizer=words, length=3)


ALPACA = "Below is an instruction that describes a task. Write a response that appropriately completes the request."
WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
    "response that appropriately completes the request."
)


@pytest.mark.parametrize(
    ("sample", "template", "prompt"),
    [
        ({"instruction": "copy", "output": "x"}, None, f"{ALPACA}\n\n### Instruction:\ncopy\n\n### Response:\n"),
        (
            {"instruction": "copy", "context": "red", "response": "x"},
            None,
            f"{WITH_INPUT}\n\n### Instruction:\ncopy\n\n### Input:\nred\n\n### Response:\n",
        ),
        (
            {"instruction": "copy", "input": "", "output": "x"},
            "alpaca",
            f"{ALPACA}\n\n### Instruction:\ncopy\n\n### Response:\n",
        ),
        ({"instruction": "copy", "input": None, "output": "x"}, "plain", "copy"),
        ({"instruction": "copy", "input": "red", "output": "x"}, "plain", "copy\nred"),
        ({"prompt": "copy {red}", "completion": "x"}, None, "copy {red}"),
        ({"instruction": "{0}", "input": "red", "output": "x"}, "Q {instruction} {{{input}}} A", "Q {0} {red} A"),
        ({"instruction": "copy", "input": "red", "output": "x"}, "chat", "<user> copy\nred <assistant>"),
        (
            {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "copy"}]},
            None,
            "<system> s <user> copy <assistant>",
        ),
        (
            {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
            "chat",
            "<user> a <assistant> b <user> c <assistant>",
        ),
    ],
)
def test_prompts_are_by_template(
    tmp_path: Path, words: str, sample: dict[str, object], template: str | None, prompt: str
) -> None:
    """As the texts that the tokenizer receives. A conversation's earlier answers belong to the prompt."""
    answers = {"messages": [{"role": "assistant", "content": "x"}]}
    answers["conversations"] = [{"from": "human", "value": "c"}, {"from": "gpt", "value": "x"}]
    for key, more in answers.items():
        if isinstance(found := sample.get(key), list):
            sample = {**sample, key: [*found, *more]}
    received: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "raysim.data.tokenizers.TextTokenizer.encode_parts",
            lambda self, texts: received.extend(texts) or [[3]] * len(texts),
        )
        lines = [{**sample, "split": part} for part in ("train", "test")]
        dataset = read(tmp_path, lines, tokenizer=words, length=600, template=template)
    assert received == [prompt, "x"] * 2
    begins = not prompt.startswith("<")  # a chat template writes its begin token itself
    assert dataset.train.columns["prompt_length"].tolist() == [2 if begins else 1]


def test_prompt_and_answer_are_tokenized_apart(tmp_path: Path, words: str) -> None:
    """An answer with the template's own mark, and one that begins as another, are answers to their last token."""
    samples = [
        {"instruction": "copy", "output": output, "split": part}
        for part in ("train", "test")
        for output in ("red Response: red", "red", "red red")
    ]
    dataset = read(tmp_path, samples, tokenizer=words, length=8, template="{instruction} Response:")
    assert dataset.train.columns["prompt_length"].tolist() == [3, 3, 3]
    answers = [[target for target in row if target != -100] for row in dataset.train.y.tolist()]
    assert answers == [[4, 2, 4, 1], [4, 1], [4, 4, 1]]


def test_files_are_lines_or_lists_and_may_be_tasks(tmp_path: Path, words: str) -> None:
    """The second file is a gzipped JSON list. Their numbers are a column; files of tests are in the same order."""
    write(tmp_path, SAMPLES[:2], "a.jsonl")
    with gzip.open(tmp_path / "b.json.gz", "wt") as stream:
        json.dump([{"instruction": "copy", "response": "blue", "kind": "x"}] * 2, stream)
    write(tmp_path, SAMPLES[2:], "a_test.jsonl")
    write(tmp_path, [{"instruction": "copy", "response": "red"}], "b_test.jsonl")
    keys = {"path": ["a.jsonl", "b.json.gz"], "test": ["a_test.jsonl", "b_test.jsonl"]}
    dataset = read(tmp_path, tokenizer=words, length=8, template="plain", **keys)
    assert dataset.train.columns["file"].tolist() == [0, 0, 1, 1]
    assert dataset.test.columns["file"].tolist() == [0, 1]
    assert dataset.train.columns["prompt_length"].tolist() == [3, 3, 2, 2]
    with pytest.raises(ConfigError, match=r"dataset\.test: found 1 files, allowed: 2, one for each of dataset\.path"):
        read(tmp_path, tokenizer=words, **{**keys, "test": "a_test.jsonl"})
    drawn = read(tmp_path, tokenizer=words, template="plain", length=8, path=["a.jsonl", "b.json.gz"], split="part")
    assert drawn.test.columns["file"].tolist() == [0, 1]


def test_samples_have_clients_and_columns(tmp_path: Path, words: str) -> None:
    """The same sample at two clients, and in training and tests, is doubted and stays."""
    samples = [
        {"prompt": "copy red", "answer": "red", "user": user, "topic": topic, "split": part}
        for user, topic, part in ((1, "x", "train"), (2, "y", "train"), (2, "y", "train"), (1, "x", "test"))
    ]
    dataset = read(tmp_path, samples, tokenizer=words, length=8, client="user", columns=["topic"])
    assert dataset.train.clients is not None
    assert dataset.train.clients.tolist() == ["1", "2", "2"]
    assert dataset.train.columns["topic"].tolist() == ["x", "y", "y"]
    assert dataset.doubts == (
        "dataset.client: 1 samples occur at several clients",
        "dataset.path: 1 test samples are training samples, too",
    )


@pytest.mark.parametrize(
    ("samples", "keys", "message"),
    [
        ([{"question": "a", "answer": "b"}], {}, r"line 1: found no instruction among .*, allowed: instruction or"),
        ([{"prompt": "a", "reply": "b"}], {}, r"line 1: found no output among .*response, answer or completion"),
        ([*SAMPLES, {"prompt": 5, "answer": "b"}], {}, r"t\.jsonl, line 4: found 'prompt': 5, allowed: a text"),
        ([*SAMPLES, {"prompt": " ", "answer": "b"}], {}, r"line 4: found 'prompt': ' ', allowed: a text that is not"),
        ([*SAMPLES, {"prompt": "a"}], {}, r"line 4: found no key 'answer' among \['prompt'\], allowed: a text"),
        ([{"instruction": "a", "input": 3, "output": "b"}], {}, r"line 1: found 'input': 3, allowed: a text, or null"),
        ([[1]], {}, r"t\.jsonl, item 1: found 1, allowed: a JSON object, such as"),
        ("", {}, r"t\.jsonl holds no samples, allowed: JSON objects in lines or in a list"),
        ('[{"prompt": "a"', {}, r"t\.jsonl is no JSON list \(.*\), allowed: a list of objects in UTF-8"),
        ('[{"prompt": "a", "prompt": "b"}]', {}, r"is no JSON list \(the key 'prompt' twice\)"),
        ([{"messages": [{"role": "user", "content": "a"}]}], {}, r"allowed: a list of two messages and more"),
        (
            [{"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": "b"}]}],
            {},
            r"line 1, message 2: found \{role: 'tool', .*\}, allowed: .* with the role human, gpt, user",
        ),
        (
            [{"messages": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]}],
            {},
            r"line 1: found the last message of 'user', allowed: assistant, as the answer",
        ),
        (
            [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "split": part}
             for part in ("train", "test")],
            {"template": "alpaca"},
            r"dataset\.template: found 'alpaca' for a conversation \(.*line 1\), allowed: chat, or null",
        ),
        (SAMPLES, {"template": "Q {question}"}, r"template: found 'Q \{question\}' with \{question\}, allowed: alpaca"),
        (SAMPLES, {"template": "Q"}, r"template: found 'Q', allowed: alpaca, chat, plain, or a text with"),
        (SAMPLES, {"template": "{instruction"}, r"dataset\.template: found '\{instruction' \(.*\), allowed: alpaca"),
        (SAMPLES, {"template": "{instruction:d}"}, r"dataset\.template: found '\{instruction:d\}' \(.*\), allowed"),
        (SAMPLES, {"output": "reply"}, r"line 1: found no key 'reply' among .*, allowed: a text"),
        (SAMPLES, {"client": "user"}, r"line 1: found no key 'user' among .*dataset\.client is its key"),
        (SAMPLES, {"columns": ["topic"]}, r"line 1, key 'topic' \(dataset\.columns\): found nothing"),
        (SAMPLES, {"columns": ["prompt_length"]}, r"dataset\.columns: found 'prompt_length', allowed: other names"),
        (SAMPLES, {"path": []}, r"dataset\.path: found no file, allowed: a file, or a list with one for each task"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(
    tmp_path: Path, words: str, samples: str | Sequence[object], keys: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        read(tmp_path, samples, **{"tokenizer": words, "length": 20, **keys})
    assert len(str(error.value)) < 500


def test_a_chat_needs_a_template_that_takes_it(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    samples = [{"messages": messages, "split": part} for part in ("train", "test")]
    without = for_answers(tmp_path / "without", WORDS, chat=None)
    for keys in ({}, {"template": "chat"}):
        with pytest.raises(
            ConfigError, match=r"dataset\.tokenizer: found '.*', which has no chat template, allowed: the"
        ):
            read(tmp_path, samples, tokenizer=without, **keys)
    refusing = for_answers(tmp_path / "refusing", WORDS, chat="{{ raise_exception('no system') }}")
    with pytest.raises(
        ConfigError, match=r"line 1: the chat template refuses it \(.*no system.*\), allowed: what it t"
    ):
        read(tmp_path, samples, tokenizer=refusing)


def test_a_template_with_a_date_is_the_same_on_every_day(tmp_path: Path) -> None:
    """As Llama's, which names today's date unless it is given one, or others', which call the function of dates."""
    dated = "{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}"
    words = [*WORDS, "26", "Jul", "2024"]
    folder = for_answers(tmp_path / "dated", words, chat=f"{dated}{{{{ date_string }}}} {CHAT}")
    messages = [{"role": "user", "content": "red"}, {"role": "assistant", "content": "blue"}]
    samples = [{"messages": messages, "split": part} for part in ("train", "test")]
    calling = for_answers(tmp_path / "calling", words, chat=f"{{{{ strftime_now('%d %b %Y') }}}} {CHAT}")
    for tokenizer in (folder, calling):
        dataset = read(tmp_path, samples, tokenizer=tokenizer, length=9)
        assert dataset.train.x[0, :8].tolist() == [9, 10, 11, 6, 4, 7, 5, 1]


def test_an_input_counts_if_the_first_sample_has_none(tmp_path: Path, words: str) -> None:
    """<s> copy | red </s> and <s> copy blue | blue </s>."""
    samples = [
        {"instruction": "copy", "output": "red", "split": "train"},
        {"instruction": "copy", "input": "blue", "output": "blue", "split": "train"},
        {"instruction": "copy", "context": "red", "output": "red", "split": "test"},
    ]
    dataset = read(tmp_path, samples, tokenizer=words, length=5, template="plain")
    assert dataset.train.x[:, :5].tolist() == [[0, 3, 4, 1, 1], [0, 3, 5, 5, 1]]
    assert dataset.test.x[:, :5].tolist() == [[0, 3, 4, 4, 1]]


def test_a_tokenizer_without_an_end_is_doubted(tmp_path: Path) -> None:
    folder = word_level(tmp_path / "encoder", ["copy", "red", "blue"])
    dataset = read(tmp_path, tokenizer=folder, length=6)
    assert dataset.train.x[0].tolist() == [4, 5, 5, 0, 0, 0, 1, 1, 1, 0, 0, 0]
    (doubt,) = dataset.doubts
    assert "which has no token for the end of a text; answers have no end" in doubt
