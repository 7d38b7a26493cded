"""What launcher and agent say to each other: JSON objects, one a line, over any byte stream.

The launcher says (`do`)                               and the agent says (`say`)
  hello   {version, lease, node, files, clock_offset}    ready    {version, pid, facts}
  renew   {}                   keeps the lease           alive    {tasks: {task: {age, ...}}}: seconds since its last
                                                                  heartbeat, and host.vitals.Vitals
  clock   {sent}                                         clock    {sent, t}: the node's time
  group   {name}               for the tasks to come
  limit   {cpus}               of that group, from now on; null: none
  monitor {hertz, group, credits}                        samples  {rows}: of the node and its tasks, now and then
  ports   {count, first, last}                           ports    {ports: [...]} or {error}
  start   {task, attempt, argv, env, cores, files,       started  {task, attempt, pid} or {error}
           with_children}: what it starts is watched as part of it
  tell    {task, message}      a line on its stdin       lines    {task, offset, data}: new lines of its events
                                                         storage  {error}: the run folder cannot be written
  signal  {task, number}                                 exited   {task, attempt, code, rss, oom}  (code < 0: a signal)
  quit    {}                   ends tasks and agent      goodbye  {reason}
To measure the network, before there are tasks:
  serve   {}, unserve {}                                 serving  {port}
  round_trips {to, count}                                round_trips {seconds: [...]} or {error}
  rates   {to: [...], seconds} all at once               rates    {rates: [...]} or {error}

Every message renews the lease. `lines` of a task always come before its `exited`.
"""

from __future__ import annotations

import json
from typing import Any

VERSION = 6
MAX_LINE = 64 * 2**20  # of one message; TF_CONFIG of a thousand tasks is far below


def encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError("a message is a JSON object")
    return message
