"""Numbers of the v1model architecture as simple_switch has them, and the limits of this switch."""

from __future__ import annotations

from typing import Final

DROP_PORT: Final = 511
"""Egress port of packets that are dropped, if nobody wants another."""

NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATION, RESUBMITTED = 0, 1, 2, 4, 5, 6
"""Values of `instance_type`."""

PASSES: Final = 1024
"""How often ingress runs for one frame unless told otherwise; what is resubmitted or recirculated more often is
dropped.  BMv2 has no limit, and a program that never stops keeps it busy for ever.  Programs that count with 8 bits, as
TTLs do, stay below."""
MAX_PASSES: Final = 65536
"""The most that one may ask for: every pass has memory of its own."""

MAX_CLONE_DEPTH: Final = 8
"""How long a chain of clones of clones in egress may be; the next clone is not made."""

QUEUE_SHIFT: Final = 16
"""Where the queue stands in the number of the port to which a frame goes."""

MAX_QUEUES: Final = 256
"""Queues that a port may have; `standard_metadata.priority` has 3 bits, but other programs may make it wider."""
