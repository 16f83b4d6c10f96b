"""How much does a rollout tell of its z? The information term and its gradients.

    L(theta, psi) = E_{z ~ p(z), tau ~ p_theta(tau | z)} log q_psi(z | tau)

(arXiv 2505.21026, eq. 26). p_theta(tau | z) is proportional to exp(sum of r_theta(x, u, z)) times
the plant's own probability, so that the gradient in theta is the covariance, at given z, of log q
with the gradient of the trajectory's reward. In psi it is the mean gradient of log q.
"""

import torch
from torch import Tensor


def covariance(log_q: Tensor, total: Tensor, group: Tensor) -> Tensor:
    """Mean over rollouts of the covariance of log q and reward among rollouts of the same z.

    Its gradient through `total` is the information term's gradient in theta, without bias.

    Parameters
    ----------
    log_q : (n,), log q(z | tau) of each rollout; no gradient passes.
    total : (n,), the rollout's summed reward.
    group : (n,), a number for each different z. A z of one rollout says nothing and counts as zero.
    """
    groups = int(group.max()) + 1
    count = torch.bincount(group, minlength=groups).to(total.dtype)
    fixed = log_q.detach()
    mean = torch.zeros(groups, dtype=fixed.dtype).index_add(0, group, fixed) / count.clamp_min(1)
    apart = (fixed - mean[group]) * (count / (count - 1).clamp_min(1))[group]
    return (apart * total).mean()
