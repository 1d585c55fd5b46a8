"""Runs a controller of the p4lang tutorials without the old protobuf that its packages need.

`python tutorial_controller.py mycontroller.py` in the exercise's folder.  The messages that it imports are the
switch's own (`switchsum_switch.messages.p4runtime`), which work with every protobuf.
"""

from __future__ import annotations

import runpy
import sys
import types
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from switchsum_switch.messages.p4runtime import METHODS, config, v1

FIELD = descriptor_pb2.FieldDescriptorProto


class P4RuntimeStub:
    """Methods of the service as callables, as grpcio-tools would write them."""

    def __init__(self, channel: Any) -> None:
        for name, method in METHODS.items():
            ends = ["stream" if streams else "unary" for streams in (method.client_streams, method.server_streams)]
            call = getattr(channel, "_".join(ends))
            send, receive = method.request.SerializeToString, method.response.FromString
            setattr(self, name, call(method.path, request_serializer=send, response_deserializer=receive))


class P4RuntimeWriteException(Exception):
    """An error of p4runtime-shell, of which flowcache takes nothing else."""


def device_config() -> Any:
    """Return `p4.tmp.P4DeviceConfig` of p4lang/PI, in which older clients wrap a program; no package has it."""
    file = descriptor_pb2.FileDescriptorProto(name="p4/tmp/p4config.proto", package="p4.tmp", syntax="proto3")
    message = file.message_type.add(name="P4DeviceConfig")
    for name, number, kind in (("reassign", 1, FIELD.TYPE_BOOL), ("device_data", 3, FIELD.TYPE_BYTES)):
        message.field.add(name=name, number=number, type=kind, label=FIELD.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p4.tmp.P4DeviceConfig"))


def put(name: str, **contents: Any) -> None:
    """Make a module, and the packages that it is in."""
    above, _, last = name.rpartition(".")
    module = sys.modules.setdefault(name, types.ModuleType(name))
    vars(module).update(contents)
    if above:
        put(above, **{last: module})


def main() -> None:
    """Put the stand-ins in place, and run the controller."""
    put("p4.v1.p4runtime_pb2", **vars(v1))
    put("p4.v1.p4runtime_pb2_grpc", P4RuntimeStub=P4RuntimeStub)
    put("p4.config.v1.p4info_pb2", **vars(config))
    put("p4.tmp.p4config_pb2", P4DeviceConfig=device_config())
    put("p4runtime_sh.p4runtime", P4RuntimeWriteException=P4RuntimeWriteException)
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
