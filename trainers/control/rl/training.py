"""How is an algorithm trained inside a run, so that a kill loses little?"""

from cluster.errors import CorymbError
from cluster.run import Run
from trainers.control.rl.algorithm import PolicyOptimisation, optimise

EVERY = 10
"""Iterations between checkpoints."""


def train(
    algorithm: PolicyOptimisation, run: Run, name: str, words: str, settings: str = "policy"
) -> None:
    """Take the iterations that are left, from the run's last checkpoint on if there is one.

    Parameters
    ----------
    name : of the checkpoint, such as "expert-0"; what comes before the seed names what is logged.
    words : what the training is called on the screen and in errors.
    settings : where the configuration has the algorithm's, for the advice of an error.

    Raises
    ------
    CorymbError : where training diverges.
    """
    kept = run.load(name)
    if kept is not None:
        algorithm.restore_snapshot(kept[1])
    total = algorithm.settings.iterations
    kind, _, seed = name.rpartition("-")
    try:
        for figures in optimise(algorithm):
            done = algorithm.done
            run.log(done, seed=int(seed), **{f"{kind}.{k}": v for k, v in figures.items()})
            run.say(f"{words}: iteration {done} of {total}, {figures['return']:.4g}")
            if done % EVERY == 0 or done == total or run.stop_requested():
                run.save(done, algorithm.snapshot(), {}, name=name)
                run.check_stop()
    except ValueError as error:
        raise CorymbError(
            f"{words} diverged in iteration {algorithm.done + 1}: {error} Lower {settings}.lr"
        ) from error
