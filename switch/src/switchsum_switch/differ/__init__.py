"""Random packets and entries through interpreter, native code and BMv2: whatever they do not agree about is a fault."""
