"""How a server ends and cuts nobody off: what both servers of the runtime share."""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
from contextlib import suppress

GRACE = 0.5
"""Seconds after SIGTERM in which new callers are still answered, and asked to go elsewhere."""
TAKEN = 0.1
"""Seconds in which a caller that has connected is noticed."""
IDLE = 5.0
"""Seconds that an open connection has for one last request."""
SO_ATTACH_FILTER = 26
"""Of Linux; Python's socket module does not name it."""


def let_nobody_in(listening: socket.socket) -> None:
    """From now on nobody can connect: a socket that closes cuts off all who wait at its door.

    Linux drops the packets that ask for a connection (SYN without ACK in the header's byte 13);
    those who ask are refused when the socket is closed. Elsewhere one caller may still wait.
    """
    listening.listen(0)
    if sys.platform == "linux":
        load_flags, keep_both, drop_if_syn = (
            (0x30, 0, 0, 13),
            (0x54, 0, 0, 0x12),
            (0x15, 0, 1, 0x02),
        )
        drop, take = (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF)
        program = (load_flags, keep_both, drop_if_syn, drop, take)
        code = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
        memory = ctypes.create_string_buffer(code)
        filter_ = struct.pack("HL", len(program), ctypes.addressof(memory))
        with suppress(OSError):  # a kernel without filters
            listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, filter_)
