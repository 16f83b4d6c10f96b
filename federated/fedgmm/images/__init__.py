"""Image scenarios: treatments, instruments or both are pictures of a hidden scalar."""
