"""`python -m headway.engines.tensorflow`: one task of a run; see the package's docstring for the picture."""

from __future__ import annotations

import gc

# Importing TensorFlow makes millions of objects that stay: the collector would walk through them again and again, a
# fifth of the time from command to first step. It is switched on when they are there.
gc.disable()

# ruff: noqa: E402
import importlib
import logging
import os
import signal
import sys
import traceback
from typing import NoReturn

from headway.engines.assignment import Assignment
from headway.engines.tensorflow.ports import PortTaken
from headway.errors import DataError, SiteError, SpecError, StorageError
from headway.record.storage import explained

HOPELESS = (DataError, ImportError, SiteError, SpecError, SyntaxError)  # what is wrong would be wrong again


def prepare_environment() -> None:
    """Settings that TensorFlow reads when it is imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # Much faster convolutions; by itself TensorFlow uses them on some CPUs only (docs/performance.md).
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    # The v1 functions that a graph needs say at each use that they are old.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    # gRPC would send the tasks' own traffic through a proxy.
    for name in ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy"):
        os.environ.pop(name, None)
        os.environ.pop(name.upper(), None)


def import_tensorflow() -> None:
    """As quickly as it goes. Keras, which nothing here uses, is imported when the user's code asks for it: while this
    variable is set, TensorFlow looks for Keras 2 instead, and does without when there is none."""
    asked = os.environ.get("TF_USE_LEGACY_KERAS")
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    importlib.import_module("tensorflow")
    if asked is None:
        del os.environ["TF_USE_LEGACY_KERAS"]
    else:
        os.environ["TF_USE_LEGACY_KERAS"] = asked
    gc.freeze()
    gc.enable()


def work(assignment: Assignment) -> None:
    if assignment.task.role == "ps":
        from headway.engines.tensorflow.server import serve

        serve(assignment)
    elif assignment.task.role == "evaluator":
        from headway.engines.tensorflow.evaluator import watch

        watch(assignment)
    elif assignment.job.strategy.replication == "in_graph" and not assignment.is_chief:
        from headway.engines.tensorflow.strategies.in_graph import serve

        serve(assignment)
    else:
        from headway.engines.tensorflow import strategies
        from headway.engines.tensorflow.loop import train

        train(assignment, strategies.trainer(assignment))


def main() -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the launcher decides
    assignment = Assignment(os.environ)
    assignment.start_heartbeat()
    assignment.control.listen()
    prepare_environment()
    code = 0
    try:
        # First: for each class of settings pydantic looks through all modules, and TensorFlow has thousands.
        _ = assignment.job
        import_tensorflow()
        work(assignment)
    except BaseException as error:  # whatever it was, the record must say so
        storage = explained(error, assignment.folder.path)
        lines = [str(storage)] if storage else str(error).strip().splitlines()
        code = StorageError.exit_code if storage else 1
        try:
            if storage is None:
                traceback.print_exc()
            assignment.event(
                "failed",
                error=type(storage or error).__name__,
                message=lines[0] if lines else repr(error),
                port_taken=isinstance(error, PortTaken),
                hopeless=isinstance(error, HOPELESS) and not isinstance(error, PortTaken),
                **({"storage": True} if storage else {}),
            )
        except OSError as full:
            assignment.end_for_storage(storage or full)
    try:
        assignment.events.close()
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as full:
        assignment.end_for_storage(full)
    # TensorFlow's servers and threads have no stop; waiting for them at exit can hang.
    os._exit(code)


if __name__ == "__main__":
    main()
