"""The run, and where it runs: configuration, run directories, Ray sessions, the command line."""
