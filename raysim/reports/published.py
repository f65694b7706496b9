"""Published figures: raysim/published/PAPER.yaml has a paper's tables and claims.

A setting of the paper has a `config`: the keys that a run must have to be of this setting. Other keys are `stated`: a
run may differ in them, and the report lists the differences. A setting that is `like` an earlier one has its keys too.
`raysim reproduce` runs a setting from its `base`, and the smaller runs of the paper's `sweeps`.
"""

from collections.abc import Mapping
from importlib.resources import files
from typing import Literal

from pydantic import BaseModel, ConfigDict, field_validator

from raysim.config.error_text import nearest
from raysim.config.yaml_text import parse_value
from raysim.system.errors import ConfigError


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PublishedSetting(_Strict):
    """`config` is null if raysim has no such dataset or scenario: no run can be of this setting.

    `base` is the bundled config that has what the paper leaves open, or null if there is none for this setting.
    """

    config: dict[str, object] | None
    stated: dict[str, object] = {}
    like: str | None = None
    base: str | None = None


class PublishedColumn(_Strict):
    """A column of a table, in %: the mean and the standard deviation by method, null where the paper gives none."""

    table: str
    setting: str
    protocol: Literal["domain_il", "class_il", "class_il_seen", "task_il"]
    metric: Literal[
        "average_accuracy",
        "forgetting",
        "final_forgetting",
        "backward_transfer",
        "top10_accuracy",
        "average_incremental_accuracy",
        "average_incremental_accuracy_by_task",
        "final_accuracy",
    ]
    cells: dict[str, tuple[float, float | None]]


class PublishedPaper(_Strict):
    """A paper. `methods` maps its names to methods blocks, or to null if raysim has no such method.

    `claims` maps each proposed method to the methods that it is claimed to improve on. `seeds` are those of runs at the
    paper's size. `sweeps` are bundled sweeps with rows of its tables, mostly at a smaller size. `elsewhere` are bundled
    sweeps that look at its claims on data that are in none of its tables.
    """

    paper: str
    citation: str
    note: str
    seeds: list[int]
    sweeps: list[str] = []
    elsewhere: list[str] = []
    settings: dict[str, PublishedSetting]
    methods: dict[str, dict[str, dict[str, object]] | None]
    claims: dict[str, list[str]]
    tables: list[PublishedColumn]

    @field_validator("settings")
    @classmethod
    def _whole(cls, settings: dict[str, PublishedSetting]) -> dict[str, PublishedSetting]:
        whole: dict[str, PublishedSetting] = {}
        for name, setting in settings.items():
            if setting.like is not None:
                below, own = whole[setting.like], setting.config or {}
                stated = merge_blocks(merge_blocks(below.stated, setting.stated), own)  # `config` wins over `stated`
                base = setting.base or below.base
                setting = PublishedSetting(config=merge_blocks(below.config or {}, own), stated=stated, base=base)
            whole[name] = setting
        return whole


def list_papers() -> list[str]:
    """Return the names of the papers, which are those of their files."""
    folder = files("raysim") / "published"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_paper(paper: str, where: str = "--against ") -> PublishedPaper:
    """Return the figures of a paper. `where` begins the message of an error.

    Raises:
        ConfigError: there is no such paper.
    """
    known = list_papers()
    if paper not in known:
        near = nearest(paper, known)
        raise ConfigError(f"{where}{paper}: found no figures of such a paper, allowed: {', '.join(known)}{near}")
    file = files("raysim") / "published" / f"{paper}.yaml"
    return PublishedPaper.model_validate(parse_value(file.read_text(encoding="utf-8")))


def merge_blocks(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    """Return nested blocks with the keys of both; `above` goes before `below`."""
    found = dict(below)
    for key, value in above.items():
        under = found.get(key)
        found[key] = merge_blocks(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return found
