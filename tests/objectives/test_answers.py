"""Metrics of answers: exact match, ROUGE-L and the likelihood of choices, by hand, in any chunks, and in runs."""

import json
import math
import re
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from answer_data import END, IDS, PAIRS, ByLastId, answers, split_of
from rouge_score.rouge_scorer import RougeScorer
from torch import Tensor

from raysim.config import load
from raysim.data.scenario import Task
from raysim.estimate.pace import _seconds_per_sample
from raysim.evaluation.scoring import accuracies, merge_scores, score, split_into_chunks
from raysim.federation.availability import Availability
from raysim.federation.federation import Federation, build_federation
from raysim.federation.targets import make_objective
from raysim.models.building import check_model
from raysim.objectives.next_token import NextToken
from raysim.objectives.rouge import common_length, rouge_l
from raysim.objectives.words import find_words
from raysim.system.errors import ConfigError, Diverged

RUN: dict[str, object] = {
    "name": "tiny",
    "dataset": {"name": "answer_data:answers"},
    "scenario": {"kind": "answer_data:halves", "tasks": 2},
    "clients": {"count": 2},
    "model": {"name": "answer_data:by_last_id"},
    "objective": {"name": "next_token", "metric": "exact_match", "end": END, "new_tokens": 8},
    "training": {"rounds_per_task": 1, "batch_size": 4, "optimizer": {"lr": 1e-9}},
}


def federation_of(objective: NextToken, masked: bool = True) -> Federation:
    dataset = answers(Path(), False, masked=masked)
    rows = np.arange(len(dataset.test), dtype=np.int32)
    task = Task("all", (0,), None, rows[:0], rows)
    availability = Availability([], [], [1])
    return Federation(dataset, [task], [], availability, ("domain_il",), None, (), objective=objective)


def scored(objective: NextToken, chunk: int = 100, hosts: int = 1, masked: bool = True) -> float:
    federation = federation_of(objective, masked)
    source, network = federation.source("test", torch.device("cpu")), ByLastId(IDS)
    network.register_forward_pre_hook(lambda _, given: (take_apart(federation, given[0]),))
    chunks = split_into_chunks(federation, chunk)
    parts = [score(network, torch.float32, source, federation, chunks[host::hosts]) for host in range(hosts)]
    return accuracies(merge_scores(parts), federation)["domain_il"][0]


def take_apart(federation: Federation, x: Tensor) -> Tensor | Mapping[str, Tensor]:
    vocabulary: Any = federation.vocabulary
    return vocabulary.split(x) if federation.dataset.arrays else x


def words_of(folder: Path, words: str, end: int = END, **special: str) -> str:
    """Save a tokenizer of these words and of [END], and return its folder. Further special tokens have a name each."""
    ids = {word: number for number, word in enumerate(words.split())} | {"[END]": end}
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token=words.split()[0]))
    core.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="[END]", **special).save_pretrained(folder)
    return str(folder)


def test_exact_match_by_hand() -> None:
    """Four of the seven answers of PAIRS are right. Of at most 3 tokens, the reference of seven is not reached: 3/7."""
    assert scored(NextToken(metric="exact_match", end=END)) == 4 / 7
    assert scored(NextToken(metric="exact_match", end=END), masked=False) == 4 / 7
    assert scored(NextToken(metric="exact_match", end=END, new_tokens=3)) == 3 / 7
    assert scored(NextToken(metric="exact_match")) == 4 / 7  # references have their ends, so none need be known


def test_exact_match_of_texts(tmp_path: Path) -> None:
    """Texts are compared without ends. One token is enough for the three references of one word: 2, 3 and 8."""
    folder = words_of(tmp_path, "pad a b c d e f g h")
    assert scored(NextToken(metric="exact_match", tokenizer=folder)) == 4 / 7
    assert scored(NextToken(metric="exact_match", tokenizer=folder, new_tokens=1)) == 3 / 7


def test_two_empty_texts_are_equal(tmp_path: Path) -> None:
    """As SQuAD's script has it. An id of a special token, here 1 of an unknown word, leaves no text."""
    folder = words_of(tmp_path, "pad unk a b c d e f g", unk_token="unk")
    metric = NextToken(metric="exact_match", tokenizer=folder).measured
    references = torch.tensor([[1, END], [1, END], [2, END], [1, END]])
    assert metric.measure(torch.tensor([[END], [1], [END], [2]]), references)[:, 0].tolist() == [1, 1, 0, 0]


