"""All plots of a setting, one kind after the other."""

from collections.abc import Callable, Iterator

from raysim.reports.plots.accuracy import draw_over_tasks
from raysim.reports.plots.clients import draw_clients_accuracies, draw_staleness
from raysim.reports.plots.courses import draw_over_rounds
from raysim.reports.plots.data import draw_data_distribution
from raysim.reports.plots.memory import draw_memories
from raysim.reports.plots.scene import Scene
from raysim.reports.plots.style import Drawing
from raysim.reports.plots.times import draw_clients_in_time
from raysim.reports.plots.tradeoffs import draw_tradeoffs
from raysim.system.errors import ConfigError

PLOTS: dict[str, Callable[[Scene], Iterator[Drawing]]] = {
    "plots by task": draw_over_tasks,
    "plots over rounds": draw_over_rounds,
    "plots of a swept knob": draw_tradeoffs,
    "clients' accuracies": draw_clients_accuracies,
    "staleness": draw_staleness,
    "clients in time": draw_clients_in_time,
    "memories": draw_memories,
    "who holds what": draw_data_distribution,
}


def draw_setting(scene: Scene, left_out: list[str]) -> Iterator[Drawing]:
    """Yield a setting's drawings; `left_out` gets a line for each kind that cannot be drawn, if no other says why."""
    said: set[str] = set()
    for kind, draw in PLOTS.items():
        try:
            yield from draw(scene)
        except (ConfigError, OSError) as error:
            if str(error) not in said:
                left_out.append(f"setting {scene.setting.number}: {kind}: {error}")
                said.add(str(error))
