"""The command lines: `switchsum` in app.py, `switchsum-bmv2` in bmv2.py, which starts without typer."""
