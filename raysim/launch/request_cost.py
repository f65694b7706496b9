"""What requests to forget cost, in words."""

from raysim.estimate.forgetting import RequestCost
from raysim.launch.amounts import in_number, in_units


def describe_requests(cost: RequestCost) -> str:
    """Return the line of `raysim check` on requests to forget."""
    about = "about " * cost.exact
    asked = f"{in_number(cost.requests, 'request')} for {in_number(cost.samples, 'sample')}"
    sent = f"{about}{in_units(cost.bytes_up)} up, {in_units(cost.bytes_down)} down"
    if not cost.exact:
        return f"{asked}: {sent}; memories and personalized models drop the samples, the model stays"
    kept = f"{in_units(cost.kept_sums)} of sums and {in_units(cost.kept_positions)} of positions"
    return f"{asked}: {sent}; the server keeps {kept}, no sums by class or client: those who hold samples send theirs"
