"""What `corymb init` writes: a run file to edit and a small table to run it on.

The table is synthetic: clinics give a treatment whose dose depends on unseen severity, and the
distance to the clinic, which moves the dose and nothing else, is the instrument.
"""

import numpy as np

from federated.streams import stream

TRUE_EFFECT = -0.5

RUN_FILE = """\
# A federated instrumental-variable analysis. Check it with: corymb validate run.yaml
recipe: fedgmm
preset: small

data:
  source: file
  path: clinics.csv          # CSV or Parquet; relative to this file
  outcome: recovery_days     # y, what the treatment changes
  treatments: [dose]         # x, endogenous: depends on things nobody recorded
  instruments: [distance_km] # z, moves the treatment and nothing else
  controls: [age]            # w, other causes that are recorded
  client: clinic             # who holds which row; rows never leave their client

model: linear                # one coefficient a treatment; `curve` for a whole dose-response curve
"""


def table(rows: int = 1200, clinics: int = 6) -> str:
    """A CSV text whose true effect of dose is `TRUE_EFFECT`; always the same."""
    rng = stream(2, "example")
    clinic = rng.integers(0, clinics, rows)
    age = rng.normal(55, 12, rows)
    severity = rng.normal(0, 1, rows)
    distance = rng.gamma(2.0, 6.0, rows)
    dose = 20 - 0.35 * distance + 3.0 * severity + 0.05 * age + rng.normal(0, 1.5, rows)
    days = 30 + TRUE_EFFECT * dose + 4.0 * severity + 0.1 * age + rng.normal(0, 2, rows)
    lines = ["clinic,recovery_days,dose,distance_km,age"]
    lines += [
        f"clinic {c + 1:.0f},{y:.2f},{x:.2f},{z:.2f},{a:.1f}"
        for c, y, x, z, a in np.column_stack([clinic, days, dose, distance, age]).tolist()
    ]
    return "\n".join(lines) + "\n"
