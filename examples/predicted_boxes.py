"""A method that draws what a detector finds: test frames with the predicted boxes, after each task.

    raysim run driving 'methods={der: {alpha: 0.1}, examples.predicted_boxes:PredictedBoxes: {config: driving}}'

writes images/round_N/task_T.png for each task T at the end of each task. It changes no bit of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt, doc
from PIL import Image

from raysim.api import Method, Plan, Server, ServerHalf
from raysim.config import load
from raysim.federation.federation import Federation, federation_without_clients
from raysim.objectives.boxes import PADDING
from raysim.reports.stream.samples import draw_boxes


@dataclass(frozen=True, kw_only=True)
class PredictedBoxes(Method):
    """Draws detections after each task."""

    config: Annotated[str, doc("the run's config: its objective and its test frames are used")]
    frames: Annotated[int, Ge(1), Le(64), doc("how many test frames of each task are drawn")] = 6
    score: Annotated[float, Gt(0), Lt(1), doc("the smallest score of the boxes that are drawn")] = 0.3

    class Server(ServerHalf):
        """Draws with the model that ends a task."""

        method: PredictedBoxes

        def end_task(self, server: Server) -> Plan:
            """Record a picture of each task's test frames. Nothing is requested."""
            federation = test_frames(self.method.config)
            module, source = server.network_at(), federation.source("test", server.device)
            for number, task in enumerate(federation.tasks):
                rows = torch.from_numpy(task.test[:: -(-len(task.test) // self.method.frames)].astype(np.int64))
                with torch.no_grad(), server.rng_scope(self.name):
                    outputs = module(source.fetch(rows.to(server.device), number).to(server.parameters.dtype))
                found = federation.objective.predict(outputs).cpu().numpy()
                pictures = [
                    draw(frame, of_frame, self.method.score)
                    for frame, of_frame in zip(federation.dataset.test.x[rows.numpy()], found, strict=True)
                ]
                server.record_image(f"task_{number + 1}", torch.from_numpy(np.stack(pictures)))
            yield from ()


@lru_cache(1)
def test_frames(config: str) -> Federation:
    """Return the tasks and the test frames of a config."""
    return federation_without_clients(load(config))


def draw(frame: Any, found: Any, score: float) -> Any:
    """Return a frame uint8 [3, H, W] with its detections [D, 6] of at least this score."""
    left_top, right_bottom = found[:, 2:4], found[:, 4:]
    boxes = np.concatenate([found[:, :1], (left_top + right_bottom) / 2, right_bottom - left_top], 1)
    boxes[found[:, 1] < score, 0] = PADDING
    larger = Image.fromarray(frame.transpose(1, 2, 0)).resize((256, 256), Image.Resampling.BICUBIC)
    return np.asarray(draw_boxes(larger, boxes)).transpose(2, 0, 1)
