"""Files of instructions: JSON lines or a JSON list of prompts and answers, or of conversations."""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import doc

from raysim.config.error_text import either, show
from raysim.data.json_lines import (
    DAMAGE,
    OFTEN,
    TwoValues,
    client_of,
    describe_value,
    load_line,
    once_each,
    read_lines,
)
from raysim.data.paths import require_file
from raysim.data.split_names import part_of
from raysim.system.capacity import require_memory
from raysim.system.errors import ConfigError, first_line

NAMES = {
    "instruction": ("instruction", "prompt"),
    "input": ("input", "context"),
    "output": ("output", "response", "answer", "completion"),
    "messages": ("messages", "conversations"),
}
"""The key of a field -> the names that are looked for, the first one first."""
PROMPT = "prompt"
"""The name of a field that has a whole prompt, which no template surrounds."""
ROLES = {"human": "user", "gpt": "assistant", "user": "user", "assistant": "assistant", "system": "system"}
"""The role of a message, as files name it -> as chat templates name it."""


@dataclass(frozen=True, kw_only=True)
class FieldKeys:
    """The names of a sample's fields."""

    instruction: Annotated[str | None, doc("the field of the instruction; null is instruction or prompt")] = None
    input: Annotated[str | None, doc("the field of its input, if there is one; null is input or context")] = None
    output: Annotated[str | None, doc("the field of the answer; null is output, response, answer or completion")] = None
    messages: Annotated[
        str | None, doc("the field of a conversation's messages; null is messages or conversations")
    ] = None
    split: Annotated[str, doc("the field that says train or test, where samples have it")] = "split"
    client: Annotated[str | None, doc("the field of the client id, for partition=natural")] = None
    columns: Annotated[
        tuple[str, ...], doc("further fields, such as a category, for partition.by and scenario.kind=by_column")
    ] = ()

    def resolve(self, where: str, row: Mapping[str, object]) -> "FieldKeys":
        """Return the keys with the names that the first sample of a file has.

        Raises:
            ConfigError: it has neither an instruction and an answer nor messages.
        """
        found = {
            key: getattr(self, key) or next((name for name in names if name in row), None)
            for key, names in NAMES.items()
        }
        if found["instruction"] and found["output"] and not self.messages:
            found["messages"] = None
        elif not found["messages"]:
            missing = "instruction" if found["instruction"] is None else "output"
            allowed = f"{either(NAMES[missing])}, or dataset.{missing} with its name; or messages"
            raise ConfigError(f"{where}: found no {missing} among {show([*row])}, allowed: {allowed}")
        return FieldKeys(**found, split=self.split, client=self.client, columns=self.columns)


@dataclass(frozen=True)
class Instruction:
    """A sample: an instruction with its input, or a conversation's messages (role, text), and the answer."""

    where: str
    """Key, file and line, for errors."""
    label: int
    """The number of its file."""
    split: str | None
    messages: tuple[tuple[str, str], ...]
    """The messages before the answer; empty for an instruction."""
    instruction: str
    input: str
    answer: str
    whole_prompt: bool
    """Whether the instruction is a whole prompt, by its field's name."""
    client: str
    columns: tuple[object, ...]


def read_instructions(key: str, files: Sequence[Path], keys: FieldKeys) -> list[Instruction]:
    """Return the samples of files, in their order. `key` is the config's, for errors.

    Raises:
        ConfigError: a file or a sample cannot be read.
    """
    rows: list[Instruction] = []
    for number, file in enumerate(files):
        names, before = None, len(rows)
        for where, row in _objects(key, file):
            if not isinstance(row, dict):
                allowed = "a JSON object, such as {instruction: ..., output: ...}"
                raise ConfigError(f"{where}: found {show(row)}, allowed: {allowed}")
            names = names or keys.resolve(where, row)
            rows.append(_read(where, row, names, number))
        if len(rows) == before:
            raise ConfigError(f"{key}: {file} holds no samples, allowed: JSON objects in lines or in a list")
    return rows