def test_rouge_l_by_hand() -> None:
    """Answers without ends: 2 3, seven ids with 9 the last, 2 3, 2 3, 2 3, 3, and 8 six times in a row of 8 positions.

    References: 2 3; 5 6 7 1 2 3; 2 3; 2; 2 3 3; 3; 8. F1 = 2 l / (m + n): 1, 1, 1, 2/3, 4/5, 1 and 2/(7 + 1).
    """
    wanted = np.mean([1, 1, 1, 2 / 3, 4 / 5, 1, 2 / 8])
    assert scored(NextToken(metric="rouge_l", end=END)) == pytest.approx(wanted, rel=1e-15)


def test_rouge_l_of_texts(tmp_path: Path) -> None:
    """As by ids where every id is a word. Marks are no words: an answer of marks alone is empty and counts 0."""
    folder = words_of(tmp_path / "words", "pad a b c d e f g h")
    wanted = np.mean([1, 1, 1, 2 / 3, 4 / 5, 1, 2 / 8])
    assert scored(NextToken(metric="rouge_l", tokenizer=folder)) == pytest.approx(wanted, rel=1e-15)
    marks = words_of(tmp_path / "marks", "pad a ! ? d e f g h")  # 2 and 3 are no words
    wanted = np.mean([0, 1, 0, 0, 0, 0, 2 / 8])
    assert scored(NextToken(metric="rouge_l", tokenizer=marks)) == pytest.approx(wanted, rel=1e-15)


CHOICES = ((2, 3), (5, 6, 7, 1, 2, 3), (2,), (2, 3, 3), (3,), (8,))
LEAST = -math.log(9 + math.e**3)  # log p of an id that is not the successor
MOST = LEAST + 3  # of the successor


def test_the_likelihood_of_choices_by_hand() -> None:
    """A successor has log p MOST = -0.37, every other id LEAST = -3.37.

    After 1 the sums are: 2 3: 2 MOST. 5 6 7 1 2 3: LEAST + 5 MOST (6, 7, 1, 2 and 3 follow). 2: MOST, the largest.
    2 3 3: 2 MOST + LEAST; 3 and 8: LEAST. So 2 is chosen in rows 0, 2, 3 and 4, right in row 3. After 4 the largest is
    LEAST, of 2 (the first): 5 6 7 1 2 3 has 6 MOST = -2.23, which is larger: right. After 2, 3 is right. After 8, 8 is
    right. That is 4/7. The mean over tokens is MOST for 2 3 and 2 alike, so that the first wins: rows 0 and 2 are
    right, and row 3 is not: 5/7.
    """
    assert LEAST < 6 * MOST
    assert scored(NextToken(metric="choices", choices=CHOICES, end=END)) == 4 / 7
    assert scored(NextToken(metric="choices", choices=CHOICES, end=END, per_token=True)) == 5 / 7


def test_the_likelihoods_of_choices_are_those_of_perplexity() -> None:
    """-log p of a choice is the loss of a sample with it as the answer. Choices that begin alike share a pass."""
    ids, masks, targets = map(torch.from_numpy, split_of([([8, 1], [*choice]) for choice in CHOICES]))
    torch.manual_seed(0)
    network = ByLastId(IDS)
    network.table.weight.data = torch.randn(IDS, IDS)
    objective = NextToken(metric="choices", choices=CHOICES, end=END)
    with torch.no_grad():
        wanted = NextToken().measure(network({"input_ids": ids}).log_softmax(-1), targets)[:, 0]
        network.passes = 0
        found = objective.answer(network, {"input_ids": ids, "attention_mask": masks}, targets)
    assert network.passes == 4  # after nothing, 2, 2 3, and 5 6 7 1 2
    assert torch.allclose(found, -wanted.expand(len(CHOICES), -1))


def test_choices_are_texts_of_the_tokenizer(tmp_path: Path) -> None:
    folder = words_of(tmp_path, "pad a b c d e f g h")
    texts = ("b c", "e f g a b c", "b", "b c c", "c", "h")
    assert scored(NextToken(metric="choices", choices=texts, tokenizer=folder)) == 4 / 7
    targets = federation_of(NextToken()).dataset.test.y
    problem = NextToken(metric="choices", choices=texts[1:], tokenizer=folder).check(targets, IDS)
    assert problem == "found the answer 'b c' (row 0), allowed: those of choices"
    few = words_of(tmp_path / "few", "pad", end=1)
    problem = NextToken(metric="rouge_l", tokenizer=few).check(targets, IDS)
    assert problem == f"found ids up to 9, allowed: 0 to 1, which objective.tokenizer={few} has"


