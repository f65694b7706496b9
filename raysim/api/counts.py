"""A client in numbers: what `raysim check` asks a method about, before anything runs."""

from __future__ import annotations

from typing import Protocol


class Counts(Protocol):
    """How much a client has at a moment of the run; which samples these are is not known.

    `parameters` is the length of the model's vector, `capacity` the memory's, `held` counts its entries. Of samples,
    `arrived` are those of the client's window, `had` those of all windows so far, `finished` those that arrived in
    stages that are over, since it last began one. `batches` counts those of an epoch over the window.
    """

    parameters: int
    finished: int

    @property
    def capacity(self) -> int:
        """The memory's capacity, 0 if there is none."""

    @property
    def arrived(self) -> int:
        """The samples of the window."""

    @property
    def had(self) -> int:
        """The samples of all windows so far."""

    @property
    def held(self) -> int:
        """The entries of the memory."""

    @property
    def batches(self) -> int:
        """The batches of an epoch over the window's samples."""

    def replays(self, count: int) -> bool:
        """Return whether a draw of up to `count` entries of the memory gives a batch; see draw_entries."""
