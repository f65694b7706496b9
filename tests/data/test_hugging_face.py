"""The dataset hugging_face without its package: a stand-in says what the package would."""

import sys
from types import SimpleNamespace

import pytest

from raysim.data.dataset import MissingData
from raysim.data.hugging_face import hugging_face


def test_what_cannot_be_downloaded_is_named(tmp_path, monkeypatch):
    """Without a network, load_dataset raises a ConnectionError, which is an OSError."""

    def load_dataset(path, **options):
        raise ConnectionError(f"Couldn't reach '{path}' on the Hub")

    package = SimpleNamespace(load_dataset=load_dataset, DownloadConfig=lambda **options: None)
    monkeypatch.setitem(sys.modules, "datasets", package)
    with pytest.raises(MissingData) as error:
        hugging_face(tmp_path, True, path="flwrlabs/femnist")
    assert str(error.value) == (
        f"dataset.path: found 'flwrlabs/femnist', which is not in {tmp_path}/hugging_face and cannot be read (Couldn't "
        "reach 'flwrlabs/femnist' on the Hub); copy that folder from a machine with a network, or set dataset.path to "
        "a folder of the files"
    )
