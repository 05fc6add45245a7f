"""Judge two recorded runs, of which nothing can be run again.

In the order of the way: `_meter` measures values, on many cores or machines, `_leaps` tells where a difference arises
by what a call was given, `_misplaced` which matched calls stand for something else, `_state` and `_update` what the
step left behind; `_step` gathers it all.
"""
