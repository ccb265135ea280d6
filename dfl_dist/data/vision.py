"""torchvision, also where its compiled operators were built for another torch. It is slow to import."""

import sys

import torch

declared = False  # whether its operators had to be declared here

try:
    import torchvision
except RuntimeError as error:
    if "torchvision::nms" not in str(error):
        raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]  # half imported
    # The operators are missing, and nothing here calls them: data sets and models only want them declared.
    operators = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    operators.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]
    operators.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")  # type: ignore[no-untyped-call]
    import torchvision

    declared = True

__all__ = ["declared", "torchvision"]
