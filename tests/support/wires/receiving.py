"""Reading from a socket.

`recv(size, MSG_WAITALL)` is not enough: a Python socket with a time-out is a non-blocking one, and returns what there is.
"""

from __future__ import annotations

import socket


def receive_exactly(sock: socket.socket, size: int) -> bytes:
    """The next `size` bytes, or as many as come before the end. Raises TimeoutError where the socket has a time-out."""
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            break
        data += piece
    return data


def receive_frame(sock: socket.socket) -> bytes:
    """One frame of RocketMQ's, its length in front; less where the connection ends."""
    head = receive_exactly(sock, 4)
    return head + receive_exactly(sock, int.from_bytes(head, "big"))
