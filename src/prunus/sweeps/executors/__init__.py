"""Executors: who does the runs. Worker processes on this machine, or a Dask cluster."""
