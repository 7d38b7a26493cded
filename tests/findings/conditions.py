"""The conditions that findings are about, each provoked in at least three ways on emulated hosts. Data only.

A condition is a rule and what it says: storage is the cause, or it is not. Of each the last variant was kept out when
limits were set. run_findings.py runs them, findings_page.py makes docs/findings.md. To add a rule, add its file, and
three cells here: tests/unit/test_findings_matrix.py wants them.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

HEALTHY = "healthy"


@dataclass(frozen=True)
class Cell:
    """One run with one condition (or none) provoked."""

    condition: str
    """The rule that must find it; or `healthy`."""
    variant: str
    what: str
    """How it is provoked, in words."""
    job: dict[str, Any] = field(default_factory=dict)
    kept_out: bool = False
    burners: int = 0
    """Processes of others that compute meanwhile."""
    photos: bool = False
    """The data are large photographs, not in memory when the run begins."""
    trials: tuple[str, ...] = ()
    """A sweep, made of the runs of these cells; the first is its baseline, unless servers are what varies."""
    settings: str | None = None
    """What varies in the sweep."""
    trouble: bool | None = None
    """What the finding must be; None: either."""
    says: str | None = None
    """What its text must say."""
    part: bool = False
    """Only a run that a sweep of another cell is made of."""
    fails: bool = False
    """The run itself ends in failure."""

    @property
    def name(self) -> str:
        return f"{self.condition}-{self.variant}"

    @property
    def statement(self) -> tuple[str, bool | None, str | None]:
        """What must be said. A rule may say one of several things: each of them has its variants."""
        return self.condition, self.trouble, self.says


CNN = "mnist_cnn"
SOFTMAX = "softmax"
WIDE = {"name": "autoencoder", "hidden": [800]}  # 5 MB to send for little to compute
TRANSFORMER = "spatial_transformer"
RESNET = {"name": "resnet", "depth": 8}
IMAGES = {"name": "synthetic", "size": 2000, "test_size": 50}
SMALL_IMAGES = {"name": "synthetic", "size": 1000, "test_size": 20, "shape": [16, 16, 3]}
FAST = {"cpus": 0.4, "rate": "1Gbit", "memory": "2GiB"}
SLOW_LINK = {"cpus": 0.5, "rate": "100Mbit"}
SERVER = {"cpus": 0.25, "rate": "1Gbit", "memory": "2GiB"}


def job(
    model: Any = CNN,
    layout: str = "PS-W-W",
    strategy: Any = "ps-async",
    batch: int | None = None,
    seconds: float = 14,
    ps: dict[str, Any] | None = None,
    worker: dict[str, Any] | None = None,
    chief: dict[str, Any] | None = None,
    site: dict[str, Any] | None = None,
    workload: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """An emulated cluster that trains for a few seconds; what is not given is fast enough."""
    nodes = {"worker": {**FAST, **(worker or {})}}
    if "P" in layout:
        nodes["ps"] = {**SERVER, **(ps or {})}
    if chief is not None:
        nodes["chief"] = {**FAST, **chief}
    return {
        "name": "finding",
        "workload": {
            "model": model,
            "dataset": SMALL_IMAGES if model == RESNET else IMAGES,
            "batch_size": batch or {CNN: 80, TRANSFORMER: 200}.get(str(model), 25),  # enough to compute
            "optimizer": {"name": "sgd", "learning_rate": 0.01},
            "stop": {"seconds": seconds},
            **(workload or {}),
        },
        "strategy": strategy,
        "layout": layout,
        "site": {"kind": "emulated", "nodes": nodes, **(site or {})},
        "export": False,
        "measure": {"warmup": 5},
        "checkpoint": {"seconds": 600},
        "restart": {"attempts": 0},
        **more,
    }


def single(model: Any, batch: int, cpus: float = 0.4, **more: Any) -> dict[str, Any]:
    return job(model, "W", "single", batch, worker={"cpus": cpus}, **more)


def program(*arguments: Any, worker: dict[str, Any] | None = None, layout: str = "W-W", **more: Any) -> dict[str, Any]:
    """A program of the user's, which says what it does (program.py)."""
    made = job(layout=layout, strategy="allreduce", worker=worker, **more)
    command = ["python", "{here}/program.py", *map(str, arguments)]
    made["workload"] = {"command": command, "batch_size": 10, "report": {"steps": "own"}, "ends_with": "everybody"}
    return made


