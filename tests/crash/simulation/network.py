"""In-memory connections between clients and the real handlers of the gRPC services.

`Server` replaces gRPC's: it takes the handlers, and runs each call as a task of the broker's event
loop, with a context that reads and writes bytes. A connection delays messages, keeps their order
within a call, and may be cut for both sides at once, for the client first or for the broker first.
Messages on their way at a cut are lost.
"""

import asyncio
from collections import deque
from types import SimpleNamespace

from google.protobuf.message_factory import GetMessageClass
from grpc import aio

from ackq.v1 import admin_pb2, consuming_pb2, links_pb2, messages_pb2, publishing_pb2, sessions_pb2

_ERROR_KEY = "ackq-error-bin"
_FILES = (admin_pb2, consuming_pb2, links_pb2, publishing_pb2, sessions_pb2)
# How long an attempt to connect takes when no broker serves.
_REFUSED_S = 0.05


class Refused(Exception):  # noqa: N818 - an answer
    """A refusal by the broker: the status's name, the error's code, its message and fields."""

    def __init__(self, status, code, message, fields):
        super().__init__(f"{status} {code}: {message}")
        self.status, self.code, self.message, self.fields = status, code, message, fields


class Cut(Exception):  # noqa: N818 - an event
    """The connection ended: the outcome of the request is unknown."""


class _Method:
    def __init__(self, method, service):
        self.path = f"/{service.full_name}/{method.name}"
        self.response = GetMessageClass(method.output_type).FromString


