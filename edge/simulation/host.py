"""What runs on a node, and how its answer is had whatever happens."""

from collections.abc import Callable

from flwr.app import Context, Message
from flwr.common.constant import ErrorCode

from edge.flower import error_reply

Host = Callable[[Message, Context], Message]


def answer(host: Host, message: Message, context: Context) -> Message:
    """Return a node's reply; whatever its code raises becomes an error reply, as on Flower's own grids."""
    try:
        reply = host(message, context)
        if not isinstance(reply, Message):
            raise TypeError(f"the node's code returned a {type(reply).__name__}, not a Message")  # noqa: TRY301 - one exit
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code may raise anything; one node must not end the run
        return error_reply(message, ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"{type(error).__name__}: {error}")
    return reply
