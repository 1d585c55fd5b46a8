"""gRPC without its own log lines: the only place that imports it.

    from switchsum_switch.connections.quiet_grpc import grpc

gRPC writes to standard error what also comes as an error that we raise, and a line for each fork of a process that has
a connection.  How much it writes is a variable of the environment, which gRPC reads once, when it is imported.  So the
variable is set for that moment alone: a program that imports this one finds its environment as it was, and where gRPC
was there before, or the variable is set, gRPC goes on as its user wants it.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["grpc"]

_VARIABLE: Final = "GRPC_VERBOSITY"

if _VARIABLE in os.environ:
    import grpc
else:
    os.environ[_VARIABLE] = "NONE"
    try:
        import grpc
    finally:
        del os.environ[_VARIABLE]
