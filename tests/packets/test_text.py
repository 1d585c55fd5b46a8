"""How packets are written on a line."""

from __future__ import annotations

from scapy.layers.inet import IP, UDP

from switchsum.packets.text import one_line
from switchsum_host.links.scapy_layer import Aggregation
from switchsum_protocol.frame import NO_BLOCK, Kind


def test_no_block_is_written_as_none() -> None:
    first = IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=1, dport=2)
    first /= Aggregation(kind=Kind.CONTRIBUTION, job=1, epoch=2, block=NO_BLOCK, next_block=0)
    assert one_line(first) == "10.0.0.1:1 > 10.0.0.2:2 contribution job 1.2 rank 0 slot 0 number 0 block none next 0"
