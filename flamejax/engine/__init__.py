"""The compiled communication round, and where its clients live.

`build` turns a method, a model and a federation into compiled functions. State and data are spread
over a mesh of devices with one axis, the clients'; on each device clients run `width` at a time,
all of them updated in place.
"""

from flamejax.engine.compile import Engine, Facts, build
from flamejax.engine.rounds import RoundInfo, State

__all__ = ["Engine", "Facts", "RoundInfo", "State", "build"]
