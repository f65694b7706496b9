"""A tokenizer of transformers (the extra): the texts of ids, the ids of texts, and the id that ends a text."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from raysim.system.errors import ConfigError, first_line
from raysim.system.hub_files import find_folder
from raysim.system.importing import import_extra

KEY = "objective.tokenizer"


class Tokenizer:
    """A tokenizer of a folder, loaded when it is first used.

    Args:
        path: the folder, hf://OWNER/NAME[@REVISION], or a packaged name.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    def end(self) -> int | None:
        """The id that ends a text, if there is one. Raises ConfigError, see `_load`."""
        found: int | None = _load(self.path).eos_token_id
        return found

    def texts(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of rows of ids, without special tokens."""
        found: list[str] = _load(self.path).batch_decode([*rows], skip_special_tokens=True)
        return found

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens."""
        found: list[int] = _load(self.path)(text, add_special_tokens=False)["input_ids"]
        return found


@cache  # every evaluation needs it again
def _load(path: str) -> Any:
    """Return the tokenizer of transformers.

    Raises:
        ConfigError: there is no such folder, or it has no tokenizer.
    """
    folder = find_folder(KEY, path)
    kind = import_extra("transformers", "transformers").AutoTokenizer
    try:
        return kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # of whatever the files contain
        allowed = "a folder with tokenizer.json and tokenizer_config.json"
        raise ConfigError(
            f"{KEY}: found {path}, which has no tokenizer ({first_line(error)}), allowed: {allowed}"
        ) from error
