"""The same federated rounds in the environment of each peer, one small script a peer."""