METRICS: dict[str, Mapping[str, Any]] = {
    "perplexity": {},
    "exact_match": {"end": END},
    "rouge_l": {"end": END},
    "choices": {"end": END, "choices": CHOICES},
}


@pytest.mark.parametrize("metric", METRICS)
def test_chunks_and_hosts_change_no_bit(metric: Any) -> None:
    objective = NextToken(metric=metric, **METRICS[metric])
    wanted = scored(objective)
    assert {scored(objective, chunk, hosts) for chunk in (1, 3) for hosts in (1, 2)} == {wanted}


def longest_by_table(first: str, second: str) -> int:
    """The textbook's table of lengths."""
    table = np.zeros((len(first) + 1, len(second) + 1), int)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            table[i + 1, j + 1] = table[i, j] + 1 if a == b else max(table[i, j + 1], table[i + 1, j])
    return int(table[-1, -1])


def test_the_longest_common_subsequence() -> None:
    draws = np.random.default_rng(0)
    rows = ["".join(draws.choice([*"abcd"], size)) for size in (0, 1, 2, 5, 9, 30, 70, 71)]
    for first, second in combinations([*rows, *rows], 2):
        assert common_length(first, second) == longest_by_table(first, second)
    assert rouge_l("", "") == rouge_l("", "a") == rouge_l("a", "") == 0


ENGLISH = (
    "The cat sat on the mat.",
    "the cat is on the mat",
    "Don't panic: it's only 42 degrees, isn't it?",
    "It is only forty-two (42) degrees; do not panic!",
    "A man walks his dog in the park, and the dog barks.",
    "the the cat",
    "snake_case and CamelCase e.g. U.S.A. 3.14",
    "42",
    "?!",
    "",
)


def test_rouge_l_is_that_of_rouge_score_on_english() -> None:
    scorer = RougeScorer(["rougeL"], use_stemmer=False)
    for reference, answer in ((first, second) for first in ENGLISH for second in ENGLISH):
        wanted = scorer.score(reference, answer)["rougeL"].fmeasure
        assert rouge_l(find_words(answer), find_words(reference)) == pytest.approx(wanted, rel=1e-12), (
            answer,
            reference,
        )


def test_words_of_other_scripts() -> None:
    """rouge_score keeps a to z and digits alone."""
    assert find_words("Grüße aus ÅRHUS") == ["grüße", "aus", "århus"]
    assert find_words("a\u0301 \u00e1") == ["\u00e1", "\u00e1"]  # composed and not
    assert find_words("हिन्दी में") == ["हिन्दी", "में"]
    assert find_words("我爱北京,GPT4好") == ["我", "爱", "北", "京", "gpt4", "好"]


def test_logits_that_are_not_finite_are_named_in_later_passes() -> None:
    class Infinite(ByLastId):
        def forward(self, x: Tensor | Mapping[str, Tensor]) -> Tensor:
            return super().forward(x) + (math.inf if self.passes == 3 else 0)

    federation = federation_of(NextToken(metric="exact_match", end=END), masked=False)
    chunks = split_into_chunks(federation, 9)
    with pytest.raises(Diverged, match="logits that are not finite for test samples of task 1"):
        score(Infinite(IDS), torch.float32, federation.source("test", "cpu"), federation, chunks)


@pytest.mark.parametrize("masked", [True, False])
def test_metrics_of_answers_are_continual_metrics(masked: bool, simulate: Callable[..., Any]) -> None:
    """A rate of 1e-9 changes nothing: of task 1 rows 0 2 4 6 are right twice, of task 2 rows 1 3 5 twice of three."""
    config = load(RUN, {"dataset.masked": masked})
    run = simulate(config)
    rows = [done.evaluation["domain_il"] for done in run.rounds if done.evaluation]
    assert rows == [[2 / 4, 2 / 3]] * 2
    assert simulate(config, places=[[1], [0]]).sha256 == run.sha256
    assert make_objective(config, build_federation(config).dataset).metric.higher_is_better


