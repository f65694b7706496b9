"""Published figures: raysim/published/PAPER.yaml has a paper's tables and claims.

A setting of the paper has a `config`: the keys that a run must have to be of this setting. Other keys are `stated`: a
run may differ in them, and the report lists the differences. A setting that is `like` an earlier one has its keys too.
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
    """`config` is null if raysim has no such dataset or scenario: no run can be of this setting."""

    config: dict[str, object] | None
    stated: dict[str, object] = {}
    like: str | None = None


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

    `claims` maps each proposed method to the methods that it is claimed to improve on.
    """

    paper: str
    citation: str
    note: str
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
                stated = _merged(_merged(below.stated, setting.stated), own)  # `config` wins over `stated`
                setting = PublishedSetting(config=_merged(below.config or {}, own), stated=stated)
            whole[name] = setting
        return whole


def load_paper(paper: str) -> PublishedPaper:
    """Return the figures of a paper.

    Raises:
        ConfigError: there is no such paper.
    """
    folder = files("raysim") / "published"
    known = sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    if paper not in known:
        near = nearest(paper, known)
        raise ConfigError(f"--against {paper}: found no figures of such a paper, allowed: {', '.join(known)}{near}")
    return PublishedPaper.model_validate(parse_value((folder / f"{paper}.yaml").read_text(encoding="utf-8")))


def _merged(below: Mapping[str, object], above: Mapping[str, object]) -> dict[str, object]:
    found = dict(below)
    for key, value in above.items():
        under = found.get(key)
        found[key] = _merged(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return found
