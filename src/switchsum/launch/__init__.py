"""The launcher: a switch, a controller and workers on one machine, started together and ended together."""
