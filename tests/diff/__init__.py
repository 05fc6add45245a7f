"""Ask `padiff.diff` through its public interface: peers' failures, promises, bad input, mappings, steps."""
