"""Words in texts of any script: Python's word characters, with the marks that belong to them."""

import re
import sys
import unicodedata
from functools import cache

JOINERS = "\u200c\u200d"  # between letters of one word, in Persian and in Indic scripts
UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # kana and ideographs


@cache
def with_marks(letter: str) -> str:
    r"""Return a pattern of one or more letters with their marks, as text.

    Python's \w does not match the vowel signs of Thai or Hindi, which are marks.

    Args:
        letter: the pattern of a letter, such as \w.
    """
    marks = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code))[0] == "M"]
    # that is \w[\w and marks]*, but no letter or space of ASCII is looked for among the marks, which takes long
    return rf"{letter}+(?:(?![\x00-\x7f])[{re.escape(''.join(marks) + JOINERS)}]{letter}*)*"


@cache
def _compared() -> re.Pattern[str]:
    letter = rf"[^\W_{UNSPACED}]"
    return re.compile(f"[{UNSPACED}]|{with_marks(letter)}")


def find_words(text: str) -> list[str]:
    """Return the words of a text in lower case: runs of letters and digits. An ideograph or a kana is a word.

    >>> find_words("The cat's 2nd Straße, 猫だ")
    ['the', 'cat', 's', '2nd', 'straße', '猫', 'だ']
    """
    return _compared().findall(unicodedata.normalize("NFC", text.lower()))