def script(file: str, *arguments: Any, python: str | None = None) -> dict[str, Any]:
    """One of tests/scripts, which know nothing of Headway, on slow links."""
    made = job(layout="W-W", strategy="allreduce", worker=SLOW_LINK, measure={"warmup": 2})
    command = ["python", f"{{here}}/../scripts/{file}", *map(str, arguments)]
    made["workload"] = {"command": command, "ends_with": "chief"}
    if python is not None:
        made["workload"]["python"] = f"{{here}}/../scripts/{python}"
    return made


def changed(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Dotted paths, with two underscores for a dot."""
    made = copy.deepcopy(base)
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = made
        for name in parents:
            place = place.setdefault(name, {})
        place[last] = value
    return made


def photographs(**more: Any) -> dict[str, Any]:
    data = {"name": "image_folder", "path": "{photos}", "image_size": [32, 32]}
    return job(SOFTMAX, batch=more.pop("batch", 4), workload={"dataset": data}, measure={"warmup": 2}, **more)


def regression(shape: list[int], layout: str, strategy: Any, rate: float) -> dict[str, Any]:
    data = {"name": "synthetic", "classes": None, "shape": shape, "size": 4000, "test_size": 50}
    sgd = {"name": "sgd", "learning_rate": rate}
    return job("linear", layout, strategy, 100, seconds=10, workload={"dataset": data, "optimizer": sgd})


OUT: dict[str, Any] = {"kept_out": True}

CELLS = (
    # --- the server
    Cell("network", "a", "CNN, 2 tasks, server at 250 Mbit/s",
         job(batch=25, ps={"rate": "250Mbit"}, seconds=24, measure={"warmup": 2}), says="network of ps0"),
    Cell("network", "b", "wide autoencoder, 3 tasks, server at 200 Mbit/s",
         job(WIDE, "PS-W-W-W", ps={"rate": "200Mbit"}, worker={"cpus": 0.35}, seconds=18, measure={"warmup": 2}),
         says="network of ps0"),
    Cell("network", "c", "CNN, ps-sync, 2 tasks, server at 300 Mbit/s",
         job(strategy="ps-sync", batch=25, ps={"rate": "300Mbit"}, seconds=20, measure={"warmup": 2}),
         says="network of ps0", **OUT),
    Cell("network", "d", "CNN, allreduce, 2 tasks at 100 Mbit/s",
         job(CNN, "W-W", "allreduce", 25, seconds=24, worker=SLOW_LINK, measure={"warmup": 2}),
         says="network of worker"),
    Cell("network", "e", "wide autoencoder, allreduce, 3 tasks at 100 Mbit/s",
         job(WIDE, "W-W-W", "allreduce", 25, seconds=20, worker=SLOW_LINK, measure={"warmup": 2}),
         says="network of worker"),
    Cell("network", "f", "a program with TensorFlow's MultiWorkerMirroredStrategy, 2 tasks at 100 Mbit/s",
         script("mirrored.py", "--logdir", "{model_dir}", "--hidden", 80000, "--epochs", 6, "--steps_per_epoch", 5),
         says="network of worker"),
    Cell("network", "g", "a program with PyTorch's DistributedDataParallel, 2 tasks at 100 Mbit/s",
         script("ddp.py", "--hidden", 80000, "--epochs", 1, "--batch_size", 64, python="torch.txt"),
         says="network of worker", **OUT),
    Cell("server_cpu", "a", "softmax, 3 tasks, server with 0.12 CPUs",
         job(SOFTMAX, "PS-W-W-W", ps={"cpus": 0.12}, worker={"cpus": 0.4})),
    Cell("server_cpu", "b", "CNN with Adam, 2 tasks, server with 0.12 CPUs",
         job(batch=5, ps={"cpus": 0.12}, workload={"optimizer": {"name": "adam", "learning_rate": 0.001}})),
    Cell("server_cpu", "c", "wide autoencoder with Adagrad, ps-sync, server with 0.1 CPUs",
         job(WIDE, strategy="ps-sync", batch=5, ps={"cpus": 0.1},
             workload={"optimizer": {"name": "adagrad", "learning_rate": 0.01}}), **OUT),
    Cell("unbalanced", "a", "CNN, round robin over 2 servers",
         job(layout="PS-PS-W-W", batch=25, strategy={"kind": "ps-async", "placement": "round_robin"}, seconds=8)),
    Cell("unbalanced", "b", "CNN, greedy over 2 servers",
         job(layout="PS-PS-W-W", batch=25, strategy={"kind": "ps-async", "placement": "greedy"}, seconds=8)),
    Cell("unbalanced", "c", "transformer, ps-sync, round robin over 3 servers",
         job(TRANSFORMER, "PS-PS-PS-W-W", {"kind": "ps-sync", "placement": "round_robin"}, seconds=8,
             ps={"cpus": 0.2}), **OUT),
    # --- training tasks
    Cell("chief_undersized", "a", "CNN, ps-async, chief with 0.15 CPUs beside a worker with 0.5",
         job(layout="M-PS-W", chief={"cpus": 0.15}, worker={"cpus": 0.5}, batch=120)),
    Cell("chief_undersized", "b", "ResNet, ps-async, chief with 0.2 CPUs beside two workers with 0.4",
         job(RESNET, "M-PS-W-W", chief={"cpus": 0.2}, batch=100)),
    Cell("chief_undersized", "c", "CNN, ps-sync, chief with 0.2 CPUs beside a worker with 0.5",
         job(strategy="ps-sync", layout="M-PS-W", chief={"cpus": 0.2}, worker={"cpus": 0.5}, batch=120), **OUT),
    Cell("straggler", "a", "CNN, ps-async, worker with 0.2 CPUs beside a chief with 0.5",
         job(layout="M-PS-W", chief={"cpus": 0.5}, worker={"cpus": 0.2}, batch=120)),
    Cell("straggler", "b", "ResNet, ps-sync, worker with 0.2 CPUs beside a chief with 0.5",
         job(RESNET, "M-PS-W", "ps-sync", chief={"cpus": 0.5}, worker={"cpus": 0.2}, batch=100)),
    Cell("straggler", "c", "ResNet, allreduce, worker with 0.2 CPUs beside a chief with 0.6",
         job(RESNET, "M-W", "allreduce", chief={"cpus": 0.6}, worker={"cpus": 0.2}, batch=100), **OUT),
    Cell("barrier", "a", "CNN, ps-sync, batches of 100 and 20",
         job(strategy="ps-sync", layout="M-PS-W", chief={}, cluster={"chief": {"count": 1, "batch_size": 100},
             "worker": {"count": 1, "batch_size": 20}, "ps": 1})),
    Cell("barrier", "b", "ResNet, ps-sync, three tasks, chief with 0.2 CPUs",
         job(RESNET, "M-PS-W-W", "ps-sync", chief={"cpus": 0.2}, worker={"cpus": 0.4}, batch=100)),
    Cell("barrier", "c", "CNN, ps-sync, the chief evaluates every 4 steps",
         job(strategy="ps-sync", batch=50, workload={"evaluate": {"every": 4},
             "dataset": {**IMAGES, "test_size": 500}}), **OUT),
    Cell("too_many_threads", "a", "CNN, 8 threads on 0.4 CPUs",
         job(cluster={"worker": {"count": 2, "threads": {"intra_op": 8}}, "ps": 1})),
    Cell("too_many_threads", "b", "ResNet, allreduce, 16 threads on 0.5 CPUs",
         job(RESNET, "W-W", "allreduce", 100, worker={"cpus": 0.5},
             cluster={"worker": {"count": 2, "threads": {"intra_op": 16}}})),
    Cell("too_many_threads", "c", "transformer, single, 6 threads on 0.5 CPUs",
         changed(single(TRANSFORMER, 50, 0.5), cluster__chief={"count": 1, "threads": {"intra_op": 6}}), **OUT),
    # --- input
    Cell("input_bound", "a", "large photographs to decode, 2 tasks", photographs(), photos=True),
    Cell("input_bound", "b", "large photographs, single, batches of 6",
         photographs(layout="W", strategy="single", batch=6, worker={"cpus": 0.5}), photos=True),
    Cell("input_bound", "c", "large photographs, allreduce, batches of 32",
         photographs(layout="W-W", strategy="allreduce", batch=32), photos=True, **OUT),
    Cell("storage", "a", "large photographs from a disk of 10 MB/s",
         photographs(worker={"disk": {"read": "10MB/s"}, "cpus": 0.5}), photos=True, trouble=True),
    Cell("storage", "b", "large photographs from a disk of 15 MB/s, single",
         photographs(layout="W", strategy="single", worker={"disk": {"read": "15MB/s"}, "cpus": 0.8}), photos=True,
         trouble=True),
    Cell("storage", "f", "large photographs from a disk of 8 MB/s, allreduce",
         photographs(layout="W-W", strategy="allreduce", worker={"disk": {"read": "8MB/s"}, "cpus": 0.5}), photos=True,
         trouble=True, **OUT),
    Cell("storage", "d", "large photographs from a disk of 400 MB/s, single: storage is not the cause",
         photographs(layout="W", strategy="single", worker={"disk": {"read": "400MB/s"}, "cpus": 0.6}), photos=True,
         trouble=False),
    Cell("storage", "e", "large photographs from a disk of 300 MB/s, allreduce, batches of 8: it is not",
         photographs(layout="W-W", strategy="allreduce", batch=8, worker={"disk": {"read": "300MB/s"}}), photos=True,
         trouble=False),
    Cell("storage", "c", "large photographs from a disk of 200 MB/s: storage is not the cause",
         photographs(worker={"disk": {"read": "200MB/s"}}), photos=True, trouble=False, **OUT),
    # --- the network as a whole
    Cell("fabric", "a", "CNN, 2 tasks, a fabric of 400 Mbit/s",
         job(batch=25, site={"fabric": "400Mbit"}, seconds=20, measure={"warmup": 2})),
    Cell("fabric", "b", "wide autoencoder, allreduce, 3 tasks, a fabric of 100 Mbit/s",
         job(WIDE, "W-W-W", "allreduce", site={"fabric": "100Mbit"}, worker={"cpus": 0.4})),
    Cell("fabric", "c", "CNN, PW-PW, a fabric of 250 Mbit/s",
         job(layout="PW-PW", batch=25, worker={"cpus": 0.6}, site={"fabric": "250Mbit"}, seconds=20,
             measure={"warmup": 2}), **OUT),
    Cell("loopback", "a", "CNN, PW-W, 0.5 CPUs", job(layout="PW-W", worker={"cpus": 0.5}, batch=15)),
    Cell("loopback", "b", "wide autoencoder, PW-W, 0.4 CPUs", job(WIDE, "PW-W", worker={"cpus": 0.4}, batch=50)),
    Cell("loopback", "c", "transformer, PW-W, 0.4 CPUs",
         job(TRANSFORMER, "PW-W", worker={"cpus": 0.4}, batch=100), **OUT),
    # --- over time
    Cell("throughput_change", "a", "CNN, the server's credits run out",
         job(batch=10, seconds=40, ps={"cpus": 0.5, "credits": {"per_hour": 2.0, "start": 0.06}}), says="fell after"),
    Cell("throughput_change", "b", "ResNet, allreduce, the workers' credits run out",
         job(RESNET, "W-W", "allreduce", 50, seconds=40,
             worker={"cpus": 0.6, "credits": {"per_hour": 10.0, "start": 0.19}}), says="fell after"),
    Cell("throughput_change", "c", "a program that slows down to half its rate", program("slow", 30),
         says="fell after", **OUT),
    Cell("throughput_change", "d", "a program that becomes slower little by little, to 0.4 of its rate",
         program("drift", 30, 1.5), says="little by little"),
    Cell("throughput_change", "e", "one task that becomes slower little by little, to a third of its rate",
         program("drift", 40, 2, layout="W"), says="little by little"),
    Cell("throughput_change", "f", "a program that becomes faster little by little, to 2.5 times its rate",
         program("drift", 30, -0.6), says="little by little"),
    Cell("throughput_change", "g", "three tasks that become slower little by little, to 0.45 of their rate",
         program("drift", 36, 1.2, layout="W-W-W"), says="little by little", **OUT),
    Cell("credits", "a", "softmax, the server has nearly none",
         job(SOFTMAX, ps={"cpus": 0.4, "credits": {"per_hour": 6.0, "start": 0.06}})),
    Cell("credits", "b", "CNN, workers have few",
         job(seconds=20, worker={"cpus": 0.5, "credits": {"per_hour": 6.0, "start": 0.10}})),
    Cell("credits", "c", "ResNet, single, few left for as long again",
         changed(single(RESNET, 100, 0.6, seconds=15), site__nodes__worker__credits={"per_hour": 3.0, "start": 0.28}),
         **OUT),
    Cell("memory_grows", "a", "a program that keeps 1 MB of every second, for 200 s", program("leak", 200, 1)),
    Cell("memory_grows", "b", "one task that keeps 2 MB of every second, for 195 s",
         program("leak", 195, 2, layout="W")),
    Cell("memory_grows", "c", "a program that keeps 0.6 MB of every second, with 100 MB, for 200 s",
         program("leak", 200, 0.6, 100), **OUT),
    Cell("memory_limit", "a", "a program that holds most of 200 MB",
         program("hold", 10, 150, worker={"memory": "200MB"})),
    Cell("memory_limit", "b", "a program that wants more than 150 MB and is killed",
         program("leak", 60, 30, worker={"memory": "150MB"}), fails=True),
    Cell("memory_limit", "c", "a program that holds most of 400 MB",
         program("hold", 10, 340, worker={"memory": "400MB"}), **OUT),
    # --- what is learnt
    Cell("staleness", "a", "linear regression, 3 tasks, a learning rate (0.9) that one task alone can have",
         regression([1], "PS-W-W-W", "ps-async", 0.9)),
    Cell("staleness", "b", "CNN, 2 tasks, pulls ahead, learning rate 0.4 with momentum",
         job(strategy={"kind": "ps-async", "pull_ahead": 1}, batch=10,
             workload={"optimizer": {"name": "momentum", "learning_rate": 0.4}})),
    Cell("staleness", "d", "transformer, 2 tasks, pulls ahead, learning rate 0.8, momentum: the loss stays a number",
         job(TRANSFORMER, strategy={"kind": "ps-async", "pull_ahead": 1}, batch=100,
             workload={"optimizer": {"name": "momentum", "learning_rate": 0.8}})),
    Cell("staleness", "c", "linear regression on 8 features, 2 tasks, pulls ahead, learning rate 0.8",
         regression([8], "PS-W-W", {"kind": "ps-async", "pull_ahead": 1}, 0.8), **OUT),
    Cell("too_small", "a", "softmax, ps-async, 2 tasks", job(SOFTMAX, seconds=8)),
    Cell("too_small", "b", "softmax, allreduce, 2 tasks", job(SOFTMAX, "W-W", "allreduce", seconds=8)),
    Cell("too_small", "s1", "softmax, single", single(SOFTMAX, 25, seconds=8), part=True),
    Cell("too_small", "s", "a sweep: softmax, single and ps-async with 2 tasks",
         trials=("too_small-s1", "too_small-a"), settings="cluster.training"),
    Cell("too_small", "c", "softmax, ps-sync, 2 tasks, batches of 100",
         job(SOFTMAX, "PS-W-W", "ps-sync", 100, seconds=8), **OUT),
    # --- the measurement
    Cell("noisy_machine", "a", "CNN, and four other processes compute", job(), burners=4),
    Cell("noisy_machine", "b", "ResNet, single, and three other processes compute",
         single(RESNET, 100, 0.6), burners=3),
    Cell("noisy_machine", "c", "transformer, allreduce, and six other processes compute",
         job(TRANSFORMER, "W-W", "allreduce"), burners=6, **OUT),
    Cell("warmup", "a", "CNN, measured from the first step on", job(measure={"warmup": 0}, seconds=10)),
    Cell("warmup", "b", "ResNet, single, measured from the first step on",
         changed(single(RESNET, 100, 0.6, seconds=6), measure={"warmup": 0})),
    Cell("warmup", "c", "transformer, allreduce, measured from the first step on",
         job(TRANSFORMER, "W-W", "allreduce", measure={"warmup": 0}, seconds=10), **OUT),
    # --- the cluster's shape
    Cell("oversized", "a", "CNN, server with 0.8 CPUs", job(ps={"cpus": 0.8}, seconds=12), trouble=False),
    Cell("oversized", "b", "ResNet, server with 0.5 CPUs", job(RESNET, batch=100, ps={"cpus": 0.5}, seconds=12),
         trouble=False),
    Cell("oversized", "c", "CNN, ps-sync, a chief with 0.9 CPUs waits for a worker with 0.15",
         job(strategy="ps-sync", layout="M-PS-W", chief={"cpus": 0.9}, worker={"cpus": 0.15}), trouble=False, **OUT),
    Cell("servers_beside", "a", "CNN, PS-W-W at 600 Mbit/s", job(batch=25, ps={"rate": "600Mbit"}), trouble=False),
    Cell("servers_beside", "b", "wide autoencoder, PS-W-W at 300 Mbit/s",
         job(WIDE, ps={"rate": "300Mbit"}, batch=50), trouble=False),
    Cell("servers_beside", "c", "CNN, ps-sync, PS-W-W-W at 700 Mbit/s",
         job(strategy="ps-sync", layout="PS-W-W-W", batch=25, ps={"rate": "700Mbit"}), trouble=False, **OUT),
    Cell("server_count", "a1", "CNN with two servers at 250 Mbit/s",
         job(layout="PS-PS-W-W", batch=25, ps={"rate": "250Mbit", "cpus": 0.25}, seconds=24,
             measure={"warmup": 2}), part=True),
    Cell("server_count", "a", "too few: CNN with 1 and 2 servers at 250 Mbit/s",
         trials=("network-a", "server_count-a1"), settings="cluster.ps", trouble=True),
    Cell("server_count", "d1", "wide autoencoder, 3 tasks, two servers at 200 Mbit/s",
         job(WIDE, "PS-PS-W-W-W", ps={"rate": "200Mbit"}, worker={"cpus": 0.35}, seconds=18, measure={"warmup": 2}),
         part=True),
    Cell("server_count", "d", "too few: wide autoencoder, 3 tasks, 1 and 2 servers at 200 Mbit/s",
         trials=("network-b", "server_count-d1"), settings="cluster.ps", trouble=True),
    Cell("server_count", "e1", "CNN, ps-sync, two servers at 300 Mbit/s",
         job(strategy="ps-sync", layout="PS-PS-W-W", batch=25, ps={"rate": "300Mbit"}, seconds=20,
             measure={"warmup": 2}), part=True),
    Cell("server_count", "e", "too few: CNN, ps-sync, 1 and 2 servers at 300 Mbit/s",
         trials=("network-c", "server_count-e1"), settings="cluster.ps", trouble=True),
    Cell("server_count", "g1", "wide autoencoder, ps-sync, one server at 150 Mbit/s",
         job(WIDE, strategy="ps-sync", ps={"rate": "150Mbit"}, seconds=20, measure={"warmup": 2}), part=True),
    Cell("server_count", "g2", "wide autoencoder, ps-sync, two servers at 150 Mbit/s",
         job(WIDE, "PS-PS-W-W", "ps-sync", ps={"rate": "150Mbit"}, seconds=20, measure={"warmup": 2}), part=True),
    Cell("server_count", "g", "too few: wide autoencoder, ps-sync, 1 and 2 servers at 150 Mbit/s",
         trials=("server_count-g1", "server_count-g2"), settings="cluster.ps", trouble=True, **OUT),
    Cell("server_count", "b1", "CNN, batches of 240, one server at 4 Gbit/s",
         job(batch=240, ps={"rate": "4Gbit"}, worker={"rate": "4Gbit"}, seconds=20), part=True),
    Cell("server_count", "b2", "CNN, batches of 240, two servers at 4 Gbit/s",
         job(layout="PS-PS-W-W", batch=240, ps={"rate": "4Gbit"}, worker={"rate": "4Gbit"}, seconds=20), part=True),
    Cell("server_count", "b", "enough: CNN, batches of 240, with 1 and 2 servers at 4 Gbit/s",
         trials=("server_count-b1", "server_count-b2"), settings="cluster.ps", trouble=False),
    Cell("server_count", "f1", "transformer with two servers", job(TRANSFORMER, "PS-PS-W-W"), part=True),
    Cell("server_count", "f", "enough: transformer with 1 and 2 servers",
         trials=("healthy-5", "server_count-f1"), settings="cluster.ps", trouble=False),
    Cell("server_count", "c1", "ResNet with two servers", job(RESNET, "PS-PS-W-W", batch=100), part=True),
    Cell("server_count", "c", "enough: ResNet with 1 and 2 servers",
         trials=("healthy-2", "server_count-c1"), settings="cluster.ps", trouble=False, **OUT),
    Cell("baseline", "a", "one training task with a server as the baseline",
         trials=("baseline-a1", "healthy-1"), settings="cluster.training"),
    Cell("baseline", "a1", "CNN, a server and one training task", job(layout="PS-W"), part=True),
    Cell("baseline", "b", "two training tasks as the baseline of three",
         trials=("healthy-2", "chief_undersized-b"), settings="cluster.training"),
    Cell("baseline", "c1", "CNN, single, a machine with twice the CPUs", single(CNN, 80, 0.8), part=True),
    Cell("baseline", "c", "a single machine with twice the CPUs as the baseline",
         trials=("baseline-c1", "healthy-1"), settings="cluster.training", **OUT),
    Cell("unexplained", "a1", "CNN, single", single(CNN, 80), part=True),
    Cell("unexplained", "a", "CNN, ps-async, 2 tasks, against one machine",
         trials=("unexplained-a1", "healthy-1"), settings="cluster.training"),
    Cell("unexplained", "b", "CNN, ps-async, 2 tasks and a larger server, against one machine",
         trials=("unexplained-a1", "oversized-a"), settings="cluster.training"),
    Cell("unexplained", "c", "CNN, ps-async, 2 tasks, against one task with a server",
         trials=("baseline-a1", "healthy-1"), settings="cluster.training", **OUT),
    # --- nothing
    Cell(HEALTHY, "1", "CNN, ps-async, 2 tasks", job()),
    Cell(HEALTHY, "2", "ResNet, ps-async, 2 tasks", job(RESNET, batch=100)),
    Cell(HEALTHY, "3", "CNN, ps-sync, 2 tasks", job(strategy="ps-sync")),
    Cell(HEALTHY, "4", "ResNet, allreduce, 2 tasks", job(RESNET, "W-W", "allreduce", 100)),
    Cell(HEALTHY, "5", "transformer, ps-async, 2 tasks", job(TRANSFORMER)),
    Cell(HEALTHY, "6", "CNN, single", single(CNN, 25)),
    Cell(HEALTHY, "7", "ResNet, ps-async, 3 tasks, PS-W-W-W",
         job(RESNET, "PS-W-W-W", batch=100, worker={"cpus": 0.35})),
    Cell(HEALTHY, "8", "ResNet, single, a larger machine", single(RESNET, 100, 0.8)),
    Cell(HEALTHY, "9", "CNN, PW-PW", job(layout="PW-PW", worker={"cpus": 0.6}, batch=40)),
    Cell(HEALTHY, "10", "a program that keeps its pace", program("steady", 15)),
)  # fmt: skip


def cell(name: str) -> Cell:
    return next(one for one in CELLS if one.name == name)


# Cells that ran beside other work: what they say is at best possible. Run them again on an idle machine, and strike
# them out here.
BESIDE_OTHER_WORK: tuple[str, ...] = ()

# Why a rule speaks in another condition than its own, in one sentence: (cell, condition or "*", rule). There is none
# for noisy_machine but for those: a cell that ran beside other work is run again.
EXPLAINED = {
    ("*", "oversized"): "Good to know, no trouble: the machine is larger than this job needs.",
    **{(name, "noisy_machine"): "It is to be run again on an idle machine." for name in BESIDE_OTHER_WORK},
    ("*", "servers_beside"): "Good to know, no trouble: the server's machine is mostly idle.",
    ("*", "loopback"): "Good to know, no trouble: the layout puts a server beside a training task.",
    ("straggler", "barrier"): "In a synchronous strategy everybody waits for the straggler.",
    ("chief_undersized", "barrier"): "In a synchronous strategy everybody waits for the chief.",
    ("chief_undersized", "straggler"): "The chief is the slow task.",
    ("loopback", "straggler"): "The task without a server beside it has the longer way.",
    ("barrier", "straggler"): "The task that is waited for is always the same.",
    ("barrier-b", "chief_undersized"): "The task that is waited for is the chief, on a machine with half the CPUs.",
    ("oversized-c", "straggler"): "A fast chief waits for a slow worker, which is what makes it oversized.",
    ("oversized-c", "barrier"): "A fast chief waits for a slow worker, which is what makes it oversized.",
    ("baseline", "unexplained"): "What distributing costs is a loss, and no rule says what takes the time.",
    ("unexplained", "baseline"): "One task with a server is not one machine alone.",
    ("input_bound", "storage"): "It says that storage is not the cause (good to know).",
    ("storage", "input_bound"): "Storage matters only where training waits for input.",
    ("throughput_change", "credits"): "The credits that ran out are the cause.",
    ("throughput_change", "server_cpu"): "The server without credits has too little CPU.",
    ("credits", "throughput_change"): "Throughput falls when the credits are gone.",
    ("credits", "server_cpu"): "The server without credits has too little CPU.",
    ("credits", "too_small"): "Softmax regression is too small to distribute.",
    ("server_cpu", "too_small"): "Softmax regression is too small to distribute.",
    ("staleness", "too_small"): "Linear regression is too small to distribute.",
    ("staleness", "server_cpu"): "Tasks with next to nothing to compute ask the server all the time.",
    ("too_small", "server_cpu"): "Tasks with next to nothing to compute ask the server all the time.",
    ("input_bound", "too_small"): "Softmax regression is too small to distribute.",
    ("storage", "too_small"): "Softmax regression is too small to distribute.",
    (
        "throughput_change-f",
        "warmup",
    ): "A rate that rises all the time looks like an unfinished warm-up.",
    ("throughput_change-a", "network"): "Before its credits are gone the server sends at full rate.",
    ("unbalanced", "network"): "The server that holds nearly everything carries nearly all traffic.",
    ("staleness-b", "network"): "Batches of 10 leave little to compute between two exchanges: the link is full.",
    ("staleness-d", "network"): "Tasks that pull ahead send and receive all the time: the link is full.",
    ("server_cpu", "warmup"): "Five steps of warm-up are too few where a step takes milliseconds.",
    ("too_small", "warmup"): "Five steps of warm-up are too few where a step takes milliseconds.",
    ("credits", "warmup"): "Five steps of warm-up are too few where a step takes milliseconds.",
    ("staleness", "warmup"): "Five steps of warm-up are too few where a step takes milliseconds.",
    ("server_count-a1", "network"): "Each of two servers at 250 Mbit/s is still full.",
    ("server_count-d1", "network"): "Each of two servers at 200 Mbit/s is still full.",
    ("server_count-e1", "network"): "Each of two servers at 300 Mbit/s is still full.",
    ("server_count-g1", "network"): "One server at 150 Mbit/s is full.",
    ("server_count-g2", "network"): "Each of two servers at 150 Mbit/s is still full.",
    ("servers_beside", "network"): "The server's network is the reason to put it beside the tasks.",
    ("memory_limit-b", "memory_grows"): "Memory grows until it is used up.",
    ("noisy_machine", "throughput_change"): "Other processes that come and go change throughput.",
}
