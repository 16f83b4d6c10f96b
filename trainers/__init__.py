"""What learns: one package a method."""
