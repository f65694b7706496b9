"""What is kept of golden runs, which lines of a changelog name their moves, and how far other machines may differ."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from golden.__main__ import by_file, main, told
from golden.changelog import CHANGELOG, entries, entry_for, problems
from golden.choice import GOLDEN, KINDS, PACKAGES, PRECISIONS, other_versions
from golden.kept import FOLDER, KeptFile, read_accuracies, read_kept, write_kept
from golden.machine import Machine, this_machine
from golden.moving import accuracies_after, files_after, names_moved, new_moves
from golden.running import Outcome, outcome
from golden.tolerance import bound, differences

PAGE = Path(__file__).parents[2] / "docs" / "stability.md"
A, B, C = ({"model": letter * 64, "results": letter * 64} for letter in "abc")
ONE = KeptFile("here").moved({"er": A, "table": B})
KEPT = {"accuracy": {"domain_il": [[0.5, None], [0.25, 0.75]]}, "samples": [48, 16]}


def written(*tokens: str, names: str = "`er`, `table`") -> str:
    return f"# Changelog\n\n- Other runs.\n- Sums are\n  exact: {names} (golden: {' '.join(tokens)}).\n"


def test_there_are_24_runs_in_one_process() -> None:
    assert len(GOLDEN) == 24
    assert {run.way for run in GOLDEN.values()} == {"local"}
    assert {name for name, precision in PRECISIONS.items() if precision == "bfloat16"} == {"kept momentum, bf16"}
    assert len({*KINDS.values()}) == 24
    section = PAGE.read_text(encoding="utf-8").partition("\n## Golden runs\n")[2].partition("\n## ")[0]
    assert [name for name in GOLDEN if f"`{name}`" not in section] == []


def test_every_run_is_kept_and_named() -> None:
    """Of each machine and precision, those of the precision; and the changelog names all that moved."""
    kept = read_kept()
    assert kept
    for stem, file in kept.items():
        (precision,) = (one for one in ("float32", "bfloat16") if f"-{one}-" in stem)
        assert {*file.hashes} >= {name for name, of_run in PRECISIONS.items() if of_run == precision}, stem
    assert [*read_accuracies()] == [*GOLDEN]
    assert problems(kept.values(), CHANGELOG.read_text(encoding="utf-8")) == []


def test_a_move_has_what_is_other_than_before() -> None:
    two = ONE.moved({"er": A, "table": C, "arrivals": B})
    assert two.moves == [{"er": A, "table": B}, {"table": C, "arrivals": B}]
    assert two.hashes == {"er": A, "table": C, "arrivals": B}
    assert two.tokens[0] == ONE.tokens[0]
    assert two.moved(two.hashes) is two


def test_a_changed_hash_changes_the_tokens_from_there() -> None:
    two = ONE.moved({"table": C})
    first, last = two.tokens
    edited = replace(two, moves=[two.moves[0], {"table": A}])
    assert edited.tokens[0] == first
    assert edited.tokens[1] != last
    earlier = replace(two, moves=[{**two.moves[0], "er": C}, two.moves[1]])
    assert not {*earlier.tokens} & {first, last}
    assert replace(two, stem="there").tokens[0] != first


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    two = ONE.moved({"table": None})
    write_kept(two, tmp_path)
    assert read_kept(tmp_path) == {"here": two}
    assert read_kept(tmp_path)["here"].tokens == two.tokens


def test_the_changelog_must_name_what_moved() -> None:
    (first,) = ONE.tokens
    two = ONE.moved({"er": C})
    last = two.tokens[1]
    assert problems([ONE], written(first)) == []
    assert problems([two], written(first) + f"- Another draw for `er` (golden: {last}).\n") == []
    (absent,) = problems([two], written(first))
    assert "no entry has (golden: " + last in absent
    assert "`er`" in absent
    (unnamed,) = problems([two], written(first) + f"- Another draw for `table` (golden: {last}).\n")
    assert unnamed.endswith(f"the entry with (golden: {last}) does not name `er`")
    assert problems([ONE], written(first, names="all")) == []
    (edited,) = problems([replace(ONE, moves=[{"er": A, "table": C}])], written(first))[:1]
    assert "no entry" in edited
    assert problems([ONE], written(first, last)) == [f"CHANGELOG.md has (golden: {last}), which is of no kept file"]


def test_one_entry_may_name_the_moves_of_several_machines() -> None:
    there = KeptFile("there").moved({"er": B, "table": C})
    text = written(*ONE.tokens, *there.tokens)
    assert problems([ONE, there], text) == []
    assert entries(text)[1] == f"- Sums are exact: `er`, `table` (golden: {ONE.tokens[0]} {there.tokens[0]})."
    here, there = ONE.moved({"er": B}), there.moved({"er": C, "table": None})
    proposed = entry_for({here.tokens[1]: ["er"], there.tokens[1]: ["er", "table"]})
    assert problems([here, there], f"{text}\n{proposed}\n") == []
    assert entry_for({"01234567": []}) == "- Golden runs are kept for MACHINES (golden: 01234567)."


def test_what_moves_here_is_unknown_elsewhere() -> None:
    """Until it is computed there. A machine that is new, or a run that is, moves nothing elsewhere."""
    kept = {"here": ONE, "there": KeptFile("there").moved({"er": B, "table": B})}
    computed = {"here": {"er": C, "table": B, "arrivals": A}, "new": {"er": B}}
    assert names_moved(kept, computed) == {"er"}
    now = files_after(kept, computed)
    assert now["here"].hashes == {"er": C, "table": B, "arrivals": A}
    assert now["there"].hashes == {"er": None, "table": B}
    assert now["new"].moves == [{"er": B}]
    assert new_moves(kept, now) == {
        "here": {now["here"].tokens[1]: {"er": C, "arrivals": A}},
        "new": {now["new"].tokens[0]: {"er": B}},
        "there": {now["there"].tokens[1]: {"er": None}},
    }
    later = files_after(now, {"there": {"er": A, "table": B}})
    assert later["there"].hashes == {"er": A, "table": B}
    assert later["here"] == now["here"]


def test_accuracies_stay_unless_a_run_moved() -> None:
    """One sample more is within the tolerance of another machine; here it is a move."""
    more = Outcome("ab", "cd", {"domain_il": [[0.5 + 1 / 48, None], [0.25, 0.75]]}, [48, 16])
    far = replace(more, accuracy={"domain_il": [[0.6, None], [0.25, 0.75]]})
    assert accuracies_after({"er": KEPT}, {"er": more}, {}) == {"er": KEPT}
    for kept, found, moved in (({"er": KEPT}, more, {"er"}), ({}, more, {}), ({"er": KEPT}, far, {})):
        assert accuracies_after(kept, {"er": found}, moved) == {"er": {"accuracy": found.accuracy, "samples": [48, 16]}}


def test_the_command_says_what_the_changelog_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text(written(*ONE.tokens))
    monkeypatch.setattr("golden.__main__.CHANGELOG", changelog)
    assert told({"here": ONE}, {"here": ONE}) == 0
    assert capsys.readouterr().out == "no golden run moved\n"
    two = ONE.moved({"table": C})
    assert told({"here": ONE}, {"here": two}) == 1
    said = capsys.readouterr().out
    assert said.startswith("here: `table`\n")
    changelog.write_text(f"{written(*ONE.tokens)}{said.splitlines()[-1]}\n")
    assert told({"here": ONE}, {"here": two}) == 0


def test_bits_of_a_network_of_another_package_are_of_its_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of constraints.txt, with which the files were made. No run with another one is kept."""
    packages = {name for name, run in GOLDEN.items() if run.config()["model"]["name"] in ("hugging_face", "timm")}
    assert packages == {*PACKAGES}
    pin = re.search(r"^transformers==(.*)$", (PAGE.parents[1] / "constraints.txt").read_text(encoding="utf-8"), re.M)
    assert pin is not None
    assert other_versions({"transformers": pin[1]}) == {}
    why = f"found transformers 5.0.0, the bits are kept with {pin[1]}"
    assert other_versions({"transformers": "5.0.0"}) == {"texts, hugging face": why}
    monkeypatch.setattr("golden.__main__.other_versions", lambda: {"er": why})
    assert main([]) == 2
    assert capsys.readouterr().err == f"`er`: {why}: install that of constraints.txt\n"


