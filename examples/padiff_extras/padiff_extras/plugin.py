from padiff_extras.formats import padiff_renderers
from padiff_extras.metrics import padiff_metrics
from padiff_extras.transfers import padiff_transfers

__all__ = ["padiff_metrics", "padiff_renderers", "padiff_transfers"]
