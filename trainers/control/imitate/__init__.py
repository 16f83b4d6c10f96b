"""Recipe `imitate`."""
