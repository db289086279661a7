"""The tests that are long, and the sizes of tests that can run at any size.

Invariant: `pytest` leaves out the tests of `LONG`, each of which asks in full, or in another way,
what a shorter test asks too; `pytest --long` runs all tests, at their full sizes. The option sets
an environment variable, because modules read sizes when they are imported, in each worker.
"""

from __future__ import annotations

import os
from typing import Final

_VARIABLE: Final = "ACKQ_LONG"

# Tests by file: names, or names with the id of a parameter.
LONG: Final[dict[str, tuple[str, ...]]] = {
    "tests/crash/half_checkpoints/test_half_checkpoints.py": (
        "test_the_ledger_finds_the_rule_missing",
    ),
    "tests/crash/network/test_spark.py": ("test_a_query_loses_and_doubles_nothing",),
    "tests/crash/test_rewinds.py": ("test_each_message_arrives_once_more_for_each_rewind",),
    "tests/crash/test_edges.py": ("test_every_message_arrives_once_from_three_edges",),
    "tests/crash/test_kill9.py": ("test_batch_write_killed_between_its_tasks",),
    "tests/crash/test_planted_bugs.py": (
        "test_a_planted_bug_is_found[older_stream_permits]",
        "test_a_planted_bug_is_found[held_is_permitted]",
    ),
    "tests/e2e/test_examples.py": (
        "test_an_example_with_spark_runs_again",
        "test_examples_of_the_client_share_a_broker",
    ),
    "tests/e2e/test_pipeline.py": ("test_each_message_arrives_once",),
    "tests/model/test_explorer.py": (
        "test_nothing_is_lost_or_doubled[another consumer]",
        "test_nothing_is_lost_or_doubled[a deleted checkpoint]",
        "test_nothing_is_lost_or_doubled[once]",
        "test_nothing_is_lost_or_doubled[empty]",
        "test_nothing_is_lost_or_doubled[empty, once]",
        "test_nothing_is_lost_or_doubled[empty, once, skipping]",
        "test_a_batch_without_rows_that_nobody_reported",
        "test_without_a_rule_a_trace_is_found[any lease, a loss]",
        "test_without_a_rule_a_trace_is_found[any lease, skipping]",
        "test_without_a_rule_a_trace_is_found[an unknown empty batch, once]",
        "test_without_a_rule_a_trace_is_found[any incarnation opens]",
    ),
    "tests/model/test_linking.py": (
        "test_nothing_is_lost_or_doubled[cuts-content]",
        "test_nothing_is_lost_or_doubled[cuts and answers-content]",
        "test_nothing_is_lost_or_doubled[deaths and restarts and window-content]",
        "test_nothing_is_lost_or_doubled[copies-content]",
        "test_nothing_is_lost_or_doubled[cuts and losses-content]",
        "test_nothing_is_lost_or_doubled[zombies-content]",
        "test_what_is_rejected_is_rejected_there[aa-faults0-content]",
        "test_what_is_rejected_is_rejected_there[aa-faults0-id]",
        "test_nothing_rests_on_the_mark_of_redelivery[2]",
    ),
    "tests/model/test_numbering.py": (
        "test_nothing_is_lost_or_doubled[cuts]",
        "test_nothing_is_lost_or_doubled[cuts and answers]",
        "test_nothing_is_lost_or_doubled[cuts and deaths]",
        "test_nothing_is_lost_or_doubled[cuts and restarts]",
        "test_nothing_is_lost_or_doubled[cuts and zombies]",
        "test_nothing_is_lost_or_doubled[deaths and answers]",
        "test_nothing_is_lost_or_doubled[deaths and restarts]",
    ),
    "tests/spark/test_readme.py": frozenset(
        ("test_the_readme_in_a_notebook", "test_through_spark_connect")
    ),
    "tests/spark/test_secured.py": ("test_executors_get_the_files_with_the_program",),
    "tests/spark/test_sessions.py": (
        "test_a_batch_id_never_stands_for_other_rows[another session-False]",
        "test_a_batch_id_never_stands_for_other_rows[release-False]",
        "test_a_batch_id_never_stands_for_other_rows[takeover-True]",
        "test_an_empty_opening_is_a_batch[True]",
    ),
    "tests/structure/test_tools.py": (
        "test_mypy_strict",
        "test_types_of_the_public_api",
    ),
    "tests/e2e/test_amqp1_jobs.py": ("test_flights_go_there_and_from_there_to_a_table[Artemis]",),
    "tests/spark/test_clusters.py": (
        "test_an_executor_is_killed_between_edges",
        "test_local",
        "test_local_cluster",
        "test_speculation",
    ),
    "tests/wire/links/amqp1/test_inbound.py": ("test_faults[qpid]",),
    "tests/wire/links/amqp1/test_outbound.py": (
        "test_artemis_drops_what_comes_again",
        "test_kills[qpid]",
    ),
    "tests/wire/links/test_inbound.py": (
        "test_a_kill_with_headers_of_all_types[classic]",
        "test_faults[classic]",
        "test_rabbitmq_is_killed[classic]",
    ),
    "tests/wire/links/test_outbound.py": (
        "test_kills[classic]",
        "test_messages_that_amqp_cannot_carry[classic]",
    ),
    "tests/wire/links/test_vanished.py": (
        "test_a_purge[classic]",
        "test_what_is_late_does_not_count[classic]",
    ),
}


def choose(*, long: bool) -> None:
    """Sets the size for this process and for those that it starts."""
    os.environ[_VARIABLE] = "1" if long else ""


def are_long() -> bool:
    """Whether the run was started with `--long`."""
    return bool(os.environ.get(_VARIABLE))


def sized(usual: int, long: int) -> int:
    """A number of examples, seeds, kills or seconds: the usual one, or that of `--long`."""
    return long if are_long() else usual


def is_long(nodeid: str) -> bool:
    """Whether a test, by pytest's id of it, is left out without `--long`."""
    file, _, name = nodeid.partition("::")
    return bool({name, name.partition("[")[0]} & set(LONG.get(file, ())))
