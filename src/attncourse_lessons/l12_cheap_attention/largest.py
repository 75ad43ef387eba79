"""How large the tensors are that a computation makes on its way: shows whether a table n × n is among them."""

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that is made in its block; a view takes no memory of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, list | tuple) else (made,):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return made
