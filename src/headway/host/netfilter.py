"""Rules for packets (nftables), made through netlink: no program has to be installed.

The numbers are those of linux/netfilter/nf_tables.h.

A table can belong to the socket that made it (`hold`): the kernel removes it when that socket is closed, however its
process ends.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Literal

NETLINK_NETFILTER = 12
NFT = 10  # nftables, among netfilter's subsystems
REQUEST, ACK, DUMP, CREATE, APPEND = 0x1, 0x4, 0x300, 0x400, 0x800
INET, IPV4 = 1, 2
NEW_TABLE, NEW_CHAIN, GET_CHAIN, NEW_RULE = 0, 3, 4, 6
ERROR, DONE = 2, 3
BATCH_BEGIN, BATCH_END = 16, 17
OWNED = 2
ANSWER_LIMIT = 2.0
HOOKS = {"prerouting": 0, "input": 1, "forward": 2, "postrouting": 4}
_REGISTER = 1
_EQUAL, _NOT_EQUAL = 0, 1


# --- messages --------------------------------------------------------------------------------------------------------
def attribute(kind: int, data: bytes, nested: bool = False) -> bytes:
    length = 4 + len(data)
    return struct.pack("=HH", length, kind | (0x8000 if nested else 0)) + data + b"\0" * (-length % 4)


def message(kind: int, flags: int, family: int, resource: int, body: bytes, sequence: int = 0) -> bytes:
    body = struct.pack("=BBH", family, 0, socket.htons(resource)) + body
    return struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def number(value: int) -> bytes:
    return struct.pack(">I", value)


def expression(name: str, data: bytes) -> bytes:
    return attribute(1, attribute(1, text(name)) + attribute(2, data, nested=True), nested=True)


# --- expressions: a rule is several of them, in turn while each holds -------------------------------------------------
def _load(what: str, key: int) -> bytes:
    return expression(what, attribute(2, number(key)) + attribute(1, number(_REGISTER)))


def _compare(how: int, value: bytes) -> bytes:
    data = attribute(3, attribute(1, value), nested=True)
    return expression("cmp", attribute(1, number(_REGISTER)) + attribute(2, number(how)) + data)


def _interface(key: int, name: str, is_it: bool) -> bytes:
    """A name that ends with a star is the beginning of one."""
    value = name[:-1].encode() if name.endswith("*") else name.encode().ljust(16, b"\0")
    return _load("meta", key) + _compare(_EQUAL if is_it else _NOT_EQUAL, value)


def comes_in_by(name: str, is_it: bool = True) -> bytes:
    return _interface(6, name, is_it)


def goes_out_by(name: str, is_it: bool = True) -> bytes:
    return _interface(7, name, is_it)


def comes_from(address: IPv4Address) -> bytes:
    source = (
        attribute(1, number(_REGISTER)) + attribute(2, number(1)) + attribute(3, number(12)) + attribute(4, number(4))
    )
    return expression("payload", source) + _compare(_EQUAL, address.packed)


def is_answer(is_it: bool = True) -> bytes:
    """The packet belongs to a connection that the other side was asked for, or is an error message about one."""
    established_or_related = struct.pack("=I", 0b110)
    masked = (
        attribute(1, number(_REGISTER))
        + attribute(2, number(_REGISTER))
        + attribute(3, number(4))
        + attribute(4, attribute(1, established_or_related), nested=True)
        + attribute(5, attribute(1, bytes(4)), nested=True)
    )
    return _load("ct", 0) + expression("bitwise", masked) + _compare(_NOT_EQUAL if is_it else _EQUAL, bytes(4))


def _verdict(code: int) -> bytes:
    data = attribute(2, attribute(2, attribute(1, number(code)), nested=True), nested=True)
    return expression("immediate", attribute(1, number(0)) + data)


DROP, ACCEPT = _verdict(0), _verdict(1)
MASQUERADE = expression("masq", b"")


# --- tables ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Chain:
    """Rules that packets meet at one place of their way."""

    name: str
    kind: Literal["filter", "nat"]
    hook: Literal["prerouting", "input", "forward", "postrouting"]
    priority: int
    rules: Sequence[bytes]


@dataclass(frozen=True)
class Table:
    name: str
    family: int
    chains: Sequence[Chain]

    def transaction(self, flags: int) -> bytes:
        """All of it or nothing; the kernel's one answer is to its last rule."""
        make, table = REQUEST | CREATE, attribute(1, text(self.name))
        messages = [message(BATCH_BEGIN, REQUEST, 0, NFT, b"")]

        def add(kind: int, body: bytes, more: int = 0) -> None:
            messages.append(message(NFT << 8 | kind, make | more, self.family, 0, body))

        add(NEW_TABLE, table + attribute(2, number(flags)))
        for chain in self.chains:
            place = attribute(1, number(HOOKS[chain.hook])) + attribute(2, struct.pack(">i", chain.priority))
            named = table + attribute(3, text(chain.name))
            add(NEW_CHAIN, named + attribute(4, place, nested=True) + attribute(7, text(chain.kind)))
        rules = [(chain.name, rule) for chain in self.chains for rule in chain.rules]
        for place_in_order, (chain_name, rule) in enumerate(rules, 1):
            body = table + attribute(2, text(chain_name)) + attribute(4, rule, nested=True)
            add(NEW_RULE, body, APPEND | (ACK if place_in_order == len(rules) else 0))
        messages.append(message(BATCH_END, REQUEST, 0, NFT, b""))
        return b"".join(messages)

    def make(self) -> None:
        """In the network that we are in, for as long as that lives."""
        with _link() as link:
            _ask(link, self.transaction(0))

    def hold(self) -> socket.socket:
        """In the network that we are in, until the returned socket is closed (Linux 5.12)."""
        link = _link()
        try:
            _ask(link, self.transaction(OWNED))
        except OSError:
            link.close()
            raise
        return link


