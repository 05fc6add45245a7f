"""Plant bugs inside rewrites of many architectures, and count what a diff finds."""
