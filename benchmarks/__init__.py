"""One script a claim; each prints its table and writes `benchmarks/results/NAME.json`."""
