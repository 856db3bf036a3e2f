"""Marks on the scoreboard: which payload is read or settled just now."""

from __future__ import annotations

from henchman.kernel.scoreboard import SCOREBOARD_BYTES, STARTS, Scoreboard


def test_marks_and_starts_do_not_meet() -> None:
    memory = bytearray(SCOREBOARD_BYTES)
    board = Scoreboard(memory)
    for place in range(STARTS + 100):
        board.start(place, "j" * 100)
    assert board.marked() == []
    assert len(board.started()) == STARTS
    for place in range(20):
        board.mark(place, b"%d" % place * 200)
    assert [len(one) for one in board.marked()] == [150] * 16
    assert board.started() == [b"j" * 40] * STARTS
    assert len(memory) == SCOREBOARD_BYTES


def test_a_mark_is_the_end_of_a_payload_whatever_its_bytes() -> None:
    board = Scoreboard()
    board.mark(3, b"\0\0x\0")
    assert board.marked() == [b"\0\0x\0"]
    board.mark(3, b"a" * 150 + b"b" * 10)
    assert board.marked() == [b"a" * 140 + b"b" * 10]
    board.mark(3, b"")
    assert board.marked() == []


def test_what_is_said_of_settling_meets_nothing_else() -> None:
    memory = bytearray(SCOREBOARD_BYTES)
    board = Scoreboard(memory)
    board.settling(True)
    board.one_by_one(True)
    assert (board.was_settling(), board.is_one_by_one(), board.was_alone()) == (True, True, False)
    assert board.last_beat() == (bytes(8), "stuck")
    board.settling(False)
    board.one_by_one(False)
    assert memory == bytes(SCOREBOARD_BYTES)
