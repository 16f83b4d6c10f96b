"""Flower apps: clients that never share rows."""
