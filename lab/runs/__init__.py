"""Where a run's options, records and folders are known, without torch."""
