"""A user's own CSV or Parquet file as a data set, or every reason why it cannot be one."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cluster.errors import UsageError
from federated.fedgmm.columns import Labels, Numbers, header, read
from federated.fedgmm.rows import Dataset, Floats, Names, Rows


def read_table(
    path: Path,
    outcome: str,
    treatments: Sequence[str],
    instruments: Sequence[str],
    controls: Sequence[str] = (),
    client_column: str | None = None,
) -> Dataset:
    """Read the named columns of a file; all other columns are ignored.

    Text files (.csv, .tsv, .txt) are UTF-8 with one header row and comma, semicolon or tab
    between cells; Parquet files end in .parquet or .pq. Numbers have a decimal point; true and
    false count as 1 and 0.

    Parameters
    ----------
    path
        The file.
    outcome
        Column of y.
    treatments
        Columns of x, endogenous.
    instruments
        Columns of z, excluded from the outcome equation; at least as many as treatments.
    controls
        Columns of w, exogenous; the constant is added by the estimators.
    client_column
        Column that says who holds each row, numbers or text; it may be a control too. None leaves
        `Dataset.client` None.

    Returns
    -------
    Dataset
        Its `warnings` name the clients with too few rows for an estimate of their own.

    Raises
    ------
    UsageError
        With every fault that could be found at once: names, roles, cells, constant columns, too
        few rows.
    """
    names = Names(outcome, tuple(treatments), tuple(instruments), tuple(controls))
    wanted = [outcome, *treatments, *instruments, *controls]
    asked = wanted if client_column is None else [*wanted, client_column]
    labels = Labels(client_column) if client_column is not None else None
    numbers = {name: Numbers(name) for name in wanted}
    problems = list(_role_problems(names, client_column))
    count = 0
    try:
        columns, delimiter = header(path, asked)
        problems += _name_problems(asked, columns)
        sinks: list[Numbers | Labels] = [*numbers.values(), *([labels] if labels else [])]
        found = [sink for sink in sinks if columns.count(sink.name) == 1]
        count = read(path, delimiter, columns, found)
        problems += _cell_problems(numbers, labels)
        problems += _row_problems(count, names)
    except UsageError as error:
        problems.append(str(error))
    values = {name: column.values for name, column in numbers.items() if column.cells}
    if count > 1:
        problems += _constant_problems(names, values)
    if problems:
        raise UsageError(_listed(path, problems))
    client = np.array(labels.cells) if labels else None
    return Dataset(
        rows=_rows(names, values, count),
        names=names,
        client=client,
        truth=None,
        description=(
            f"{path.name}: {outcome} on {', '.join(treatments)}, instrumented by "
            f"{', '.join(instruments)}, {count} rows."
        ),
        warnings=tuple(_small_clients(client, names)) if client is not None else (),
    )


def _rows(names: Names, values: dict[str, Floats], count: int) -> Rows:
    def matrix(columns: Sequence[str]) -> Floats:
        return np.array([values[name] for name in columns]).reshape(len(columns), count).T.copy()

    return Rows(values[names.y], matrix(names.x), matrix(names.z), matrix(names.w))


def _role_problems(names: Names, client_column: str | None) -> Iterator[str]:
    """Name what is wrong with the roles themselves, whatever the file holds."""
    roles: dict[str, list[str]] = {}
    for role, columns in (
        ("the outcome", (names.y,)),
        ("a treatment", names.x),
        ("an instrument", names.z),
        ("a control", names.w),
        ("the client column", () if client_column in (None, *names.w) else (client_column,)),
    ):
        for column in columns:
            roles.setdefault(str(column), []).append(role)
    for column, taken in roles.items():
        if len(taken) > 1:
            hint = (
                "; controls serve as their own instruments, so name it as a control alone"
                if set(taken) == {"an instrument", "a control"}
                else "; it can have one role only"
            )
            yield f"column '{column}' is named as {' and as '.join(taken)}{hint}."
    if not names.x:
        yield "no treatment column is named; name at least one."
    if len(names.z) < len(names.x) or not names.z:
        yield (
            f"{len(names.x)} treatment(s) need at least as many instruments, "
            f"{len(names.z)} are named."
        )


def _name_problems(asked: Sequence[str], columns: Sequence[str]) -> Iterator[str]:
    """Name the columns that the file lacks, or has twice."""
    by_lower = {column.lower(): column for column in columns}
    for name in dict.fromkeys(asked):
        found = columns.count(name)
        if found > 1:
            yield f"the header names column '{name}' {found} times; rename all but one."
        if found == 0:
            near = get_close_matches(name.lower(), by_lower, n=1)
            shown = ", ".join(columns[:30]) + (", ..." if len(columns) > 30 else "")
            hint = f"did you mean '{by_lower[near[0]]}'? " if near else ""
            yield f"there is no column '{name}'; {hint}The file has: {shown}."


def _cell_problems(numbers: dict[str, Numbers], labels: Labels | None) -> Iterator[str]:
    for column in numbers.values():
        if column.words:
            yield _word_problem(column)
        if column.missing:
            yield (
                f"column '{column.name}' has {_cells(column.missing)} empty, NaN or infinite, the "
                f"first in row {column.missing_row}; drop those rows or fill them in."
            )
    if labels and labels.missing:
        yield (
            f"the client column '{labels.name}' has {_cells(labels.missing)} empty, the first in "
            f"row {labels.missing_row}; every row needs a client."
        )


def _word_problem(column: Numbers) -> str:
    text, row = next(iter(column.words.items()))
    if column.wordy + column.missing == len(column.cells):
        shown = ", ".join(repr(_short(word)) for word in list(column.words)[:3])
        more = ", ..." if len(column.words) > 3 else ""
        return (
            f"column '{column.name}' holds text ({shown}{more}), the first in row {row}; code it "
            "as numbers, for example one column of 0 and 1 for each value but one."
        )
    comma = "; write decimals with a point" if _has_decimal_comma(text) else ""
    return (
        f"column '{column.name}' has {_cells(column.wordy)} not a number, the first in row {row}: "
        f"{_short(text)!r}{comma}."
    )


def _row_problems(count: int, names: Names) -> Iterator[str]:
    parameters = 1 + max(len(names.x), len(names.z)) + len(names.w)
    if count == 0:
        yield "the file has a header but no rows."
    elif count <= parameters:
        yield (
            f"{count} rows cannot determine {parameters} parameters (constant, instruments and "
            "controls); there must be more rows."
        )


def _constant_problems(names: Names, values: dict[str, Floats]) -> Iterator[str]:
    reasons = (
        ("outcome", (names.y,), "there is nothing to explain"),
        ("treatment", names.x, "its effect cannot be seen"),
        ("instrument", names.z, "it moves no treatment; leave it out"),
        ("control", names.w, "the constant is included already; leave it out"),
    )
    for role, columns, reason in reasons:
        for name in columns:
            column = values.get(name)
            # NaN, a cell at fault that is told elsewhere, makes this comparison false
            if column is not None and np.ptp(column) == 0.0:
                yield f"the {role} '{name}' is {column[0]:g} in every row: {reason}."


def _small_clients(client: NDArray[np.str_], names: Names) -> Iterator[str]:
    needed = len(names.z) + len(names.w) + 1
    labels, sizes = np.unique(client, return_counts=True)
    for label, size in zip(labels, sizes, strict=True):
        if size < needed:
            yield (
                f"Client '{label}' has {size} row(s), fewer than the {needed} moments of "
                "instruments, controls and constant, so it has no estimate of its own."
            )


def _listed(path: Path, problems: Sequence[str]) -> str:
    if len(problems) == 1:
        return f"{path}: {problems[0]}"
    return "\n".join([f"{path} has {len(problems)} problems:", *(f"  - {p}" for p in problems)])


def _cells(count: int) -> str:
    return "1 cell that is" if count == 1 else f"{count} cells that are"


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _has_decimal_comma(text: str) -> bool:
    return text.count(",") == 1 and text.replace(",", "").lstrip("+-").isdigit()
