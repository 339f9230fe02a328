"""Tables, plots and pages from results. Reads results only; never runs anything."""
