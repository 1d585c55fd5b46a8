"""Thin drivers between the worker engine and a link: shared memory, UDP, AF_PACKET, scapy."""
