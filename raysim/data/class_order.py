"""The order of classes that are named by texts, the same for every dataset, and the note that shows it."""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal

NUMBER = re.compile(r"[+-]?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,3})?", re.ASCII)
SHOWN = 8  # classes in a note
LONGEST = 24  # letters of a class's name in a note


def in_class_order(names: Iterable[str]) -> list[str]:
    """Return the different names in the order of their classes: by value if all are numbers, otherwise as texts.

    Example:
        >>> in_class_order(["10", "9", "1", "10"]), in_class_order(["10", "9", "cat"])
        (['1', '9', '10'], ['10', '9', 'cat'])
    """
    different = sorted({*names})
    if all(NUMBER.fullmatch(name) for name in different):
        different.sort(key=Decimal)  # equal values, such as 1 and 1.0, stay in the order of texts
    return different


def describe_classes(names: Sequence[str]) -> str:
    """Return a note on the numbers of classes, such as "classes 0 to 2: 1, 2, 10".

    Example:
        >>> describe_classes(["1", "2", "10"]), describe_classes(["cat"])
        ('classes 0 to 2: 1, 2, 10', 'class 0: cat')
    """
    short = [name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..." for name in names]
    listed = short if len(short) <= SHOWN else [*short[: SHOWN - 2], "...", short[-1]]
    return f"{'class 0' if len(names) == 1 else f'classes 0 to {len(names) - 1:,}'}: {', '.join(listed)}"