def test_a_share_may_differ_by_one_sample_and_another_number_by_its_rounding() -> None:
    def found(value: float, at: tuple[int, int]) -> list[str]:
        accuracy = json.loads(json.dumps(KEPT["accuracy"]))
        accuracy["domain_il"][at[0]][at[1]] = value
        return differences(KEPT, accuracy)

    assert found(0.5, (0, 0)) == []
    assert found(0.5 - 1 / 48, (0, 0)) == found(0.75 + 1 / 16, (1, 1)) == []
    assert found(0.5 - 2 / 48, (0, 0)) == ["domain_il[0][0] is 0.4583333333333333, expected 0.5"]
    assert len(found(0.75 + 2 / 16, (1, 1))) == 1
    first: list[float | None] = [0.5, None]
    second: list[float | None] = [0.25, 0.75]
    for shape in ([first], [first, second, second], [first[:1], second]):
        assert differences(KEPT, {"domain_il": shape}) == ["domain_il has another shape"]
    assert found(0.5, (0, 1)) == ["domain_il[0][1] is 0.5, expected None"]
    assert differences(KEPT, {"class_il": []}) == ["found the protocols class_il, expected domain_il"]
    assert bound(1.0, 24) == 1 / 24
    assert bound(8.0, 24) == bound(-8.0, 24) == 8 / 1024


