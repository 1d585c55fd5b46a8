"""The v1model architecture as simple_switch has it: constants, limits of this switch, and its metadata.

The values of `instance_type` are in behavioral-model's targets/simple_switch/simple_switch.h (`PktInstanceType`) and in
docs/simple_switch.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DROP_PORT: Final = 511
"""Egress port that means drop, unless the switch is started with another one."""

NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATION, RESUBMITTED = 0, 1, 2, 4, 5, 6
"""Values of `instance_type`."""

PASSES: Final = 1024
"""Default for how often ingress may run for one frame; a packet that is resubmitted or recirculated more often is
dropped.  BMv2 has no limit, so that a program which recirculates for ever never frees it.  1,024 is more than a program
with an 8-bit counter, such as a TTL, can use."""
MAX_PASSES: Final = 65536
"""Largest limit that a user may set: each pass has memory of its own."""

MAX_CLONE_DEPTH: Final = 8
"""Longest chain of clones of clones in egress; the next clone is not made.  BMv2 has no limit here either."""

QUEUE_SHIFT: Final = 16
"""Bit of the output's port number at which the number of the queue begins."""

MAX_QUEUES: Final = 256
"""Most queues that a port may have.  v1model's `priority` has 3 bits; another architecture file may make it wider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intrinsics:
    """Slots of the fields through which the program and the switch around it talk to each other.

    Most are fields of v1model's standard metadata.  The last six exist in this switch only: they note what the
    externs `truncate`, `clone`, `resubmit` and `recirculate` are to do when the control ends, as BMv2 does it.  A
    number that may be absent is stored with 1 added, so that 0, the value of fresh metadata, means that it is absent.
    """

    ingress_port: int
    egress_spec: int
    egress_port: int
    instance_type: int
    packet_length: int
    mcast_grp: int
    egress_rid: int
    parser_error: int
    checksum_error: int
    ingress_timestamp: int
    egress_timestamp: int
    enqueue_timestamp: int
    enq_qdepth: int
    deq_qdepth: int
    deq_timedelta: int
    qid: int
    priority: int
    length: int
    """Bytes of the packet with the headers that are valid now; becomes `packet_length` in egress."""
    cut: int
    """Bytes that the packet is truncated to, plus 1; 0: it is not truncated."""
    clone: int
    """Session that the packet is cloned to when ingress or egress ends, plus 1; 0: it is not cloned."""
    clone_list: int
    """Field list that the clone keeps."""
    resubmit: int
    """Field list with which the packet enters ingress again as it arrived; 0: it is not resubmitted."""
    recirculate: int
    """Field list with which the packet enters ingress again as it would leave; 0: it is not recirculated."""
