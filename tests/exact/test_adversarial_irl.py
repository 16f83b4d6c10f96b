"""The discriminator's algebra and the information term, on problems small enough to enumerate."""

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from trainers.control.irl.discriminator import Discriminator, Reward, Steps, classification
from trainers.control.irl.information import covariance
from trainers.control.networks import Units

STATES, ACTIONS, HORIZON = 3, 2, 3


class Table:
    """A soft-optimal expert on a Markov decision process of few states, solved backwards."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.reward = rng.normal(size=(STATES, ACTIONS))
        self.next = rng.dirichlet(np.ones(STATES), size=(STATES, ACTIONS))
        self.gamma = 0.8
        value = np.zeros(STATES)
        for _ in range(500):
            q = self.reward + self.gamma * self.next @ value
            value = np.log(np.exp(q).sum(1))
        self.value = value
        self.log_expert = q - value[:, None]

    def occupancy(self, log_policy: np.ndarray) -> np.ndarray:
        """Discounted share of visits (states, actions) from a uniform start."""
        policy = np.exp(log_policy)
        along = np.einsum("sa,sat->st", policy, self.next)
        start = np.full(STATES, 1 / STATES)
        visits = np.linalg.solve(np.eye(STATES) - self.gamma * along.T, (1 - self.gamma) * start)
        found: np.ndarray = visits[:, None] * policy
        return found


def enumerated(count: np.ndarray, log_policy: np.ndarray, after: np.ndarray) -> Steps:
    """Each state and action as often as counted; states and actions are one-hot."""
    s, a = (np.repeat(i.ravel(), count.ravel()) for i in np.indices(count.shape))
    states, actions = torch.eye(len(count)).double(), torch.eye(count.shape[1]).double()
    return Steps(
        states[s], states[after[s, a]], actions[a], torch.zeros(len(s), 0).double(),
        torch.tensor(log_policy[s, a]),
    )  # fmt: skip


def fitted(form: str, states: int, expert: Steps, other: Steps, gamma: float) -> Discriminator:
    """A discriminator of which every step's logit is as good as it can be."""
    torch.manual_seed(0)
    plain = Units([0.0] * states, [1.0] * states)
    d = Discriminator(form, plain, tuple(range(states)), 0, 2, (16,), gamma).double()  # type: ignore[arg-type]
    optimizer = torch.optim.LBFGS(
        d.parameters(), max_iter=2000, tolerance_grad=1e-10, tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = classification(d(expert), d(other))
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return d


COUNT = 5000
NOWHERE = np.zeros((STATES, ACTIONS), int)


def test_the_best_discriminator_recovers_the_experts_log_density() -> None:
    """Where the policy is the expert, f = log pi_E and D = 1/2 at every step."""
    mdp = Table()
    count = np.rint(COUNT * mdp.occupancy(mdp.log_expert)).astype(int)
    both = enumerated(count, mdp.log_expert, NOWHERE)
    d = fitted("action", STATES, both, both, mdp.gamma)
    with torch.no_grad():
        torch.testing.assert_close(d.worth(both), both.log_prob, atol=1e-3, rtol=0)
        torch.testing.assert_close(d(both), torch.zeros(len(both)).double(), atol=1e-3, rtol=0)


def test_away_from_it_the_best_discriminator_is_the_ratio_of_visits() -> None:
    """f - log pi = log rho_E - log rho for any other policy."""
    mdp = Table()
    uniform = np.log(np.full((STATES, ACTIONS), 1 / ACTIONS))
    share = [np.rint(COUNT * mdp.occupancy(p)).astype(int) for p in (mdp.log_expert, uniform)]
    expert, other = (enumerated(count, uniform, NOWHERE) for count in share)
    d = fitted("action", STATES, expert, other, mdp.gamma)
    each = enumerated(np.ones((STATES, ACTIONS), int), uniform, NOWHERE)
    wanted = torch.tensor(np.log(share[0] / share[0].sum()) - np.log(share[1] / share[1].sum()))
    with torch.no_grad():
        torch.testing.assert_close(d(each), wanted.ravel(), atol=2e-3, rtol=0)


def test_a_reward_of_states_is_recovered_up_to_a_constant() -> None:
    """g(s') + gamma h(s') - h(s) = log pi_E has one g, but for a constant: the true reward.

    The plant moves without chance and its states are decomposable (arXiv 1710.11248, theorem 5.1).
    """
    rng, gamma = np.random.default_rng(1), 0.8
    true = rng.normal(size=4)
    after = np.array([[1, 2], [2, 0], [3, 1], [0, 1]])
    value = np.zeros(4)
    for _ in range(500):
        q = true[after] + gamma * value[after]
        value = np.log(np.exp(q).sum(1))
    log_expert = q - value[:, None]
    share = np.exp(log_expert) / 4
    both = enumerated(np.rint(COUNT * share).astype(int), log_expert, after)
    d = fitted("shaped", 4, both, both, gamma)
    with torch.no_grad():
        torch.testing.assert_close(d(both), torch.zeros(len(both)).double(), atol=1e-3, rtol=0)
        found = d.reward(torch.eye(4).double(), torch.zeros(4, 0).double()).numpy()
    apart = found - true
    np.testing.assert_allclose(apart, apart.mean(), atol=5e-3)


def steps(n: int = 6) -> Steps:
    generator = torch.Generator().manual_seed(0)
    x, after, a, z = (torch.randn((n, k), generator=generator) for k in (3, 3, 1, 2))
    return Steps(x, after, a, z, torch.randn(n, generator=generator))


def made(form: str, gamma: float = 0.9) -> Discriminator:
    torch.manual_seed(0)
    return Discriminator(form, Units([0.5, -1.0], [2.0, 0.5]), (2, 0), 2, 1, (8,), gamma)  # type: ignore[arg-type]


def test_the_logit_is_what_each_form_says() -> None:
    one = steps()

    def value(net: Reward, x: Tensor, a: Tensor | None = None) -> Tensor:
        read = (x[:, [2, 0]] - torch.tensor([0.5, -1.0])) / torch.tensor([2.0, 0.5])
        parts = [read, one.z] if a is None else [read, a, one.z]
        return net.net(torch.cat(parts, 1))[:, 0]  # type: ignore[no-any-return]

    state, shaped, action = (made(form) for form in ("state", "shaped", "action"))
    torch.testing.assert_close(state(one), value(state.reward, one.next_x))
    torch.testing.assert_close(action(one), value(action.reward, one.x, one.a) - one.log_prob)
    assert shaped.potential is not None
    potential = 0.9 * value(shaped.potential, one.next_x) - value(shaped.potential, one.x)
    torch.testing.assert_close(
        shaped(one), value(shaped.reward, one.next_x) + potential - one.log_prob
    )
    torch.testing.assert_close(shaped.worth(one), value(shaped.reward, one.next_x))


def test_d_is_the_papers_share_and_its_logit_the_policys_reward() -> None:
    """sigmoid(f - log pi) = exp f / (exp f + pi); log D - log(1 - D) = f - log pi."""
    one, d = steps(), made("action")
    f, pi = d.worth(one), one.log_prob.exp()
    share = f.exp() / (f.exp() + pi)
    torch.testing.assert_close(torch.sigmoid(d(one)), share)
    torch.testing.assert_close(torch.log(share) - torch.log(1 - share), d(one))
    cross = -0.5 * (torch.log(share).mean() + torch.log(1 - share).mean())
    torch.testing.assert_close(classification(d(one), d(one)), cross)


@pytest.mark.parametrize("form", ["state", "action"])
def test_the_slope_is_that_of_differences(form: str) -> None:
    one, other, d = steps(), steps(), made(form)
    other = other.take(torch.tensor([3, 4, 5, 0, 1, 2]))
    share = torch.linspace(0, 1, 6)
    found = d.slope(one, other, share).detach().double()
    ends = (one.x, other.x) if form == "action" else (one.next_x, other.next_x)
    part = share[:, None]
    read = part * d.reward.read(ends[0]) + (1 - part) * d.reward.read(ends[1])
    a = part * one.a + (1 - part) * other.a if form == "action" else None
    total, net, at = torch.zeros(6, dtype=torch.float64), d.reward.double(), 1e-5

    def value(read: Tensor, a: Tensor | None) -> Tensor:
        return net.of_scaled(read.double(), one.z.double(), None if a is None else a.double())

    for j in range(2):
        push = torch.zeros(2, dtype=torch.float64)
        push[j] = at
        total += ((value(read + push, a) - value(read - push, a)) / (2 * at)).square()
    if a is not None:
        wide = a.double()
        total += ((value(read, wide + at) - value(read, wide - at)) / (2 * at)).square()
    torch.testing.assert_close(found, total.detach(), rtol=1e-4, atol=1e-8)


def test_the_information_terms_gradient_is_that_of_enumeration() -> None:
    """Over all trajectories of a small process, p_theta(tau | z) ~ exp sum r_theta(x, z)."""
    trajectories = list(itertools.product(range(STATES), repeat=HORIZON))
    rng = np.random.default_rng(2)
    theta = torch.tensor(rng.normal(size=(2, STATES)), requires_grad=True)
    log_q = torch.tensor(rng.normal(size=(2, len(trajectories)))).log_softmax(0)
    counts = torch.tensor(
        [[t.count(s) for s in range(STATES)] for t in trajectories], dtype=torch.float64
    )
    total = theta @ counts.T  # (2, trajectories)
    p = total.softmax(1)
    exact = torch.autograd.grad(0.5 * (p * log_q).sum(), theta, retain_graph=True)[0]

    rng = np.random.default_rng(3)
    n, pairs = 4, 60000  # many groups of few rollouts, as training has them
    estimate = torch.zeros_like(exact)
    for z in range(2):
        drawn = rng.choice(len(trajectories), size=(pairs, n), p=p[z].detach().numpy())
        rows = torch.from_numpy(drawn.reshape(-1))
        group = torch.arange(pairs).repeat_interleave(n)
        value = covariance(log_q[z][rows], total[z][rows], group)
        estimate += 0.5 * torch.autograd.grad(value, theta, retain_graph=True)[0]
    torch.testing.assert_close(estimate, exact, atol=4e-3, rtol=0)
    assert exact.abs().max() > 0.05


def test_a_z_of_one_rollout_says_nothing() -> None:
    total = torch.ones(3, requires_grad=True)
    value = covariance(torch.tensor([1.0, 2.0, 5.0]), total, torch.tensor([0, 1, 1]))
    (slope,) = torch.autograd.grad(value, total)
    torch.testing.assert_close(slope, torch.tensor([0.0, -1.0, 1.0]))
