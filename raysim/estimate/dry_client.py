"""A client without training, and its model: hooks and ops run for real, on tensors that have a shape and no values."""

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from raysim.api.client import Client
from raysim.api.messages import Delta, Term, Terms
from raysim.api.method import ClientHalf, overrides
from raysim.api.step import Step
from raysim.data.pixels import Source
from raysim.engine.hosted_client import HostedClient
from raysim.engine.local_training import choose_samples, foreign_batches
from raysim.engine.orders import Phase
from raysim.models.flat import FlatModel, Weights


class DryModel(FlatModel):
    """A model that computes nothing: its logits and gradients are zeros."""

    def __init__(self, module: nn.Module, output_shape: tuple[int, ...]) -> None:
        super().__init__(module)
        self._output_shape = output_shape
        vars(module)["forward"] = self._logits  # the module keeps its layers, for methods that look at them
        for hooks in (module._forward_pre_hooks, module._forward_hooks):
            hooks.clear()  # which compute as well

    def weights(self) -> Weights:
        """Return copies of the vectors on their device, as meta tensors have no other."""
        return Weights(self.parameters.clone(), self.buffers.clone(), self.integers.clone())

    def gradient_of(self, loss: Tensor) -> Tensor:
        """Return zeros [P]."""
        return self.gradient.clone()

    def _logits(self, x: Tensor) -> Tensor:
        return self.parameters.new_zeros(len(x), *self._output_shape).requires_grad_()


class DryClient(HostedClient):
    """One client that is shown no data and takes no step: it counts its steps and fills its memory.

    `resumes` says whether its phase is the first one of a stage and others are over, `known` are all rows' labels,
    `of_an_epoch` the batches that its last epoch had.
    """

    transient: ClassVar = HostedClient.transient | {"known"}
    data: Source
    known: npt.NDArray[np.int64] | None = None
    resumes = False
    of_an_epoch = 0

    @property
    def computes(self) -> bool:
        """Nothing: see Client."""
        return False

    def begin_phase(self, phase: Phase, share: float) -> None:
        """Begin a training phase; see HostedClient."""
        before = self.begun
        super().begin_phase(phase, share)
        self.resumes = self.begun != before and len(self.finished) > 0

    def local_training(self) -> Delta:
        """Count the steps of the local loop, and offer its samples to the memory."""
        positions = choose_samples(self, [*self.halves.values()])
        parts = self.batches(len(positions))
        foreign = foreign_batches(self, [*self.halves.values()])
        an_epoch = len(parts) if foreign is None else sum(1 for _ in foreign)
        total = self.shared.training.local_steps
        self.trained, self.of_an_epoch = len(positions), an_epoch
        self.steps = self.local_epochs * an_epoch if total is None else total * (an_epoch > 0)
        fills = foreign is None and parts and self.memory is not None and self.memory.kind.fill == "arrival"
        if fills and not self.offered[positions].all():
            shuffle = self.generator("batches")
            left = self.steps
            while left and not self.offered[positions].all():
                taken = parts[:left]
                left -= len(taken)
                epoch = positions[torch.from_numpy(shuffle.permutation(len(positions)))][: taken[-1].stop]
                self.offer(Step(self, 0, True, epoch, None, epoch, epoch, self.model(epoch)))
        return Delta(self.model.parameters.clone(), self.model.buffers.clone())

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return a loss that depends on nothing."""
        return self.model.parameters.new_zeros(()).requires_grad_()

    def show(self, positions: Tensor, draws: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return as many samples, x [n, ...] and y [n], that nobody reads."""
        blank = self.model.parameters.new_zeros
        return blank(len(positions), *self.data.shape), blank(len(positions), dtype=torch.int64)

    def show_unlabelled(self, rows: Tensor) -> Tensor:
        """Return as many samples that nobody reads."""
        return self.model.parameters.new_zeros(len(rows), *self.data.shape)

    def labels(self, positions: Tensor) -> Tensor:
        """Return the labels of samples that are the data set's; zeros for those of a stream of the user's own."""
        rows, _ = self.stream.locate(positions)
        return torch.zeros_like(rows) if self.known is None else torch.from_numpy(self.known[rows.numpy()])

    def read_labels(self, rows: Tensor) -> npt.NDArray[np.int64]:
        """Return zeros, which fill a memory as well; a stream of the user's own is not read for them."""
        return np.zeros(len(rows), np.int64)


class WorstCase(ClientHalf):
    """In place of a half that looks at values: it sends all its terms whenever it may, each as long as the model."""

    def finish(self, client: Client, delta: Delta) -> tuple[Delta, Terms]:
        """Send everything, if the half would send anything now."""
        return delta, self._send_all(client, None) if overrides(self.method.Client, "finish") else {}

    def __getattr__(self, op: str) -> Any:
        """Answer any op."""
        if op.startswith("_"):
            raise AttributeError(op)
        return self._send_all

    def _send_all(self, client: Client, message: Any) -> Terms:
        return {term: Term(client.model.gradient.clone()) for term in self.method.replies}
