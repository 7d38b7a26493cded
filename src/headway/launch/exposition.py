"""/metrics: the status of a run in Prometheus' text format 0.0.4, over HTTP on this machine alone.

`FAMILIES` is the whole list of metrics: a new one is a new row there, and in docs/monitoring.md. Units are seconds,
bytes and CPUs. Counters begin anew with their process or node, as Prometheus expects; what is not known has no line.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headway import __version__
from headway.errors import SiteError

HERE = "127.0.0.1"
PATH = "/metrics"
LIMIT = 5.0  # seconds for a client to ask, and to take its answer
LONGEST = 8192  # bytes of a request
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STATES = ("starting", "running", "stopping")

Entity = dict[str, Any]
"""The status itself, or one of its nodes or tasks."""
Take = Callable[[Entity], Iterable[tuple[dict[str, str], Any]]]
"""The values of a metric, with the labels that tell them apart. None is no value."""


@dataclass(frozen=True)
class Family:
    """One metric."""

    name: str
    help: str
    take: Take

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


def field(path: str, **labels: str) -> Take:
    """What stands at a path of the status, such as `sample.cpu_seconds`."""

    def take(entity: Entity) -> Iterator[tuple[dict[str, str], Any]]:
        found: Any = entity
        for name in path.split("."):
            found = found.get(name) if isinstance(found, dict) else None
        yield labels, found

    return take


def each(label: str, paths: dict[str, str]) -> Take:
    """Several of them: the label's value -> path."""
    takes = [field(path, **{label: value}) for value, path in paths.items()]
    return lambda entity: (sample for take in takes for sample in take(entity))


def by_interface(what: str) -> Take:
    return each("interface", {"external": f"sample.{what}", "loopback": f"sample.loopback_{what}"})


def of_gpus(name: str) -> Take:
    return lambda node: (({"gpu": str(gpu["sample"]["gpu"])}, gpu["sample"].get(name)) for gpu in node["gpus"])


def of_training(path: str) -> Take:
    """Of training tasks alone: a server makes no steps, rather than none so far."""
    take = field(path)
    return lambda entity: take(entity) if entity["trains"] else ()


def _info(status: Entity) -> Iterator[tuple[dict[str, str], Any]]:
    labels = {name: status[name] or "" for name in ("model", "dataset", "strategy", "site")}  # a program has no model
    yield {"version": __version__, **labels}, 1


def _state(status: Entity) -> Iterator[tuple[dict[str, str], Any]]:
    for state in STATES:
        yield {"state": state}, state == status["state"]


def _phase(task: Entity) -> Iterator[tuple[dict[str, str], Any]]:
    yield {"phase": task["phase"]}, 1


FAMILIES = {
    "run": (
        Family("headway_run_info", "Always 1; the labels say what is trained, and how.", _info),
        Family("headway_run_state", "1 for the state that the run is in.", _state),
        Family("headway_run_start_time_seconds", "When this launch began, Unix time.", field("started")),
        Family("headway_training_seconds", "Seconds since this launch's first step.", field("training_seconds")),
        Family("headway_global_step", "Updates so far; less after a rollback.", field("step")),
        Family("headway_target_steps", "The step at which training ends.", field("stop.steps")),
        Family("headway_steps_per_second", "Updates per second, from the last steps.", field("steps_per_s")),
        Family("headway_examples_per_second", "Examples per second of all tasks.", field("examples_per_s")),
        Family("headway_evaluation_step", "Global step last evaluated.", field("evaluation.step")),
        Family("headway_evaluation_loss", "Loss on the test set then.", field("evaluation.loss")),
        Family("headway_evaluation_accuracy", "Accuracy on the test set then, 0 to 1.", field("evaluation.accuracy")),
    ),
    "node": (
        Family("headway_node_up", "1 while the node's agent is there.", field("up")),
        Family("headway_node_cpu_seconds_total", "CPU time used.", field("sample.cpu_seconds")),
        Family("headway_node_cpus_limit", "CPUs that it may use now.", field("limits.cpus")),
        Family(
            "headway_node_cpu_throttled_seconds_total",
            "Time in which processes wanted more CPU than the node has.",
            field("sample.throttled_seconds"),
        ),
        Family("headway_node_credits", "CPU credits left: minutes of one CPU.", field("now.credits")),
        Family("headway_node_memory_bytes", "Memory in use.", field("now.memory")),
        Family("headway_node_memory_limit_bytes", "Memory that it has.", field("limits.memory")),
        Family(
            "headway_node_network_receive_bytes_total",
            "Bytes received, from other nodes (external) or itself (loopback).",
            by_interface("received_bytes"),
        ),
        Family(
            "headway_node_network_transmit_bytes_total",
            "Bytes sent, to other nodes (external) or itself (loopback).",
            by_interface("sent_bytes"),
        ),
        Family("headway_node_network_receive_packets_total", "Packets received.", by_interface("received_packets")),
        Family("headway_node_network_transmit_packets_total", "Packets sent.", by_interface("sent_packets")),
        Family(
            "headway_node_network_limit_bytes_per_second",
            "Rate of its network interface, in each direction.",
            field("limits.rate"),
        ),
        Family("headway_node_disk_read_bytes_total", "Bytes read.", field("sample.disk_read_bytes")),
        Family("headway_node_disk_written_bytes_total", "Bytes written.", field("sample.disk_written_bytes")),
        Family("headway_node_context_switches_total", "Changes of thread.", field("sample.context_switches")),
        Family("headway_node_oom_kills_total", "Processes killed for want of memory.", field("sample.oom_kills")),
        Family(
            "headway_node_pressure_seconds_total",
            "Time in which some process waited for the resource.",
            each("resource", {name: f"sample.{name}_pressure_seconds" for name in ("cpu", "memory", "io")}),
        ),
        Family("headway_node_gpu_busy", "Share of time in which the GPU computed, 0 to 1.", of_gpus("busy")),
        Family("headway_node_gpu_memory_bytes", "Memory of the GPU in use.", of_gpus("memory")),
        Family("headway_node_gpu_memory_limit_bytes", "Memory that the GPU has.", of_gpus("memory_limit")),
        Family("headway_node_gpu_watts", "Power that the GPU takes.", of_gpus("watts")),
    ),
    "task": (
        Family("headway_task_phase", "1 for the phase that the task is in.", _phase),
        Family("headway_task_stalled", "1 while it stands still.", of_training("stalled")),
        Family("headway_task_restarts_total", "How often it was started again.", field("restarts")),
        Family("headway_task_steps_total", "Its own steps, in all attempts.", of_training("own_steps")),
        Family("headway_task_steps_per_second", "Its own, from its last steps.", of_training("steps_per_s")),
        Family("headway_task_loss", "Loss of its last step.", of_training("loss")),
        Family("headway_task_cpu_seconds_total", "CPU time used.", field("sample.cpu_seconds")),
        Family("headway_task_memory_bytes", "Resident memory.", field("now.memory")),
        Family("headway_task_network_receive_bytes_total", "Bytes received over TCP.", by_interface("received_bytes")),
        Family("headway_task_network_transmit_bytes_total", "Bytes sent over TCP.", by_interface("sent_bytes")),
        Family(
            "headway_task_network_retransmitted_segments_total",
            "TCP segments sent again.",
            field("sample.retransmitted"),
        ),
        Family("headway_task_disk_read_bytes_total", "Bytes read.", field("sample.disk_read_bytes")),
        Family("headway_task_disk_written_bytes_total", "Bytes written.", field("sample.disk_written_bytes")),
        Family("headway_task_context_switches_total", "Changes of thread.", field("sample.context_switches")),
    ),
}
"""Of the run, of each node, of each task."""


