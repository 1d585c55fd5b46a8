"""What processes say to each other about a switch: P4Runtime, JSON of dataclasses, and samples of frames."""
