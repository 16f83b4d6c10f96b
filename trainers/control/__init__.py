"""Process control: experts, imitation of demonstrations, and inverse reinforcement learning.

Reproduces and extends arXiv 2505.21026 on the plants of `envs`.
"""
