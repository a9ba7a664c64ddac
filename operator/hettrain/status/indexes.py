"""Sets of replicas as an Indexed Job writes them: `0,2-5`."""

from collections.abc import Set

__all__ = ["parse_indexes", "write_indexes"]


def parse_indexes(text: str) -> set[int]:
    """The replicas in a text such as `0,2-5`."""
    result: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        result.update(range(int(first), int(last or first) + 1))
    return result


def write_indexes(indexes: Set[int]) -> str:
    """The opposite of parse_indexes, as short as can be."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
