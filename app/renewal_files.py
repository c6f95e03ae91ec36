"""Files of renewals: CSV, XLSX and iCalendar, read line by line, whatever stands in them.

A line that cannot be taken is handed on as `Broken`, with its number, and the next one is read; a file that is none of these is
`Unreadable`. No file is held in memory whole, and of none is more read at a time than a line may be long.
"""

import csv
import os
import re
import warnings
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, time
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

from agent.language import fold
from app.renewal_input import CHANNELS, BadRenewal, Checker, Given, check_field_name
from store.renewals import Wanted

LONGEST_LINE = 1_000_000
"""Bytes of a line of text, and of an event of a calendar."""
MOST_COLUMNS = 200
MOST_ROWS = 1_048_576
"""Of a sheet, which has no more in Excel either."""
LARGEST_UNPACKED = 256 * 1024 * 1024
"""Bytes of an XLSX file's parts in all, once they are unpacked."""
MOST_PARTS = 2000
AT_A_TIME = 500
"""Rows of a sheet that are asked for at a time."""

Dates = Literal["D/M/Y", "M/D/Y"]
Cell = str | date | None


class Unreadable(Exception):
    """A file that cannot be read, or nothing of it; the message says why and the way out."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line with what stands under its columns."""

    line: int
    cells: Mapping[str, Cell]


@dataclass(frozen=True, slots=True)
class Broken:
    """A line that cannot be taken."""

    line: int
    why: str


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is a renewal."""

    line: int
    wanted: Wanted


# What columns are called, without case, accents and whatever stands between letters.
_NAMES = {
    "subject": "subject policy policynumber poliza numerodepoliza numeropoliza nropoliza nodepoliza apolice numerodaapolice"
    " numeroapolice asunto assunto reference referencia",
    "due": "due duedate dueday expires expiry expirydate renewaldate enddate vencimiento fechadevencimiento fechavencimiento"
    " vence vencimento datadevencimento datadovencimento datavencimento caducidad",
    "cadence": "cadence cadencia",
    "name": "name fullname nombre nombrecompleto nome nomecompleto",
    "whatsapp": "whatsapp phone phonenumber telephone mobile telefono movil celular telefone",
    "telegram": "telegram telegramid telegramchat",
    "web": "web webuser",
    "language": "language idioma lengua lingua",
    "time_zone": "timezone zonahoraria husohorario fusohorario",
    "agreed": "agreed agrees consent consentimiento consentimento",
}
_CALENDAR_NAMES = {"subject": "uid", "due": "dtstart"}
KNOWN = tuple(_NAMES)
"""What of a renewal a column may be, besides a field."""
_YES = frozenset(["yes", "y", "si", "s", "sim", "true", "1", "x", "verdadero", "verdadeiro"])
_NO = frozenset(["", *["no", "n", "nao", "false", "0", "falso"]])


def folded(name: str) -> str:
    """Return a name without case, accents and whatever stands between letters and digits."""
    return "".join(letter for letter in fold(name) if letter.isalnum())


class Table(ABC):
    """A file that is open: its lines, and how far they are read."""

    columns: Sequence[str] | None = None
    """What its columns are called; None where each line may have others."""
    names: Mapping[str, str] = {}
    """Further names of columns, by what they are of a renewal."""

    @abstractmethod
    def rows(self) -> Iterator[Row | Broken]:
        """Yield its lines, once. Raises Unreadable."""

    @property
    @abstractmethod
    def share(self) -> float:
        """How much of it is read, from 0 to 1."""


@contextmanager
def opened(path: Path, *, sheet: str | None = None, zone: ZoneInfo) -> Iterator[Table]:
    """Open a file of renewals; `zone` is that of instants in a calendar. Raises Unreadable."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".tsv", ".txt", ".xlsx", ".xlsm", ".ics"):
        raise Unreadable(f"{path.name} is none of .csv, .xlsx and .ics: save it as one of them")
    if sheet is not None and not kind.startswith(".xls"):
        raise Unreadable(f"{path.name} has no sheets: leave out --sheet")
    try:
        with path.open("rb") as file:
            if kind.startswith(".xls"):
                with _workbook(file) as book:
                    yield _Sheet(book, sheet)
            else:
                yield _Calendar(file, zone) if kind == ".ics" else _Text(file)
    except OSError as problem:
        raise Unreadable(f"{path.name} cannot be read: {problem.strerror or type(problem).__name__}") from problem


