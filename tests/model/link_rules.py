"""Rules of links switched off one at a time: the flaw that the explorer finds justifies each."""

from dataclasses import replace

import numpy as np
from msgspec import structs
from pyroaring import BitMap64

from ackq_broker.core import commands as c
from tests.model.edge import LINK, Edge, Store


def link_of(core):
    """The link, as the core has it."""
    return core._state.links.get(LINK)


class StoresAgain(Edge):
    """L5 off: a frame that is sent again is stored as a new one."""

    def perform(self, core, command, now_us):
        if isinstance(command, Store):
            link = link_of(core)
            first = command.first_number
            if link.epoch == command.said[0] and link.subscription == command.said[1]:
                numbers, positions = link.delivered(1, first - 1)
                link.deliveries = np.array((numbers, np.ones_like(numbers), positions))
                link.next_number = first
        return super().perform(core, command, now_us)


class OneForMany(Edge):
    """L6 off: an entry may be taken by any number of deliveries."""

    def perform(self, core, command, now_us):
        if not isinstance(command, Store):
            return super().perform(core, command, now_us)
        link = link_of(core)
        bound, link.bound = link.bound, BitMap64()
        try:
            return super().perform(core, command, now_us)
        finally:
            link.bound |= bound


class AckedWithoutMark(Edge):
    """L10 off: a settled delivery is permitted without a record of the permit."""

    def perform(self, core, command, now_us):
        if isinstance(command, Store):
            command = command._replace(said=(*command.said[:2], 0, 0))
        if isinstance(command, c.PermitLinked):
            return core.decide(replace(command, proven=0, proven_number=0), now_us).reply
        return super().perform(core, command, now_us)


class ForgottenAtSend(Edge):
    """L10 off: a permitted entry is forgotten at once."""

    def perform(self, core, command, now_us):
        reply = super().perform(core, command, now_us)
        if isinstance(command, Store | c.PermitLinked):
            link_of(core).forget(link_of(core).permits.copy())
        return reply


class NoGrace(Edge):
    """L10 off: a proven entry is forgotten at once."""

    def perform(self, core, command, now_us):
        reply = super().perform(core, command, now_us)
        if isinstance(command, Store | c.PermitLinked):
            link_of(core).forget(link_of(core).proven_entries())
        return reply


class TimeIsEnough(Edge):
    """L10 off: an entry in doubt is forgotten after a day, although nothing fresh is proven."""

    def perform(self, core, command, now_us):
        if isinstance(command, c.PermitLinked):
            link_of(core).fresh_proven = True
        return super().perform(core, command, now_us)


class HeldUntilTheEnd(Edge):
    """L11 off: a delivery that matches a settled entry is never acknowledged."""

    def perform(self, core, command, now_us):
        if not isinstance(command, Store):
            return super().perform(core, command, now_us)
        decision = core.decide(self.frame(command), now_us)
        for record in decision.records:
            core.apply(core.sequence + 1, structs.replace(record, permitted=BitMap64()))
            link_of(core).waiting -= record.permitted
        runs = tuple(run._replace(permitted=False) for run in decision.reply.runs)
        return decision.reply._replace(runs=runs)


class NoOutcome(Edge):
    """L10 off: a permit does not carry the outcome, so a rejected delivery is acknowledged."""

    def perform(self, core, command, now_us):
        reply = super().perform(core, command, now_us)
        if isinstance(command, c.PermitLinked):
            return reply._replace(rejected=BitMap64())
        return reply


class OutcomesEndAtACut(Edge):
    """L11 off: the rejected outcome of an entry is forgotten with the subscription."""

    def perform(self, core, command, now_us):
        if isinstance(command, c.SubscribeLink):
            link_of(core).rejected = BitMap64()
        return super().perform(core, command, now_us)


class NoFence(Edge):
    """L1 off: a process that was replaced continues as the present one."""

    def perform(self, core, command, now_us):
        link = link_of(core)
        if isinstance(command, Store):
            command = command._replace(said=(link.epoch, link.subscription, 0, 0))
        elif isinstance(command, c.PermitLinked):
            command = replace(command, epoch=link.epoch, subscription=link.subscription, proven=0)
        elif isinstance(command, c.SubscribeLink):
            command = replace(command, epoch=link.epoch)
        return super().perform(core, command, now_us)


class CopiesAreTrusted(Edge):
    """L27 off: an old copy is trusted that an entry without a permit in it never had one."""

    def perform(self, core, command, now_us):
        link = link_of(core)
        doubt = link.doubt | link.permits if link is not None else BitMap64()
        reply = super().perform(core, command, now_us)
        if isinstance(command, c.Start) and link is not None:
            link.doubt = doubt
        return reply
