import padiff


def markdown(report):
    """A table of the sources, for an issue or a merge request."""
    rows = ["phase | reference | candidate | cause", "--- | --- | --- | ---"]
    for source in report.sources:
        rows.append(f"{source.phase} | {source.reference.path} | {source.candidate.path} | {source.cause or '?'}")
    return "\n".join(rows if report.sources else ["nothing differs"]) + "\n"


@padiff.hookimpl
def padiff_renderers():
    return [padiff.Renderer("markdown", markdown, suffixes=[".md"])]