# Text


class _Bad(Exception):
    """A line of text that is none."""


class _Lines:
    """The lines of a file as text. An iterator of its own, since it goes on after it has raised _Bad."""

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        self._size = max(os.fstat(file.fileno()).st_size, 1)
        self._read = 0
        self.number = 0

    @property
    def share(self) -> float:
        return min(self._read / self._size, 1)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        raw = self._file.readline(LONGEST_LINE)
        if not raw:
            raise StopIteration
        self.number += 1
        self._read += len(raw)
        if self.number == 1:
            if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise Unreadable("it is UTF-16: save it as UTF-8")
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if len(raw) == LONGEST_LINE and not raw.endswith(b"\n"):
            while rest := self._file.readline(LONGEST_LINE):
                self._read += len(rest)
                if rest.endswith(b"\n"):
                    break
            raise _Bad(f"it is longer than {LONGEST_LINE:,} bytes")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise _Bad("it is not UTF-8: save the file as UTF-8") from None


class _Text(Table):
    """CSV: RFC 4180, with a comma, a semicolon or a tab between."""

    def __init__(self, file: BufferedReader) -> None:
        self._lines = _Lines(file)
        try:
            first = next(line for line in self._lines if line.strip())
            head = next(csv.reader(_and_then(first, self._lines), delimiter=_separator(first), strict=True))
        except (_Bad, csv.Error) as problem:
            raise Unreadable(f"its first line, of columns, is broken: {problem}") from None
        except StopIteration:
            raise Unreadable("it is empty: its first line names the columns") from None
        self.columns = head
        self._reader = csv.reader(self._lines, delimiter=_separator(first), strict=True)

    @property
    def share(self) -> float:
        return self._lines.share

    def rows(self) -> Iterator[Row | Broken]:
        assert self.columns is not None
        while True:
            line = self._lines.number + 1
            try:
                cells = next(self._reader)
            except StopIteration:
                return
            except (_Bad, csv.Error) as problem:
                until = self._lines.number
                yield Broken(line, _csv_words(problem) + (f" (up to line {until})" if until > line else ""))
                continue
            if len(cells) > len(self.columns) and any(map(str.strip, cells[len(self.columns) :])):
                yield Broken(line, f"it has {len(cells)} cells, and there are {len(self.columns)} columns")
            elif any(map(str.strip, cells)):
                yield Row(line, dict(zip(self.columns, cells, strict=False)))


def _and_then(first: str, others: Iterator[str]) -> Iterator[str]:
    yield first
    yield from others


def _separator(line: str) -> str:
    bare = re.sub(r'"[^"]*("|$)', "", line)
    return max(",;\t", key=bare.count)


def _csv_words(problem: Exception) -> str:
    if isinstance(problem, _Bad):
        return str(problem)
    if "field larger" in str(problem) or "unexpected end" in str(problem):
        return "a quotation mark is opened and not closed, or a cell is too long"
    return "its quotation marks do not fit: within quotes, one is written twice"


# Sheets


@contextmanager
def _workbook(file: BufferedReader) -> Iterator[Any]:
    """Open a workbook, unless it would unpack to more than anybody means."""
    try:
        with zipfile.ZipFile(file) as archive:
            parts = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        raise Unreadable("it is no XLSX file, or has a password: save it anew as .xlsx") from None
    # No more than a part says is ever unpacked of it.
    if len(parts) > MOST_PARTS or sum(part.file_size for part in parts) > LARGEST_UNPACKED:
        raise Unreadable(
            f"unpacked it is larger than {LARGEST_UNPACKED // 1024**2} MB: save the sheet alone, or as .csv"
        )
    import openpyxl  # noqa: PLC0415 - takes a quarter of a second to load, and only these files need it

    with _of_library("it cannot be read as XLSX: save it anew, or as .csv"):
        book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
    try:
        yield book
    finally:
        book.close()


