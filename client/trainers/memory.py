"""Where torch keeps a module's numbers: as numpy views, as flat vectors, and its global state."""

from collections.abc import Iterator
from contextlib import contextmanager

import ml_dtypes
import torch

from fedslice.core.params import Array


def to_numpy(tensor: torch.Tensor) -> Array:
    """Return a tensor's memory as an array; numpy knows bfloat16 only through `ml_dtypes`."""
    detached = tensor.detach().cpu()
    if detached.dtype == torch.bfloat16:
        array: Array = detached.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
        return array
    return detached.numpy()


def numpy_views(module: torch.nn.Module) -> dict[str, Array]:
    """Return every entry of a module's state as an array on the same memory: writing one sets the other."""
    return {name: to_numpy(tensor) for name, tensor in module.state_dict().items()}


class Flat:
    """One vector a dtype under all trainable parameters, and one under their gradients.

    An optimizer then works on one tensor instead of one a layer, which for small networks is most of its time.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        """Move the module's parameters and gradients onto the vectors."""
        self.parameters: list[torch.nn.Parameter] = []
        by_dtype: dict[torch.dtype, list[torch.nn.Parameter]] = {}
        for parameter in module.parameters():
            if parameter.requires_grad:
                by_dtype.setdefault(parameter.dtype, []).append(parameter)
        for parameters in by_dtype.values():
            flat = torch.nn.Parameter(torch.cat([p.detach().reshape(-1) for p in parameters]))
            flat.grad = torch.zeros_like(flat)
            sizes = [p.numel() for p in parameters]
            data, gradients = torch.split(flat.detach(), sizes), torch.split(flat.grad, sizes)
            for parameter, values, gradient in zip(parameters, data, gradients, strict=True):
                parameter.data, parameter.grad = values.view_as(parameter), gradient.view_as(parameter)
            self.parameters.append(flat)

    def zero_grad(self) -> None:
        """Set all gradients to zero, in place: the parameters hold views of them."""
        for parameter in self.parameters:
            assert parameter.grad is not None
            parameter.grad.zero_()


@contextmanager
def isolated(seed: int) -> Iterator[None]:
    """Seed torch and hold it to one thread, so that a result depends on nothing around it; then put all back."""
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)
        torch.set_num_threads(threads)
