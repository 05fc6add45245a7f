"""Turn plain data, records and arrays into text and back, so that what was written by a stranger is data too.

Only the types that a table names come back; every field is checked against its annotation.
"""

from padiff.codec._arrays import DTYPES, name_of
from padiff.codec._codec import Codec, Custom
from padiff.codec._errors import Malformed, Unsendable, refuse
from padiff.codec._fields import checker_of
from padiff.codec._known import Known
from padiff.codec._segments import Incoming, Outgoing, Segment, aligned, home_of
