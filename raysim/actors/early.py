"""The session of the Ray that a command will start, opened before it imports torch: its fork server does meanwhile."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from raysim.actors.session import Session, open_session
from raysim.config import apply_overrides, check_own_keys, open_document


def open_early(
    config: str | None, overrides: Sequence[str], out: str | None, local: bool, resume: bool
) -> AbstractContextManager[Session | None]:
    """Open the session of the Ray that `raysim run` will start with these arguments, if it will fork its actors.

    Raises:
        ConfigError: a key of the config that is not of a component is wrong.
    """
    own = os.path.join(out or "", "config.yaml") if config is None else config
    if local or (resume and not os.path.exists(own)):
        return nullcontext()
    document = open_document(own)
    apply_overrides(document, overrides)
    resources = check_own_keys(document).resources
    if not resources.forks or resources.address is not None:
        return nullcontext()
    return open_session(forked=True)
