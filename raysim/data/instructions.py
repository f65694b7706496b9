"""Instructions and their answers for causal language models: prompts are masked, so that answers alone are learned."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Lt, doc

from raysim.config.error_text import show
from raysim.config.signature import takes_keys_of
from raysim.data.arrays import join_arrays
from raysim.data.columns import as_column, as_texts
from raysim.data.dataset import Array, Dataset, Split, read_all
from raysim.data.instruction_files import FieldKeys, Instruction, read_instructions
from raysim.data.json_lines import only_part, split_lines
from raysim.data.split_names import TEST, TRAIN, choose_test
from raysim.data.templates import Prompt, make_prompts
from raysim.data.tokenizers import Ids, TextTokenizer, next_tokens
from raysim.system.capacity import require_memory
from raysim.system.errors import ConfigError
from raysim.system.home import expand

PROMPT_LENGTH = "prompt_length"
"""The column with the number of a prompt's tokens, from the first place on."""
FILE = "file"
"""The column with the number of a sample's file, if there are several."""


@takes_keys_of(FieldKeys)
def instructions(
    root: Path,
    download: bool,
    *,
    path: Annotated[
        str | tuple[str, ...],
        doc("the file of JSON lines or of a JSON list, or one for each task; relative, it starts at dataset.root"),
    ],
    test: Annotated[
        str | tuple[str, ...] | None, doc("the files to test on, one for each of path; null takes samples from path")
    ] = None,
    tokenizer: Annotated[str, doc("a tokenizer's folder, or hf://OWNER/NAME[@REVISION]")],
    length: Annotated[int, Ge(2), doc("tokens of a prompt and its answer: longer answers are cut")] = 512,
    template: Annotated[
        str | None,
        doc(
            "alpaca, chat, plain or a text with {instruction} and {input}; null is chat for messages, plain for the "
            "field prompt, else alpaca"
        ),
    ] = None,
    test_fraction: Annotated[
        float, Gt(0), Lt(1), doc("the part of each file for testing, where no sample says so")
    ] = 0.2,
    seed: Annotated[int, Ge(0), doc("the seed of that part, independent of the run's seed")] = 0,
    **keys: Any,
) -> Dataset:
    """Instructions, prompts or conversations with answers, as ids of a tokenizer, for objective=next_token.

    Files hold JSON lines or a JSON list of objects. Their fields are (instruction, input, output), (prompt, answer), or
    messages with a role and a content, of which the last one is the assistant's answer. The model receives input_ids
    and attention_mask, [N, length]. Targets are the next tokens, and -100 at prompts and padding. Prompt and answer are
    tokenized apart, and the token of the text's end follows the answer. Samples without place for an answer and those
    without an answer are left out, and a run says how many.

    The column prompt_length is the number of tokens of the prompt. With several files the column file is the number of
    the sample's file, from 0, for scenario.kind=by_column. `columns` names further fields. The field `split` or the
    files `test` say what is for testing. Otherwise `test_fraction` of each file is, drawn from `seed`.

    Raises:
        MissingData: a file is missing.
        ConfigError: a file, a sample, the template or the tokenizer cannot be read, or no sample is left.
    """
    field_keys = FieldKeys(**keys)
    text_tokenizer = TextTokenizer(tokenizer)
    prompts = make_prompts(template, text_tokenizer)
    files = _files(root, "dataset.path", path)
    test_files = None if test is None else _files(root, "dataset.test", test)
    _refuse_columns(field_keys.columns, (PROMPT_LENGTH, FILE) if len(files) > 1 else (PROMPT_LENGTH,))
    notes: list[str] = []
    parts = _divide(files, test_files, field_keys, (test_fraction, seed), notes)
    learned = Learned(text_tokenizer, prompts, length, notes)
    train, testing = (learned.encode(part, name) for part, name in zip(parts, ("training", "test"), strict=True))
    kept = [*train.rows, *testing.rows]
    known = {name: _column(kept, place, name) for place, name in enumerate(field_keys.columns)}
    known |= {FILE: np.array([float(row.label) for row in kept])} if len(files) > 1 else {}
    clients = None if field_keys.client is None else as_texts([row.client for row in kept], lambda row: kept[row].where)
    numbers = {"input_ids": text_tokenizer.size, "attention_mask": 2}
    *x, arrays = join_arrays(train.arrays, testing.arrays, numbers)
    splits = []
    for rows, part, half in zip(
        x, (train, testing), (slice(len(train.rows)), slice(len(train.rows), None)), strict=True
    ):
        columns = {name: values[half] for name, values in known.items()} | {PROMPT_LENGTH: part.prompt_lengths}
        splits.append(Split(rows, part.targets, None if clients is None else clients[half], columns))
    return Dataset(
        splits[0],
        splits[1],
        text_tokenizer.size,
        vocabulary=text_tokenizer.size,
        arrays=arrays,
        tokenizer=text_tokenizer.digest,
        notes=tuple(notes),
        doubts=(*text_tokenizer.doubt(length), *learned.doubt_end(), *_doubt_repeats(splits)),
    )


def _files(root: Path, key: str, path: str | Sequence[str]) -> list[Path]:
    names = [path] if isinstance(path, str) else [*path]
    if not names:
        raise ConfigError(f"{key}: found no file, allowed: a file, or a list with one for each task")
    return [root / expand(key, name) for name in names]


def _refuse_columns(columns: Sequence[str], made: Sequence[str]) -> None:
    """Refuse fields with the names of columns that are made here. Raises ConfigError."""
    taken = next((name for name in made if name in columns), None)
    if taken is not None:
        allowed = "other names, as this one is made of the samples; rename the field"
        raise ConfigError(f"dataset.columns: found {show(taken)}, allowed: {allowed}")


