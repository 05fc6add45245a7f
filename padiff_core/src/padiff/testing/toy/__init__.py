"""Hold a toy framework, arrays and a tape, in two dialects: a diff of two models takes milliseconds.

``rows`` and ``columns`` are what two frameworks are to each other: one arithmetic, other names, layouts and
conventions. No plugin of padiff's announces their adapters: who tests with them does (tests/toy/site).
"""
