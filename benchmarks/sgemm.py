"""The rate of one core in a large single-precision matrix product, in GFLOP/s: what a training step is held against.

Usage: sgemm.py [CORE]    prints one number, the best of several products with one thread.
"""

from __future__ import annotations

import os
import sys
import time

for library in ("OPENBLAS", "OMP", "MKL"):  # read when NumPy is imported
    os.environ[f"{library}_NUM_THREADS"] = "1"

import numpy as np  # noqa: E402

SIZE, REPEATS = 2048, 12


def main() -> None:
    if sys.argv[1:]:
        os.sched_setaffinity(0, {int(sys.argv[1])})
    left, right = (np.random.default_rng(seed).random((SIZE, SIZE), np.float32) for seed in (1, 2))
    left @ right
    best = float("inf")
    for _ in range(REPEATS):
        began = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - began)
    print(2 * SIZE**3 / best / 1e9)


if __name__ == "__main__":
    main()
