"""No attack: every client is honest."""

from __future__ import annotations

from flamejax.config import AttackSettings
from flamejax.types import Attack


class NoAttack(AttackSettings):
    name: str = "none"

    def build(self) -> Attack:
        return Attack()
