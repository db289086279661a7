"""Bugs between a decision and its answer: missing waits, and answers that are not kept."""

from ackq_broker.engine.engine import Engine
from ackq_broker.service.admin import AdminService
from ackq_broker.service.consuming.channel import BrokerChannel
from ackq_broker.service.consuming.stream import ConsumeStream
from ackq_broker.service.publishing.confirm_mode import ConfirmModeStream
from ackq_broker.service.publishing.service import PublishingService
from ackq_broker.service.publishing.stage import StageStream
from ackq_broker.service.publishing.together import Together
from ackq_broker.service.publishing.transaction_mode import TransactionModeStream
from ackq_broker.service.sessions.service import SessionsService
from tests.crash.simulation.bugs.patching import Bug, Line

ANSWERS = {
    "confirm_before_sync": Bug(
        "P4: a persistent publish is confirmed when it is decided",
        Line(ConfirmModeStream._publish_part, "reply.confirmed), sequence", "reply.confirmed), 0"),
    ),
    "number_of_another_publisher": Bug(
        "P10: rows of several publishers in one block are recorded under the number of one of them",
        Line(
            Together._placed,
            "tuple(header.data.first_number for header in headers)",
            "(max(header.data.first_number for header in headers),) * len(headers)",
        ),
    ),
    "settlement_before_sync": Bug(
        "C15: a settlement is answered when it is decided",
        Line(BrokerChannel._answer, "(header, self._engine.core.sequence)", "(header, 0)"),
    ),
    "delivery_before_sync": Bug(
        "I1: a message is sent before its delivery is on the disk",
        Line(ConsumeStream.deliver, "self._put(delivery, sequence)", "self._put(delivery, 0)"),
    ),
    "transaction_before_sync": Bug(
        "P13: the commit of a transaction is answered when it is decided",
        Line(TransactionModeStream._end, "self._engine.core.sequence", "0"),
    ),
    "batch_before_sync": Bug(
        "K3: the commit of a batch is answered when it is decided",
        Line(
            PublishingService._commit,
            "await self._engine.call(",
            "(lambda command: self._engine.decide(command).reply)(",
        ),
    ),
    "stage_before_sync": Bug(
        "K3: the seal of a stage is answered when it is decided",
        Line(
            StageStream._seal,
            "await self._engine.call(commands.SealStage"
            "(self._stage_id, seal.rows, seal.payload_bytes))\n"
            "    await self._responses.drained()",
            "self._engine.decide(commands.SealStage"
            "(self._stage_id, seal.rows, seal.payload_bytes))",
        ),
    ),
    "declare_before_sync": Bug(
        "Q1: a declare is answered when it is decided",
        Line(
            AdminService._declare,
            "await self._engine.call(command)",
            "self._engine.decide(command).reply",
        ),
    ),
    "lease_before_sync": Bug(
        "S1: a lease is answered before it is on the disk",
        Line(SessionsService.advance, "await self._engine.sync_gate.wait(sequence)"),
    ),
    "figures_before_sync": Bug(
        "I1: figures tell of what is not on the disk",
        Line(Engine.query, "await self.wait_synced()"),
    ),
    "answered_settlement_forgotten": Bug(
        "C15: a settlement that is asked again after a cut is taken for a new one",
        Line(BrokerChannel.settle, "if may_repeat else 0", "if False else 0"),
    ),
}
