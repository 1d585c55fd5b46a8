"""A P4 program on the switch alone: `python examples/switch/gateway.py`, without root, interfaces or p4c.

`gateway.p4` routes IPv4, limits the rate of each customer, and marks packets that meet a long queue.  The script loads
what p4c made of it (`gateway.json` lies beside it), fills its tables, and sends it frames on a clock of its own.
"""

from __future__ import annotations

import ipaddress
import time
from pathlib import Path
from typing import Final

from switchsum_switch import MeterRates, Switch

HERE: Final = Path(__file__).parent
CUSTOMER, STRANGER, SERVER = "10.1.0.7", "10.9.0.1", "192.0.2.1"
GATEWAY, NEXT = bytes.fromhex("02000000000a"), "02:00:00:00:00:0b"
ENTERS: Final = 1
LEAVES: Final = 3
TTL_AT: Final = 22
"""Offset of the time to live; the byte with ECN is at 15."""


def frame(source: str = CUSTOMER, destination: str = SERVER) -> bytes:
    """Return an Ethernet frame with an IPv4 packet of 100 bytes whose sender understands marks."""
    head = bytes([0x45, 2]) + (100).to_bytes(2) + bytes(4) + bytes([64, 17]) + bytes(2)
    addresses = ipaddress.ip_address(source).packed + ipaddress.ip_address(destination).packed
    return GATEWAY + bytes.fromhex("0200000000010800") + head + addresses + bytes(80)


def load() -> Switch:
    """Load the program, and fill its tables by their P4 names."""
    switch = Switch.from_file(HERE / "gateway.json", HERE / "gateway.p4info.txtpb")
    switch.tables["routes"].insert({"hdr.ipv4.destination": "192.0.2.0/24"}, "forward", port=LEAVES, mac=NEXT)
    switch.tables["customers"].insert({"hdr.ipv4.source": CUSTOMER}, "known")
    return switch


def show_routing(switch: Switch) -> None:
    """Send one frame with a route, and show what happens to one that the gateway drops."""
    print("== A frame is routed, and its time to live is one less")
    [(port, made)] = switch.process(ENTERS, frame())
    print(f"port {port}, time to live {made[TTL_AT]}, to {made[:6].hex(':')}")
    print("== A stranger's frame is dropped; the trace says where")
    print(switch.trace(ENTERS, frame(STRANGER)))


def show_rate(switch: Switch) -> None:
    """Send more than a customer may, and again later."""
    print("== A customer may send 1,000 packets a second, and 10 at once")
    rates = MeterRates(committed=1000, committed_burst=10, peak=1000, peak_burst=10)
    switch.tables["customers"].set_meter({"hdr.ipv4.source": CUSTOMER}, rates)
    passed = sum(len(switch.process(ENTERS, frame())) for _ in range(30))
    switch.advance(0.005)
    later = sum(len(switch.process(ENTERS, frame())) for _ in range(30))
    print(f"of 30 at once {passed} pass, 5 ms later {later}")
    green, _, red, _ = switch.counters["by_colour"].packets.tolist()
    print(f"the program's own counter: {green} green, {red} red")
    switch.tables["customers"].set_meter({"hdr.ipv4.source": CUSTOMER}, None)


def show_queue(switch: Switch) -> None:
    """Let frames wait for a slow port."""
    print("== Port 3 sends 1,000 frames a second; frames that find 4 others waiting are marked")
    switch.queue(LEAVES).rate_pps = 1000
    started = switch.clock.now_us() / 1e6
    left = [(0.0, made) for _ in range(8) for _, made in switch.process(ENTERS, frame())]
    left += [(at - started, made) for at, _, made in switch.advance(0.1)]
    for at, made in left:
        print(f"{1000 * at:4.1f} ms: {'marked' if made[15] & 3 == 3 else 'not marked'}")
    switch.queue(LEAVES).rate_pps = 0


def show_speed(switch: Switch) -> None:
    """Say how long frames take."""
    print("== All that was counted, and the speed")
    print(*switch.tables["routes"].entries(), sep="\n")
    one, count = frame(), 2_000
    started = time.perf_counter()
    for _ in range(count):
        switch.process(ENTERS, one)
    print(f"{count:,} frames, one by one from Python: {time.perf_counter() - started:.2f} s")


def main() -> None:
    """Show what the gateway does."""
    switch = load()
    for show in (show_routing, show_rate, show_queue, show_speed):
        show(switch)


if __name__ == "__main__":
    main()
