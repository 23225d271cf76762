"""What a training run needs beyond the exercises: options, data sets, networks, records."""
