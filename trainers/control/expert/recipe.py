"""The recipe: learn or set up the expert, judge it, record it."""

from cluster.evidence import Result
from cluster.run import Run
from trainers.control.closed_loop import Response, respond
from trainers.control.demonstrations.parquet import write
from trainers.control.demonstrations.truth import write_truth
from trainers.control.expert.config import Config
from trainers.control.expert.present import present
from trainers.control.expert.train import learn
from trainers.control.record import JUDGED, RECORDED, controller, record


def run(config: Config, run: Run) -> Result:
    """Train an expert for each seed; the first one is recorded."""
    found: dict[str, list[list[Response]]] = {"expert": []}
    seen, modes = config.full_plant, len(config.plant.levels)
    for i, seed in enumerate(config.seeds):
        policy = learn(config, seed, run) if config.expert == "learnt" else None
        acting = controller(seen, policy)
        found["expert"].append(respond(seen, [acting] * modes, config.rows, JUDGED + seed))
        if i == 0:
            recorded = controller(seen, policy, config.exploration, seed)
            data, mode, episodes = record(
                config.plant, recorded, config.trajectories, RECORDED + seed
            )
            write(
                run.artifact("demonstrations.parquet"),
                data,
                plant=config.plant.model_dump(mode="json"),
            )
            write_truth(run.artifact("truth.parquet"), data.ids.tolist(), mode)
    if config.plant.kind == "cstr" and config.expert == "learnt":
        pi = controller(seen, None)
        found["pi"] = [respond(seen, [pi] * modes, config.rows, JUDGED + s) for s in config.seeds]
    return present(config, found, episodes, run)
