"""What methods hold at a client: read off a real client half after two dry rounds of a small client."""

from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from raysim.config import Config
from raysim.estimate.dry_host import DryHost
from raysim.estimate.dry_run import DryRunner, simulate
from raysim.estimate.miniature import make_miniature
from raysim.federation.federation import Federation
from raysim.federation.stream import Stream
from raysim.system.seeding import torch_untouched

Ints = npt.NDArray[np.int64]


def measure_halves(config: Config, federation: Federation, batches: Ints) -> tuple[Ints, Ints]:
    """Return the bytes that halves keep at clients with so many batches, and what each takes more at work (int64 [n]).

    Clients of two batches and of three are measured; the rest is taken to lie on a line with them. A user's own halves
    are not counted: what they do besides computing is to happen in the run alone.
    """
    own = {name: knobs for name, knobs in config.methods.items() if ":" not in name}
    config = config.model_copy(update={"methods": own})
    two, three = (_measure(config, federation, count) for count in (2, 3))
    kept, tables = (two[:, None] + (three - two)[:, None] * (batches - 2)).clip(0)
    return kept, tables


def _measure(config: Config, federation: Federation, batches: int) -> Ints:
    """Do a dry round of each of two tasks with one client; return what it kept and its largest table beside that.

    On the CPU, where vectors are real: arithmetic without values imports torch's compiler, a second and 150 MB that a
    run does not need. A method that fails here is the run's to refuse; it counts as far as it went.
    """
    rows = np.zeros(batches * config.training.batch_size, np.int32)
    small, data = make_miniature(config, federation, [federation.tasks[0]] * 2, Stream([rows] * 2), rounds=1)
    with torch_untouched():
        host = DryHost(small, data, torch.device("cpu"))
        with TableWatch(len(host.model.parameters)) as watch, suppress(Exception):
            simulate(small, data, DryRunner(host))
    return np.array([host.kept, watch.largest if watch.largest > host.kept else 0])


class TableWatch(TorchFunctionMode):
    """Notes the bytes of the largest matrix [n, P] that is made; the estimate counts vectors."""

    def __init__(self, parameters: int) -> None:
        super().__init__()
        self.largest = 0
        self._parameters = parameters

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Carry an operation of torch's out."""
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and made.dim() == 2 and made.shape[1] == self._parameters:
            self.largest = max(self.largest, made.nbytes)
        return made
