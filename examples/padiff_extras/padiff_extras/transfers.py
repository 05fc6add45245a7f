import padiff


def experts(arrays):
    """Take the weights of all experts, stacked in one array, apart: one linear layer for each."""
    weights = {f"experts.{i}.weight": weight for i, weight in enumerate(arrays["weight"])}
    biases = {f"experts.{i}.bias": bias for i, bias in enumerate(arrays["bias"])}
    return {"gate.weight": arrays["gate.weight"].T, **weights, **biases}


@padiff.hookimpl
def padiff_transfers():
    return [padiff.SpecialTransfer("StackedExperts", "ListedExperts", experts)]
