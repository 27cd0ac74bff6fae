"""What the machine gives to large products of matrices: the peak that others are compared with.

matmul_peak.py
"""

from __future__ import annotations

import sys

import numpy as np
import protocol

SIZE = 2048


def main(*_: str) -> None:
    a, b = np.random.default_rng(0).normal(size=(2, SIZE, SIZE)).astype(np.float32)
    out = np.empty_like(a)

    def train(count: int) -> dict[str, float]:
        for _ in range(count):
            np.matmul(a, b, out=out)
        return {"loss": float(out[0, 0])}

    protocol.serve({"train": train}, version=f"NumPy {np.__version__}", flops=2 * SIZE**3)


if __name__ == "__main__":
    main(*sys.argv[1:])
