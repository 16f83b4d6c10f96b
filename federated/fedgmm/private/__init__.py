"""The private analysis: one noisy release of bounded sums, and what is computed from it."""