METHODS = {
    method.name: _Method(method, service)
    for file in _FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


class Server:
    """The simulated `grpc.aio.server` of the broker."""

    def __init__(self, life):
        self.life = life
        self.serving = False
        self.connections = {}
        self._handlers = []
        self._found = {}

    def add_generic_rpc_handlers(self, handlers):
        self._handlers += handlers

    def add_registered_method_handlers(self, service, handlers):
        pass

    async def start(self):
        self.serving = True

    async def stop(self, grace):
        self.serving = False
        calls = [call for each in self.connections for call in each.calls]
        tasks = [call.task for call in calls if call.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        for connection in tuple(self.connections):
            connection.cut()

    def handler(self, path):
        """The handler of a method, as bytes to bytes."""
        found = self._found.get(path)
        if found is None:
            details = SimpleNamespace(method=path, invocation_metadata=())
            (found,) = filter(None, (each.service(details) for each in self._handlers))
            self._found[path] = found
        return found


class _Ended(Exception):  # noqa: N818 - gRPC's abort never returns
    """The exception that `context.abort` raises."""


class Context:
    """The server's side of a call; its names are those of `grpc.aio.ServicerContext`."""

    def __init__(self, call):
        self._call = call

    def peer(self):
        return "simulated"

    def invocation_metadata(self):
        return self._call.connection.metadata

    def done(self):
        return self._call.over

    async def send_initial_metadata(self, _):
        pass

    async def read(self):
        call = self._call
        while not call.requests:
            call.reads = call.server_loop.create_future()
            await call.reads
        if call.requests[0] is aio.EOF:
            return aio.EOF
        request = call.requests.popleft()
        call.taken()
        return request

    async def write(self, message):
        call = self._call
        if call.over:
            raise asyncio.CancelledError
        call.to_client(call.serialize(message))
        while call.unread > call.connection.window:
            call.room = call.server_loop.create_future()
            await call.room

    async def abort(self, code, details="", trailing_metadata=()):
        self._call.status = (code.name, details, dict(trailing_metadata).get(_ERROR_KEY))
        raise _Ended


class Call:
    """One call of a connection, and the messages on their way in both directions."""

    def __init__(self, connection, method):
        server = connection.server
        self.connection = connection
        self.method = method
        self.server_loop = server.life.loop
        self.requests, self.responses = deque(), deque()
        self.reads = self.room = self.arrival = self.writable = None
        self.unread = self.unsent = 0
        self.status = None
        self.over = False
        self._request_at = self._response_at = 0.0
        handler = server.handler(method.path)
        self.serialize = handler.response_serializer
        self._run = handler.stream_stream or handler.stream_unary
        self._unary = handler.stream_stream is None
        connection.calls.append(self)
        self.task = None
        self._send(self._begin)

    # --- the client's side ---

    def send(self, request):
        self.unsent += 1
        self._send(self._arrive, request)

    def half_close(self):
        self._send(self._arrive, aio.EOF)

    async def receive(self):
        """The next response's bytes; None at the end of a call that has no error."""
        connection = self.connection
        while not self.responses:
            if connection.client_cut:
                raise Cut
            self.arrival = connection.client_loop.create_future()
            await self.arrival
        kind, data = self.responses[0]
        if kind == "end":
            if data is None:
                return None
            status, text, detail = data
            error = messages_pb2.ErrorDetail.FromString(detail) if detail else None
            fields = dict(error.fields) if error else {}
            raise Refused(status, error.code if error else "", text, fields)
        self.responses.popleft()
        self.unread -= 1
        if self.unread <= connection.window and self.room is not None and not self.room.done():
            self.room.set_result(None)
        connection.kernel.on_answer()
        return data

    def wake_client(self):
        for future in (self.arrival, self.writable):
            if future is not None and not future.done():
                future.set_result(None)

    # --- on the way ---

    def _send(self, deliver, *args):
        connection = self.connection
        if connection.client_cut:
            raise Cut
        self._request_at = connection.deliver(self._request_at, deliver, *args)

    def to_client(self, data):
        self.unread += 1
        connection = self.connection
        self._response_at = connection.deliver(self._response_at, self._land, "message", data)

    def _begin(self):
        connection = self.connection
        if not connection.server.serving:
            connection.cut()
        elif not connection.server_cut:
            self.task = self.server_loop.create_task(self._serve())

    def _arrive(self, request):
        if self.connection.server_cut:
            return
        if request is not aio.EOF:
            # The length alone: the order of a map's entries on the wire is random.
            self.connection.kernel.note(b"%d" % len(request))
        self.requests.append(request)
        if self.reads is not None and not self.reads.done():
            self.reads.set_result(None)

    def taken(self):
        """Counts a request that the server has read, which makes room for the next."""
        self.unsent -= 1
        if self.writable is not None and not self.writable.done():
            self.writable.set_result(None)

    def _land(self, kind, data):
        if self.connection.client_cut:
            return
        if kind == "message":
            self.connection.kernel.note(b"%d" % len(data))
        else:
            self.connection.kernel.note(repr(data and data[:2]).encode())
        self.responses.append((kind, data))
        self.wake_client()

    # --- the server's side ---

    async def _serve(self):
        try:
            response = await self._run(None, Context(self))
            if self._unary:
                self.to_client(self.serialize(response))
        except _Ended:
            pass
        except Exception as error:  # noqa: BLE001 - it fails the world
            self.connection.kernel.fail(error)
        finally:
            self.over = True
        # Not after a cancellation: its client is away, or learns of it by the end of the
        # connection.
        connection = self.connection
        self._response_at = connection.deliver(self._response_at, self._land, "end", self.status)
        if self in connection.calls:
            connection.calls.remove(self)

    def end_server(self):
        """Cancels the handler, as gRPC does when the client has disconnected."""
        if self.task is not None and not self.over:
            self.over = True
            self.task.cancel()


class Connection:
    """A client's connection; raises `Cut` for good once it has ended.

    Args:
        kernel: The scheduler.
        client_loop: The client's event loop.
        server: The server that it reaches; None: no broker serves.
        delay: Returns the seconds that a message takes.
        window: Messages that a call holds for a slow reader, in each direction.
        metadata: The metadata of its calls.
    """

    def __init__(self, kernel, client_loop, server, delay, window, metadata=()):
        self.kernel = kernel
        self.client_loop = client_loop
        self.server = server
        self.window = window
        self.metadata = metadata
        self.calls = []
        self._all = []
        self._delay = delay
        self.client_cut = self.server_cut = server is None
        if server is not None:
            server.connections[self] = None

    async def call(self, method, request):
        """The response of a call with one answer. Raises Refused, Cut."""
        stream = await self._begin(method)
        await stream.write(request)
        await stream.close_writes()
        response = await stream.read()
        assert response is not None, f"{method} ended without an answer"
        return response

    def open(self, method):
        """Opens a stream of a method."""
        if self.client_cut:
            raise Cut
        call = Call(self, METHODS[method])
        self._all.append(call)
        return Stream(call)

    async def _begin(self, method):
        if self.client_cut:
            await asyncio.sleep(_REFUSED_S)
            raise Cut
        return self.open(method)

    def deliver(self, not_before, callback, *args):
        """Delivers after the current delay, in the order of sending; returns the delivery time."""
        kernel = self.kernel
        at = max(not_before, kernel.now_s + self._delay())
        kernel.at(at, callback, *args)
        return at

    def cut(self, client_after_s=0.0, server_after_s=0.0):
        """Ends the connection, for each side after a time."""
        kernel = self.kernel
        for after_s, end in (
            (client_after_s, self._cut_client),
            (server_after_s, self._cut_server),
        ):
            if after_s:
                kernel.at(kernel.now_s + after_s, end)
            else:
                end()

    def broken(self, client_after_s):
        """Ends the connection at the broker's side; the client notices it after a time."""
        self.server_cut = True
        self.cut(client_after_s)

    def _cut_client(self):
        self.client_cut = True
        for call in self._all:
            call.wake_client()

    def _cut_server(self):
        if not self.server_cut:
            self.server_cut = True
            self.server.connections.pop(self, None)
            if not self.server.life.ended:
                for call in tuple(self.calls):
                    call.end_server()


class Stream:
    """A call with many messages in each direction."""

    def __init__(self, call):
        self._call = call

    async def write(self, request):
        """Sends a request; returns when there is room for the next. Raises Cut."""
        call = self._call
        call.send(request.SerializeToString())
        while call.unsent > call.connection.window and not call.over:
            if call.connection.client_cut:
                raise Cut
            call.writable = call.connection.client_loop.create_future()
            await call.writable

    async def read(self):
        """The next response; None at the end of the stream. Raises Refused, Cut."""
        data = await self._call.receive()
        return None if data is None else self._call.method.response(data)

    async def close_writes(self):
        """Sends the end of the requests. Raises Cut."""
        self._call.half_close()
