"""Computes how many contributions the members of a job have in flight.

A member may have as many contributions in flight as the slowest part on the way can hold, or the surplus is
lost and has to be repeated.  `window_slots` takes the least of: the job's slots, the frames that a port of the switch
holds, the frames that a member's socket holds, and the frames that fit its cache.  A job that was made without a number
of slots has as many as that when it is admitted, and the others are free.  Members behind one port share what
it holds. All members of a job get the same window, since a slot must take the same blocks on each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from switchsum_protocol.member_rpc import MOST_IN_FLIGHT

from ..jobs.job import Job
from ..jobs.machines import Incarnation
from ..trees.fabric import Fabric

SPARE_BYTES: Final = 512
"""Most bytes that Linux reserves in a frame's memory beside the frame."""
RECORD_BYTES: Final = 256
"""Bytes of Linux's own record of each frame (struct sk_buff)."""


def window_slots(job: Job, port_frames: int | None, frame_bytes: int, fabric: Fabric | None = None) -> int:
    """Return the window of a job's members, in slots, if each port holds `port_frames` frames (None: no limit)."""
    if job.live is None:
        return job.slot_count
    return min(job.slot_count, most_in_flight(job.live, port_frames, frame_bytes, fabric))


def most_in_flight(
    incarnation: Incarnation, port_frames: int | None, frame_bytes: int, fabric: Fabric | None = None
) -> int:
    """Return the window that links and caches of an incarnation's members want, however many slots the job has.

    A member's socket holds a limited number of frames, too; the switch's UDP socket, which all members share, is taken
    to hold as many.  A switch's socket towards others holds what other switches send.
    """
    members = incarnation.members
    limits = [] if port_frames is None else [port_frames]
    limits += [frames_held(m.receive_bytes, frame_bytes) for m in members if m.receive_bytes]
    limits += [m.window_bytes // frame_bytes for m in members if m.window_bytes]
    # Members behind the same port of the switch share what it holds.
    behind = (
        Counter((attachment.switch, attachment.ingress_port) for attachment in of_link)
        for of_link in zip(*(member.all_attachments for member in members), strict=True)  # all slots may be one link's
    )
    most = max(count for of_link in behind for count in of_link.values())
    if fabric is not None and fabric.link_bytes and fabric.parents:
        limits.append(int(frames_held(fabric.link_bytes, frame_bytes) * most / fabric.frames_per_slot))
    return within(limits, most)


def within(limits: Iterable[int] = (), sharing: int = 1) -> int:
    """Return the window of members that have these limits, in frames, and share each with so many of them.

    Links without a limit, as wires with the embedded switch are, leave the most that a member has in flight.
    """
    return max(1, min([MOST_IN_FLIGHT, *(limit // sharing for limit in limits)]))


def frames_held(receive_bytes: int, frame_bytes: int) -> int:
    """Return how many frames a socket's buffer of `receive_bytes` holds, with half of it left for repeats.

    Linux counts the memory that a frame takes and not its length: a power of two, and its own record.
    """
    return receive_bytes // (2 * ((1 << (frame_bytes + SPARE_BYTES - 1).bit_length()) + RECORD_BYTES))
