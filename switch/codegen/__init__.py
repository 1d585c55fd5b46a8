"""From the verified IR to native code, split by P4 element."""
