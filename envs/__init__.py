"""Gymnasium environments and their physics. Imports nothing else of ours."""
