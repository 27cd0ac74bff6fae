"""Your own code while a run goes on: `flamejax.run(callbacks=[...])`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flamejax.config import Config


class Callback:
    """One that does nothing: override what you need.

    The functions are called between calls of the compiled rounds, so they do not slow these down.
    What they raise ends the run. Of several processes, each calls its own.
    """

    def on_rounds(self, config: Config, done: int) -> None:
        """Some rounds are over, `done` of them since the run began."""

    def on_evaluation(self, config: Config, row: Mapping[str, Any]) -> None:
        """The models were evaluated; row: a line of metrics.jsonl, which is written by now."""
