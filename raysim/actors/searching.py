"""Where the workers of a job look for modules: in the driver's folders last, as Ray would have them first."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ray
from ray.job_config import JobConfig

ROOT = str(Path(__file__).parents[2])  # where raysim is imported from
KEY = "raysim_folders"


class _Folders(list[str]):
    """The folders that Ray (2.60) puts before all others; those of the driver's script and of where one stands, not."""

    def __init__(self, job: JobConfig) -> None:
        super().__init__()
        self._job = job

    def extend(self, folders: Iterable[str]) -> None:
        found = list(folders)
        super().extend(folder for folder in found if folder == ROOT)  # else no worker finds raysim
        self._job.set_metadata(KEY, json.dumps(found))


def job() -> JobConfig:
    """Return the job of a driver whose folders come last in its workers."""
    made = JobConfig()
    made._py_driver_sys_path = _Folders(made)
    return made


def folders() -> list[str]:
    """Return the driver's folders, as every process of its job knows them."""
    found: list[str] = json.loads(_worker().core_worker.get_job_config().metadata.get(KEY, "[]"))
    return found


def append_folders() -> None:
    """Have a worker look for modules in the driver's folders, last; one that is forked was told by its server."""
    if _worker().mode == ray.WORKER_MODE:
        sys.path.extend(folder for folder in folders() if folder not in sys.path)


def _worker() -> Any:
    return ray._private.worker.global_worker
