"""Deaths, as the launcher handles them: it starts a dead task again, and all servers when one of them died."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import Launched, launched, make_job

from headway.engines.tensorflow import checkpoint
from headway.engines.tensorflow.trainer import Snapshot

pytestmark = [pytest.mark.real, pytest.mark.fault]


def last_step(run: Launched, name: str, **where: Any) -> dict[str, Any]:
    steps = run.events(name, "step", **where)
    return steps[-1] if steps else {"step": 0, "own_step": 0, "t": 0.0}


def wait_for_both(run: Launched, what: str, condition: Callable[[str], Any]) -> None:
    run.wait_for(what, lambda: all(condition(name) for name in ("chief/0", "worker/0")))


def test_training_survives_the_death_of_a_worker_of_the_chief_and_of_the_servers(tmp_path: Path) -> None:
    # The rate is so small that weights stay put: a restored value can be recognised after further steps.
    job = make_job(
        strategy="ps-async",
        cluster={"chief": 1, "worker": 1, "ps": 2},
        workload={
            "model": {"name": "softmax", "init": "normal"},
            "optimizer": {"name": "adagrad", "learning_rate": 1e-30},
            "stop": {"steps": 10**9},
        },
        checkpoint={"seconds": None},
    )
    with launched(tmp_path, job) as run:
        wait_for_both(run, "steps", lambda name: last_step(run, name)["own_step"] >= 20)
        [variables] = run.events("chief/0", "variables")
        devices = {row["name"]: row["device"] for row in variables["placement"]}
        assert {devices["softmax/weights"], devices["softmax/bias"]} == {"ps/0", "ps/1"}
        assert devices["softmax/bias/Adagrad"] == devices["softmax/bias"]
        assert devices["global_step"] == "ps/0"

        # --- a worker dies: the others go on, and it joins again ---
        own_steps = last_step(run, "worker/0")["own_step"]
        run.kill("worker/0")
        run.start("worker/0", own_steps=own_steps)
        joined = run.wait_for("the worker to join again", lambda: run.events("worker/0", "joined", attempt=1))[0]
        run.wait_for("its steps", lambda: last_step(run, "worker/0", attempt=1)["own_step"] > own_steps + 20)
        assert joined["generation"] == 1
        assert joined["step"] > own_steps
        first = run.events("worker/0", "step", attempt=1)[0]
        assert first["own_step"] == own_steps + 1
        assert first["warmup"]

        # --- the chief dies: the worker goes on, and the new chief adopts what it finds ---
        run.kill("chief/0")
        at_death = last_step(run, "worker/0")["step"]
        run.start("chief/0", own_steps=last_step(run, "chief/0")["own_step"])
        [adopted] = run.wait_for("the new chief", lambda: run.events("chief/0", "initialized", attempt=1))
        assert (adopted["how"], adopted["generation"], adopted["checkpoint"]) == ("adopted", 1, None)
        assert adopted["step"] > at_death
        run.wait_for("its steps", lambda: run.events("chief/0", "step", attempt=1))
        steps = sorted(e["step"] for name in ("chief/0", "worker/0") for e in run.events(name, "step"))
        assert len(set(steps)) == len(steps), "two updates were counted as one"

        # --- the servers die: all of them go back to one checkpoint ---
        shapes = {row["name"]: row["shape"] for row in variables["placement"]}
        values = {
            name: np.full(shape, 1000.0 + number, np.float32) for number, (name, shape) in enumerate(shapes.items())
        }
        values["global_step"] = np.array(15, np.int64)
        checkpoint.write(run.folder.checkpoints, Snapshot(15, 1, values), keep=1)
        run.kill("ps/0", "ps/1")
        wait_for_both(run, "both to notice", lambda name: run.events(name, "disconnected"))
        run.start("ps/0", "ps/1")
        restored = run.wait_for("the restored state", lambda: run.events("chief/0", "initialized", attempt=1)[1:])[0]
        assert restored["how"] == "restored"
        assert (restored["checkpoint"], restored["step"], restored["generation"]) == ("step-00000015", 15, 2)
        wait_for_both(run, "steps", lambda name: last_step(run, name).get("generation") == 2)
        for name in ("chief/0", "worker/0"):
            again = [event for event in run.events(name, "step") if event["generation"] == 2]
            assert again[0]["warmup"]
            print(f"{name} trained {again[0]['t'] - run.events('ps/0', 'ready')[-1]['t']:.1f} s after the servers")
        steps = sorted(
            e["step"] for name in ("chief/0", "worker/0") for e in run.events(name, "step") if e["generation"] == 2
        )
        assert steps[0] == 16
        assert len(set(steps)) == len(steps)

        # --- told to stop, all end in order ---
        time.sleep(0.5)
        for name in ("worker/0", "chief/0"):
            run.tell(name, do="stop", reason="enough")
        run.finish()
        assert run.events("worker/0", "done")[-1]["reason"] == "stopped: enough"
        finished = run.events("chief/0", "finished")[-1]
        assert finished["step"] >= steps[-1]
        newest = checkpoint.latest(run.folder.checkpoints)
        assert newest is not None
        saved = checkpoint.load(newest)
        assert checkpoint.facts(newest)["generation"] == 2
        assert saved["global_step"] == finished["step"]
        for name in ("softmax/weights", "softmax/bias"):
            np.testing.assert_array_equal(saved[name], values[name])
            assert (saved[f"{name}/Adagrad"] > values[f"{name}/Adagrad"] - 0.01).all()
