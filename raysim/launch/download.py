"""`raysim download`: the files of a config's data sets, before a run needs them."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from raysim.config import Config, load
from raysim.data.loading import load_dataset, resolve_root


def download(
    config: str | Path | Mapping[str, object] | Config, overrides: Sequence[str] | Mapping[str, object] = ()
) -> Iterator[str]:
    """Download what is missing of a config's data sets, and yield a line for each.

    Raises:
        ConfigError: the config is wrong, or files are missing and could not be downloaded; none is there in part.
    """
    resolved = load(config, overrides)
    spec = resolved.dataset
    second = [] if spec.unlabelled is None else [spec.unlabelled]
    for component in [*(resolved.domains or [spec]), *second]:
        found = load_dataset(component.function(), spec.root, True, component.keys())
        sizes = f"{len(found.train):,} training and {len(found.test):,} test samples"
        yield f"{component.title}: {sizes} in {resolve_root(spec.root)}"
