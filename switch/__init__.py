"""The embedded switch: BMv2 JSON compiled to native code, behind ports and a P4Runtime server."""
