"""The P4Runtime server of the embedded switch."""
