"""Features in place of samples: what a model's frozen first stages return, computed once and kept in files.

A pass in chunks of a fixed size computes them, each chunk on one thread. So the bits depend neither on the number of
threads nor on the run's hosts. A file's name is a hash of all that its content follows from. These are the samples,
their normalization, the frozen weights, the architecture, a custom model's code and the kind of machine. Runs share
files. A file without its checksum, or with other content, is computed again.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import blake2b, sha256
from pathlib import Path

import numpy as np
import torch
from torch import nn

from raysim.config import Config
from raysim.config.document import to_plain
from raysim.data.dataset import Array, Split, Unread
from raysim.data.loading import resolve_root
from raysim.data.mapped import fits, open_split, write_rows
from raysim.data.pixels import Source
from raysim.federation.data_digest import digest_data
from raysim.federation.federation import Federation
from raysim.models.adapters import find_adapters
from raysim.models.building import build_model
from raysim.models.stages import StagedNetwork
from raysim.system.capacity import this_machine
from raysim.system.checksums import is_as_written, note_unfit
from raysim.system.custom_code import digest_custom_code
from raysim.system.device import choose_device, describe_machine
from raysim.system.errors import ConfigError
from raysim.system.pinned import PinnedFile, pin_file
from raysim.system.progress import tell_progress
from raysim.system.seeding import torch_untouched
from raysim.system.switches import set_torch
from raysim.system.version import VERSION

CHUNK = 16  # samples of a pass
AHEAD = 4  # chunks of each thread that are computed before the first of them is written
FOLDER = "features"  # below the folder of the datasets
HASHED = 2**26  # bytes of samples that are hashed at a time


def cache_features(config: Config, federation: Federation) -> Federation:
    """Return the federation with features in place of samples if `model.cache` is true, or as it is.

    Raises:
        ConfigError: the model has no frozen first stages, or the features cannot be stored.
    """
    return FeaturePass(config, federation).carry_out() if config.model.cache else federation


class FeaturePass:
    """The pass that makes a federation's samples features.

    Args:
        config: the resolved config.
        federation: the data, with samples.

    Attributes:
        shape: the shape of one sample's features, which are float32.

    Raises:
        ConfigError: the model has no frozen first stages, or the samples of a task are changed by a map of pixels.
    """

    def __init__(self, config: Config, federation: Federation) -> None:
        if any(task.pixels is not None for task in federation.tasks):
            problem = "found true for tasks that change the samples by a map of pixels, allowed: false"
            raise ConfigError(f"model.cache: {problem}")
        self._config, self._federation = config, federation
        module = build_model(config, federation.shape, federation.classes, federation.vocabulary)
        assert isinstance(module, StagedNetwork)
        on_gpu = config.resources.gpus_per_actor and torch.cuda.is_available()
        self._device = choose_device(config.resources.gpus_per_actor if on_gpu else 0)
        self._dtype = next(p.dtype for p in module.parameters() if p.requires_grad)
        self._module, self.shape = module.to(self._device).eval(), module.feature_shape
        second = None if federation.unlabelled is None else federation.unlabelled.split
        self._splits = [federation.dataset.train, federation.dataset.test, *([] if second is None else [second])]
        self._names = [None for _ in self._splits] if federation.dataset.missing else [*self._name_files()]

    @property
    def nbytes(self) -> int:
        """The bytes of all features."""
        return 4 * int(np.prod(self.shape)) * sum(map(len, self._splits))

    @property
    def to_compute(self) -> int:
        """The number of samples without features in a file."""
        files = zip(self._splits, self._names, strict=True)
        return sum(len(split) for split, path in files if path is None or not fits(path, (len(split), *self.shape)))

    def seconds_per_sample(self) -> float:
        """Measure the seconds that one core takes for a sample's features, the second time."""
        with torch_untouched():
            set_torch(self._device, self._config.resources.deterministic)
            compute = self._computing(self._splits[0])
            compute(0)
            began = time.process_time()
            compute(0)
            return (time.process_time() - began) / CHUNK

    def pretended(self) -> Federation:
        """Return the federation with ones that take no memory in place of features. Zeros have no Gram matrix."""
        one = np.ones((), np.float32)
        return self._with([replace(split, x=np.broadcast_to(one, (len(split), *self.shape))) for split in self._splits])

    def carry_out(self) -> Federation:
        """Return the federation with features, after computing those that no file has.

        On this machine's own cluster processes map the files. A cluster that is joined gets the content, as its nodes
        may not have the files.

        Raises:
            ConfigError: a file cannot be written.
        """
        made, files = list[Split](), list[PinnedFile]()
        notes, doubts = [*self._federation.dataset.notes], [*self._federation.dataset.doubts]
        for split, path in zip(self._splits, self._names, strict=True):
            assert path is not None, "samples that are missing have no features"
            try:
                pinned = self._find(path, split)
                if pinned is None:
                    note_unfit(path, "model.cache", "features were computed", notes, doubts)
                    with torch_untouched():
                        set_torch(self._device, self._config.resources.deterministic)
                        write_rows(path, (len(split), *self.shape), self._rows(split))
                    pinned = pin_file("model.cache", path)
                mapped = open_split(path, split.y, split.clients, split.columns)
            except OSError as error:
                problem = f"{path} cannot be written: {error.strerror or error}"
                allowed = "a folder of data (dataset.root, RAYSIM_DATA) with room for it, or false"
                raise ConfigError(f"model.cache: {problem}, allowed: {allowed}") from error
            shipped = self._config.resources.address is not None
            made.append(replace(split, x=np.asarray(mapped.x)) if shipped else mapped)
            files.append(pinned)
        digests = " ".join(f"{file.path.stem} {file.sha256}" for file in files)
        cached = {"data": digest_data(self._federation), "features": sha256(digests.encode()).hexdigest()}
        federation = self._with(made)
        return replace(
            federation,
            dataset=replace(federation.dataset, notes=tuple(notes), doubts=tuple(doubts)),
            cached=cached,
            files=[*federation.files, *([] if shipped else files)],
        )

    def _find(self, path: Path, split: Split) -> PinnedFile | None:
        """Return the file of a split's features, or None if it has to be computed. All of its content is read."""
        if not fits(path, (len(split), *self.shape)):
            return None
        found = pin_file("model.cache", path)
        return found if is_as_written(path, found.sha256) else None

    def _with(self, splits: Sequence[Split]) -> Federation:
        """Return the federation with other splits."""
        train, test, *second = splits
        federation = self._federation
        dataset, unlabelled = replace(federation.dataset, train=train, test=test), federation.unlabelled
        if unlabelled is not None and second:
            unlabelled = replace(unlabelled, split=second[0])
        return replace(
            federation, dataset=dataset, unlabelled=unlabelled, normalization=None, raw_shape=federation.shape
        )

    def _rows(self, split: Split) -> Iterator[Array]:
        """Yield the features of a split's chunks in order."""
        threads = int(max(1, this_machine().cpus)) if self._device.type == "cpu" else 1
        compute, starts = self._computing(split), range(0, len(split), CHUNK)
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for first in range(0, len(starts), AHEAD * threads):
                words = f"computing features: {CHUNK * first:,} of {len(split):,} samples"
                tell_progress(words, CHUNK * first / len(split))
                yield from pool.map(compute, starts[first : first + AHEAD * threads])

    def _computing(self, split: Split) -> Callable[[int], Array]:
        """Return the function that computes the features of the chunk that begins at a row.

        The last chunk is filled with its last sample, so that all chunks have the same size.
        """
        source = Source(split, [None], device=self._device, normalization=self._federation.normalization)

        def compute(start: int) -> Array:
            rows = torch.arange(start, start + CHUNK).clamp_(max=len(split) - 1).to(self._device)
            with torch.no_grad():
                x = source.fetch(rows, 0)
                features = self._module.before(x.to(self._dtype) if x.is_floating_point() else x)
            numbers: Array = features[: len(split) - start].float().cpu().numpy()
            return numbers

        return compute

    def _name_files(self) -> Iterator[Path]:
        """Yield each split's file, named by the hash of what its content follows from."""
        folder, model = resolve_root(self._config.dataset.root) / FOLDER, self._config.model
        module, stages = self._module, self._module.in_order()[: self._module.begin]
        inside = [part for stage in stages for part in stage.parts if isinstance(part, nn.Module)]
        adapters = model.adapters if any(True for part in inside for _ in find_adapters(part)) else None
        network = [model.name, to_plain(model.keys()), to_plain(adapters), module.begin, module.feature_shape]
        network += [module.made_by] if module.made_by else []
        network += [model.precision] if model.precision != "float32" else []  # files of float32 keep their names
        fast = self._device.type == "cuda" and not self._config.resources.deterministic  # products in TF32
        network += ["tf32"] if fast else []
        samples = [to_plain(self._federation.normalization), self._federation.shape, CHUNK]
        code = digest_custom_code([model.name] if ":" in model.name else [])  # a custom model's
        known = json.dumps([*network, *samples, describe_machine(self._device), VERSION, code])
        common = blake2b(known.encode(), digest_size=16)
        for tensor in module.tensors_before():
            common.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        for split in self._splits:
            digest, x = common.copy(), split.x
            digest.update(f"{x.dtype} {x.shape}".encode())
            if isinstance(x, Unread):
                digest.update(x.digest.encode() + os.fsencode(x.place))
                yield folder / f"{digest.hexdigest()}.npy"
                continue
            rows = max(1, HASHED // max(1, x[:1].nbytes))
            for start in range(0, len(x), rows):
                digest.update(np.ascontiguousarray(x[start : start + rows]).data)
            yield folder / f"{digest.hexdigest()}.npy"
