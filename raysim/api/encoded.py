"""Encoded vectors: a client sends the encoded form, and the server decodes it."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Encoded(ABC):
    """An encoded vector. A subclass's fields are tensors and numbers.

    Only the tensors count as sent. The server is assumed to know the numbers, such as sizes.

    >>> @dataclass(frozen=True)
    ... class Rounded(Encoded):
    ...     rounded: torch.Tensor
    ...     def decode(self):
    ...         return self.rounded.float()
    >>> encoded = Rounded(torch.ones(3).half())
    """

    @property
    def nbytes(self) -> int:
        """The bytes of the tensors, which a deployment would send.

        >>> encoded.nbytes
        6
        """
        return sum(field.nbytes for field in vars(self).values() if isinstance(field, Tensor))

    @abstractmethod
    def decode(self) -> Tensor:
        """Return the decoded vector, with the length and dtype of the original.

        Hosts and the coordinator call this, on any device. The result may depend only on the fields. Use only
        operations that are bitwise identical on all devices: copies and elementwise products, but no float sums.

        >>> encoded.decode()
        tensor([1., 1., 1.])
        """


def decoded(value: Tensor | Encoded) -> Tensor:
    """Return the vector. Decode it if it is encoded."""
    return value.decode() if isinstance(value, Encoded) else value
