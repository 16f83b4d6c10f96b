"""Policy optimisation on RLlib's new stack, with whole vector rollouts instead of episodes.

RLlib keeps its books for each episode of each environment at each step, which costs more than the
plant and the network together. Here an env runner hands over arrays (rows, samples, ...): one
episode in each row of a vector environment. All else is RLlib's: algorithm, env-runner group,
learner group, module, optimisers, schedules.
"""
