"""What a program keeps between packets: tables, profiles, registers, meters, digests, and the ports that are up."""
