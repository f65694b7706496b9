"""Continual models of Mammoth (github.com/aimagelab/mammoth) as raysim's method `examples.mammoth:Mammoth`.

See docs/mammoth.md. It has not been run with Mammoth's own code.
"""

from examples.mammoth.method import Mammoth

__all__ = ["Mammoth"]
