"""Print the thresholds as docs/how_it_works.md shows them."""

from padiff.numerics._rounding import table

if __name__ == "__main__":
    print(table())
