"""Run either side of a diff in a process of its own, by another interpreter if need be.

A worker builds the model and runs padiff's own recorder and forcer next to its tensors, as a side of this process
would. What crosses are the messages of a side: records over a socket, arrays in shared memory, and nothing that names
code to run here.
"""

from padiff.isolation._remote import Remote, remote, served, side_of
