"""The configs that raysim comes with: found by name, listed, copied; a file's path wins over a name."""

import json
import re
import resource
from pathlib import Path

import pytest

from raysim.cli import main
from raysim.config import build_json_schema, load
from raysim.config.bundled import bundled_names, copy_config, find_config, list_configs
from raysim.engine.compatibility import check_methods
from raysim.sweeps.grid import expand_sweep
from raysim.system.errors import ConfigError

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory without configs."""
    monkeypatch.chdir(tmp_path)


def refusal(source: str) -> str:
    with pytest.raises(ConfigError) as found:
        find_config(source)
    return str(found.value)


def test_every_config_of_the_repository_has_a_name_and_the_quickstart_is_first() -> None:
    files = {str(path.relative_to(CONFIGS)) for path in CONFIGS.rglob("*.yaml")}
    assert {f"{name}.yaml" for name in bundled_names()} == files
    assert {"split_digits", "papers/special_pacs", "sweeps/re_fed"} < set(bundled_names())
    assert bundled_names()[0] == "quickstart"


def test_a_name_is_found_from_anywhere() -> None:
    assert find_config("sweeps/re_fed").read_bytes() == (CONFIGS / "sweeps" / "re_fed.yaml").read_bytes()
    config = load("quickstart", ["seed=3"])
    assert (config.name, config.seed, config.clients.count) == ("quickstart", 3, 5)


def test_a_file_wins_over_a_name_and_a_folder_does_not() -> None:
    Path("split_digits").mkdir()  # such as --out split_digits makes
    assert load("split_digits").name == "split-digits"
    Path("quickstart").write_text(find_config("quickstart").read_text().replace("name: quickstart", "name: mine"))
    assert load("quickstart").name == "mine"


@pytest.mark.parametrize("given", ["quickstrat", "configs/quickstart.yaml", "quickstart.yaml"])
def test_an_unknown_name_is_told_the_nearest(given: str) -> None:
    words = f"{given}: there is no such file, and raysim comes with no config of this name; did you mean 'quickstart'? "
    assert refusal(given) == words + "`raysim configs` lists all"


def test_a_name_like_none_is_told_where_they_are() -> None:
    assert refusal("zzz") == (
        "zzz: there is no such file, and raysim comes with no config of this name; `raysim configs` lists all"
    )
    assert "../configs/quickstart:" in refusal("../configs/quickstart")  # a name is no path into the package


def test_each_is_listed_with_a_line_of_its_own_words() -> None:
    lines = dict(re.split(" +", line, maxsplit=1) for line in list_configs())
    assert list(lines) == bundled_names()
    assert lines["quickstart"] == "Five clients learn handwritten digits, rotated by a different angle in every task"
    assert lines["papers/re_fed_office31"] == "Re-Fed on Office-31: Amazon, DSLR, Webcam, one task each of 31 classes"
    assert all(len(words) > 20 for words in lines.values()), lines
    assert not any("..." in line for line in list_configs())  # the whole sentences
    cut = [*list_configs(longest=84)]
    assert max(map(len, cut)) <= 120
    assert any(line.endswith(" ...") for line in cut)


SWEEPS = [name for name in bundled_names() if name.startswith("sweeps/")]
SOAKED = ("sweeps/leaderboard_pixels", "sweeps/leaderboard_features")  # by far the largest


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.soak) if name in SOAKED else name for name in SWEEPS]
)
def test_a_copied_sweep_is_the_sweep(name: str, tmp_path: Path) -> None:
    copy_config(name, tmp_path / "mine.yaml")
    mine, ours = (expand_sweep(source, ()) for source in ("mine.yaml", name))
    assert [cell.config for cell in mine[1]] == [cell.config for cell in ours[1]]


def test_a_copy_has_the_comments_and_is_a_config(tmp_path: Path) -> None:
    copy_config("papers/special_pacs", tmp_path / "mine.yaml")
    first, _, rest = (tmp_path / "mine.yaml").read_text().partition("\n")
    assert first == "# yaml-language-server: $schema=raysim.schema.json"
    assert rest == (CONFIGS / "papers" / "special_pacs.yaml").read_text()
    check_methods(load("mine.yaml"))


def test_an_editor_finds_the_schema_beside_a_copy(tmp_path: Path) -> None:
    copy_config("quickstart", tmp_path / "mine.yaml")
    copy_config(tmp_path / "mine.yaml", tmp_path / "other.yaml")
    assert (tmp_path / "other.yaml").read_text().count("yaml-language-server") == 1
    assert json.loads((tmp_path / "raysim.schema.json").read_text()) == build_json_schema()
    copy_config("sweeps/methods", tmp_path / "sweep.yaml")
    assert (tmp_path / "sweep.yaml").read_bytes() == (CONFIGS / "sweeps" / "methods.yaml").read_bytes()


def test_the_schema_of_a_wheel_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package").mkdir()
    schema = tmp_path / "package" / "raysim.schema.json"
    schema.write_text("{}")
    monkeypatch.setattr("raysim.config.bundled.SCHEMA", schema)
    copy_config("quickstart", tmp_path / "mine.yaml")
    assert (tmp_path / "raysim.schema.json").read_text() == "{}"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    for name in ("file.yaml", "link.yaml"):
        path = tmp_path / name
        path.symlink_to(tmp_path / "gone") if name == "link.yaml" else path.write_text("mine")
        with pytest.raises(
            ConfigError, match=rf"{name}: this exists already and was left as it is, allowed: a new file"
        ):
            copy_config("quickstart", path)
    assert (tmp_path / "file.yaml").read_text() == "mine"
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize(
    ("name", "line"),
    [("quickstart", "raysim new my.yaml --from quickstart"), ("mine", "raysim new mine.yaml")],
)
def test_a_copy_without_yaml_in_its_name_is_not_written(name: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        copy_config("quickstart", Path(name))
    assert str(refused.value) == f"{name}: found a name without .yaml, and nothing was written; did you mean `{line}`?"
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_hides_a_bundled_config_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "mine.yaml", "--from", "quickstart"]) == 0
    assert capsys.readouterr().err == ""
    Path("quickstart").write_text(find_config("quickstart").read_text())
    words = "quickstart is the file ./quickstart, which hides the config of this name that raysim comes with\n"
    assert main(["new", "other.yaml"]) == 0
    assert capsys.readouterr().err == words
    assert main(["check", "quickstart", "clients.count=0"]) == 2
    assert capsys.readouterr().err.startswith(words + "clients.count=0: found 0")
    assert main(["check", "mine.yaml", "clients.count=0"]) == 2
    assert capsys.readouterr().err.startswith("clients.count=0: found 0")


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine\.yaml: it cannot be written: No such file or directory"):
        copy_config("quickstart", tmp_path / "no" / "mine.yaml")
    with pytest.raises(ConfigError, match="did you mean 'quickstart'"):
        copy_config("quickstrat", tmp_path / "mine.yaml")
    assert not (tmp_path / "mine.yaml").exists()


def test_a_copy_on_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # Python ignores the signal and raises an OSError
    try:
        for name in ("quickstart", "sweeps/re_fed"):
            with pytest.raises(ConfigError, match=r"mine\.yaml: it cannot be written: File too large"):
                copy_config(name, tmp_path / "mine.yaml")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "dataset={name: csv, path: x.csv, target: y, delimiter: ab}",
            'dataset.delimiter: found \'ab\', allowed: one character, such as ";", or "\\t" in double quotes for a tab',
        ),
        (
            "dataset={name: synthetic, clients: 1000001}",
            "dataset.clients: found 1000001, allowed: a whole number >= 0 and <= 1000000",
        ),
        (
            "model={name: vit, prompts: {kind: lp}}",
            "model.prompts.kind: found 'lp', allowed: l2p, dual, coda or prefix; did you mean 'l2p'?",
        ),
    ],
)
def test_a_wrong_value_of_a_component_is_named_with_what_is_allowed(override: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load("quickstart", [override])
    assert str(refused.value) == f"{override}: {words}"
