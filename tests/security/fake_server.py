"""A server in a daemon's place, as a hostile user runs one: it notes whatever is sent to it.

    python3 fake_server.py LOG http|attach SOCKET...

Says "up" when it listens. LOG gets a line for each connection that sent something: its socket, and the bytes in hex."""
import json
import os
import selectors
import socket
import sys

ANSWER = json.dumps([{"index": 0, "uuid": "GPU-0", "name": "Evil GPU", "memory_bytes": 1 << 36, "available_bytes": 1 << 36,
                      "sessions": 0, "backend": "front", "compute_mode": "off", "mig": False}]).encode()
HTTP = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(ANSWER) + ANSWER


def main(log, kind, *paths):
    selector = selectors.DefaultSelector()
    note = open(log, "a", buffering=1)
    for path in paths:
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM if kind == "http" else socket.SOCK_SEQPACKET)
        server.bind(path)
        os.chmod(path, 0o666)
        server.listen(64)
        selector.register(server, selectors.EVENT_READ, (path, True))
    print("up", flush=True)
    while True:
        for key, _ in selector.select():
            path, listens = key.data
            if listens:
                connection = key.fileobj.accept()[0]
                selector.register(connection, selectors.EVENT_READ, (path, False))
                continue
            try:
                data = key.fileobj.recv(65536)
                if data:
                    note.write(f"{path} {data.hex()}\n")
                    if kind == "http":
                        key.fileobj.sendall(HTTP)
                    continue
            except OSError:
                pass
            selector.unregister(key.fileobj)
            key.fileobj.close()


main(*sys.argv[1:])
