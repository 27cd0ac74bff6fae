"""What tests put in the place of parts of the package, all in one file: the only one of the tests
that has to follow when such a part moves."""

from __future__ import annotations
