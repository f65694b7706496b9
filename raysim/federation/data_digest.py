"""A digest of a run's data, by which a resumed run and a report notice other data."""

import hashlib

import numpy as np

from raysim.data.dataset import Unread
from raysim.federation.federation import Federation
from raysim.system.capacity import GIB

READ = GIB  # bytes of an array; of a larger one, equally spaced samples are read


def digest_data(federation: Federation) -> str:
    """Return the SHA-256 digest of the samples, targets, client ids and columns.

    Of images that are decoded as they are needed, it is of their files' paths, sizes and times.

    If features replace the samples, the digest is of the samples: machines may compute different bits of features.
    """
    if "data" in federation.cached:
        return federation.cached["data"]
    digest, others = hashlib.sha256(), federation.unlabelled
    splits = [federation.dataset.train, federation.dataset.test]
    for split in splits if others is None or others.split is None else [*splits, others.split]:
        clients = () if split.clients is None else (split.clients,)
        for array in (split.x, split.y, *clients, *(split.columns[name] for name in sorted(split.columns))):
            digest.update(f"{array.dtype} {array.shape}".encode())
            if isinstance(array, Unread):
                digest.update(array.digest.encode())
                continue
            digest.update(np.ascontiguousarray(array[:: max(1, -(-array.nbytes // READ))]).view(np.uint8).data)
    return digest.hexdigest()
