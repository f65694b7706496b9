"""Subspaces of layers' inputs, for GPM and FOT: extending a basis, and removing its span from an update.

A layer multiplies its weight W [outputs, d] with inputs of size d. Let M [d, m] be orthonormal. A change of W that is
orthogonal to M's columns does not change W x for any x in their span. Only M M^T counts, so signs of singular vectors
do not matter.
"""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from raysim.models.flat import FlatModel

HeadUse = Literal["project", "free"]
"""Whether the head is projected like other layers, or excluded, for example with one head per task."""

ROUNDING = 1e-12
"""Tolerance of a share of energy in double precision: a threshold missed by less counts as reached."""


def projected_layers(model: FlatModel, head: HeadUse) -> dict[str, int]:
    """Return d of each layer that is projected, by its weight's name."""
    free = model.head if head == "free" else ()
    return {name: d for name, d in model.widths.items() if name not in free}


def extend_basis(basis: Tensor, moment: Tensor, threshold: float) -> Tensor:
    """Return M [d, m + r] with the fewest new directions that hold `threshold` of the energy. Saha et al., eq. 8 and 9.

    `moment` is R R^T [d, d] of the inputs R [d, n], in double precision, so its trace is their energy ||R||^2. Let P =
    I - M M^T. The new directions are the first left singular vectors of P R, i.e. eigenvectors of P R R^T P. The number
    r is the smallest with ||M M^T R||^2 + (the first r squared singular values of P R) >= threshold ||R||^2.
    """
    old = basis.to(moment)
    total = moment.trace()
    if not total > 0:  # the layer has no inputs
        return basis
    project = torch.eye(len(moment), dtype=moment.dtype, device=moment.device) - old @ old.T
    rest = project @ moment @ project
    energies, directions = (found.flip(-1) for found in torch.linalg.eigh((rest + rest.T) / 2))
    held = (1 - rest.trace() / total) + torch.cat([energies.new_zeros(1), energies.clamp(min=0).cumsum(0) / total])
    short = int((held < threshold - ROUNDING).sum())  # held ascends: add those that are below the threshold
    new = directions[:, : min(short, len(moment) - old.shape[1])]
    orthonormal: Tensor = torch.linalg.qr(torch.cat([old, new], 1)).Q
    return orthonormal.to(basis)


def remove_span(change: Mapping[str, Tensor], bases: Mapping[str, Tensor]) -> None:
    """Subtract W M M^T, the part in a basis' span, from each layer's change W [outputs, ...], in place."""
    for name, basis in bases.items():
        rows = change[name].view(len(change[name]), -1)
        rows.sub_((rows @ basis) @ basis.T)