def _read(where: str, row: Mapping[str, object], names: FieldKeys, number: int) -> Instruction:
    part = row.get(names.split)
    split = None if part is None else part_of(str(part))
    client = "" if names.client is None else client_of(where, row, names.client)
    columns = tuple(row.get(column) for column in names.columns)
    if names.messages is not None:
        *before, answer = _messages(where, row, names.messages)
        return Instruction(where, number, split, tuple(before), "", "", answer[1], False, client, columns)
    assert names.instruction is not None
    assert names.output is not None
    instruction = _text(where, row, names.instruction)
    if not instruction.strip():
        raise ConfigError(f"{where}: found {describe_value(row, names.instruction)}, allowed: a text that is not empty")
    input_name = names.input or next((name for name in NAMES["input"] if name in row), "")  # the first may have none
    beside = row.get(input_name)
    if beside is not None and not isinstance(beside, str):
        raise ConfigError(f"{where}: found {describe_value(row, input_name)}, allowed: a text, or null")
    answer_text, whole = _text(where, row, names.output), names.instruction == PROMPT
    return Instruction(where, number, split, (), instruction, beside or "", answer_text, whole, client, columns)


def _text(where: str, row: Mapping[str, object], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise ConfigError(f"{where}: found {describe_value(row, name)}, allowed: a text")
    return value


def _messages(where: str, row: Mapping[str, object], name: str) -> list[tuple[str, str]]:
    """Return a conversation as (role, text). The last message is the assistant's."""
    value = row.get(name)
    if not isinstance(value, list) or len(value) < 2:
        allowed = "a list of two messages and more, such as {role: user, content: ...}"
        raise ConfigError(f"{where}: found {describe_value(row, name)}, allowed: {allowed}")
    found = [_message(f"{where}, message {number}", one) for number, one in enumerate(value, 1)]
    if found[-1][0] != "assistant":
        raise ConfigError(f"{where}: found the last message of {show(found[-1][0])}, allowed: assistant, as the answer")
    return found


def _message(where: str, value: object) -> tuple[str, str]:
    if isinstance(value, dict):
        role, text = value.get("role", value.get("from")), value.get("content", value.get("value"))
        if isinstance(role, str) and role in ROLES and isinstance(text, str):
            return ROLES[role], text
    allowed = f"{{role: ..., content: TEXT}} or {{from: ..., value: TEXT}} with the role {either(ROLES)}"
    raise ConfigError(f"{where}: found {show(value)}, allowed: {allowed}")


def _objects(key: str, file: Path) -> Iterator[tuple[str, object]]:
    """Yield where a sample is, for errors, and the sample."""
    require_file(key, file)
    content = _read_list(key, file)
    if content is None:
        for number, line in read_lines(key, file):
            where = f"{key}: {file}, line {number}"
            yield where, load_line(where, line)
        return
    for number, row in enumerate(content, 1):
        yield f"{key}: {file}, item {number}", row


def _read_list(key: str, file: Path) -> list[object] | None:
    """Return the JSON list of a file, or None if it does not begin as one."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            content = stream.read(OFTEN)
            if content.lstrip()[:1] != b"[":
                return None
            while more := stream.read(OFTEN):
                content += more
                require_memory(4 * len(content), key, file)
        found = json.loads(content, object_pairs_hook=once_each)
        json.dumps(found, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except DAMAGE as error:
        raise ConfigError(
            f"{key}: {file} cannot be read ({first_line(error)}), allowed: JSON, in .gz if gzipped"
        ) from error
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, TwoValues) else first_line(error)
        raise ConfigError(f"{key}: {file} is no JSON list ({reason}), allowed: a list of objects in UTF-8") from error
    if not isinstance(found, list):
        raise ConfigError(f"{key}: {file} is no JSON list, allowed: a list of objects, or one in each line")
    return found
