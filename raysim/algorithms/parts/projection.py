"""The projection that A-GEM and Fed-A-GEM share."""

import torch
from torch import Tensor


def project(gradient: Tensor, reference: Tensor) -> Tensor:
    """Return the nearest vector to `gradient` [P] that does not point against `reference` [P].

    g - <g, r> / <r, r> r if <g, r> < 0, else exactly g, also if r is zero or not finite. Chaudhry et al., ICLR 2019,
    eq. 11. There is no `if`, which would synchronise with the GPU.
    """
    inner, square = gradient.dot(reference), reference.dot(reference)
    against = (inner < 0) & (square > 0) & square.isfinite()
    return torch.where(against, gradient - (inner / square) * reference, gradient)
