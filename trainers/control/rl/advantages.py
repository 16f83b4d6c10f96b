"""How much better than expected was each action? Generalised advantage estimation."""

import torch
from torch import Tensor


def advantages(
    rewards: Tensor, values: Tensor, valid: Tensor, terminated: Tensor, gamma: float, trace: float
) -> Tensor:
    """A_t = sum_l (gamma lambda)^l delta_{t+l}, of whole episodes (arXiv 1506.02438, eq. 16).

    Parameters
    ----------
    rewards, valid : (n, T); what follows a row's last valid sample does not count.
    values : (n, T + 1), of the observation before each sample, and after the last.
    terminated : (n,), whether a row's last valid sample ended its episode for good. A row that was
        only cut off goes on with the value of what was seen last.

    Returns
    -------
    (n, T), zero where not valid.
    """
    samples = rewards.shape[1]
    keep = valid.to(rewards.dtype)
    last = torch.arange(samples) == (valid.sum(1, keepdim=True) - 1)
    goes_on = 1 - (last & terminated[:, None]).to(rewards.dtype)
    delta = (rewards + gamma * goes_on * values[:, 1:] - values[:, :-1]) * keep
    found = torch.zeros_like(rewards)
    running = torch.zeros_like(rewards[:, 0])
    for t in reversed(range(samples)):
        running = delta[:, t] + gamma * trace * running
        found[:, t] = running
    return found
