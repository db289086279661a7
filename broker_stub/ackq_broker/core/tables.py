"""Tables of the core: the function that decides each command, and that applies each record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ackq_broker.core import commands, history, lifecycle, records
from ackq_broker.core.commands import Command, Decision
from ackq_broker.core.consuming import channels
from ackq_broker.core.links import deliveries, permits
from ackq_broker.core.links import holder as link_holder
from ackq_broker.core.links import operator as link_operator
from ackq_broker.core.publishing import (
    confirm_mode,
    prepared,
    publishers,
    transactions,
    writer_batches,
    writers,
)
from ackq_broker.core.queues import redrive, timers, topology
from ackq_broker.core.queues import retention as queue_retention
from ackq_broker.core.records import Record
from ackq_broker.core.sessions import (
    advance,
    operator,
    outcomes,
    planned,
    readers,
    retention,
    rewind,
    timeout,
)
from ackq_broker.core.state.state import State

DECIDE: Final[dict[type[Command], Callable[[State, Any, int], Decision]]] = {
    commands.DeclareQueue: topology.declare_queue,
    commands.DeleteQueue: topology.delete_queue,
    commands.PurgeQueue: topology.purge_queue,
    commands.RewindQueue: queue_retention.rewind,
    commands.DeclareExchange: topology.declare_exchange,
    commands.DeleteExchange: topology.delete_exchange,
    commands.Bind: topology.bind,
    commands.Unbind: topology.unbind,
    commands.OpenPublisher: publishers.open_publisher,
    commands.ClosePublisherStream: publishers.close_stream,
    commands.Publish: confirm_mode.publish,
    commands.PublishTogether: confirm_mode.publish_together,
    commands.TransactionBlock: transactions.stage_block,
    commands.CommitTransaction: transactions.commit,
    commands.RollbackTransaction: transactions.roll_back,
    commands.OpenStage: writer_batches.open_stage,
    commands.StageBlock: writer_batches.stage_block,
    commands.SealStage: writer_batches.seal_stage,
    commands.DropStage: writer_batches.drop_stage,
    commands.CommitBatch: writer_batches.commit_batch,
    commands.AbortBatch: writer_batches.abort_batch,
    commands.DropBatch: writer_batches.drop_batch,
    commands.ForgetWriter: writers.forget,
    commands.AssignWriter: writers.assign,
    commands.Advance: advance.advance,
    commands.Attach: advance.attach,
    commands.ReleaseSession: operator.release,
    commands.RewindSession: rewind.rewind,
    commands.DetachSession: timeout.detach,
    commands.NoteFetch: readers.note,
    commands.StageOutcomes: outcomes.stage,
    commands.CommitOutcomes: outcomes.commit,
    commands.AbortOutcomes: outcomes.abort,
    commands.SettleLease: operator.settle,
    commands.Deliver: channels.deliver,
    commands.Settle: channels.settle,
    commands.CloseChannel: channels.close_channel,
    commands.Redrive: redrive.redrive,
    commands.Tick: timers.tick,
    commands.Start: lifecycle.start,
    commands.AcceptHistory: history.accept,
    commands.GiveWay: retention.give_way,
    commands.Housekeep: lifecycle.housekeep,
    commands.OpenLink: link_holder.open_link,
    commands.SubscribeLink: link_holder.subscribe,
    commands.StoreLinked: deliveries.store,
    commands.PermitLinked: permits.permit,
    commands.PauseLink: link_operator.pause,
    commands.RemoveLink: link_operator.remove,
}

APPLY: Final[dict[type[Record], Callable[[State, int, Any], None]]] = {
    records.QueueDeclared: topology.apply_queue_declared,
    records.QueueDeleted: topology.apply_queue_deleted,
    records.QueuePurged: topology.apply_queue_purged,
    records.QueueRewound: rewind.apply_queue_rewound,
    records.ExchangeDeclared: topology.apply_exchange_declared,
    records.ExchangeDeleted: topology.apply_exchange_deleted,
    records.QueueBound: topology.apply_queue_bound,
    records.QueueUnbound: topology.apply_queue_unbound,
    records.PublisherOpened: publishers.apply_publisher_opened,
    records.PublisherClosed: publishers.apply_publisher_closed,
    records.Published: confirm_mode.apply_published,
    records.PublishedTogether: confirm_mode.apply_published_together,
    records.TransactionStaged: transactions.apply_transaction_staged,
    records.TransactionCommitted: transactions.apply_transaction_committed,
    records.TransactionRolledBack: transactions.apply_transaction_rolled_back,
    records.StageOpened: writer_batches.apply_stage_opened,
    records.BlockStaged: writer_batches.apply_block_staged,
    records.StageSealed: writer_batches.apply_stage_sealed,
    records.StagesDropped: writer_batches.apply_stages_dropped,
    records.BatchPrepared: prepared.apply_prepared,
    records.BatchCommitted: writer_batches.apply_batch_committed,
    records.BatchRepeated: writer_batches.apply_batch_repeated,
    records.WriterForgotten: writers.apply_forgotten,
    records.WriterAssigned: writers.apply_assigned,
    records.SessionOpened: advance.apply_session_opened,
    records.SessionAdvanced: advance.apply_session_advanced,
    records.SessionReleased: advance.apply_session_released,
    records.SessionDetached: timeout.apply_detached,
    records.FetchNoted: readers.apply_noted,
    records.BatchPlanned: planned.apply_planned,
    records.OutcomesStaged: outcomes.apply_staged,
    records.OutcomesCommitted: outcomes.apply_committed,
    records.OutcomesDropped: outcomes.apply_dropped,
    records.SessionSettled: operator.apply_settled,
    records.Delivered: channels.apply_delivered,
    records.Settled: channels.apply_settled,
    records.ChannelClosed: channels.apply_channel_closed,
    records.Redriven: redrive.apply_redriven,
    records.Ticked: timers.apply_ticked,
    records.Started: lifecycle.apply_started,
    records.HistoryAccepted: history.apply_history_accepted,
    records.Expired: lifecycle.apply_expired,
    records.LinkOpened: link_holder.apply_opened,
    records.LinkSubscribed: link_holder.apply_subscribed,
    records.LinkStored: deliveries.apply_stored,
    records.LinkPermitted: permits.apply_permitted,
    records.LinkPaused: link_operator.apply_paused,
    records.LinkRemoved: link_operator.apply_removed,
}
