"""The ports of the switch: shared memory, interfaces, UDP peers, a UDP socket, memory for tests; and taps on them."""
