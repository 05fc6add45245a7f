"""Ask `padiff.diff` through its public interface: the peers' failures, the promises, bad input, mappings, optimizers."""
