"""The recipe: read or record demonstrations, clone them with and without modes, judge both."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from cluster.evidence import Result
from cluster.run import Run
from envs.bioreactor_plant import HIGHEST, LOWEST
from trainers.control import controller as saved
from trainers.control.closed_loop import Response, respond
from trainers.control.expert.record import controller
from trainers.control.imitate import judge
from trainers.control.imitate.clone import Cloning, Tensors
from trainers.control.imitate.config import Config
from trainers.control.imitate.data import Demonstrations, demonstrations
from trainers.control.imitate.present import present
from trainers.control.imitate.train import train
from trainers.control.plants import PlantSettings

JUDGED = 1_000_000
"""Seeds of noise in closed loop begin here."""
