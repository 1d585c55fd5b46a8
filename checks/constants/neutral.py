"""Values that switch each constant off: an end of its range, and where it has two that say something, both."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

ALWAYS: Final = 0.0
"""Of a limit from which on something is done, in seconds or times."""
NEVER: Final = 1e9
_NEVER_COUNTED: Final = 10**6

NEUTRAL: Final[Mapping[str, tuple[float, ...]]] = MappingProxyType(
    {
        "round_trips.STANDING_S": (ALWAYS, NEVER),
        "round_trips.LONG_S": (ALWAYS, NEVER),
        "round_trips.LOSSY_S": (ALWAYS, NEVER),
        "round_trips.FEW_TIMED": (1, 64),
        "round_trips.MANY_MEMBERS": (0, 10**9),
        "round_trips._GAIN": (0.0, 1.0),
        "round_trips._HALF_QUEUED": (1.0, NEVER),
        "round_trips._DEEP": (ALWAYS, NEVER),
        "round_trips._DEEP_S": (ALWAYS, NEVER),
        "round_trips._FAR": (ALWAYS, NEVER),
        "round_trips._ANSWERS": (1.0, NEVER),
        "round_trips._FEW_IN_FLIGHT": (0, _NEVER_COUNTED),
        "timer._PROBES_AT_ONCE": (1, 64),
        "timer._ALL_PROBED_S": (0.01, NEVER),
        "timer._MOST_TRIPS": (1.0, NEVER),
        "timer._LATENESSES": (0.0,),
        "flight.REPEATED": (0,),
        "flight._FEW": (0, _NEVER_COUNTED),
        "timer._SOON": (ALWAYS, NEVER),
        "timer._FEW_PROMPT": (1, _NEVER_COUNTED),
        "timer._UNTIMED_S": (0.2, NEVER),
        "timer._MOST_DOUBLINGS": (0, 20),
        "timer._MOST_TIMES_HELD": (1, 1 << 20),
        "timer._WAITED": (0.0, 1.0),
        "timer._FORGOTTEN_S": (1e-9, NEVER),
        "losses._CREDIT": (0, 64),
        "losses._FEW_DOUBTS": (0, _NEVER_COUNTED),
        "losses._FEW_WAITING": (0, _NEVER_COUNTED),
        "losses._AGED": (ALWAYS, NEVER),
        "losses._LATER_ROUNDS": (ALWAYS,),
        "losses._MOST_HELD_DOUBLINGS": (0, 20),
        "losses._SOONEST": (ALWAYS, 1.0),
        "losses._ON_TIME": (ALWAYS, NEVER),
        "losses._REORDERED": (ALWAYS, 4.0),
        "delivery._IN_A_ROW": (1, 8),
        "delivery._FEWEST": (0, 64),
        "delivery._KEPT": (0.0, 1.0),
        "delivery._FULL": (ALWAYS, NEVER),
        "delivery._BY_CHANCE": (0.0,),
        "window.PATIENCE": (1, _NEVER_COUNTED),
        "window._STEP": (1, _NEVER_COUNTED),
        "window._FEW": (1.0, NEVER),
        "window._PERSISTENT": (1, _NEVER_COUNTED),
        "window._SLOW": (0.0, 1.0),
        "window._QUIET": (0, 10**9),
        "window._PROBED": (1 / 64, 1.0),
        "window._TRIPS": (1, 64),
        "window._OVERFLOW": (1, 10**9),
        "window._LEAST_CUT": (0.0, 0.5),
        "pacing._FASTER": (1.0, NEVER),
        "pacing._COARSE": (ALWAYS, NEVER),
        "pacing._TRIPS": (1, 10**9),
        "pacing._BURST": (0.0, NEVER),
        "recovery._MANY": (0, 10**9),
        "congestion.FIRST_EMPTY": (8, 10**6),
        "congestion._FIRST_PASSED": (1, _NEVER_COUNTED),
        "window._PART_OF_FALLBACK": (1 / 64, 1.0),
        "pacing._LONG": (ALWAYS, NEVER),
        "pacing._GAIN": (1.0, NEVER),
    }
)
"""Values to be tried, by the constant's name."""
FIXED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "timer.WAYS": "the number of ways that a round can take",
        "recovery.EVERY": "stands for any path, and is none",
        "timer._ENDLESS": "keeps a shift within 64 bits",
        "losses._MOST_DOUBLINGS": "keeps a shift within 64 bits",
        "window.LEAST": "with a window of nothing, nothing is ever sent",
        "congestion._BLOCK_BITS": "bits of a block's number and its columns",
    }
)
"""Constants that decide nothing, and why they are what they are."""
ELSEWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("timer._LATENESSES", "timer._FORGOTTEN_S", "pacing._COARSE"),
            "decides where workers share processors and look late at their clocks, which none does in virtual time",
        ),
        **dict.fromkeys(
            ("window.PATIENCE", "window._STEP", "window._FEW"),
            "decides beside TCP that does not obey marks ([sharing.md](sharing.md#how-the-window-changes))",
        ),
        "window._LEAST_CUT": "decides beside TCP ([sharing.md](sharing.md#how-the-window-changes))",
        "window._PART_OF_FALLBACK": "decides among jobs on one aggregator ([shared-slots.md](results/shared-slots.md))",
        "round_trips._ANSWERS": "60 random networks that lose 30 % take a fifth longer without it",
        "round_trips._DEEP_S": "processors that are shared make rounds longer, which none does in virtual time",
        "recovery._MANY": "saves processor time: slots are not looked through for each result",
    }
)
"""Constants that decide where no rough network is, and where that is."""
