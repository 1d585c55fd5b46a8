"""Single packets, crafted and decoded with Scapy, for teaching and for looking into trouble."""
