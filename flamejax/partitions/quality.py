"""Quality skew: equal shares; client i of m sees noise of variance sigma * i / m on its inputs.

The noise is made when samples are gathered (`federation.py`), from a key: fixed per sample and
client, never stored.
"""

from __future__ import annotations

import numpy as np

from flamejax.partitions.iid import iid as quality

__all__ = ["noise_variance", "quality"]


def noise_variance(sigma: float, clients: int) -> np.ndarray:
    """Variance [clients] of the noise on normalised inputs; the first client is i = 1."""
    return sigma * np.arange(1, clients + 1) / clients
