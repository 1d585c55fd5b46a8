"""The laboratory: other systems' protocols beside ours, and sweeps over both."""
