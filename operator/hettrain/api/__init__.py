"""The two kinds of hetccl.io/v1alpha1, typed."""

from hettrain.api.job import HetTrainingJob
from hettrain.api.load import InvalidDocument, Problem, load, load_profile
from hettrain.api.profile import HetPoolProfile
from hettrain.api.status import Condition, FirstFailure, JobStatus, PoolStatus

__all__ = [
    "Condition",
    "FirstFailure",
    "HetPoolProfile",
    "HetTrainingJob",
    "InvalidDocument",
    "JobStatus",
    "PoolStatus",
    "Problem",
    "load",
    "load_profile",
]
