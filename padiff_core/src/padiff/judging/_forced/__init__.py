"""Judge a forced run of the candidate, each call of which was fed with the reference's values.

In the order of the way: `_judge` takes the differences one by one and makes a `_question` of each suspect, `_settle`
answers it by replays (under other seeds: `_randomness`), `_state` looks at what the run left behind, `_cause_search` at
why; `_soundness` holds a pass against runs of both whole models, and `_outcome` gathers it all.
"""
