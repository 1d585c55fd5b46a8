"""What a controller asks of the embedded switch beside P4Runtime: a few frames as they pass.  JSON as in `rpc`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SERVICE: Final = "switchsum.Switch"
METHOD: Final = "Sample"
"""Method for samples. Other switches answer that it is not implemented."""
MOST_FRAMES: Final = 64
LONGEST_S: Final = 2.0
HEAD_BYTES: Final = 256
"""Number of bytes of each frame that are returned, from its first one on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """Wait for frames that have certain bytes at a certain place."""

    offset: int
    """Bytes in front of that place, 0 to 255."""
    pattern: str
    """The bytes, in hexadecimal digits."""
    frames: int = 16
    """Return when so many have passed, 1 to `MOST_FRAMES`."""
    seconds: float = 0.5
    """Return with fewer after so long, at most `LONGEST_S`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledFrame:
    """One frame that has arrived at the switch or leaves it."""

    at_s: float
    """Seconds since 1970 on the switch's clock."""
    port: int
    is_sent: bool
    """True: the frame leaves the switch. False: it has arrived."""
    length: int
    """Bytes of the whole frame."""
    head: str
    """First `HEAD_BYTES` bytes of the frame, in hexadecimal digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleReply:
    """What has passed, in order."""

    frames: list[SampledFrame] = field(default_factory=list)
