"""`ModelGroup`: models that share their weights, or the memory between their ops."""

from __future__ import annotations

import os
import weakref
from enum import Enum
from typing import TYPE_CHECKING

from litehouse import Arena, LitehouseError, read
from mindspore_lite._checks import check_instance
from mindspore_lite.context import Context

if TYPE_CHECKING:
    from mindspore_lite.model import Model, ModelType

_groups: weakref.WeakSet[ModelGroup] = weakref.WeakSet()


class ModelGroupFlag(Enum):
    """What the models of a group share."""

    SHARE_WEIGHT = 1
    SHARE_WORKSPACE = 2
    SHARE_WEIGHT_WORKSPACE = 3


class ModelGroup:
    """Models that share memory.

    With SHARE_WEIGHT, weights that are equal in several models are in memory once, also where the models differ: add
    `Model` objects, then build them. With SHARE_WORKSPACE, the models use the same memory between their ops: add the
    paths of their files, then build them.

    Example:
        >>> group = ModelGroup(ModelGroupFlag.SHARE_WEIGHT)
    """

    def __init__(self, flags: ModelGroupFlag = ModelGroupFlag.SHARE_WORKSPACE) -> None:
        if not isinstance(flags, ModelGroupFlag):
            raise RuntimeError(
                "Parameter flags should be ModelGroupFlag.SHARE_WORKSPACE or ModelGroupFlag.SHARE_WEIGHT or "
                "ModelGroupFlag.kShareWeightAndWorkspace"
            )
        self._shares_weights = flags is not ModelGroupFlag.SHARE_WORKSPACE
        self._shares_workspace = flags is not ModelGroupFlag.SHARE_WEIGHT
        self._arena = Arena()
        self._paths: set[str] = set()
        _groups.add(self)

    def add_model(self, models: list[str] | tuple[str, ...] | list[Model] | tuple[Model, ...]) -> None:
        """Add models to the group.

        Args:
            models: Paths of files, where memory between ops is shared; `Model` objects, where weights are.

        Raises:
            TypeError: They are not all of one of these types.
            RuntimeError: There are none, they are of the other type, or one is in a group already.
        """
        from mindspore_lite.model import Model

        if not isinstance(models, (list, tuple)):
            raise TypeError(f"models must be list/tuple, but got {type(models)}")
        if not models:
            raise RuntimeError("models cannot be empty")
        kind = str if isinstance(models[0], str) else Model
        for index, model in enumerate(models):
            if not isinstance(model, kind):
                raise TypeError(f"models element must be all str or Model, but got {type(model)} at index {index}.")
        paths = [os.path.realpath(model) for model in models if isinstance(model, str)]
        others = [model for model in models if isinstance(model, Model)]
        if not (self._shares_workspace if paths else self._shares_weights):
            wanted = "Model objects, which share weights" if paths else "paths of files, whose models share workspace"
            raise RuntimeError(f"ModelGroup's add model failed. This group takes {wanted}.")
        if any(model._group is not None for model in others) or len(set(map(id, others))) != len(others):
            raise RuntimeError("ModelGroup's add model failed. A model is in a group already, or was given twice.")
        self._paths.update(paths)
        for model in others:
            model._join(self)

    def cal_max_size_of_workspace(self, model_type: ModelType, context: Context) -> None:
        """Check that the models that were added can be read; the memory grows to what they need when they run.

        Args:
            model_type: The kind of their files.
            context: Where they will run.

        Raises:
            TypeError: An argument is of the wrong type.
            RuntimeError: One cannot be read, or there is none.
        """
        from mindspore_lite.model import FORMATS, ModelType

        check_instance("context", context, Context)
        check_instance("model_type", model_type, ModelType)
        try:
            kinds = [read(path, cache=True).format for path in sorted(self._paths)]
        except (LitehouseError, OSError) as error:
            raise RuntimeError(f"ModelGroup's cal max size of workspace failed. {error}") from error
        if not kinds or any(kind != FORMATS[model_type] for kind in kinds):
            raise RuntimeError("ModelGroup's cal max size of workspace failed.")


def shares_workspace(path: str) -> bool:
    """Whether a group shares the memory between ops of a file's model."""
    return any(os.path.realpath(path) in group._paths for group in list(_groups))
