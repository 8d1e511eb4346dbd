"""Aggregation: guard, rules and server optimizers; one rule a file, listed here."""

from typing import Annotated

from pydantic import Field

from server.aggregation.flower import FlowerRule, FlowerRuleConfig
from server.aggregation.guard import Guard, GuardConfig
from server.aggregation.mean import Mean, MeanConfig
from server.aggregation.optimizers import AdamConfig, OptimizerConfig, ServerOptimizer, SgdConfig
from server.aggregation.rule import Fold, Rule

AggregationConfig = Annotated[MeanConfig | FlowerRuleConfig, Field(discriminator="rule")]

__all__ = [
    "AdamConfig",
    "AggregationConfig",
    "FlowerRule",
    "FlowerRuleConfig",
    "Fold",
    "Guard",
    "GuardConfig",
    "Mean",
    "MeanConfig",
    "OptimizerConfig",
    "Rule",
    "ServerOptimizer",
    "SgdConfig",
]
