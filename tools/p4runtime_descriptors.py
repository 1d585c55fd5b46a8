"""Write the switch's messages/p4runtime.binpb: P4Runtime's messages, from the packages that publish them.

Run as `python tools/p4runtime_descriptors.py`, with the extra dev; a test compares what it makes with the committed
file.  The packages are p4runtime (github.com/p4lang/p4runtime) and googleapis-common-protos
(github.com/googleapis/googleapis), both under the Apache License 2.0.  Their generated modules fail beside protobuf 4
and later, so they are read and not run: the serialized descriptor of a file is the longest string of bytes in its
module.
"""

from __future__ import annotations

import ast
from importlib.metadata import distribution
from pathlib import Path

from google.protobuf import descriptor_pb2

TARGET = Path(__file__).parent.parent / "switch" / "src" / "switchsum_switch" / "messages" / "p4runtime.binpb"
FILES = (
    ("googleapis-common-protos", "google/rpc/status_pb2.py"),
    ("p4runtime", "p4/config/v1/p4types_pb2.py"),
    ("p4runtime", "p4/config/v1/p4info_pb2.py"),
    ("p4runtime", "p4/v1/p4data_pb2.py"),
    ("p4runtime", "p4/v1/p4runtime_pb2.py"),
)
"""Distribution and generated module of each file, dependencies first."""


def descriptors() -> bytes:
    """Return a serialized FileDescriptorSet of all files."""
    found = descriptor_pb2.FileDescriptorSet()
    for package, module in FILES:
        source = Path(str(distribution(package).locate_file(module))).read_text(encoding="utf-8")
        constants = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
        serialized = max((value for value in constants if isinstance(value, bytes)), key=len)
        found.file.append(descriptor_pb2.FileDescriptorProto.FromString(serialized))
    return found.SerializeToString(deterministic=True)


if __name__ == "__main__":
    TARGET.write_bytes(descriptors())
