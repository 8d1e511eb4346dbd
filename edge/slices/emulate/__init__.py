"""The slices of a cell on real packets: in network namespaces for root, or through a proxy for everybody."""

from edge.slices.emulate.cell import CORE, TCP_SHARE, WAYS, CellPlan
from edge.slices.emulate.detect import netns_available
from edge.slices.emulate.names import remove_leftovers
from edge.slices.emulate.namespaces import NamespaceCell
from edge.slices.emulate.proxy import ProxyCell
from edge.slices.emulate.relay import Air

__all__ = ["CORE", "TCP_SHARE", "WAYS", "Air", "CellPlan", "NamespaceCell", "ProxyCell", "netns_available", "remove_leftovers"]
