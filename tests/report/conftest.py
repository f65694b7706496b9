import pytest
from written_report import Written, write_report


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A report, written once."""
    return write_report(tmp_path_factory.mktemp("written"))
