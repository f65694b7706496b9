"""The names of a dataset's parts in other people's files, and which of them is for testing."""

from collections.abc import Collection

TRAIN, TEST = "train", "test"
VALIDATION = ("validation", "val", "valid", "dev")


def choose_test(names: Collection[str]) -> str | None:
    """Return the part to test on: test, or a part for validation where there is no test, or None without both.

    Example:
        >>> choose_test(["train", "val", "test"]), choose_test(["train", "val"]), choose_test(["train"])
        ('test', 'val', None)
    """
    return next((name for name in (TEST, *VALIDATION) if name in names), None)
