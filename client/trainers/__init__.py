"""Trainers: how a node turns a model and its data into a better model."""

from client.trainers.local import LocalTrainer, TrainingConfig, examples_processed
from client.trainers.trainer import Job, Result, Trainer

__all__ = ["Job", "LocalTrainer", "Result", "Trainer", "TrainingConfig", "examples_processed"]
