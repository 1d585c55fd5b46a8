"""BMv2 as a process: `simple_switch_grpc` found, started, written to and asked."""
