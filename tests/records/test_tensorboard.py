"""What TensorBoard shows of runs, read by its own plugins: HPARAMS, TEXT, CUSTOM SCALARS, and no flat lines."""

import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from tensorboard.plugins.hparams import api_pb2, get_experiment, list_session_groups
from tensorboard.plugins.hparams.backend_context import Context

import raysim
from raysim.engine.events import RoundDone, line
from raysim.records.event_file import EventFile
from raysim.records.run_directory import RunFiles
from raysim.records.tensorboard import Board
from raysim.records.totals import Totals
from raysim.system.interrupts import interruptible

ANY = [api_pb2.STATUS_UNKNOWN, api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE, api_pb2.STATUS_RUNNING]
RUNS: dict[str, dict[str, Any]] = {
    "FL": {},
    "ER": {"methods": {"er": {"sample_size": 3}}},
    "clipped": {"training.clip_norm": 0.5, "training.optimizer": {"lr": 0.2}},
}


@pytest.fixture(scope="module")
def runs(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, raysim.Result]:
    """Runs of two classes in each of two tasks, in folders of one directory."""
    out = tmp_path_factory.mktemp("runs")
    config = tiny(scenario={"kind": "class_incremental", "tasks": 2}, logging__tensorboard=True)
    return {name: raysim.run(config, given, out=out / name, local=True) for name, given in RUNS.items()}


@pytest.fixture(scope="module")
def context(runs: dict[str, raysim.Result]) -> TBContext:
    above = str(runs["FL"].directory.parent)
    read = EventMultiplexer().AddRunsFromDirectory(above)
    read.Reload()
    return TBContext(data_provider=MultiplexerDataProvider(read, above))


def scalars(directory: Path) -> dict[str, list[tuple[int, float]]]:
    shown = EventAccumulator(str(directory), size_guidance={"scalars": 0}).Reload()
    return {tag: [(e.step, e.value) for e in shown.Scalars(tag)] for tag in shown.Tags()["scalars"]}


def test_hparams_has_a_row_per_run_first_what_differs_and_then_the_averages(
    runs: dict[str, raysim.Result], context: TBContext
) -> None:
    """TensorBoard shows the first five columns of each kind, and the others when they are asked for."""
    back = Context(context)
    experiment = get_experiment.Handler(RequestContext(), back, "", api_pb2.GetExperimentRequest()).run()
    differ = [column.name for column in experiment.hparam_infos if column.differs]
    assert differ == ["methods", "training.clip_norm", "training.optimizer.lr"]
    assert [column.name for column in experiment.hparam_infos][:3] == differ
    assert {"methods.er.sample_size", "model.hidden", "scenario.kind", "seed"} < {
        c.name for c in experiment.hparam_infos
    }
    first = [column.name.tag for column in experiment.metric_infos][:5]
    averages = ["accuracy", "accuracy_seen", "average_incremental_accuracy", "backward_transfer", "forgetting"]
    assert first == [f"average/class_il/{name}" for name in averages]

    asked = api_pb2.ListSessionGroupsRequest(allowed_statuses=ANY, slice_size=100)
    rows = {
        row.name: row for row in list_session_groups.Handler(RequestContext(), back, "", asked).run().session_groups
    }
    assert {*rows} == {*runs}
    settings = {name: [row.hparams[column] for column in differ] for name, row in rows.items()}
    assert [settings[name][0].string_value for name in RUNS] == ["fedavg", "er", "fedavg"]
    assert [settings[name][1].string_value for name in ("FL", "ER")] == ["null", "null"]
    assert settings["clipped"][1].number_value == 0.5
    assert [settings[name][2].number_value for name in RUNS] == [0.1, 0.1, 0.2]
    for name, run in runs.items():
        found = {metric.name.tag: metric.value for metric in rows[name].metric_values}
        for protocol, values in run.evaluation.items():
            last = [values["average_accuracy"], values["final_accuracy"], values["average_incremental_accuracy"]]
            last += [values["backward_transfer"], values["forgetting"]]
            assert [found[f"average/{protocol}/{one}"] for one in averages] == pytest.approx(last)
        assert found["bytes/up_so_far"] == run.bytes_up
        assert found["bytes/down_so_far"] == run.bytes_down


def test_the_text_is_the_config(runs: dict[str, raysim.Result]) -> None:
    shown = EventAccumulator(str(runs["ER"].directory)).Reload()
    (text,) = shown.Tensors("config/text_summary")
    written = (runs["ER"].directory / "config.yaml").read_text()
    assert text.tensor_proto.string_val[0].decode() == f"```yaml\n{written}```"


def test_custom_scalars_draw_all_tasks_in_one_chart_and_all_protocols_in_another(
    runs: dict[str, raysim.Result],
) -> None:
    """Of charts that are the same in several runs TensorBoard shows one; a chart's tags are patterns, matched here."""
    shown = {name: EventAccumulator(str(run.directory)).Reload() for name, run in runs.items()}
    found = {name: one.Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0] for name, one in shown.items()}
    assert len({*found.values()}) == 1
    tags = shown["FL"].Tags()["scalars"]
    drawn = {
        (category.title, chart.title): [tag for tag in tags for one in chart.multiline.tag if re.match(one, tag)]
        for category in Layout.FromString(found["FL"]).category
        for chart in category.chart
    }
    assert drawn == {
        ("class-IL", "accuracy of every task"): ["class_il/task_1", "class_il/task_2"],
        ("class-IL (seen classes)", "accuracy of every task"): ["class_il_seen/task_1", "class_il_seen/task_2"],
        ("task-IL", "accuracy of every task"): ["task_il/task_1", "task_il/task_2"],
        ("protocols", "average accuracy, tasks so far"): [
            f"average/{protocol}/accuracy" for protocol in ("class_il", "class_il_seen", "task_il")
        ],
    }


