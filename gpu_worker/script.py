"""A part of the step as a script: its operators one after another, with no Python between them.

On a CPU it is Python that lies between two kernels: at CSM-1B's size some four thousand times a
frame, each time with caches that the weights have swept. So the calls that a part makes are written
down once, as torch's dispatcher sees them, and repeated by TorchScript's interpreter without its
optimizer: the same operators in the same order on the same memory, hence bitwise the same results.
It also does without Python's lock, so other threads of the process need not wait for a frame.

What holds for a CUDA graph holds here: a part may not look at values, and every tensor that it
reads or writes and did not make itself must stay where it is.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from gpu_worker.capture import Run

NAME: Final = "frame"
LOOKS: Final = ("is_nonzero", "item")
"""Those whose tags don't say that what they return depends on values."""
TENSOR: Final = torch._C.TensorType.get()
TENSORS: Final = torch._C.ListType(TENSOR)


def scripted(run: Run) -> Run:
    """Runs it once and returns what repeats it.

    That is ``run`` itself if it changes the number of threads on its way (``model.even``), which no
    operator does. Raises RuntimeError if it looks at a value.
    """
    with _Notes() as notes:
        run()
    if notes.is_uneven:
        return run
    given = tuple(notes.given)
    script = torch._C._create_function_from_graph(NAME, notes.finished())

    def repeat() -> None:
        with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            script(*given)

    return repeat


class _Notes(TorchDispatchMode):
    """Writes down every operator as it runs.

    ``given`` are the tensors and packed weights that were there before. What is made on the way is
    not kept: it goes when the part itself no longer needs it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.given: list[Any] = []
        self.is_uneven = False
        self._graph: Any = torch._C.Graph()
        self._values: dict[int, Any] = {}
        self._constants: dict[str, Any] = {}
        self._made: MutableMapping[Tensor, Any] = WeakIdKeyDictionary()  # type: ignore[no-untyped-call]
        self._threads = torch.get_num_threads()

    def finished(self) -> Any:
        self._graph.registerOutput(self._graph.insertConstant(None))
        return self._graph

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.data_dependent_output in func.tags or func.overloadpacket.__name__ in LOOKS:
            raise RuntimeError(f"{func} looks at a value")
        self.is_uneven |= torch.get_num_threads() != self._threads
        inputs = [self._argument(*each) for each in _arguments(func, args, kwargs or {})]
        out = func(*args, **(kwargs or {}))
        returned = func._schema.returns
        node = self._graph.create(func._schema.name, inputs, len(returned))
        self._graph.appendNode(node)
        node.schema()  # RuntimeError if no operator takes these
        outs = out if len(returned) > 1 else [out]
        for value, each in zip(node.outputs(), outs, strict=True):
            self._keep(value, each)
        return out

    def _argument(self, formal: Any, given: object) -> Any:
        """The value of one argument, whose type only its schema knows if it is a list."""
        if isinstance(given, list | tuple) and (not given or _is_tensors(given)):
            node = self._graph.create("prim::ListConstruct", [self._value(e) for e in given], 1)
            self._graph.appendNode(node)
            node.output().setType(formal.type)
            return node.output()
        return self._value(given)

    def _value(self, given: object) -> Any:
        if not isinstance(given, Tensor | torch.ScriptObject):
            return self._constant(given)
        if isinstance(given, Tensor) and given in self._made:
            return self._made[given]
        if id(given) not in self._values:
            self.given.append(given)
            value = self._graph.addInput()
            value.setType(TENSOR if isinstance(given, Tensor) else given._type())
            self._values[id(given)] = value
        return self._values[id(given)]

    def _constant(self, given: object) -> Any:
        """Ten go with an operator; all that are equal are one. Python takes 1, 1.0 and True for
        equal, but doesn't write them alike.
        """
        if (key := repr(given)) not in self._constants:
            self._constants[key] = self._graph.insertConstant(given)
        return self._constants[key]

    def _keep(self, value: Any, made: object) -> None:
        if isinstance(made, Tensor):
            value.setType(TENSOR)
            self._made[made] = value
        elif isinstance(made, list | tuple):
            value.setType(TENSORS)
            node = self._graph.create("prim::ListUnpack", [value], len(made))
            self._graph.appendNode(node)
            for part, each in zip(node.outputs(), made, strict=True):
                self._keep(part, each)


def _arguments(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[tuple[Any, Any]]:
    """All arguments of the schema, in order, and what is given or stands for each."""
    formals = func._schema.arguments
    rest = [kwargs.get(each.name, each.default_value) for each in formals[len(args) :]]
    return list(zip(formals, [*args, *rest], strict=True))


def _is_tensors(given: Sequence[object]) -> bool:
    return any(isinstance(each, Tensor) for each in given)
