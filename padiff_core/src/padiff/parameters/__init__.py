"""Match the parameters of two models, and give the candidate the reference's."""

from padiff.parameters._alone import PartAlone, parts_alone
from padiff.parameters._arrangements import Arrangement
from padiff.parameters._biases import Sums, sums_between
from padiff.parameters._complex import in_real_numbers
from padiff.parameters._constants import is_alike, with_buffers
from padiff.parameters._correspondence import Correspondence, Packed
from padiff.parameters._joined import with_joined_first
from padiff.parameters._links import Link, canonical
from padiff.parameters._matching import match_units, same_names
from padiff.parameters._packing import Packing
from padiff.parameters._padded_rows import PaddedRows, padded_rows
from padiff.parameters._pairing import defined_alike, matched_unrun, matcher, named_alike, pair_parameters
from padiff.parameters._roles import UnitMatch, link_roles, ways_between
from padiff.parameters._shared import with_copies, with_shared
from padiff.parameters._special import Specials
from padiff.parameters._transfer import held_of, read_of, transfer, values_of
from padiff.parameters._turned import as_contracted, not_seen
from padiff.parameters._units import Held, HeldUnit, units_of, with_added
