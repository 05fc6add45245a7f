"""Match the parameters of two models, and copy the reference's to the candidate."""

from padiff.parameters._links import Link, canonical, copy_link, view
from padiff.parameters._matching import UnitMatch, execution_order, link_roles, match_units, same_names, transfer
from padiff.parameters._packing import Arrangement, Packing
from padiff.parameters._pairing import (
    Pairing,
    copy_parameters,
    defined_alike,
    named_alike,
    pair_parameters,
    put_back,
    values_of,
)
from padiff.parameters._special import Specials
from padiff.parameters._units import Held, HeldUnit, units_of

__all__ = [
    "Arrangement",
    "Held",
    "HeldUnit",
    "Link",
    "Packing",
    "Pairing",
    "Specials",
    "UnitMatch",
    "canonical",
    "copy_link",
    "copy_parameters",
    "defined_alike",
    "execution_order",
    "link_roles",
    "match_units",
    "named_alike",
    "pair_parameters",
    "put_back",
    "same_names",
    "transfer",
    "units_of",
    "values_of",
    "view",
]