def test_the_page_has_the_probability_of_two_other_answers_in_any_cell() -> None:
    """With (n / 1024)^2 / 2 in a cell of n samples, as the page derives for 48."""
    cells = [
        kept["samples"][column]
        for kept in read_accuracies().values()
        for rows in kept["accuracy"].values()
        for row in rows
        for column, value in enumerate(row)
        if value is not None and 0 <= value <= 1
    ]
    assert f"have {len(cells)} cells" in PAGE.read_text(encoding="utf-8")
    assert round(1 / sum((n / 1024) ** 2 / 2 for n in cells)) == 8


def test_the_results_of_a_run_are_hashed_without_what_is_new() -> None:
    line = {"round": 1, "loss": 0.5, "cohort": [0, 1]}
    found: dict[str, Any] = {
        "rounds.jsonl": [line],
        "evaluation": {"domain_il": {"accuracy": [[0.5]], "forgetting": 0}},
    }
    found |= {"model_sha256": "ab", "test_samples": [48], "steps": 3}
    one = outcome(found)
    assert one == Outcome("ab", one.results, {"domain_il": [[0.5]]}, [48])
    assert outcome({**found, "rounds.jsonl": [{**line, "new": 1}]}) == one
    assert outcome({**found, "rounds.jsonl": [{**line, "loss": 0.5000000000000001}]}).results != one.results
    with pytest.raises(RuntimeError, match="it broke"):
        outcome({"error": "it broke"})


def test_a_machine_has_a_file_for_each_precision() -> None:
    machine = Machine("2.14.1", "AVX512", {"float32": "01234567", "bfloat16": "89abcdef"})
    assert machine.stem("float32") == "torch-2.14.1-avx512-float32-01234567"
    one = Outcome("ab", "cd", {}, [])
    files = by_file(machine, {"er": one, "kept momentum, bf16": one})
    assert files == {
        "torch-2.14.1-avx512-float32-01234567": {"er": {"model": "ab", "results": "cd"}},
        "torch-2.14.1-avx512-bfloat16-89abcdef": {"kept momentum, bf16": {"model": "ab", "results": "cd"}},
    }
    here = this_machine()
    assert here == this_machine()
    assert all(re.fullmatch("[0-9a-f]{8}", one) for one in here.arithmetic.values())
    assert here.arithmetic["float32"] != here.arithmetic["bfloat16"]
    assert all(re.fullmatch(r"torch-[\d.a-z]+-\w+-(float32|bfloat16)-[0-9a-f]{8}", stem) for stem in read_kept(FOLDER))
