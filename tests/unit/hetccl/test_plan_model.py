"""The cost model: what it says where the answer is known, and `hetccl simulate`."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hetccl.cli import main
from hetccl.plan import Buffer, Schedule, Space, Step, Wire
from hetccl.plan.model import PLANS, Machine, best, bound, cost

MIB = 1 << 20


def machine(*islands: int, rails: tuple[int, ...] = (), inside: float = 300e9, wire: float = 25e9) -> Machine:
    return Machine(islands, rails or (1,) * len(islands), inside, wire, 5e-6, 10e-6, 0.5e-6)


def test_a_message_costs_its_latency_and_its_bytes_on_the_link_that_it_takes() -> None:
    send = Schedule((Step((Buffer(Space.INPUT),), (Wire(1),), MIB),))
    receive = Schedule((Step((Wire(0),), (Buffer(Space.OUTPUT),), MIB),))
    assert cost([send, receive], machine(2)) == pytest.approx(4 * MIB / 300e9 + 5e-6)
    assert cost([send, receive], machine(1, 1)) == pytest.approx(4 * MIB / 25e9 + 10e-6)
    assert cost([send, receive], machine(1, 1, rails=(2, 1))) == pytest.approx(4 * MIB / 25e9 + 10e-6)
    assert cost([send, receive], machine(1, 1, rails=(2, 2))) == pytest.approx(2 * MIB / 25e9 + 10e-6)


def test_a_chain_of_messages_costs_each_ones_latency() -> None:
    empty = Buffer(Space.INPUT)
    plans = [
        Schedule((Step((empty,), (Wire(1),), 0),)),
        Schedule((Step((Wire(0),), (empty,), 0), Step((empty,), (Wire(2),), 0, after=(0,)))),
        Schedule((Step((Wire(1),), (empty,), 0),)),
    ]
    assert cost(plans, machine(2, 1)) == pytest.approx(15e-6 + 2 * 0.5e-6)


def test_the_bound_of_all_reduce_is_that_of_the_slowest_wires_or_of_the_island() -> None:
    size = 1 << 30
    assert bound("all_reduce", size, machine(4, 4)) == pytest.approx(size / 25e9 + 10e-6)
    assert bound("all_reduce", size, machine(4, 4, 4)) == pytest.approx(4 * size / 75e9 + 10e-6)
    assert bound("all_reduce", size, machine(4, 4, rails=(4, 1))) == pytest.approx(size / 25e9 + 10e-6)
    assert bound("all_reduce", size, machine(8)) == pytest.approx(2 * size * 7 / 8 / 300e9 + 5e-6)
    assert bound("all_reduce", size, machine(1)) == 0


@settings(deadline=None, max_examples=80)
@given(st.sampled_from(sorted(PLANS)), st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(2, 30))
def test_no_plan_is_cheaper_than_the_bound(op, islands, power) -> None:
    # Whole shares: what is rounded up to elements would be less than the bound for the bytes asked.
    there = machine(*islands)
    size = 4 * there.ranks * (1 << power)
    assert best(op, size, there)[1] >= bound(op, size, there) * (1 - 1e-9)


@pytest.mark.parametrize("ranks", [2, 8, 16])
@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_in_one_island_large_pieces_come_within_5_percent_of_the_bound(op, ranks) -> None:
    fast_links = machine(ranks, inside=20e9)
    size = ranks * 16 * MIB
    assert best(op, size, fast_links)[1] <= 1.05 * bound(op, size, fast_links)


@pytest.mark.parametrize("islands", [(1, 1), (4, 4), (8, 4, 2), (1, 5)])
def test_large_all_to_alls_come_within_5_percent_of_the_bound(islands) -> None:
    there = machine(*islands)
    size = there.ranks * 16 * MIB
    assert best("all_to_all", size, there)[1] <= 1.05 * bound("all_to_all", size, there)


def test_small_all_reduces_take_the_shorter_chain_and_large_ones_the_fewer_bytes() -> None:
    there = machine(4, 4)
    assert best("all_reduce", 64, there)[0] == "exchange"
    assert best("all_reduce", 64 * MIB, there)[0] == "owners"


def test_the_command_prints_and_writes_a_row_a_size(tmp_path, capsys) -> None:
    file = tmp_path / "rows.json"
    main(["simulate", "all_reduce", "--islands", "8+4+2", "--rails", "4+2+1", "--sizes", "1K,1M", "--json", str(file)])
    rows = json.loads(file.read_text())["rows"]
    assert [row["bytes"] for row in rows] == [1024, MIB]
    assert all(set(row) == {"op", "bytes", "plan", "model_us", "bound_us", "ratio"} for row in rows)
    assert all(row["ratio"] == pytest.approx(row["model_us"] / row["bound_us"]) for row in rows)
    assert "8+4+2: a model, nothing ran" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--islands", "4+4", "--rails", "2"], "--rails has 1 numbers, --islands 2: one each is needed"),
        (["--wire", "0"], "argument --wire: '0' is not a number above 0"),
        (["--inside", "fast"], "argument --inside: 'fast' is not a number above 0"),
        (["--islands", "200+100"], "300 ranks are too many: at most 256 can be weighed"),
    ],
)
def test_what_cannot_be_weighed_is_refused(arguments, said, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "all_reduce", *arguments])
    assert said in capsys.readouterr().err + str(ended.value.code)
