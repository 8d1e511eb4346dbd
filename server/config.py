"""What the coordinator reads of the config."""

import math

from pydantic import Field, model_validator

from edge.slices import NetworkConfig, NodesConfig
from fedslice.core.config import Table
from fedslice.core.federation import FederationConfig
from server.aggregation import AggregationConfig, FlowerRuleConfig, GuardConfig, MeanConfig, OptimizerConfig, SgdConfig
from server.selection import LossAndSpeedConfig, SelectionConfig
from server.slicing import QuorumConfig, SlicingConfig, StaticConfig


class ServerConfig(Table):
    """The tables that say who trains, how updates are folded, and what lies between."""

    federation: FederationConfig = FederationConfig()
    selection: SelectionConfig = Field(default_factory=LossAndSpeedConfig)
    guard: GuardConfig = GuardConfig()
    aggregation: AggregationConfig = Field(default_factory=MeanConfig)
    optimizer: OptimizerConfig = Field(default_factory=SgdConfig)
    network: NetworkConfig = Field(default_factory=lambda: NetworkConfig.model_validate({}))
    slicing: SlicingConfig = Field(default_factory=StaticConfig)
    nodes: NodesConfig = NodesConfig()

    @model_validator(mode="after")
    def _one_optimizer(self) -> "ServerConfig":
        if isinstance(self.aggregation, FlowerRuleConfig) and self.optimizer != SgdConfig():
            raise ValueError(
                f"[optimizer] name = {self.optimizer.name!r} has no effect beside aggregation.rule = 'flower': "
                f"{self.aggregation.strategy} makes the step itself; leave [optimizer] out"
            )
        return self

    @model_validator(mode="after")
    def _slicing_has_its_aim(self) -> "ServerConfig":
        self.slicing.build(self.federation)
        if isinstance(self.slicing, QuorumConfig) and self.federation.close_at == 1.0:
            raise ValueError(
                "slicing.policy = 'quorum' serves those first whose updates close a round, and federation.close_at = 1.0 "
                "waits for all: set it to the share that is enough, for example 0.8, or take min_max"
            )
        return self

    @model_validator(mode="after")
    def _quorum_can_be_met(self) -> "ServerConfig":
        most = math.ceil(self.federation.close_at * min(self.selection.cohort, self.nodes.count) - 1e-9)
        if self.federation.quorum > most:
            raise ValueError(
                f"federation.quorum = {self.federation.quorum} can never be met: "
                f"selection.cohort = {self.selection.cohort} of nodes.count = {self.nodes.count} train in a round"
                + (f", and {most} updates close it (federation.close_at)" if self.federation.close_at < 1 else "")
            )
        return self
