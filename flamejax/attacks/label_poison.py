"""Label poisoning: malicious clients train on uniformly random labels (`federation.federate`)."""

from __future__ import annotations

from flamejax.config import AttackSettings
from flamejax.types import Attack


class LabelPoison(AttackSettings):
    name: str = "label_poison"

    def build(self) -> Attack:
        return Attack(poisons_labels=True)
