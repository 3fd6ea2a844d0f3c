"""Outputs of a run as types that the reader names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from pgflowd.core.suggest import did_you_mean
from pgflowd.core.typed.values import read_as
from pgflowd.errors import WrongState

T = TypeVar("T")


class TypedOutputs(ABC):
    """A run whose outputs can be read as types."""

    @property
    @abstractmethod
    def _outputs(self) -> Mapping[str, Any]:
        """By steps, as JSON."""

    def output_as(self, step: str, as_type: type[T]) -> T:
        """
        The output of a step, decoded as this type; without its steps a run has those of leaves.

        Raises TypeMismatch, and WrongState if there is no such output.
        """
        outputs = self._outputs
        if step not in outputs:
            known = f"it has those of {', '.join(outputs)}" if outputs else "it has none"
            raise WrongState(
                f"the run has no output of step '{step}'", next=did_you_mean(step, outputs) or known
            )
        return cast(T, read_as(outputs[step], as_type, step))
