"""Constants of the v1model architecture with the values of simple_switch, and limits of this switch.

The values of `instance_type` are in behavioral-model's targets/simple_switch/simple_switch.h (`PktInstanceType`) and in
docs/simple_switch.md.
"""

from __future__ import annotations

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
