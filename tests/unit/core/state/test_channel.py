"""The tags of a channel against a dict."""

from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from ackq_broker.core.state.channel import ChannelTags


@settings(max_examples=60)
@given(data=st.data())
def test_a_channel_is_a_dict_of_tags(data: st.DataObject) -> None:
    """C1, C16: tags of several queues, positions in any order, settled in any order."""
    channel, expected, free = ChannelTags(), {}, {1: set(range(1, 60)), 2: set(range(1, 60))}
    for _ in range(data.draw(st.integers(1, 25))):
        queue_id = data.draw(st.sampled_from((1, 2)))
        if free[queue_id]:
            given_now = data.draw(st.sets(st.sampled_from(sorted(free[queue_id])), min_size=1))
            free[queue_id] -= given_now
            for tag, position in enumerate(sorted(given_now), channel.next_tag):
                expected[tag] = (queue_id, position)
            channel.assign_tags(queue_id, BitMap64(given_now))
        if expected and data.draw(st.booleans()):
            tags = data.draw(st.sets(st.sampled_from(sorted(expected)), min_size=1))
            taken = channel.take(BitMap64(tags))
            found = {(q, p) for q, ps in taken.items() for p in ps}
            assert found == {expected.pop(tag) for tag in tags}
            for queue_id, position in found:
                free[queue_id].add(position)
        assert set(channel.outstanding()) == set(expected)
        some = data.draw(st.sets(st.integers(1, channel.next_tag)))
        assert set(channel.unknown(BitMap64(some))) == some - set(expected)
        tag = data.draw(st.integers(1, channel.next_tag))
        assert set(channel.up_to(tag)) == {t for t in expected if t <= tag}
