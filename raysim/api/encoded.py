"""Encoded vectors: what a client sends in place of a vector, from which the server gets one back."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Encoded(ABC):
    """A vector as it is sent. A subclass's fields are tensors, which travel, and numbers, which both sides know."""

    @property
    def nbytes(self) -> int:
        """The bytes that a deployment would send: those of the tensors."""
        return sum(field.nbytes for field in vars(self).values() if isinstance(field, Tensor))

    @abstractmethod
    def decode(self) -> Tensor:
        """Return the vector that is summed, of the encoded one's length and dtype.

        It is decoded where it is summed, by a host or by the coordinator. So it is a function of the fields alone, and
        made of operations that give the same bits on every device: copies, single products, no sums of floats.
        """


def decoded(value: Tensor | Encoded) -> Tensor:
    """Return a vector, decoded if it is encoded."""
    return value.decode() if isinstance(value, Encoded) else value
