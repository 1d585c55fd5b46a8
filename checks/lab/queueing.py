"""Queues in virtual time beside their formulas: random arrivals (M/D/1), and a bulk flow through a bottleneck.

Run: python -m checks.lab.queueing [--share 0.1]   It prints what docs/results/scale.md says of them, a row for each
way of waiting, and fails if a wait is more than 2 % from its formula or a flow more than 1 % from its rate.  All of it
takes a minute of a quiet core.

The mean of the waits of n frames scatters as 1 / ((1 - load) sqrt(n)): there are more frames where the load is higher.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Final

from switchsum_exercises import FOLDER
from switchsum_lab.simulation.conditions import CableConditions, parse_rate
from switchsum_lab.simulation.network import Network
from switchsum_lab.simulation.traffic import Traffic
from switchsum_switch.api.switch import Switch

LOADS: Final = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
RATES: Final = ("100mbit", "10gbit", "400gbit")
MOST_OF_A_WAIT, MOST_OF_A_RATE = 0.02, 0.01
PLACES: Final = {False: "behind egress", True: "before egress"}
_FRAME: Final = bytes.fromhex("020000000002020000000001").ljust(1250, b"\0")
_SERVICE_S: Final = 1e-6
_LINK: Final = CableConditions(rate_bps=1e10, overhead_bytes=0)
"""Sends the frame in that time."""
_INSTANT: Final = CableConditions(rate_bps=1e14, delay_s=0.0, overhead_bytes=0)
_SEED: Final = 3


def network_of(link: CableConditions, source: Traffic, *, is_before: bool) -> tuple[Network, Traffic]:
    """Return a network of a source, a switch that forwards, a link and a sink; packets wait before egress or behind."""
    network = Network(seed=_SEED, frame_bytes=len(_FRAME))
    switch = network.switch("s1", Switch.from_file(FOLDER / "forwarder" / "solution.json"))
    network.traffic("h1", source)
    sink = network.traffic("h2", Traffic())
    network.link("h1", "s1", _INSTANT, port=1)
    network.link("s1", "h2", link, port=2)
    switch.tables["stations"].insert({"hdr.ethernet.destination": _FRAME[:6]}, "forward", port=2)
    if is_before:
        switch.queue(2).depth_frames = 1 << 40
    return network, sink


def wait_row(load: float, share: float, *, is_before: bool) -> tuple[str, float]:
    """Return a row of the table of waits, and how far the wait is from its formula."""
    frames = round(share * max(1_000_000, 50_000 / (1 - load) ** 2))
    source = Traffic(_FRAME, gap_s=_SERVICE_S / load, frames=frames, is_random=True, seed=_SEED)
    network, sink = network_of(_LINK, source, is_before=is_before)
    began = time.process_time()
    network.run()
    lasted = time.process_time() - began
    if sink.frames != frames:
        raise SystemExit(f"{frames} frames were sent and {sink.frames} came")
    ideal, found = load / (2 * (1 - load)), network.links["s1->h2"].mean_wait_s / _SERVICE_S
    away = found / ideal - 1
    row = f"| {load:g} | {PLACES[is_before]} | {frames:,} | {ideal:.4f} | {found:.4f} | {away:+.2%} |"
    return f"{row} {frames / lasted / 1e6:.2f} |", abs(away)


def rate_row(text: str, *, is_before: bool) -> tuple[str, float]:
    """Return a row of the table of flows, and how far the flow is from its rate."""
    rate = parse_rate(text)
    service_s = 8 * len(_FRAME) / rate
    source = Traffic(_FRAME, gap_s=service_s / 1.5, frames=100_000)
    network, sink = network_of(replace(_LINK, rate_bps=rate, queue_frames=64), source, is_before=is_before)
    network.run()
    away = sink.rate_bps / rate - 1
    dropped = network.links["s1->h2"].dropped
    return f"| {text} | {PLACES[is_before]} | {sink.rate_bps / 1e6:,.2f} | {away:+.3%} | {dropped:,} |", abs(away)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the frames of the whole table")
    share = parser.parse_args().share
    worst_wait = worst_rate = 0.0
    wait_row(LOADS[0], 1e-4, is_before=True)  # what is not compiled yet is compiled here
    print("| load | packets wait | frames | M/D/1, services | simulated | away | million frames/s of a core |")
    print("|---|---|---|---|---|---|---|")
    for load in LOADS:
        for is_before in (False, True):
            row, away = wait_row(load, share, is_before=is_before)
            worst_wait = max(worst_wait, away)
            print(row, flush=True)
    print("\n| bottleneck | packets wait | simulated, Mbit/s | away | dropped |\n|---|---|---|---|---|")
    for text in RATES:
        for is_before in (False, True):
            row, away = rate_row(text, is_before=is_before)
            worst_rate = max(worst_rate, away)
            print(row, flush=True)
    if worst_wait > MOST_OF_A_WAIT or worst_rate > MOST_OF_A_RATE:
        raise SystemExit(f"waits are up to {worst_wait:.2%} away from the formula, rates {worst_rate:.2%}")


if __name__ == "__main__":
    main()
