"""Run either side of a diff in a process of its own, by another interpreter if need be.

The engine stays as it is: what it uses of a remote model are an adapter and its classes, as ever, and these pass
everything on to the process in which the model and its real adapter are. So the result is the same as in one process.
Values go through shared memory; requests and callbacks over a socket, one side at work while the other waits.
"""

from padiff.isolation._remote import Remote, operating, remote, served, wrapped

__all__ = ["Remote", "operating", "remote", "served", "wrapped"]
