"""The ports of the switch: shared memory, network interfaces, a UDP socket, and memory for tests; and taps on them."""
