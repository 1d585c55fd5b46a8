"""The live page and the metrics of a controller, over HTTP."""