def _divide(
    files: Sequence[Path],
    test_files: Sequence[Path] | None,
    keys: FieldKeys,
    drawn: tuple[float, int],
    notes: list[str],
) -> tuple[list[Instruction], list[Instruction]]:
    """Return the samples to train and to test on."""
    rows = read_instructions("dataset.path", files, keys)
    if test_files is None:
        return split_lines(rows, keys.split, *drawn, notes)
    if len(test_files) != len(files):
        allowed = f"{len(files)}, one for each of dataset.path"
        raise ConfigError(f"dataset.test: found {len(test_files)} files, allowed: {allowed}")
    test_rows = read_instructions("dataset.test", test_files, keys)
    testing = choose_test({row.split for row in test_rows if row.split}) or TEST
    return (
        only_part("dataset.path", files[0], rows, TRAIN, notes),
        only_part("dataset.test", test_files[0], test_rows, testing, notes),
    )


def _column(rows: Sequence[Instruction], place: int, name: str) -> Array:
    return as_column(
        [row.columns[place] for row in rows], lambda index: f"{rows[index].where}, key {show(name)} (dataset.columns)"
    )


@dataclass(frozen=True, eq=False)
class Answers:
    """The samples of a split that are kept, the arrays of a model's input, the targets and the prompts' lengths."""

    rows: Sequence[Instruction]
    arrays: dict[str, Array]
    targets: Ids
    prompt_lengths: Ids


class Learned:
    """Prompts and answers as ids."""

    def __init__(self, tokenizer: TextTokenizer, prompts: Prompt, length: int, notes: list[str]) -> None:
        """Encode up to `length` tokens; `notes` receives what is left out."""
        self.tokenizer, self.prompts, self.length, self.notes = tokenizer, prompts, length, notes

    def doubt_end(self) -> tuple[str, ...]:
        """Return a warning if the tokenizer has no token of a text's end, so that no model learns to stop."""
        if self.tokenizer.end:
            return ()
        found = f"found {self.tokenizer.name}, which has no token for the end of a text"
        return (f"dataset.tokenizer: {found}; answers have no end, and generation goes on to its limit",)

    def encode(self, rows: Sequence[Instruction], name: str) -> Answers:
        """Return the samples of a split, `name` in notes and errors.

        Raises:
            ConfigError: no sample is left, or the ids do not fit into memory.
        """
        answered = [row for row in rows if row.answer.strip()]
        rendered, begin = [self.prompts(row) for row in answered], self.tokenizer.begin
        begins = [[] if is_chat else begin for _, is_chat in rendered]
        prompts = self.tokenizer.encode_parts([text for text, _ in rendered])
        answers = self.tokenizer.encode_parts([row.answer for row in answered])
        pairs = [(begin + prompt, answer) for begin, prompt, answer in zip(begins, prompts, answers, strict=True)]
        kept = [number for number, (prompt, answer) in enumerate(pairs) if answer and 0 < len(prompt) < self.length]
        self._note(len(rows) - len(answered), f"{name} samples without an answer")
        self._note(
            len(answered) - len(kept), f"{name} samples with a prompt of no tokens, or of {self.length} and more"
        )
        if not kept:
            first = f" (the first is {rows[0].where})" if rows else ""
            allowed = "a sample with an answer, and with a prompt of fewer tokens than dataset.length"
            raise ConfigError(
                f"dataset.length: found {self.length}, with which no {name} sample is left{first}, allowed: {allowed}"
            )
        return self._stack([answered[number] for number in kept], [pairs[number] for number in kept], name)

    def _note(self, count: int, what: str) -> None:
        if count:
            self.notes.append(f"left out: {count:,} {what}")

    def _stack(self, rows: Sequence[Instruction], pairs: Sequence[tuple[list[int], list[int]]], name: str) -> Answers:
        require_memory(3 * 8 * self.length * len(rows), "dataset.length", f"{self.length} for {len(rows)} samples")
        ids, mask, counted = (np.zeros((len(rows), self.length), np.int64) for _ in range(3))
        ids += self.tokenizer.padding
        cut = 0
        for number, (prompt, answer) in enumerate(pairs):
            tokens = [*prompt, *answer, *self.tokenizer.end]
            cut += len(tokens) > self.length
            tokens = tokens[: self.length]
            ids[number, : len(tokens)], mask[number, : len(tokens)] = tokens, 1
            counted[number, len(prompt) : len(tokens)] = 1
        if cut:
            self.notes.append(f"cut {cut:,} of {len(rows):,} {name} samples to {self.length:,} tokens, without an end")
        arrays: dict[str, Array] = {"input_ids": ids, "attention_mask": mask}
        return Answers(rows, arrays, next_tokens(ids, counted), np.array([len(prompt) for prompt, _ in pairs]))


def _doubt_repeats(splits: Sequence[Split]) -> list[str]:
    """Return warnings on samples that are the same: at several clients, or in training and for tests."""
    train, test = splits
    found: dict[bytes, set[str]] = defaultdict(set)
    owners = np.zeros(len(train), np.int64) if train.clients is None else train.clients
    for row, targets, owner in zip(read_all(train.x), train.y, owners, strict=True):
        found[row.tobytes() + targets.tobytes()].add(str(owner))
    shared = sum(len(of) > 1 for of in found.values())
    tested = sum(
        row.tobytes() + targets.tobytes() in found for row, targets in zip(read_all(test.x), test.y, strict=True)
    )
    doubts = [f"dataset.client: {shared:,} samples occur at several clients"] if shared else []
    return [*doubts, *([f"dataset.path: {tested:,} test samples are training samples, too"] if tested else [])]
