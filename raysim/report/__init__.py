"""`raysim report`: finished runs read and grouped into settings, their tables and plots, published figures beside
them, and one file per format that a report is written in.

The package may be called as well: raysim.report(directories) is `raysim report`.
"""

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from raysim.report.write import write_report

        return write_report(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
