"""The process of a protocol's server on real links: `python -m switchsum_lab.protocols.serve`."""

from __future__ import annotations

from .member import meet, read_assignment
from .seam import load
from .sockets import PacketLink, Service


def main() -> None:
    """Serve until the launcher ends this process."""
    place = read_assignment()
    link = PacketLink(place.host, place.interface, loss=place.loss, seed=place.seed)
    steps = load(place.directory).server(place.world(), link)
    service = Service(link)
    with meet(place) as meeting:
        meeting.recv()
        service.call(steps)


if __name__ == "__main__":
    main()
