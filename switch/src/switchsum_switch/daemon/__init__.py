"""The switch as a process: its loop, its ports, its command line."""
