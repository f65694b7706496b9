"""The streams of a report's settings: each is drawn once, from the config of the setting's first run."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from raysim.config import Config, load
from raysim.config.lookup import custom_names, only_named_by
from raysim.config.written_by import describe_other_version
from raysim.data.dataset import MissingData
from raysim.reports.content import Plot
from raysim.reports.grouping import ExperimentSetting, flatten
from raysim.reports.reading import FinishedRun
from raysim.reports.stream.facts import collect_facts
from raysim.reports.stream.picture import draw_facts
from raysim.system.errors import ConfigError, RunError
from raysim.system.progress import tell_progress

WIDTH = 7.6  # inches
MOST = 12  # streams of a report
SLOW = ("image_folder", "image_list", "tiny_imagenet", "hugging_face")  # datasets that take minutes to decode
DECIDING = (  # keys that decide what the picture shows
    *("name", "seed", "dataset", "scenario", "partition", "clients", "participation", "schedule"),
    *("training.rounds_per_task", "training.local_epochs", "training.local_steps", "training.batch_size"),
    "evaluation.validation_fraction",
)


def draw_streams(
    settings: Sequence[ExperimentSetting], folder: Path, left_out: list[str]
) -> Iterator[tuple[Plot | None, str]]:
    """Yield for each setting the plot of its stream, and a line instead if an earlier setting has the same one.

    Args:
        settings: the settings of a report.
        folder: where plots are written. It exists.
        left_out: receives a line for each stream that is not drawn.
    """
    drawn: dict[str, tuple[int, Plot | None]] = {}  # by stream: the setting that has it first, its plot
    for done, setting in enumerate(settings):
        run, plot = setting.runs[0], None
        stream = identify(run)
        if stream in drawn:
            number, plot = drawn[stream]
            yield None, f"The stream is that of setting {number}." if plot else ""
            continue
        try:
            if not custom_names(run.config):  # a report imports no code that runs name
                tell_progress(f"setting {setting.number} of {len(settings)}: its stream", done / len(settings))
                plot = _write(run, folder, f"{setting.number}-stream", len(drawn))
        except MissingData:  # many reports are written where the data never were
            pass
        except (ConfigError, RunError) as error:
            left_out.append(f"setting {setting.number}: its stream: {error}")
        drawn[stream] = setting.number, plot
        yield plot, ""


def _write(run: FinishedRun, folder: Path, stem: str, before: int) -> Plot:
    """Write the stream of a run, after others. Raises ConfigError or RunError if it cannot be drawn."""
    command = f"`raysim show {run.directory / 'config.yaml'}` draws it"
    if before >= MOST:
        raise ConfigError(f"a report has at most {MOST}; {command}")
    with only_named_by():
        config = _load(run)
        if slow := [name for name in _datasets(config) if name in SLOW]:
            raise ConfigError(f"reading {slow[0]} takes long; {command}")
        facts = collect_facts(config, pretend=False)
    picture = draw_facts(facts)
    plot = Plot(folder, stem, " ".join([picture.caption, *picture.notes]), WIDTH)
    picture.save(plot.file)
    return plot


def _load(run: FinishedRun) -> Config:
    try:
        return load(run.config)
    except ConfigError as error:
        if other := describe_other_version(run.directory):
            raise ConfigError(f"{error}; {other}") from error
        raise


def _datasets(config: Config) -> list[str]:
    return [component.name for component in config.domains or [config.dataset]]


def identify(run: FinishedRun) -> str:
    """Return equal texts for runs with the same stream and the same title."""
    deciding = tuple(f"{key}." for key in DECIDING)
    found = {key: value for key, value in flatten(run.config).items() if f"{key}.".startswith(deciding)}
    # a method may choose the clients, and with a bandwidth, models and messages take virtual time
    if found.get("schedule.bandwidth"):
        found["model"] = run.config.get("model")
    chosen = run.methods if "fixed" in run.methods or found.get("schedule.bandwidth") else {}
    return json.dumps([found, chosen], sort_keys=True, default=str)
