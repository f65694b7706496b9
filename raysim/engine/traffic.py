"""What a deployment would send: the methods' payload in bytes, not raysim's own traffic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from raysim.api.messages import Post, count_bytes
from raysim.system.state import Kept


class Traffic(Kept):
    """Counts bytes of tensors, all clients together.

    A post is counted at a client's first contact with its version; mail each time it is sent. `down_by_method` are the
    bytes since this process began, those of the model under "model".
    """

    made_again: ClassVar = frozenset({"down_by_method"})

    def __init__(self) -> None:
        self.up = 0
        self.down = 0
        self.down_by_method: Counter[str] = Counter()
        self._held: dict[int, dict[str, int]] = {}
        self._by_client: dict[int, int] = {}

    def count_sent(self, clients: Sequence[int], mail: Mapping[str, Any], posts: Iterable[Post]) -> None:
        """Count an order on its way to these clients: mail by method, and posts, which carry their method's name."""
        sizes = [(post, count_bytes(post.value)) for post in posts]
        letters = {name: nbytes for name, letter in mail.items() if (nbytes := count_bytes(letter))}
        for client in clients:
            held = self._held.setdefault(client, {})
            sent = Counter(letters)
            for post, size in sizes:
                if held.get(post.name) != post.version:
                    held[post.name] = post.version
                    sent[post.name.partition(".")[0]] += size
            self.down += sent.total()
            self.down_by_method += sent
            self._by_client[client] = self._by_client.get(client, 0) + sent.total()

    def count_received(self, bytes_up: Mapping[int, int]) -> None:
        """Count the replies."""
        for client, nbytes in bytes_up.items():
            self.up += nbytes
            self._by_client[client] = self._by_client.get(client, 0) + nbytes

    def take_by_client(self) -> Mapping[int, int]:
        """Return the bytes of each client, up and down, since this was last asked."""
        taken, self._by_client = self._by_client, {}
        return taken
