"""Plan, launch, collect and plot a benchmark sweep. Knows run folders and CSV, not torch."""