def test_answers_of_instructions(tmp_path: Path, simulate: Callable[..., Any]) -> None:
    """After "h a" comes "b c": right. After "d" come four of six words: 2 * 4 / (4 + 6). After "h" come four words.

    The reference of "h" is one word: 2 * 1 / (4 + 1). A tokenizer with the words in another order is not the dataset's.
    """
    folder = words_of(tmp_path / "words", "pad a b c d e f g h")
    pairs = [("h a", "b c"), ("d", "e f g a b c"), ("h", "h")]
    lines = [
        {"prompt": prompt, "answer": answer, "split": part} for part in ("train", "test") for prompt, answer in pairs
    ]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    config = RUN | {
        "dataset": {
            "name": "instructions",
            "path": "pairs.jsonl",
            "root": str(tmp_path),
            "tokenizer": folder,
            "length": 12,
        },
        "objective": {"name": "next_token", "metric": "rouge_l", "tokenizer": folder, "new_tokens": 4},
        "scenario": {"kind": "answer_data:halves", "tasks": 1},
    }
    (value,) = (row for done in simulate(load(config)).rounds for row in (done.evaluation or {}).values())
    assert value == [pytest.approx((1 + 0.8 + 2 / 5) / 3, rel=1e-15)]
    other = words_of(tmp_path / "other", "pad b a c d e f g h")
    with pytest.raises(ConfigError, match=r"objective.tokenizer: found another one than dataset.tokenizer, allowed"):
        build_federation(load(config, {"objective.tokenizer": other}))


def test_the_estimate_of_an_evaluation_counts_every_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rehearsal evaluates two rows twice, and all four of the first task.

    The passes are as many as the tokens of the longest reference: 3 for the first two rows, 4 for the third one.
    """
    forward, passes = ByLastId.forward, []

    def counted(network: ByLastId, x: Tensor) -> Tensor:
        passes.append(len(x))
        return forward(network, x)

    config = load(RUN, {"dataset.masked": False})
    federation = build_federation(config)
    model = check_model(config, federation.shape, federation.classes, federation.vocabulary)
    monkeypatch.setattr(ByLastId, "forward", counted)
    _seconds_per_sample(config, federation, model)
    assert passes == [2] * 3 + [2] * 3 + [4] * 4


WRONG = [
    ({"metric": "choices"}, r"objective.choices: found \[\], allowed: a list of answers"),
    ({"choices": [[1]]}, r"objective.choices: found \[\(1,\)\], allowed: none with metric=perplexity"),
    ({"tokenizer": "x"}, "objective.tokenizer: found x, allowed: null with metric=perplexity"),
    ({"metric": "choices", "choices": ["yes"]}, "allowed: lists of ids without objective.tokenizer"),
    ({"metric": "choices", "choices": [[1]], "tokenizer": "x"}, "allowed: texts with objective.tokenizer"),
    ({"metric": "choices", "choices": [[2, 3], [2, 3]]}, "allowed: answers with different tokens"),
    ({"metric": "choices", "choices": [[2, 3], []]}, "allowed: answers with different tokens, at least one in each"),
    (
        {"metric": "choices", "choices": [[2, 10]]},
        "objective.choices: found the id 10, allowed: 0 to 9, which the data",
    ),
    ({"metric": "choices", "choices": [[2, 3]]}, r"next_token in the training samples: found the answer \[5, 6, 7, 1"),
    (
        {"metric": "rouge_l", "model.cache": True},
        "model.cache: found true, allowed: false with .* which continues text",
    ),
    ({"metric": "exact_match", "tokenizer": "x"}, "objective.tokenizer: found .x., which is no folder"),
    ({"metric": "rouge_l", "new_tokens": 0}, "objective.new_tokens=0: found 0, allowed: a whole number >= 1"),
]


@pytest.mark.parametrize(("keys", "words"), WRONG)
def test_keys_that_do_not_fit_are_named(keys: Mapping[str, Any], words: str) -> None:
    given = {"metric": "perplexity", "end": END} | keys
    overrides = {key if "." in key else f"objective.{key}": value for key, value in given.items()}
    with pytest.raises(ConfigError, match=words):
        build_federation(load(RUN, overrides))


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    words = rf"objective.tokenizer: found '{re.escape(str(tmp_path))}', which has no tokenizer"
    with pytest.raises(ConfigError, match=words):
        build_federation(load(RUN, {"objective.tokenizer": str(tmp_path)}))


def test_samples_that_cannot_be_continued_are_named() -> None:
    config = load(RUN, {"dataset": {"name": "token_data:tokens"}, "objective.padding": 0})
    words = r"next_token measures exact match of samples that are float32 \[4\], allowed: ids \(int64\)"
    with pytest.raises(ConfigError, match=words):
        build_federation(config)


def test_an_answer_needs_room() -> None:
    """The prompt of the last row leaves room for 8 - 1 tokens, which are fewer than those of the longest choice."""
    choices = (*CHOICES, (1,) * 8)
    problem = NextToken(metric="choices", choices=choices, end=END).check(
        federation_of(NextToken()).dataset.test.y, IDS
    )
    assert problem is not None
    assert problem.startswith("found room for 7 tokens of an answer (row 0), allowed: at least 8")
    assert len(PAIRS) == 7
