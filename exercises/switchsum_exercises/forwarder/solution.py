"""Exercise 1, solved: a switch that only forwards."""

from __future__ import annotations

from switchsum_exercises.frames import BROADCAST, Answers, Frame


class Switch:
    """Forwards by destination address."""

    def __init__(self, ports: int) -> None:
        self.ports = ports
        self.stations: dict[int, int] = {}

    def process(self, port: int, frame: Frame) -> Answers:
        """Take a frame that came in at a port; return the frames that leave, each with its port."""
        if frame.destination == BROADCAST:
            return [(other, frame) for other in range(1, self.ports + 1) if other != port]
        goal = self.stations.get(frame.destination)
        if goal is None or goal == port:
            return []
        return [(goal, frame)]
