"""Federated instrumental-variable estimation by the generalised method of moments (2505.21012)."""
