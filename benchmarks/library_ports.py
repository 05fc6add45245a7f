"""Build models of PyTorch's libraries, and the ports of them that other libraries hold; small, and without dropout.

And models with ports that are written by hand.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import types
from pathlib import Path
from typing import Any

import numpy as np
from language_ports import LANGUAGE, Pair, bare

__all__ = ["LIBRARIES", "Pair", "modules", "names", "pair"]


VISION = {
    "paddle.vision": {  # of torchvision
        "mobilenet_v2": ("mobilenet_v2(width_mult=0.25)", "mobilenetv2.mobilenet_v2(scale=0.25)"),
        "mobilenet_v3_small": ("mobilenet_v3_small", "mobilenetv3.mobilenet_v3_small"),
        "resnet18": ("resnet18", "resnet.resnet18"),
        "resnet50": ("resnet50(width_per_group=16)", "resnet.ResNet(BottleneckBlock, 50, width=16)"),
        "densenet121": ("densenet121", "densenet.densenet121"),
        "shufflenet_v2": ("shufflenet_v2_x0_5", "shufflenetv2.shufflenet_v2_x0_5"),
        "resnext50": ("resnext50_32x4d", "resnet.resnext50_32x4d"),
    },
    "paddleclas": {  # of timm
        "convnext": (
            "convnext_atto(depths=(1, 1, 2, 1), conv_mlp=False, ls_init_value=1e-6, patch_size=4)",
            "model_zoo.convnext.ConvNeXt(depths=[1, 1, 2, 1], dims=[40, 80, 160, 320])",
        ),
        "deit": (
            "deit_tiny_patch16_224(img_size=32, depth=2)",
            "model_zoo.distilled_vision_transformer.VisionTransformer(img_size=32, patch_size=16, embed_dim=192, "
            "depth=2, num_heads=3, mlp_ratio=4, qkv_bias=True, epsilon=1e-6)",
            32,
        ),
        "densenet121": ("densenet121", "model_zoo.densenet.DenseNet121"),
        "dla34": ("dla34", "model_zoo.dla.DLA34"),
        "dla46x_c": ("dla46x_c", "model_zoo.dla.DLA46x_c"),
        "dpn68": ("dpn68", "model_zoo.dpn.DPN68"),
        "efficientnet": ("tf_efficientnet_b0", "model_zoo.efficientnet.EfficientNetB0(padding_type='SAME')"),
        "efficientnet_v2": ("tf_efficientnetv2_s", "model_zoo.efficientnet_v2.EfficientNetV2_S"),
        "fasternet": ("fasternet_t0", "model_zoo.fasternet.FasterNet_T0"),
        "hgnet": ("hgnet_tiny", "legendary_models.pp_hgnet.PPHGNet_tiny"),
        "hgnetv2": ("hgnetv2_b0", "legendary_models.pp_hgnet_v2.PPHGNetV2_B0"),
        "mobilenet_v1": ("mobilenetv1_100", "legendary_models.mobilenet_v1.MobileNetV1"),
        "mobilenet_v2": ("mobilenetv2_050", "model_zoo.mobilenet_v2.MobileNetV2_x0_5"),
        "mobilenet_v3": ("mobilenetv3_small_100", "legendary_models.mobilenet_v3.MobileNetV3_small_x1_0"),
        "mobilenet_v4": ("mobilenetv4_conv_small", "legendary_models.mobilenet_v4.MobileNetV4_conv_small"),
        "mobilevit": ("mobilevit_xxs", "model_zoo.mobilevit.MobileViT_XXS"),
        "mobilevit_v2": ("mobilevitv2_050", "model_zoo.mobilevit_v2.MobileViTV2_x0_5"),
        "pvt_v2": ("pvt_v2_b0", "model_zoo.pvt_v2.PVT_V2_B0"),
        "regnetx": ("regnetx_002", "model_zoo.regnet.RegNetX_200MF"),
        "repvgg": ("repvgg_a0", "model_zoo.repvgg.RepVGG_A0"),
        "resnet18": ("resnet18", "legendary_models.resnet.ResNet18"),
        "resnet18d": ("resnet18d", "legendary_models.resnet.ResNet18_vd"),
        "resnext50": ("resnext50_32x4d", "model_zoo.resnext.ResNeXt50_32x4d"),
        "rexnet": ("rexnet_100", "model_zoo.rexnet.ReXNet_1_0"),
        "seresnext50": ("seresnext50_32x4d", "model_zoo.se_resnext.SE_ResNeXt50_32x4d"),
        "starnet": ("starnet_s1", "model_zoo.starnet.StarNet_S1"),
        "twins_pcpvt": ("twins_pcpvt_small(img_size=64)", "model_zoo.twins.pcpvt_small(img_size=64)"),
        "vit": (
            "vit_tiny_patch16_224(img_size=32, depth=2)",
            "model_zoo.vision_transformer.VisionTransformer(img_size=32, patch_size=16, embed_dim=192, depth=2, "
            "num_heads=3, mlp_ratio=4, qkv_bias=True, epsilon=1e-6)",
            32,
        ),
    },
    "mindcv": {  # of timm
        "convnext": (
            "convnext_atto(depths=(1, 1, 2, 1), conv_mlp=False, ls_init_value=1e-6, patch_size=4)",
            "convnext.ConvNeXt(3, 1000, depths=[1, 1, 2, 1], dims=[40, 80, 160, 320])",
        ),
        "densenet": (
            "densenet121(block_config=(2, 2, 2, 2))",
            "densenet.DenseNet(block_config=(2, 2, 2, 2))",
        ),
        "edgenext": ("edgenext_xx_small", "edgenext.edgenext_xx_small"),
        "ghostnet": ("ghostnet_050", "ghostnet.ghostnet_050"),
        "mobilenet_v1": ("mobilenetv1_100", "mobilenetv1.mobilenet_v1_100"),
        "mobilenet_v2": ("mobilenetv2_050", "mobilenetv2.mobilenet_v2_050_224"),
        "mobilenet_v3": ("mobilenetv3_small_075", "mobilenetv3.mobilenet_v3_small_075"),
        "mobilevit": ("mobilevit_xxs", "mobilevit.mobilevit_xx_small"),
        "pit": ("pit_ti_224(depth=(1, 1, 1))", "pit.PoolingTransformer(image_size=224, patch_size=16, stride=8, "
                "base_dims=[32, 32, 32], depth=[1, 1, 1], heads=[2, 4, 8], mlp_ratio=4.0)", 224),
        "poolformer": ("poolformer_s12", "poolformer.poolformer_s12"),
        "pvt_v2": ("pvt_v2_b0", "pvtv2.pvt_v2_b0"),
        "regnetx": ("regnetx_002", "regnet.regnet_x_200mf"),
        "regnety": ("regnety_002", "regnet.regnet_y_200mf"),
        "repvgg": ("repvgg_a0", "repvgg.repvgg_a0"),
        "resnet18": ("resnet18", "resnet.resnet18"),
        "resnest14": ("resnest14d", "resnest.resnest14"),
        "skresnet18": ("skresnet18", "sknet.skresnet18"),
        "xcit": ("xcit_tiny_12_p16_224(depth=2, img_size=64)", "xcit.XCiT(img_size=64, patch_size=16, embed_dim=192, "
                 "depth=2, num_heads=4, qkv_bias=True, eta=1.0, tokens_norm=True)"),
    },
}  # fmt: skip
"""Library -> model -> what its library calls it, and what the port is called; and the pixels of a side, if not 64.

