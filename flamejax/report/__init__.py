"""Tables and pictures of results; and called, as `flamejax.report(...)`, a report on them.

The function and this package have one name, and Python binds it to the package.
"""

import sys
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    def __call__(self, *folders: Any, **settings: Any) -> Any:
        from flamejax.reporter import report

        return report(*folders, **settings)


sys.modules[__name__].__class__ = _Package
