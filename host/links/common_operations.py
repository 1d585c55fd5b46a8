"""Operations that several native links have, and what such operations need."""

from __future__ import annotations

from switchsum.native.kernels.decorators import inner
from switchsum.native.kernels.intrinsics import carray, pointer
from switchsum.native.kernels.outlined import Outlined
from switchsum.native.process.system import monotonic, poll

from ..engine.link import LINK, LinkRecord
from .base import LONGEST_WAIT_S


@Outlined
def tell_time(link: int) -> int:
    """Tell what the operating system's clock says: the `now` of all native links."""
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    here.time = monotonic()
    return 0


@Outlined
def keep_nothing(link: int) -> int:
    """Do nothing: the `release` of a link whose next `take` overwrites the rows."""
    return 0


@Outlined
def all_pushed(link: int) -> int:
    """Return as many as were handed over: the `consumed` of a link of which the operating system copies."""
    here: LinkRecord = carray(pointer(link), (1,), LINK)[0]
    return int(here.pushed)


@inner
def sleep(link: LinkRecord, watched: int) -> int:
    """Nap, or sleep until a descriptor (address of one that is watched) is ready; return what `poll` does."""
    if link.nap_s > 0:
        return poll(0, 0, nanoseconds(link.nap_s))
    return poll(watched, 1, nanoseconds(link.until - link.time))


@inner
def nanoseconds(seconds: float) -> int:
    """Return a time as `poll` takes it, where a negative one or infinity would mean something else."""
    return int(min(max(seconds, 0.0), LONGEST_WAIT_S) * 1e9)
