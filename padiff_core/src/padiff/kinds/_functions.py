"""Say what the operations of all frameworks are called, and what is known of them by name."""

from __future__ import annotations

import re
from collections.abc import Mapping


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SYNONYMS: Mapping[str, str] = {
    spelling: name
    for name, spellings in {
        "add": "__add__ __radd__ add_n bias_add",
        "sub": "__sub__ subtract",
        "rsub": "__rsub__",
        "mul": "__mul__ __rmul__ multiply",
        "div": "__div__ __truediv__ divide true_divide realdiv",
        "rdiv": "__rdiv__ __rtruediv__",
        "floor_divide": "__floordiv__ floordiv floor_div",
        "mod": "__mod__ remainder",
        "pow": "__pow__ power",
        "rpow": "__rpow__",
        "matmul": "__matmul__ mm bmm batch_matmul batchmatmul",
        "neg": "__neg__ negative",
        "abs": "__abs__ absolute",
        "eq": "__eq__ equal",
        "ne": "__ne__ not_equal",
        "lt": "__lt__ less less_than",
        "le": "__le__ less_equal",
        "gt": "__gt__ greater greater_than",
        "ge": "__ge__ greater_equal",
        "logical_and": "__and__ bitwise_and",
        "logical_or": "__or__ bitwise_or",
        "logical_not": "__invert__ bitwise_not",
        "getitem": "__getitem__ select narrow slice strided_slice",
        "reshape": "view flatten unflatten reshape_as view_as ravel",
        "transpose": "permute t mt h mh swapaxes swapdims moveaxis movedim",
        "unsqueeze": "expand_dims",
        "expand": "broadcast_to expand_as",
        "concat": "cat concatenate",
        "split": "chunk unbind tensor_split unstack",
        "cast": "to astype type float half double bfloat16 type_as int long bool",
        "clip": "clamp clipbyvalue",
        "silu": "swish",
        "hardswish": "hswish",
        "attention": "scaled_dot_product_attention flash_attention",
        "pad": "constant_pad_nd",
        "upsample": "interpolate",
    }.items()
    for spelling in spellings.split()
}
VIEWS = _words(
    "getitem reshape transpose unsqueeze squeeze expand split cast detach contiguous diagonal identity cpu cuda npu"
)
"""Operations that may hand on the very memory that they are given."""
_NOT_COMPUTED = _words(
    """
    size dim ndim ndimension numel nelement element_size item tolist numpy asnumpy shape stride storage_offset data_ptr
    is_floating_point is_complex is_contiguous get_device backward register_hook retain_grad requires_grad_ set_data
    clear_gradient clear_grad gradient value_ apply is_tensor is_floating is_integer rank __setitem__ __len__ __bool__
    __int__ __float__ __index__ __format__ __repr__ __str__ __hash__ __array__ __contains__ __iter__ __deepcopy__ set_
    """
)
"""What tells something about a tensor, and makes none."""
_IN_PLACE = re.compile(r"[^_]_$|^__i(add|sub|mul|truediv|floordiv|mod|pow|matmul|and|or|xor)__$")


def short_name(name: str) -> str:
    """Return what an operation of that full name is called in any framework: ``mul`` for ``torch.Tensor.__rmul__``."""
    last = name.rpartition(".")[2].lower()
    if _IN_PLACE.search(last):
        last = last.replace("__i", "__") if last.startswith("__i") else last[:-1]
    return _SYNONYMS.get(last, last)


def computes(name: str) -> bool:
    """Return whether a function of that full name makes a tensor, as far as its name tells."""
    last = name.rpartition(".")[2]
    if last.startswith("_") and last not in _SYNONYMS and not _IN_PLACE.search(last):
        return False
    return last not in _NOT_COMPUTED


def is_in_place(name: str) -> bool:
    """Return whether a function of that full name changes the tensor that it is given."""
    return _IN_PLACE.search(name.rpartition(".")[2]) is not None
