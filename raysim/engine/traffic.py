"""What a deployment would send: the methods' payload in bytes, not raysim's own traffic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raysim.api.messages import Post, count_bytes
from raysim.system.state import Kept


class Traffic(Kept):
    """Counts bytes of tensors, all clients together.

    A post is counted at a client's first contact with its version; mail each time it is sent.
    """

    def __init__(self) -> None:
        self.up = 0
        self.down = 0
        self._held: dict[int, dict[str, int]] = {}
        self._by_client: dict[int, int] = {}

    def count_sent(self, clients: Sequence[int], mail: Any, posts: Iterable[Post]) -> None:
        """Count an order on its way to these clients."""
        sizes = [(post, count_bytes(post.value)) for post in posts]
        letter = count_bytes(mail)
        for client in clients:
            held = self._held.setdefault(client, {})
            total = letter
            for post, size in sizes:
                if held.get(post.name) != post.version:
                    held[post.name] = post.version
                    total += size
            self.down += total
            self._by_client[client] = self._by_client.get(client, 0) + total

    def count_received(self, bytes_up: Mapping[int, int]) -> None:
        """Count the replies."""
        for client, nbytes in bytes_up.items():
            self.up += nbytes
            self._by_client[client] = self._by_client.get(client, 0) + nbytes

    def take_by_client(self) -> Mapping[int, int]:
        """Return the bytes of each client, up and down, since this was last asked."""
        taken, self._by_client = self._by_client, {}
        return taken
