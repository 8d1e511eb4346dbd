"""FedSlice: federated and edge learning over sliced 5G networks."""

__version__ = "0.1.0"
