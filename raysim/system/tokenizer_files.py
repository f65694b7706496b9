"""The tokenizers of folders of Hugging Face's `transformers` (the extra)."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from raysim.system.errors import ConfigError, first_line
from raysim.system.hub_files import LONGEST_REASON, find_folder
from raysim.system.importing import import_extra

FILE = "tokenizer.json"
ALLOWED = "a folder with tokenizer.json and tokenizer_config.json, as save_pretrained writes it"


def load_tokenizer(key: str, name: str) -> Any:
    """Return the fast tokenizer of a folder, hf://OWNER/NAME[@REVISION] or a packaged name.

    Args:
        key: the config's key, for messages.
        name: its value.

    Raises:
        ConfigError: there is no such folder, or it has no fast tokenizer.
    """
    folder = find_folder(key, name, needed=("tokenizer*",))
    if not folder.is_dir():
        raise ConfigError(f"{key}: found {name!r}, which has no tokenizer, allowed: a folder with tokenizer.json")
    transformers = import_extra("transformers", "transformers")
    try:
        with _quiet():
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                str(folder), local_files_only=True, trust_remote_code=False, use_fast=True
            )
    except Exception as error:  # of a missing, a damaged or an unknown file
        found = f"found {name!r}, which has no tokenizer that can be read ({first_line(error)[:LONGEST_REASON]})"
        raise ConfigError(f"{key}: {found}, allowed: {ALLOWED}") from error
    if not getattr(tokenizer, "is_fast", False):
        found = f"found {name!r} with the slow tokenizer {type(tokenizer).__name__}"
        raise ConfigError(f"{key}: {found}, allowed: {ALLOWED}")
    if absent := _find_absent(tokenizer, folder):
        found = f"found {name!r}, which has neither {FILE} nor {absent}"
        raise ConfigError(f"{key}: {found}, allowed: {ALLOWED}")
    return tokenizer


def _find_absent(tokenizer: Any, folder: Path) -> str | None:
    """Return a file of the vocabulary that a folder lacks, or None if it is whole.

    Without its files, transformers makes a tokenizer of the special tokens alone: all words are then unknown.
    """
    if (folder / FILE).is_file():
        return None
    others = sorted({*tokenizer.vocab_files_names.values()} - {FILE})
    absent = [name for name in others if not (folder / name).is_file()]
    return next(iter(absent), None if others else "another vocabulary")


def digest_tokenizer(tokenizer: Any) -> str:
    """Return a digest of what makes ids of texts: the tokens, and which ones begin and end a text.

    A chat model's folder at times has the tokens of another model, and another end.
    Truncation and padding are left out: each call sets them, and files have those of the last call before saving.
    """
    content = json.loads(tokenizer.backend_tokenizer.to_str()) | {"truncation": None, "padding": None}
    content["ends"] = [tokenizer.bos_token_id, tokenizer.eos_token_id]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def count_ids(tokenizer: Any) -> int:
    """Return the number of ids, from 0, with those of added tokens."""
    return max(len(tokenizer), 1 + max(tokenizer.get_vocab().values(), default=0))


@contextmanager
def one_thread() -> Iterator[None]:
    """Let a tokenizer start no threads, after which a process must not be forked."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


@contextmanager
def _quiet() -> Iterator[None]:
    """Let `transformers` print nothing while it loads."""
    logging = import_extra("transformers.utils.logging", "transformers")
    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)
