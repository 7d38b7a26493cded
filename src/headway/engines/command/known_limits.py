"""Failures that are not the user's fault nor ours: known limits, with what to do instead."""

from __future__ import annotations

import re

KNOWN = (
    (
        r"PerReplica",
        "Keras 3's fit() does not work under MultiWorkerMirroredStrategy: a known limit of TensorFlow with Keras 3, "
        "not of this script. Write the training loop yourself (docs/guide), or use tf_keras, or TensorFlow 2.15",
    ),
)


def explanation(output: str) -> str | None:
    """Of the last lines of a program that failed."""
    return next((text for pattern, text in KNOWN if re.search(pattern, output)), None)
