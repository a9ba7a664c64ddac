"""`hetccl bench` refuses what it cannot measure before anything starts, and says what it can."""

import pytest

from hetccl.bench.formulas import BUS, bound
from hetccl.bench.run import islands_of, parse_islands, parse_sizes
from hetccl.cli import main


def test_sizes_are_bytes_with_binary_units() -> None:
    assert parse_sizes("4") == (4,)
    assert parse_sizes("1,64K,3m,2G") == (1, 65536, 3 << 20, 2 << 30)


def test_ranks_without_islands_are_two_halves_and_must_agree_with_islands() -> None:
    assert islands_of(None, None) == (1, 1)
    assert islands_of(None, 5) == (3, 2)
    assert islands_of((2, 1), 3) == (2, 1)
    with pytest.raises(RuntimeError, match=r"--islands 2\+1 are 3 ranks, --ranks says 4"):
        islands_of((2, 1), 4)


def test_the_bound_is_what_the_busiest_rank_has_to_receive() -> None:
    assert bound("all_reduce", 2, 100.0) == 100.0
    assert bound("all_gather", 4, 100.0) == 75.0


def test_islands_are_numbers_of_ranks() -> None:
    assert parse_islands("1") == (1,)
    assert parse_islands("8+4+2") == (8, 4, 2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["all_reduce", "--sizes", "4,x"],
            "argument --sizes: '4,x' are no sizes: write numbers of bytes, such as 4,64K",
        ),
        (["all_reduce", "--sizes", ""], "argument --sizes: '' are no sizes"),
        (["all_reduce", "--sizes", "0"], "argument --sizes: '0' are no sizes"),
        (["all_reduce", "--sizes", "-4K"], "argument --sizes: '-4K' are no sizes"),
        (["all_reduce", "--sizes", "4KB"], "argument --sizes: '4KB' are no sizes"),
        (
            ["all_reduce", "--islands", "1+x"],
            "argument --islands: '1+x' are no islands: write the number of ranks of each",
        ),
        (["all_reduce", "--islands", "1+0"], "argument --islands: '1+0' are no islands"),
        (["all_reduce", "--islands", "2+"], "argument --islands: '2+' are no islands"),
        (["all_reduce", "--dtype", "float33"], "argument --dtype: invalid choice: 'float33' (choose from"),
        (["all_reduce", "--peer", "nccl"], "argument --peer: invalid choice: 'nccl' (choose from"),
        (["all_reduse"], "argument OP: invalid choice: 'all_reduse' (choose from"),
        ([], "the following arguments are required: OP"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_what_can(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    joined = [f"{arguments[1]}={arguments[2]}"] if len(arguments) == 3 else []
    with pytest.raises(SystemExit) as ended:
        main(["bench", *arguments[:1], *joined])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("op", "factor"),
    [("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("broadcast", 1.0), ("all_to_all", 0.75)],
)
def test_the_bus_bandwidth_of_four_ranks_is_that_of_nccl_tests(op: str, factor: float) -> None:
    assert BUS[op](4) == factor


def test_every_op_has_an_example_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    said = capsys.readouterr().out
    assert "example: hetccl bench all_reduce" in said
    assert all(op in said for op in BUS)