@contextmanager
def _of_library(words: str) -> Iterator[None]:
    """Raise Unreadable for whatever a library raises of a file that somebody else has written: it is of every kind."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (Unreadable, MemoryError):
        raise
    except Exception as problem:
        raise Unreadable(words) from problem


class _Sheet(Table):
    """One sheet of a workbook, with the values that its formulas had when it was saved."""

    def __init__(self, book: Any, name: str | None) -> None:
        sheets = {sheet.title: sheet for sheet in book.worksheets}
        if not sheets:
            raise Unreadable("it has no sheet: save it anew")
        if name is not None and name not in sheets:
            raise Unreadable(f"there is no such sheet; there are: {', '.join(map(repr, sheets))}")
        self._sheet = next(iter(sheets.values())) if name is None else sheets[name]
        self._count = max(self._sheet.max_row or 1, 1)
        self._line = 0
        for number, cells in self._cells(MOST_COLUMNS + 1):
            if any(cell is not None for cell in cells):
                self._head = number
                self.columns = [_words(_shown(cell)) for cell in _trimmed(cells)]
                break
        else:
            raise Unreadable("the sheet is empty: its first line names the columns")
        if len(self.columns) > MOST_COLUMNS:
            raise Unreadable(f"the sheet has more than {MOST_COLUMNS} columns: leave some out")

    @property
    def share(self) -> float:
        return min(self._line / self._count, 1)

    def _cells(self, width: int) -> Iterator[tuple[int, Sequence[Any]]]:
        rows = self._sheet.iter_rows(max_row=MOST_ROWS, max_col=width, values_only=True)
        for first in range(1, MOST_ROWS + 1, AT_A_TIME):
            with _of_library(f"the sheet cannot be read from line {first} on: save it anew, or as .csv"):
                some = list(islice(rows, AT_A_TIME))
            yield from enumerate(some, first)

    def rows(self) -> Iterator[Row | Broken]:
        assert self.columns is not None
        width = len(self.columns)
        for number, cells in self._cells(width + 1):
            self._line = number
            if number <= self._head or all(cell is None for cell in cells):
                continue
            if len(cells) > width and cells[width] is not None:
                yield Broken(number, f"it has more cells than there are columns ({width})")
            else:
                yield Row(number, dict(zip(self.columns, map(_shown, cells), strict=False)))


def _trimmed(cells: Sequence[Any]) -> Sequence[Any]:
    width = max(place for place, cell in enumerate(cells, 1) if cell is not None)
    return cells[:width]


def _shown(cell: Any) -> Cell:
    """Return what a cell holds; whole numbers, as telephone numbers are, without a point."""
    match cell:
        case None | str() | datetime() | date():
            return cell
        case bool():
            return "yes" if cell else "no"
        case float() if cell.is_integer():
            return str(int(cell))
        case time():
            return f"{cell:%H:%M}"
    return str(cell)


# Calendars

_FIELDS_OF_EVENT = ("SUMMARY", "DESCRIPTION", "LOCATION", "ATTENDEE")
_NOT_FIELDS = re.compile(r"X-(MICROSOFT|APPLE|ALT-DESC|MOZ|GOOGLE|WR-|LIC-|EVOLUTION)")
_RECURS = ("RRULE", "RDATE", "RECURRENCE-ID")


class _Calendar(Table):
    """iCalendar (RFC 5545): each event is a renewal, due on the day it begins."""

    names = _CALENDAR_NAMES

    def __init__(self, file: BufferedReader, zone: ZoneInfo) -> None:
        self._lines = _Lines(file)
        self._zone = zone
        try:
            first = next(line for line in self._lines if line.strip())
        except (_Bad, StopIteration):
            first = ""
        if first.strip().upper() != "BEGIN:VCALENDAR":
            raise Unreadable("it is no calendar: the first line of one is BEGIN:VCALENDAR")

    @property
    def share(self) -> float:
        return self._lines.share

    def rows(self) -> Iterator[Row | Broken]:
        event: list[str] | None = None
        begun, size, wrong = 0, 0, None
        while True:
            try:
                line = next(self._lines)
            except StopIteration:
                break
            except _Bad as problem:
                wrong = str(problem)
                continue
            mark = line.strip().upper()
            if mark == "BEGIN:VEVENT" and event is None:
                event, begun, size, wrong = [], self._lines.number, 0, None
            if event is None:
                continue
            size += len(line)
            if size > LONGEST_LINE:
                wrong = f"it is longer than {LONGEST_LINE:,} characters"
                event.clear()
            else:
                event.append(line)
            if mark == "END:VEVENT":
                yield Broken(begun, wrong) if wrong else self._row(begun, "".join(event))
                event = None
        if event is not None:
            yield Broken(begun, "the event is not ended: END:VEVENT is missing")

    def _row(self, line: int, text: str) -> Row | Broken:
        import icalendar  # noqa: PLC0415 - takes a third of a second to load, and only these files need it

        try:
            event = icalendar.Event.from_ical(text)
            if event.name != "VEVENT" or any(event.get(name) is not None for name in _RECURS):
                return Broken(line, "the event comes again: write each renewal as an event of its own")
            if str(event.get("STATUS", "")).upper() == "CANCELLED":
                return Broken(line, "the event is cancelled: vuelvo renewals close closes its renewal")
            starts: Any = event.get("DTSTART")
            cells: dict[str, Cell] = {"DTSTART": self._day(getattr(starts, "dt", None))}
            for name, value in event.items():
                if name in ("UID", *_FIELDS_OF_EVENT) or (name.startswith("X-") and not _NOT_FIELDS.match(name)):
                    each = value if isinstance(value, list) else [value]
                    cells[name] = ", ".join(re.sub("^mailto:", "", str(one), flags=re.IGNORECASE) for one in each)
        except Exception:  # of the library, which raises of every kind for what is no event
            return Broken(line, "it is no event that can be read")
        return Row(line, cells)

    def _day(self, starts: object) -> date | None:
        """Return the day on which an event begins where it is; of an instant in UTC, as most write it, where the tenant is."""
        if isinstance(starts, datetime):
            return (starts.astimezone(self._zone) if starts.tzname() == "UTC" else starts).date()
        return starts if isinstance(starts, date) else None


# What the columns mean


class Columns:
    """Which column is what of a renewal."""

    def __init__(self, table: Table, mapped: Mapping[str, str], places: set[str]) -> None:
        """`mapped` says what columns are; `places` are those that texts have. Raises Unreadable."""
        self._mapped = {folded(column): field.strip() for column, field in mapped.items()}
        taken = set(self._mapped.values())
        names = {name: known for known, words in _NAMES.items() for name in words.split()}
        names |= {name: known for known, words in table.names.items() for name in words.split()}
        self._names = {name: known for name, known in names.items() if known not in taken}
        self._places = {folded(place): place for place in sorted(places)}
        self._found: dict[str, str] = {}
        for field in taken - set(KNOWN) - {""}:
            try:
                check_field_name(field)
            except BadRenewal as problem:
                raise Unreadable(f"--map: {problem}") from None
        if table.columns is not None:
            self._check(table.columns)

    def _check(self, columns: Sequence[str]) -> None:
        named = [column for column in columns if column.strip()]
        shown = ", ".join(repr(column[:40]) for column in named[:20])
        if missing := [column for column in self._mapped if column not in map(folded, named)]:
            raise Unreadable(f"--map names a column {missing[0][:40]!r}; there are: {shown}")
        if len(named) > MOST_COLUMNS:
            raise Unreadable(f"it has more than {MOST_COLUMNS} columns: leave some out")
        by_meaning: dict[str, str] = {}
        for column in named:
            meaning = self.of(column)
            if meaning and (other := by_meaning.get(meaning)) is not None:
                raise Unreadable(
                    f"the columns {other[:40]!r} and {column[:40]!r} are both {meaning}: say --map COLUMN= to leave one out"
                )
            by_meaning[meaning] = column
            if meaning and meaning not in KNOWN:
                try:
                    check_field_name(meaning)
                except BadRenewal as problem:
                    raise Unreadable(f"the column {column[:40]!r}: {problem}; say --map COLUMN=NAME") from None
        for needed in ("subject", "due"):
            if needed not in by_meaning:
                raise Unreadable(f"no column is the {needed}: say --map COLUMN={needed}; there are: {shown}")

    def of(self, column: str) -> str:
        """Return what a column is: one of KNOWN, or the name of a field; empty for what is left out."""
        if column not in self._found:
            self._found[column] = self._meaning(column)
        return self._found[column]

    def _meaning(self, column: str) -> str:
        key = folded(column)
        if key in self._mapped:
            return self._mapped[key]
        if column.startswith("X-"):  # of a calendar
            column = column.removeprefix("X-").removeprefix("VUELVO-")
            key = folded(column)
        if key in self._names:
            return self._names[key]
        if key in self._places:
            return self._places[key]
        return column.lower() if column.isupper() else " ".join(column.split())


class Reading:
    """Makes renewals of lines."""

    def __init__(
        self,
        table: Table,
        checker: Checker,
        *,
        mapped: Mapping[str, str],
        cadence: str | None = None,
        dates: Dates | None = None,
    ) -> None:
        """`cadence` is that of lines that name none. Raises Unreadable."""
        if cadence is not None and cadence not in checker.tenant.cadences:
            known = ", ".join(sorted(checker.tenant.cadences)) or "none"
            raise Unreadable(f"there is no cadence {cadence[:40]!r}; there are: {known}")
        places = {place for name in checker.tenant.cadences for place in checker.places(name)}
        self._table, self._checker, self._cadence, self._dates = table, checker, cadence, dates
        self._columns = Columns(table, mapped, places)
        self._lines: dict[str, int] = {}

    def lines(self) -> Iterator[Line | Broken]:
        """Yield what each line is. Raises Unreadable."""
        for row in self._table.rows():
            if isinstance(row, Broken):
                yield row
                continue
            try:
                wanted = self._checker.check(self._given(row.cells))
            except BadRenewal as problem:
                yield Broken(row.line, str(problem))
                continue
            first = self._lines.setdefault(wanted.subject, row.line)
            if first == row.line:
                yield Line(row.line, wanted)
            else:
                yield Broken(row.line, f"the subject {wanted.subject[:60]!r} is on line {first} already")

    def _given(self, cells: Mapping[str, Cell]) -> Given:
        own: dict[str, Cell] = {}
        fields: dict[str, str] = {}
        for column, cell in cells.items():
            if isinstance(cell, str):
                cell = cell.strip()
            if cell is None or cell == "" or not (meaning := self._columns.of(column)):
                continue
            if meaning in KNOWN:
                own[meaning] = cell
            else:
                fields[meaning] = _words(cell)
        said = {name: _words(cell) for name, cell in own.items()}
        if "subject" not in own:
            raise BadRenewal("it has no subject")
        if "due" not in own:
            raise BadRenewal("it has no due day")
        cadence = said.get("cadence", self._cadence)
        if cadence is None:
            raise BadRenewal("nothing says which cadence: add a column, or say --cadence NAME")
        return Given(
            said["subject"],
            day_of(own["due"], self._dates),
            cadence,
            {channel: said[channel] for channel in CHANNELS if channel in said},
            said.get("name"),
            said.get("language"),
            said.get("time_zone"),
            fields,
            agreed_of(said.get("agreed", "")),
        )


def _words(cell: str | date | None) -> str:
    match cell:
        case datetime() if cell.time() == time():
            return cell.date().isoformat()
        case datetime():
            return cell.isoformat(" ", "minutes")
        case date():
            return cell.isoformat()
    return cell or ""


_ISO = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?:[T ]\d{2}:\d{2}.{0,20})?", re.ASCII)
_SLASHED = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})(?:[T ]\d{1,2}:\d{2}.{0,20})?", re.ASCII)


def day_of(given: Cell, dates: Dates | None = None) -> date:
    """Return the day that a cell means; `dates` says in which order its numbers stand. Raises BadRenewal."""
    if isinstance(given, datetime):
        return given.date()
    if isinstance(given, date):
        return given
    text = given or ""
    try:
        if found := _ISO.fullmatch(text):
            return date(int(found[1]), int(found[3]), int(found[4]))
        if found := _SLASHED.fullmatch(text):
            first, second, year = int(found[1]), int(found[3]), int(found[4])
            if dates is None and first <= 12 and second <= 12 and first != second:
                raise BadRenewal(f"due is {text}: that is two days, say --dates D/M/Y or M/D/Y")
            is_month_first = dates == "M/D/Y" or (dates is None and second > 12)
            return date(year, first, second) if is_month_first else date(year, second, first)
    except ValueError as problem:
        if isinstance(problem, BadRenewal):
            raise
        raise BadRenewal(f"due is {text}: there is no such day") from None
    raise BadRenewal(f"due is {text[:40]!r}: write a date such as 2027-04-25 or 25/04/2027")


def agreed_of(given: str) -> bool:
    """Tell whether a cell says that a customer has agreed. Raises BadRenewal."""
    said = folded(given)
    if said not in _YES | _NO or (not said and given.strip()):
        raise BadRenewal(f"agreed is {given[:20]!r}: write yes or no")
    return said in _YES
