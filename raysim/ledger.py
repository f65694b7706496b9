"""What a deployment would send: the methods' payload in bytes, not raysim's own traffic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raysim.messages import Post, tensor_bytes


class Ledger:
    """Counts bytes of tensors, all clients together.

    A post is counted at a client's first contact with its version; mail each time it is sent.
    """

    def __init__(self) -> None:
        self.up = 0
        self.down = 0
        self._held: dict[int, dict[str, int]] = {}

    def send(self, clients: Sequence[int], mail: Any, posts: Iterable[Post]) -> None:
        """Count an order on its way to these clients."""
        self.down += len(clients) * tensor_bytes(mail)
        for post in posts:
            size = tensor_bytes(post.value)
            for client in clients:
                held = self._held.setdefault(client, {})
                if held.get(post.name) != post.version:
                    held[post.name] = post.version
                    self.down += size

    def receive(self, bytes_up: Mapping[int, int]) -> None:
        """Count the replies."""
        self.up += sum(bytes_up.values())
