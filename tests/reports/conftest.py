import pytest
from written_report import Written, write_example


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A report, written once."""
    return write_example(tmp_path_factory.mktemp("written"))
