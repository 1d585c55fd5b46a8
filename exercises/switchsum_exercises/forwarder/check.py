"""Exercise 1: what the switch must do."""

from __future__ import annotations

from switchsum_exercises.driver import Attempt, Bench, Wrong
from switchsum_exercises.frames import BROADCAST, WORKERS, Frame, Kind

UNKNOWN = 0x02_00_00_00_00_99


def station(port: int) -> int:
    """Return the address of the station behind a port."""
    return 0x02_00_00_00_00_00 + port


def made(attempt: Attempt) -> Bench:
    """Return the learner's switch with its stations."""
    bench = attempt.switch(WORKERS)
    for port in range(1, WORKERS + 1):
        bench.switch.stations[station(port)] = port
    return bench


def send(bench: Bench, port: int, destination: int) -> list[int]:
    """Send a frame; return the ports that it left through, once for each copy."""
    frame = Frame(kind=Kind.ORDINARY, source=station(port), destination=destination, lanes=(1, 2, 3, 4))
    answers = bench.send(port, frame)
    for left, copies in answers.items():
        if any(copy != frame for copy in copies):
            raise Wrong(f"the frame that left port {left} is not the one that came in")
    return sorted(left for left, copies in answers.items() for _ in copies)


def known_stations(attempt: Attempt) -> None:
    """See that a frame goes to its station, and nowhere else."""
    bench = made(attempt)
    for port in range(1, WORKERS + 1):
        for goal in range(1, WORKERS + 1):
            if goal == port:
                continue
            left = send(bench, port, station(goal))
            if not left:
                raise Wrong(f"a frame from port {port} to the station behind port {goal} went nowhere")
            if left != [goal]:
                raise Wrong(f"a frame from port {port} to the station behind port {goal} left through ports {left}")


def broadcasts(attempt: Attempt) -> None:
    """See that a broadcast goes everywhere but back."""
    bench = made(attempt)
    for port in range(1, WORKERS + 1):
        left = send(bench, port, BROADCAST)
        if port in left:
            raise Wrong(f"a broadcast from port {port} came back through port {port}: its sender would see it twice")
        if left != [other for other in range(1, WORKERS + 1) if other != port]:
            raise Wrong(f"a broadcast from port {port} left through ports {left}, not through each other port once")


def never_back(attempt: Attempt) -> None:
    """See that a frame whose station is where it came from goes nowhere."""
    if send(made(attempt), 2, station(2)):
        raise Wrong("a frame to a station behind its own port was sent back: the station has it already")


def unknown(attempt: Attempt) -> None:
    """See that a frame to nobody goes nowhere."""
    if left := send(made(attempt), 1, UNKNOWN):
        raise Wrong(f"a frame to an unknown address left through ports {left}; in this exercise it is dropped")


CHECKS = (known_stations, broadcasts, never_back, unknown)
