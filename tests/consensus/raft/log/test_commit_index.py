"""The commit index alone: never beyond what is durable here, and never back."""

from __future__ import annotations

from raftsched.consensus.raft.log.commit_index import CommitIndex


def test_a_start_trusts_what_is_applied_and_no_more() -> None:
    commit = CommitIndex(applied=5, last=9)
    assert (commit.index, commit.durable_index) == (5, 9)


def test_a_leader_commits_what_is_durable_here_as_a_whole_or_not_at_all() -> None:
    commit = CommitIndex(applied=1, last=3)
    commit.raise_to(4)
    assert (commit.index, commit.waits_for_sync) == (1, True)
    commit.written(4)
    commit.synced()
    assert commit.index == 1, "the rule is evaluated again, in the next step"
    commit.raise_to(4)
    commit.raise_to(2)
    assert commit.index == 4


def test_a_follower_commits_up_to_its_disk_and_the_rest_with_the_sync() -> None:
    commit = CommitIndex(applied=1, last=3)
    commit.leader_committed(5)
    assert commit.index == 3
    commit.written(6)
    commit.synced()
    assert commit.index == 5


def test_a_log_that_was_cut_is_durable_up_to_the_cut() -> None:
    commit = CommitIndex(applied=2, last=8)
    commit.cut(4)
    commit.raise_to(4)
    assert (commit.index, commit.durable_index) == (2, 3)


def test_an_installed_snapshot_is_durable_and_committed() -> None:
    commit = CommitIndex(applied=2, last=8)
    commit.installed(20)
    assert (commit.index, commit.durable_index) == (20, 20)
