"""What a hyperparameter counts: a note in its annotation."""


class Repeats:
    """In a hyperparameter's annotation: it counts how often a method repeats a part of its work.

    Hyperparameters with the same word belong to the same loop, or are alike samples of a step. One with several words
    counts what several loops make together. The word "samples" stands for the samples that a step makes.

    >>> from typing import Annotated
    >>> from annotated_types import Ge, doc
    >>> Steps = Annotated[int, Ge(1), Repeats("steps"), doc("the generator's steps at the end of a task")]
    >>> Steps.__metadata__[1].words
    ('steps',)
    """

    def __init__(self, *words: str) -> None:
        self.words = words
