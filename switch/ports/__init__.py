"""Where frames enter and leave the switch: in memory, shared memory, AF_PACKET, pcap."""
