"""What runs on a node, and how its answer is had whatever happens."""

from collections.abc import Callable

from flwr.app import Context, Message
from flwr.common.constant import ErrorCode

from edge.flower import error_reply

Host = Callable[[Message, Context], Message]


def answer(host: Host, message: Message, context: Context) -> Message:
    """Return a node's reply; whatever its code raises becomes an error reply, as on Flower's own grids."""
    try:
        return host(message, context)
    except Exception as error:  # noqa: BLE001 - foreign code may raise anything, and one node must not end the run
        return error_reply(message, ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"{type(error).__name__}: {error}")
