"""The 5QI table, row by row."""

import pytest

from edge.slices.fiveqi import TABLE, fiveqi

# TS 23.501 table 5.7.4-1: 5QI, type, priority, PDB ms, PER, MDBV bytes.
PRINTED = """
1 GBR 20 100 1e-2 -
2 GBR 40 150 1e-3 -
3 GBR 30 50 1e-3 -
4 GBR 50 300 1e-6 -
65 GBR 7 75 1e-2 -
66 GBR 20 100 1e-2 -
67 GBR 15 100 1e-3 -
71 GBR 56 150 1e-6 -
72 GBR 56 300 1e-4 -
73 GBR 56 300 1e-8 -
74 GBR 56 500 1e-8 -
76 GBR 56 500 1e-4 -
5 Non-GBR 10 100 1e-6 -
6 Non-GBR 60 300 1e-6 -
7 Non-GBR 70 100 1e-3 -
8 Non-GBR 80 300 1e-6 -
9 Non-GBR 90 300 1e-6 -
10 Non-GBR 90 1100 1e-6 -
69 Non-GBR 5 60 1e-6 -
70 Non-GBR 55 200 1e-6 -
79 Non-GBR 65 50 1e-2 -
80 Non-GBR 68 10 1e-6 -
82 Delay-critical 19 10 1e-4 255
83 Delay-critical 22 10 1e-4 1354
84 Delay-critical 24 30 1e-5 1354
85 Delay-critical 21 5 1e-5 255
86 Delay-critical 18 5 1e-4 1354
87 Delay-critical 25 5 1e-3 500
88 Delay-critical 25 10 1e-3 1125
89 Delay-critical 25 15 1e-4 17000
90 Delay-critical 25 20 1e-4 63000
"""
ROWS = [line.split() for line in PRINTED.strip().splitlines()]


@pytest.mark.parametrize("printed", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_is_as_printed(printed: list[str]) -> None:
    row = fiveqi(int(printed[0]))
    found = [row.number, row.resource.removesuffix(" GBR"), row.priority, row.delay_budget_ms, row.error_rate, row.burst_bytes]
    burst = None if printed[5] == "-" else int(printed[5])
    assert found == [int(printed[0]), printed[1], int(printed[2]), int(printed[3]), float(printed[4]), burst]
    assert row.guaranteed == (printed[1] != "Non-GBR")


def test_the_table_has_no_other_rows_and_cannot_be_changed() -> None:
    assert sorted(TABLE) == list(TABLE) == sorted(int(row[0]) for row in ROWS)
    with pytest.raises(TypeError):
        TABLE[68] = TABLE[67]  # type: ignore[index]


@pytest.mark.parametrize(("number", "nearest"), [(68, 67), (0, 1), (-5, 1), (81, 80), (91, 90), (255, 90), (75, 74), (37, 10)])
def test_a_number_that_is_not_there_names_the_nearest(number: int, nearest: int) -> None:
    with pytest.raises(ValueError, match=rf"5QI {number} is not in TS 23.501 table 5.7.4-1; the nearest there is {nearest}$"):
        fiveqi(number)
