"""Attacks by what a socket can do: urgent bytes, empty messages, halves that are closed, small buffers, answers that nobody reads."""
import os

import pytest

from conftest import rest_long, wait_until

from .test_budgets import COMMON, others_are_served
from .test_loop import attack_beside

# Connections that do not block, and work that goes on without end whatever becomes of one.
SOCKETS = COMMON + r"""
import fcntl, signal, threading
def connected(kind, prepare=lambda s: None):
    while True:
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM if kind == 'http' else socket.SOCK_SEQPACKET)
        s.setblocking(False)
        prepare(s)
        try:
            s.connect(LAB[kind])
            return s
        except BlockingIOError:  # as many wait to be accepted as may
            s.close()
            time.sleep(0.001)
def forever(work):
    def again():
        while True:
            try: work()
            except OSError: pass
    for _ in range(2): threading.Thread(target=again, daemon=True).start()
def each(kept, use, new):
    for i, s in enumerate(kept):
        try: use(s)
        except BlockingIOError: pass
        except OSError:
            s.close()
            kept[i] = new()
ASK = b'GET /v1/gpus HTTP/1.1\r\nHost: x\r\n\r\n'
"""
ATTACKS = {
    "urgent bytes": r"""
kept = [connected('http') for _ in range(300)]
forever(lambda: each(kept, lambda s: s.send(b'!', socket.MSG_OOB), lambda: connected('http')))
""",
    "hang up at once": r"""
def work():
    s = connected('http'); s.send(b'!'); s.close()
    s = connected('attach'); s.close()
forever(work)
""",
    "urgent bytes within a request": r"""
def work():
    s = connected('http')
    for part in (b'GET /v1/gpus HT', b'TP/1.1\r\nHost: x\r', b'\n\r\n'):
        s.send(part); s.send(b'!', socket.MSG_OOB)
    s.close()
forever(work)
""",
    "empty messages": r"""
kept = [connected('http') for _ in range(200)]
def work():
    for s in kept: s.send(b'')
    s = connected('attach')
    try:
        for _ in range(1000): s.send(b'')
    finally: s.close()
forever(work)
""",
    "closed for reading": r"""
def work():
    s = connected('http'); s.shutdown(socket.SHUT_RD)
    try:
        for _ in range(50): s.send(ASK)
    finally: s.close()
forever(work)
""",
    "closed for writing": r"""
kept = []
def work():
    for kind, text in (('http', b'GET /v1/jobs/events?wait=1 HTTP/1.1\r\nHost: x\r\n\r\n'), ('attach', message(4, b's-nobody'))):
        s = connected(kind); s.send(text); s.shutdown(socket.SHUT_WR); kept.append(s)
    while len(kept) > 1500: kept.pop(0).close()
forever(work)
""",
    "small buffers": r"""
def small(s):
    for name in (socket.SO_RCVBUF, socket.SO_SNDBUF): s.setsockopt(socket.SOL_SOCKET, name, 1)
kept = [connected('http', small) for _ in range(800)]
def use(s): s.send(ASK); s.recv(1)
forever(lambda: each(kept, use, lambda: connected('http', small)))
""",
    "requests whose answers nobody reads": r"""
kept = [connected('attach') for _ in range(800)]
def use(s):
    while True: s.send(message(4, b's-nobody'))
forever(lambda: each(kept, use, lambda: connected('attach')))
""",
    "signals and peeks": r"""
signal.signal(signal.SIGIO, signal.SIG_IGN)
def new():
    s = connected('http')
    fcntl.fcntl(s, fcntl.F_SETOWN, os.getpid()); fcntl.fcntl(s, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    return s
kept = [new() for _ in range(300)]
def use(s): s.send(ASK); s.recv(65536, socket.MSG_PEEK)
forever(lambda: each(kept, use, new))
""",
}


@pytest.mark.parametrize("how", rest_long(ATTACKS, 2))
@pytest.mark.attack("6", "urgent bytes, empty messages, closed halves, small buffers, hanging up at once, without end")
def test_uses_of_a_socket_delay_nobody(lab, how):
    before = descriptors_of(lab)
    under = attack_beside(lab, SOCKETS + ATTACKS[how], count=60)
    print(under)
    assert under.values[-1] < 5000, str(under)
    others_are_served(lab)
    # The daemon keeps nothing for the attacker that is gone.
    wait_until(lambda: descriptors_of(lab) <= before + 4)


def descriptors_of(lab):
    return len(os.listdir(f"/proc/{lab.worker()}/fd"))
