"""The names of a dataset's parts in other people's files, and which of them is for testing."""

from collections.abc import Collection

TRAIN, TEST = "train", "test"
VALIDATION = ("validation", "val", "valid", "dev")
MEANINGS = {name: name for name in (TRAIN, TEST, *VALIDATION)} | {"training": TRAIN, "testing": TEST}


def part_of(name: str) -> str:
    """Return the part that a name means, which may be in any case, and other names as they are.

    Example:
        >>> part_of("Training"), part_of("VAL"), part_of("Extra")
        ('train', 'val', 'Extra')
    """
    return MEANINGS.get(name.lower(), name)


def choose_test(names: Collection[str]) -> str | None:
    """Return the part to test on: test, or a part for validation where there is no test, or None without both.

    Example:
        >>> choose_test(["train", "val", "test"]), choose_test(["train", "val"]), choose_test(["train"])
        ('test', 'val', None)
    """
    return next((name for name in (TEST, *VALIDATION) if name in names), None)
