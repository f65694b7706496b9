"""QSGD: a client quantizes its update to few levels, and rounds each entry at random.

Alistarh, Grubic, Li, Tomioka and Vojnovic, NeurIPS 2017, arXiv 1610.02132. It combines with other methods, in any
order.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, doc
from torch import Tensor
from torch.nn.functional import pad

from raysim.algorithms.parts.error_feedback import encode_with_feedback
from raysim.api import ClientHalf, Encoded, Method, to_device


@dataclass(frozen=True, kw_only=True)
class Quantize(Method):
    """QSGD: send an update in few levels, rounded at random without bias (Alistarh et al., NeurIPS 2017)."""

    bits: Annotated[Literal[2, 4, 8], doc("of an entry as sent, sign included: s = 2^(bits - 1) - 1 levels and 0")] = 8
    bucket: Annotated[int | None, Ge(1), doc("d, the entries that share a norm; null is the whole vector")] = 512
    norm: Annotated[Literal["l2", "max"], doc("what scales a bucket: its length, or its largest entry")] = "l2"
    feedback: Annotated[bool, doc("add what rounding lost to the next update; scales what is sent")] = False
    vectors: Annotated[Literal["update", "all"], doc("the update, or all sums as long as the model")] = "update"

    class Client(ClientHalf):
        """Sends Q_s(x), eq. 1 of section 3.1, with x the client's update."""

        method: Quantize

        def __init__(self, name: str, method: Quantize) -> None:
            super().__init__(name, method)
            self.residuals: dict[str, Tensor] = {}  # e [P], by vector, with feedback

        def encode(self, name: str, vector: Tensor, draws: np.random.Generator) -> Tensor | Encoded:
            """Return the quantized vector, rounded with the client's generator."""
            method = self.method
            if name != "update" and method.vectors == "update":
                return vector
            bucket, levels = min(method.bucket or len(vector), len(vector)), levels_of(method.bits)
            shrink = 1 / (1 + variance_bound(bucket, levels)) if method.feedback else 1.0

            def quantized(wanted: Tensor) -> QuantizedVector:
                uniform = to_device(torch.from_numpy(draws.random(len(wanted))), wanted.device)
                steps, drawn = quantize(wanted, levels, bucket, method.norm, uniform)
                codes = pack_codes((drawn + levels).to(torch.uint8), method.bits)
                return QuantizedVector(steps * shrink, codes, method.bits, bucket, len(wanted))

            if not method.feedback:
                return quantized(vector)
            return encode_with_feedback(self.residuals, name, vector, quantized)


@dataclass(frozen=True)
class QuantizedVector(Encoded):
    """A vector of `length` entries, each a whole number from -s to s of its bucket's step.

    `steps` [buckets] are the norms over s. `codes` (uint8) are the whole numbers plus s, in `bits` bits each: 8 / bits
    to a byte, the first in the lowest.
    """

    steps: Tensor
    codes: Tensor
    bits: int
    bucket: int
    length: int

    def decode(self) -> Tensor:
        """Return the vector [length]."""
        drawn = unpack_codes(self.codes, self.bits, self.length).to(self.steps.dtype) - levels_of(self.bits)
        return drawn * self.steps.repeat_interleave(self.bucket)[: self.length]


def quantize(vector: Tensor, levels: int, bucket: int, norm: str, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """Return the steps norm / s [buckets], and what Q_s draws: sgn(v_i) s xi_i [P], whole numbers from -s to s.

    s |v_i| / norm is rounded up where `uniform` (float64 [P], in [0, 1)) is below its fraction, else down. So the
    result is unbiased. A bucket of zeros gives zeros. The step of a bucket that is not finite is not finite.
    """
    rows = pad(vector, (0, -len(vector) % bucket)).view(-1, bucket)
    steps = (rows.norm(dim=1) if norm == "l2" else rows.abs().amax(dim=1)) / levels
    step = steps.repeat_interleave(bucket)[: len(vector)]
    exact = torch.where(step > 0, vector.abs() / step, 0.0).clamp(max=levels)  # a norm may be rounded below its entry
    lower = exact.floor()
    return steps, (lower + (uniform < exact - lower)) * vector.sign()


def levels_of(bits: int) -> int:
    """Return s, the largest number for which -s to s fit into 2^bits codes."""
    return (1 << (bits - 1)) - 1


def variance_bound(bucket: int, levels: int) -> float:
    """Return min(d / s^2, sqrt(d) / s), the bound on E ||Q_s(v) - v||^2 / ||v||^2: Lemma 3.1.

    Times 1 / (1 + bound) an unbiased Q is a contraction, with delta = 1 / (1 + bound).
    """
    return min(bucket / levels**2, sqrt(bucket) / levels)


def pack_codes(codes: Tensor, bits: int) -> Tensor:
    """Return codes (uint8 [n], each below 2^bits) as bytes, 8 / bits codes in each."""
    rows = pad(codes, (0, -len(codes) % (8 // bits))).view(-1, 8 // bits)
    packed: Tensor = rows << _places(codes, bits)
    return packed.sum(dim=1).to(torch.uint8)


def unpack_codes(packed: Tensor, bits: int, length: int) -> Tensor:
    """Return the codes (uint8 [length]) that were packed."""
    codes: Tensor = (packed[:, None] >> _places(packed, bits)) & ((1 << bits) - 1)
    return codes.view(-1)[:length]


def _places(like: Tensor, bits: int) -> Tensor:
    return torch.arange(0, 8, bits, dtype=torch.uint8, device=like.device)
