"""What must be alike for a comparison to say anything: the job as it ran, the machine, the versions; and the commits,
which may differ, for that is what one compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headway.record.run import Run
from headway.spec.load import flat

RATES = ("examples_per_s", "steps_per_s", "task_steps_per_s")
# Of no weight: names, where things are, what happens after a failure, what is left out of rates.
IGNORED = (
    "name",
    "seed",
    "restart",
    "limits",
    "expose",
    "site.ports",
    "workload.code",
    "workload.directory",
    "measure.warmup",
    "measure.most_warmup",
)
# When a run ends, and what it does then: of no weight for a rate, but of all for seconds, accuracy or loss.
ENDS = ("workload.stop", "measure.steps", "measure.seconds", "export")
PACKAGES = ("tensorflow-cpu", "tensorflow", "numpy", "grpcio", "protobuf", "torch", "jax", "horovod")
# Each has settings of its own: one that the other does not have is a difference, not an older version of Headway.
NAMED = ("workload.model", "workload.dataset", "versions")

NOT_KNOWN = "not known"  # the commit of a run that was started outside of any checkout


def run_facts(run: Run) -> dict[str, Any]:
    """Dotted path -> value: the settings, whoever chose them, and `machine...`, `versions...`."""
    here = run.environment
    packages, memory = here.get("packages", {}), here.get("memory")
    return {
        **{path: value for path, value in flat(run.job).items() if not is_below(path, IGNORED)},
        "machine.cpu": here.get("cpu"),
        "machine.cores": here.get("cores"),
        # The same machine has some pages more or fewer after another start.
        "machine.memory": None if memory is None else f"{memory / 2**30:.0f} GiB",
        "versions.python": ".".join(str(here.get("python", "")).split(".")[:2]),
        **{f"versions.{name}": packages.get(name) for name in PACKAGES if name in packages},
    }


def chosen(run: Run) -> frozenset[str]:
    """Settings that Headway chose itself."""
    return frozenset(choice["path"] for choice in run.choices)


def differences(a: Mapping[str, Any], b: Mapping[str, Any], left_out: Iterable[str] = ()) -> dict[str, tuple[Any, Any]]:
    """Path -> both values. `left_out`: what Headway chose on both sides follows from the rest, which is compared.

    A path that one side does not have counts where the other has a plain value instead of the mapping (null, or
    nothing at all), and for what has settings of its own. Else one of them was made before that setting existed, which
    then was as its default is."""
    found = {path: (a[path], b[path]) for path in a if path in b and a[path] != b[path]}
    for path in sorted(set(a) ^ set(b)):
        if (above := _leaf_above(path, b if path in a else a)) is not None:
            sides = _at(a, above), _at(b, above)
            if sides[0] != sides[1]:
                found[above] = sides
        elif is_below(path, NAMED):
            found[path] = a.get(path), b.get(path)
    return {path: values for path, values in found.items() if path not in left_out}


def _leaf_above(path: str, facts: Mapping[str, Any]) -> str | None:
    parts = path.split(".")
    above = (".".join(parts[:depth]) for depth in range(1, len(parts)))
    return next((each for each in above if each in facts), None)


def _at(facts: Mapping[str, Any], path: str) -> Any:
    """The value there, or what is set below it: nothing where all of that is null."""
    if path in facts:
        return None if facts[path] == {} else facts[path]
    begin = f"{path}."
    below = {each.removeprefix(begin): value for each, value in facts.items() if each.startswith(begin)}
    return {each: value for each, value in below.items() if value not in (None, {})} or None


def is_below(path: str, given: Iterable[str]) -> bool:
    return any(path == each or path.startswith(f"{each}.") for each in given)


def commit_in_words(environment: Mapping[str, Any]) -> str:
    """`1a2b3c4`, or `1a2b3c4 with changes`: what ran is then not what was committed."""
    commit = environment.get("commit") or {}
    if not commit.get("hash"):
        return NOT_KNOWN
    return str(commit["hash"])[:7] + (" with changes" if commit.get("has_changes") else "")


def commits_of(runs: Iterable[Run]) -> tuple[str, ...]:
    """Each once: a sweep that was gone on with may have several."""
    return tuple(dict.fromkeys(commit_in_words(run.environment) for run in runs))
