"""Error feedback: add the part of a vector that an encoding lost to the next vector. Seide et al., Interspeech 2014."""

from collections.abc import Callable

from torch import Tensor

from raysim.api import Encoded


def encode_with_feedback(
    residuals: dict[str, Tensor], name: str, vector: Tensor, encode: Callable[[Tensor], Encoded]
) -> Encoded:
    """Return C(p) for p = vector + e, and keep p - C(p) as the next e, in `residuals` under the vector's name.

    EF-SGD, Algorithm 2 of Karimireddy et al., ICML 2019, arXiv 1901.09847. Its gamma g is a client's update here. It
    converges where C is a contraction, E ||C(p) - p||^2 <= (1 - delta) ||p||^2 with a delta > 0.
    """
    wanted = vector + residuals[name] if name in residuals else vector
    sent = encode(wanted)
    residuals[name] = wanted - sent.decode()
    return sent