def test_nothing_that_is_the_same_in_every_round_is_a_chart(runs: dict[str, raysim.Result]) -> None:
    """All three clients, with as many samples each, in every round: no cohort, idle time or staleness to be seen."""
    shown = scalars(runs["ER"].directory)
    assert [tag for tag, points in shown.items() if len(points) > 2 and len({value for _, value in points}) == 1] == []
    assert not [tag for tag in shown if tag.startswith(("clients/", "methods/"))]


@pytest.fixture
def written(tiny: Any, tmp_path: Path) -> Any:
    """A function: write rounds with these cohorts, as several processes where there are several lists."""

    def write(*cohorts: list[int], **more: Any) -> dict[str, list[tuple[int, float]]]:
        past: list[dict[str, Any]] = []
        for process in cohorts:
            board, totals = Board(tmp_path, tiny(), past), Totals([0] * 9)
            for size in process:
                done = RoundDone(len(past) + 1, [1], [0] * size, None, 0, 0, 0.5, [0] * size, 1.0, **more)
                board.add_round(done, line(done), totals)
                past.append(
                    {
                        "round": done.round,
                        "cohort": done.cohort,
                        "staleness": done.staleness,
                        "idle_share": None,
                        "records": more.get("records", {}),
                    }
                )
            board.close()
        return scalars(tmp_path)

    return write


def test_a_number_is_written_from_where_it_changes(written: Any) -> None:
    """Both ends of the line so far, so that the chart is the same as with every round in it."""
    assert written([3, 3, 3, 2, 3, 3])["clients/cohort"] == [(1, 3), (3, 3), (4, 2), (5, 3), (6, 3)]


def test_it_changes_at_once(written: Any) -> None:
    assert written([3, 2])["clients/cohort"] == [(1, 3), (2, 2)]


def test_a_round_is_on_the_disk_once_it_is_written(tiny: Any, tmp_path: Path) -> None:
    """TensorBoard beside the run shows it, and a full disk is noticed in the round that it spoils."""
    board = Board(tmp_path, tiny())
    done = RoundDone(1, [1], [0], 0.25, 0, 0, 0.5, [0], 1.0)
    board.add_round(done, line(done), Totals([0] * 9))
    assert scalars(tmp_path)["train/loss"] == [(1, 0.25)]
    board.close()


def test_a_histogram_has_the_counts_between_their_edges(tmp_path: Path) -> None:
    """2 clients without an update, 1 with one and 3 with four: as many values in the bin that each of these lies in."""
    file = EventFile(tmp_path)
    file.add_histogram("updates", [0, 4, 1, 4, 0, 4], 7)
    file.close()
    (found,) = EventAccumulator(str(tmp_path)).Reload().Histograms("updates")
    shown = found.histogram_value
    assert (found.step, shown.min, shown.max, shown.num, shown.sum, shown.sum_squares) == (7, 0, 4, 6, 13, 49)
    bins = zip([-np.inf, *shown.bucket_limit], shown.bucket_limit, shown.bucket, strict=False)
    filled = [(left, right, count) for left, right, count in bins if count]
    assert [count for _, _, count in filled] == [2, 1, 3]
    for value, (left, right, _) in zip([0, 1, 4], filled, strict=True):
        assert left <= value < right <= max(1.21 * value, 1e-12)


def test_a_run_that_goes_on_has_what_it_would_have_without_a_break(written: Any) -> None:
    shown = written([3, 3], [3], [2, 3], [3])
    assert shown["clients/cohort"] == [(1, 3), (3, 3), (4, 2), (5, 3), (6, 3)]


def test_a_virtual_time_beyond_all_steps_is_at_the_last(tiny: Any, tmp_path: Path) -> None:
    """An event's step is an int64; slow clients of a Pareto distribution may take 1e30 seconds."""
    files = RunFiles(tiny(logging__tensorboard=True), tmp_path, None)
    evaluation = {"domain_il": [0.5, 0.5]}
    files.write_round(RoundDone(1, [1], [0], None, 0, 0, 0.5, [0], 1e30, evaluation=evaluation), Totals([0] * 9))
    files.close()
    assert scalars(tmp_path)["domain_il/accuracy_by_virtual_ms"] == [(2**63 - 1, 0.5)]


def test_an_interrupt_waits_until_a_round_is_written(
    tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cuts a record short makes all that follows in the file unreadable."""
    written: list[str] = []

    def add_round(self: Board, event: RoundDone, recorded: Any, totals: Totals) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        written.append("the rest of the round")

    monkeypatch.setattr(Board, "add_round", add_round)
    files = RunFiles(tiny(logging__tensorboard=True), tmp_path, None)
    with pytest.raises(KeyboardInterrupt), interruptible(lambda: None, lambda said: None):
        files.write_round(RoundDone(1, [1], [0], None, 0, 0, 0.5, [0], 1.0), Totals([0] * 9))
    assert written == ["the rest of the round"]
    files.close()