# --- text ------------------------------------------------------------------------------------------------------------
def text(status: dict[str, Any]) -> str:
    """Every metric that has a value, each with its HELP and TYPE."""
    run = {"run": status["run"]}
    node_of = {task: node["node"] for node in status["nodes"] for task in node["tasks"]}
    entities: dict[str, list[tuple[dict[str, str], Entity]]] = {
        "run": [(run, status)],
        "node": [({**run, "node": node["node"]}, node) for node in status["nodes"]],
        "task": [
            ({**run, "node": node_of.get(task["task"], ""), "task": task["task"]}, task) for task in status["tasks"]
        ],
    }
    lines = []
    for of, families in FAMILIES.items():
        for family in families:
            samples = [
                f"{family.name}{{{_labels({**labels, **more})}}} {_number(value)}"
                for labels, entity in entities[of]
                for more, value in family.take(entity)
                if value is not None
            ]
            if samples:
                lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}", *samples]
    return "\n".join(lines) + "\n"


def _labels(labels: dict[str, str]) -> str:
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, value in labels.items()
    }
    return ",".join(f'{name}="{value}"' for name, value in escaped.items())


def _number(value: float) -> str:
    """Also of a bool. All digits of a counter are kept."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
    return repr(float(value)) if isinstance(value, float) else str(int(value))


# --- HTTP ------------------------------------------------------------------------------------------------------------
def listen(port: int) -> socket.socket:
    """Takes the port now, so that one that is taken is known before anything starts. 0: any free one."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a run may follow the last one at once
        listening.bind((HERE, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise SiteError(
            f"--metrics-port {port}: {HERE}:{port} cannot be had ({error.strerror}); "
            "another port, or 0 for any free one"
        ) from None
    listening.setblocking(False)
    return listening


def address(listening: socket.socket) -> str:
    host, port = listening.getsockname()
    return f"http://{host}:{port}{PATH}"


async def serve(listening: socket.socket, status: Callable[[], dict[str, Any]]) -> asyncio.AbstractServer:
    """Answers until it is closed. Whatever a client sends, only its own connection suffers."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(await _reply(reader, status))
            await asyncio.wait_for(writer.drain(), LIMIT)
        except (OSError, TimeoutError):
            pass  # the client went away, or does not read
        except asyncio.CancelledError:
            pass  # the run ends; Python 3.11 would complain of a cancelled connection
        finally:
            writer.close()

    return await asyncio.start_server(answer, sock=listening, limit=LONGEST)


async def _reply(reader: asyncio.StreamReader, status: Callable[[], dict[str, Any]]) -> bytes:
    try:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LIMIT)
        method, target, version = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
        if not version.startswith("HTTP/1."):
            raise ValueError(version)
    except (TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return _response("400 Bad Request", "this is no HTTP request\n")
    if method != "GET" or target.partition("?")[0] != PATH:
        return _response("404 Not Found", f"there is only GET {PATH}\n")
    try:
        return _response("200 OK", text(status()), CONTENT_TYPE)
    except Exception as error:  # a bug of ours is no reason to end a training
        return _response("500 Internal Server Error", f"{error!r}\n")


def _response(status: str, body: str, content_type: str = "text/plain; charset=utf-8") -> bytes:
    content = body.encode()
    head = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(content)}",
        "Connection: close",
    ]
    return "\r\n".join([*head, "", ""]).encode() + content