What padiff says of them is in `docs/real_models.md`: many a port is another model, by a setting or by its code."""
HOMES = {
    "paddle.vision": "paddle.vision.models",
    "paddleclas": "paddleclas.ppcls.arch.backbone",
    "mindcv": "mindcv.models",
}
WRITTEN = "written"
"""Not a library: ports that are written by hand, in a folder beside this."""
LIBRARIES = (*LANGUAGE, *VISION, WRITTEN)


def _written(name: str) -> Pair:
    import paddle
    import torch

    module = importlib.import_module(f"{WRITTEN}.{name}")
    torch.manual_seed(0)
    paddle.seed(0)
    reference = module.Reference()
    _moved(reference)
    return Pair(reference, module, lambda written: written.Port(), module.INPUTS)


def _vision(library: str, name: str) -> Pair:
    import torch

    original, port, *rest = VISION[library][name]
    size = rest[0] if rest else 64
    if library == "paddleclas":
        bare("paddleclas")
        importlib.import_module("paddleclas.ppcls.utils.logger").init_logger(log_level=logging.ERROR)
    torch.manual_seed(0)
    if library == "paddle.vision":
        reference = _evaluated(original, vars(importlib.import_module("torchvision.models")))
    else:
        import timm

        called, _, settings = original.partition("(")
        reference = eval(f"timm.create_model({called!r}, {settings or ')'}", {"timm": timm})
    path = port.partition("(")[0].rpartition(".")[0]
    module = importlib.import_module(f"{HOMES[library]}.{path}")

    def build(written: types.ModuleType) -> Any:
        with _named_anew(library):
            return _without_chance(_evaluated(port.removeprefix(f"{path}."), vars(written)))

    _moved(_without_chance(reference))
    image = np.random.default_rng(0).normal(size=(2, 3, size, size)).astype("float32")
    return Pair(reference, module, build, (image,))


def _evaluated(call: str, known: dict[str, Any]) -> Any:
    return eval(call if call.endswith(")") else f"{call}()", dict(known))


def _named_anew(library: str) -> contextlib.AbstractContextManager[Any]:
    """Let a second model have parameters of the same names, which PaddleClas gives them."""
    if library == "mindcv":
        return contextlib.nullcontext()
    import paddle

    return paddle.utils.unique_name.guard()


def modules(model: Any) -> list[tuple[str, Any]]:
    """Return the modules of a model of any framework, with their paths."""
    if hasattr(model, "cells_and_names"):
        return list(model.cells_and_names())
    return list(model.named_modules() if hasattr(model, "named_modules") else model.named_sublayers(include_self=True))


def _without_chance(model: Any) -> Any:
    """Return a model whose dropouts, of neurons and of paths, leave out nothing."""
    for _, module in modules(model):
        if "drop" in type(module).__name__.lower():
            for name in ("p", "drop_prob", "drop_rate", "dropout_prob"):
                if isinstance(getattr(module, name, None), float | int):
                    setattr(module, name, 0.0)
    return model


def _moved(model: Any) -> None:
    """Move what a model of torch begins with as constants: zeros and ones hide slips."""
    import torch

    tensors = [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if "running_" in n)]
    with torch.no_grad():
        for _, tensor in tensors:
            if bool((tensor == tensor.flatten()[0]).all()):
                tensor += torch.empty_like(tensor).uniform_(-0.2, 0.2)


def names(library: str) -> list[str]:
    """Return the models of which a library has ports."""
    if library == WRITTEN:
        return sorted(path.stem for path in (Path(__file__).parent / WRITTEN).glob("[!_]*.py"))
    return [*(LANGUAGE[library][0] if library in LANGUAGE else VISION[library])]


def pair(library: str, name: str, *, train: bool) -> Pair:
    """Return a model and what builds its port, both in one mode."""
    if library == WRITTEN:
        made = _written(name)
    else:
        made = LANGUAGE[library][1](name) if library in LANGUAGE else _vision(library, name)
    made.reference.train(train)
    build = made.build

    def in_mode(written: types.ModuleType) -> Any:
        model = build(written)
        if hasattr(model, "set_train"):
            model.set_train(train)
        else:
            (model.train if train else model.eval)()
        return model

    made.build = in_mode
    return made
