"""Everything that can be wrong with a config is one line, word for word."""

import os
from pathlib import Path

import pytest
from malformed_configs import IN_THE_FILE, ON_THE_COMMAND_LINE, WHOLE_FILES

from raysim.config import ConfigError, load

pytestmark = pytest.mark.usefixtures("tables")


def refusal(*args: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*args)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


@pytest.mark.parametrize(("old", "new", "message"), IN_THE_FILE)
def test_a_mistake_in_the_file(run_yaml: Path, old: str, new: str, message: str) -> None:
    assert run_yaml.read_text().count(old) == 1
    run_yaml.write_text(run_yaml.read_text().replace(old, new))
    assert refusal(run_yaml) == message


@pytest.mark.parametrize(("overrides", "message"), ON_THE_COMMAND_LINE)
def test_a_mistake_on_the_command_line(run_yaml: Path, overrides: list[str], message: str) -> None:
    if message is None:
        assert load(run_yaml, overrides).seed == 1
    else:
        assert refusal(run_yaml, overrides) == message


@pytest.mark.parametrize(("content", "message"), WHOLE_FILES)
def test_a_file_that_is_no_config(run_yaml: Path, content: bytes, message: str) -> None:
    run_yaml.write_bytes(content)
    assert refusal(run_yaml) == message


def test_a_file_that_cannot_be_read(run_yaml: Path) -> None:
    assert refusal("none.yaml").startswith("none.yaml: there is no such file, and raysim comes with no config of ")
    assert refusal("run.yaml/x") == "run.yaml/x: the file cannot be read: Not a directory"
    assert refusal(".") == ".: this is a directory, allowed: a YAML file"
    assert refusal("a\0b") == "a\\x00b: the file cannot be read: embedded null byte"


def test_a_pipe_a_device_and_a_huge_file_are_not_read(tmp_path: Path) -> None:
    """A pipe that holds a config, as <(...) makes one; reading /dev/zero or an open pipe would never end."""
    read, write = os.pipe()
    os.write(write, b"name: demo\n")
    os.close(write)
    for path in (f"/dev/fd/{read}", "/dev/null"):
        assert refusal(path) == f"{path}: this is no regular file, allowed: a YAML file, not a pipe or a device"
    os.close(read)
    with (tmp_path / "huge.yaml").open("wb") as file:
        file.truncate(10_000_001)
    assert refusal(file.name) == f"{file.name}: found 10,000,001 bytes, allowed: a YAML file of at most 10,000,000"


def test_from_python_the_key_stands_alone(run_yaml: Path) -> None:
    whole = load(run_yaml)
    assert (
        refusal(whole, {"clients.count": 0}) == "clients.count=0: found 0, allowed: a whole number >= 1 and <= 1000000"
    )
    assert refusal(whole, {"clients": object()}) == (
        "clients=a Python object: found a Python object, allowed: a block with the keys count, arrive, leave, forget, "
        "dropout"
    )
    assert refusal({"name": "a", 3: 4}) == "the config: found the key 3, allowed: keys that are strings"
    assert refusal({"name": "a"}).startswith(
        "dataset: this key is required and missing, allowed: a name, or a block with"
    )
    assert refusal(3) == "found 3, allowed: a path, a mapping or a Config"
    assert refusal(whole, "seed=1") == "seed=1: overrides are a list of KEY=VALUE or a dict, not one string"
    endless: dict[str, object] = {}
    endless["a"] = endless
    assert refusal(endless) == "a.a.a: found blocks nested more than 50 deep"