def _link() -> socket.socket:
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)
    link.bind((0, 0))
    link.settimeout(ANSWER_LIMIT)
    return link


def _ask(link: socket.socket, messages: bytes) -> None:
    """Send a transaction; OSError when the kernel refuses it."""
    link.send(messages)
    answer = link.recv(65536)
    if problem := -int(struct.unpack_from("=i", answer, 16)[0]):
        raise OSError(problem, f"nftables: {os.strerror(problem)}")


# --- what others have made -------------------------------------------------------------------------------------------
def dropping(hook: str) -> list[tuple[str, str]]:
    """Table and chain of those that drop, at this place of their way, every IPv4 packet that no rule of theirs accepts
    (policy drop). OSError where the kernel does not tell."""
    found: list[tuple[str, str]] = []
    with _link() as link:
        link.send(message(NFT << 8 | GET_CHAIN, REQUEST | DUMP, 0, 0, b""))
        is_over = False
        while not is_over:
            answer = link.recv(65536)
            is_over = _is_last(answer)
            found += dropping_in(answer, hook)
    return found


def dropping_in(answer: bytes, hook: str) -> Iterator[tuple[str, str]]:
    """Of one part of the kernel's answer."""
    for kind, body in _messages(answer):
        if kind != NFT << 8 | NEW_CHAIN or body[0] not in (INET, IPV4):
            continue
        chain = _attributes(body[4:])
        place = _attributes(chain.get(4, b""))
        if place.get(1) == number(HOOKS[hook]) and chain.get(5) == number(0):
            yield _said(chain.get(1, b"")), _said(chain.get(3, b""))


def _is_last(answer: bytes) -> bool:
    for kind, body in _messages(answer):
        if kind == ERROR and (problem := -int(struct.unpack_from("=i", body)[0])):
            raise OSError(problem, f"nftables: {os.strerror(problem)}")
        if kind in (ERROR, DONE):
            return True
    return False


def _messages(answer: bytes) -> Iterator[tuple[int, bytes]]:
    """Each with its kind, without its header."""
    while len(answer) >= 16:
        length, kind = struct.unpack_from("=IH", answer)
        if length < 16:
            return
        yield kind, answer[16:length]
        answer = answer[(length + 3) & ~3 :]


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


def _said(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="replace")
