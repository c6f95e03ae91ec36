"""Files of renewals as people keep them, and as nobody should: each line is taken or refused by its number."""

import csv
import io
import tracemalloc
import zipfile
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import openpyxl
import pytest

from app.renewal_files import LONGEST_LINE, Broken, Dates, Line, Reading, Unreadable, agreed_of, day_of, opened
from app.renewal_input import BadRenewal, Checker, addresses, masked
from store.renewals import Wanted
from tests.support.house import a_config

CADENCES: dict[str, Any] = {
    "policy": {
        "steps": [
            {"offset": "-6w", "about": "the policy of the {car} ends"},
            {"offset": "-2w", "text": {"es": "{name}, acaba el {due}."}},
        ]
    },
    "plain": {"steps": [{"offset": "-1d", "text": {"en": "It ends on {due}."}}]},
}
TODAY = date(2026, 12, 1)
CHECKER = Checker(a_config(cadences=CADENCES), TODAY)
HEAD = "subject,due,name,whatsapp,car,agreed\n"
ANA = "policy-17,2027-03-01,Ana,+57 300 123 4567,Fiat,yes\n"
EVENT = """BEGIN:VEVENT
UID:policy-17
DTSTART;VALUE=DATE:20270301
SUMMARY:Renew\\, please
X-WHATSAPP:+573001234567
X-VUELVO-CAR:Fi
 at
X-NAME:Ana
X-MICROSOFT-CDO-BUSYSTATUS:FREE
END:VEVENT
"""


class Folder:
    """Where a test keeps its files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def keeps(self, name: str, content: str | bytes) -> Path:
        file = self.path / name
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return file

    def reads(
        self,
        content: str | bytes,
        name: str = "a.csv",
        *,
        mapped: dict[str, str] | None = None,
        cadence: str | None = "policy",
        dates: Dates | None = None,
        sheet: str | None = None,
    ) -> tuple[list[Wanted], list[tuple[int, str]]]:
        """Return what is taken of a file, and what is refused."""
        file = self.keeps(name, content)
        with opened(file, sheet=sheet, zone=ZoneInfo("America/Bogota")) as table:
            reading = Reading(table, CHECKER, mapped=mapped or {}, cadence=cadence, dates=dates)
            each = list(reading.lines())
            assert table.share == 1 or name.endswith("x")
        taken = [one.wanted for one in each if isinstance(one, Line)]
        return taken, [(one.line, one.why) for one in each if isinstance(one, Broken)]

    def refused(self, content: str | bytes, name: str = "a.csv", **given: Any) -> str:
        """Return why a whole file is refused."""
        with pytest.raises(Unreadable) as problem:
            self.reads(content, name, **given)
        return str(problem.value)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def a_book(*rows: Sequence[Any], **sheets: Sequence[Sequence[Any]]) -> bytes:
    book = openpyxl.Workbook()
    assert book.active is not None
    for row in rows:
        book.active.append(list(row))
    for name, more in sheets.items():
        sheet = book.create_sheet(name)
        for row in more:
            sheet.append(list(row))
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def a_calendar(*events: str) -> str:
    return "BEGIN:VCALENDAR\nVERSION:2.0\n" + "".join(events) + "END:VCALENDAR\n"


WANTED = Wanted(
    "policy-17",
    date(2027, 3, 1),
    "policy",
    {"whatsapp": "whatsapp:+573001234567"},
    "Ana",
    None,
    None,
    {"car": "Fiat"},
    True,
)


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_text_is_read_with_whatever_separates_it_and_a_mark_or_none(
    folder: Folder, separator: str, mark: bytes, end: str
) -> None:
    text = (HEAD + ANA).replace(",", separator).replace("\n", end)
    assert folder.reads(mark + text.encode()) == ([WANTED], [])


def test_columns_are_known_in_three_languages_and_others_are_what_texts_name(folder: Folder) -> None:
    for head in (
        "Póliza;Fecha de vencimiento;NOMBRE;Teléfono;Car;Consentimiento",
        "apólice;Vencimento;nome;Telefone;CAR;consentimento",
        "Policy number;due-date;Name;WhatsApp;cár;Agreed",
    ):
        assert folder.reads(f"{head}\n{ANA.replace(',', ';')}") == ([WANTED], []), head


def test_any_other_column_is_a_field_as_it_is_called(folder: Folder) -> None:
    ((one,), _) = folder.reads(
        HEAD.replace("car", "car,Número  de matrícula,") + ANA.replace("Fiat", "Fiat,ABC 123,unnamed")
    )
    assert one.fields == {"car": "Fiat", "Número de matrícula": "ABC 123"}


def test_a_column_is_what_one_says_it_is_and_may_be_left_out(folder: Folder) -> None:
    text = "ref;ends;who;policy;model;notes\npolicy-17;2027-03-01;Ana;P1;Fiat;secret\n"
    mapped = {
        "REF": "subject",
        "ends": "due",
        "who": "name",
        "policy": "number",
        "model": "car",
        "notes": "",
        "due": "x",
    }
    assert "--map names a column 'due'" in folder.refused(text, mapped=mapped)
    del mapped["due"]
    assert folder.reads(text, mapped=mapped)[1] == [
        (2, "nothing says where the customer is reached: give one of whatsapp, telegram, web")
    ]
    mapped["notes"] = "web"
    ((one,), _) = folder.reads(text, mapped=mapped)
    assert (one.subject, one.fields, one.addresses) == (
        "policy-17",
        {"number": "P1", "car": "Fiat"},
        {"web": "user:secret"},
    )


def test_cells_may_hold_line_breaks_and_separators_and_lines_keep_their_numbers(folder: Folder) -> None:
    text = (
        HEAD
        + ANA.replace("Fiat", '"Fiat, ""the\nred"""')
        + "\n\n"
        + ANA.replace("policy-17", "p2").replace("yes", "perhaps")
    )
    ((one,), broken) = folder.reads(text)
    assert one.fields["car"] == 'Fiat, "the\nred"'
    assert broken == [(6, "agreed is 'perhaps': write yes or no")]


def test_a_formula_is_text(folder: Folder) -> None:
    ((one,), _) = folder.reads(HEAD + ANA.replace("Fiat", '"=HYPERLINK(""http://x"")"'))
    assert one.fields["car"] == '=HYPERLINK("http://x")'


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (",2027-03-01,Ana,+573001234567,Fiat,", "no subject"),
        ("p,,Ana,+573001234567,Fiat,", "no due day"),
        ("p,soon,Ana,+573001234567,Fiat,", "due is 'soon': write a date"),
        ("p,2027-02-30,Ana,+573001234567,Fiat,", "no such day"),
        ("p,03/04/2027,Ana,+573001234567,Fiat,", "say --dates"),
        ("p,2024-03-01,Ana,+573001234567,Fiat,", "more than 400 days ago"),
        ("p,2099-03-01,Ana,+573001234567,Fiat,", "more than 30 years ahead"),
        ("p,2027-03-01,Ana,300 123 4567,Fiat,", "whatsapp: write the number with a plus"),
        ("p,2027-03-01,Ana,+44 (0)20 7946 0000,Fiat,", "whatsapp: write the number with a plus"),
        ("p,2027-03-01,Ana,,Fiat,", "where the customer is reached"),
        ("p,2027-03-01,Ana,+573001234567,,", "speaks of {car}"),
        ("p,2027-03-01,,+573001234567,Fiat,", "speaks of {name}"),
        ("p,2027-03-01,Ana,+573001234567,Fiat,maybe", "agreed is 'maybe'"),
        ("p,2027-03-01,Ana,+573001234567,Fi\0at,", "car is a text"),
        (f"{'p' * 501},2027-03-01,Ana,+573001234567,Fiat,", "subject is a text"),
        (f"p,2027-03-01,Ana,+573001234567,{'x' * 2001},", "car is a text"),
        ("p,2027-03-01,Ana,+573001234567,Fiat,yes,more", "7 cells, and there are 6 columns"),
        ('p,2027-03-01,Ana,+573001234567,"Fiat" red,', "quotation marks"),
    ],
)
def test_a_broken_line_is_refused_with_what_is_wrong_and_the_others_are_taken(
    folder: Folder, cells: str, words: str
) -> None:
    taken, ((line, why),) = folder.reads(f"{HEAD}{cells}\n{ANA}")
    assert (taken, line) == ([WANTED], 2)
    assert words in why
    assert "+57" not in why


def test_an_unknown_cadence_zone_or_language_is_refused(folder: Folder) -> None:
    head = HEAD.replace("subject", "cadence,time_zone,language,subject")
    lines = [f"{more},{ANA}" for more in ("yearly,,", ",Mars/Olympus,", ",,fr", "policy,Europe/Madrid,es-ES")]
    ((one,), broken) = folder.reads(head + "".join(lines))
    assert (one.time_zone, one.language) == ("Europe/Madrid", "es")
    assert [line for line, _ in broken] == [2, 3, 4]
    assert "there are: plain, policy" in broken[0][1]
    assert "no time zone" in broken[1][1]
    assert "it speaks en, es, pt" in broken[2][1]
    assert folder.reads(HEAD + ANA, cadence=None)[1] == [
        (2, "nothing says which cadence: add a column, or say --cadence NAME")
    ]
    assert "there are: plain, policy" in folder.refused(HEAD + ANA, cadence="yearly")


def test_a_subject_that_comes_twice_is_refused_the_second_time(folder: Folder) -> None:
    assert folder.reads(HEAD + ANA + ANA) == ([WANTED], [(3, "the subject 'policy-17' is on line 2 already")])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("\n\n", "it is empty"),
        ("name,due\nAna,2027-03-01\n", "no column is the subject: say --map COLUMN=subject; there are: 'name', 'due'"),
        ("subject,due,vencimiento\n", "'due' and 'vencimiento' are both due"),
        ("subject,due,car,Car\n", "'car' and 'Car' are both car"),
        (f"subject,due,{'x' * 70}\n", "a field's name is a text"),
        ("subject,due,{x}\n", "without braces"),
        ("subject,due," + ",".join(f"c{number}" for number in range(300)), "more than 200 columns"),
        ('subject,"due\n', "first line, of columns, is broken"),
        ((HEAD + ANA).encode("utf-16"), "UTF-16"),
        ("Póliza,due\n".encode("latin-1"), "first line, of columns, is broken: it is not UTF-8"),
        (b"PK\x03\x04" + bytes(range(256)), "the column 'PK\\x03"),
    ],
)
def test_a_text_without_columns_that_can_be_used_is_refused_whole(
    folder: Folder, text: str | bytes, words: str
) -> None:
    assert words in folder.refused(text)


def test_what_is_no_file_of_renewals_is_refused_with_the_way_out(folder: Folder, tmp_path: Path) -> None:
    assert "is none of .csv, .xlsx and .ics" in folder.refused("x", "a.pdf")
    assert "has no sheets" in folder.refused(HEAD, sheet="One")
    for path, words in ((tmp_path / "none.csv", "No such file"), (tmp_path, "is none of")):
        with pytest.raises(Unreadable, match=words), opened(path, zone=ZoneInfo("UTC")):
            pass
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(Unreadable, match="Is a directory"), opened(tmp_path / "folder.csv", zone=ZoneInfo("UTC")):
        pass


def test_a_line_of_ten_megabytes_or_in_another_encoding_is_refused_and_the_next_is_read(folder: Folder) -> None:
    text = HEAD.encode() + b"x" * 10_000_000 + b"\n" + b"p,2027-03-01,Jos\xe9\n" + ANA.encode()
    tracemalloc.start()
    taken, broken = folder.reads(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (taken, broken) == (
        [WANTED],
        [(2, f"it is longer than {LONGEST_LINE:,} bytes"), (3, "it is not UTF-8: save the file as UTF-8")],
    )
    assert peak < 5 * LONGEST_LINE


def test_a_quotation_mark_that_is_never_closed_takes_no_more_than_a_cell_may_be_long(folder: Folder) -> None:
    lines = "".join(ANA.replace("17", f"{number}") for number in range(10_000))
    taken, broken = folder.reads(HEAD + 'p,"' + lines)
    assert broken[0][0] == 2
    assert "a quotation mark is opened and not closed" in broken[0][1]
    assert "(up to line" in broken[0][1]
    assert len(taken) > 7_000


def test_a_file_is_read_line_by_line(folder: Folder) -> None:
    file = folder.keeps("a.csv", HEAD + "".join(ANA.replace("17", f"{number}") for number in range(10_000)))
    tracemalloc.start()
    with opened(file, zone=ZoneInfo("UTC")) as table:
        count = sum(1 for _ in table.rows())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 10_000
    assert peak < 300_000 < file.stat().st_size


# Dates, and what people write for yes


@pytest.mark.parametrize(
    ("given", "dates", "day"),
    [
        ("2027-04-25", None, date(2027, 4, 25)),
        ("2027/4/5", "M/D/Y", date(2027, 4, 5)),
        ("2027-04-25T00:00:00", None, date(2027, 4, 25)),
        ("25/04/2027", None, date(2027, 4, 25)),
        ("25.4.2027", None, date(2027, 4, 25)),
        ("04/25/2027", None, date(2027, 4, 25)),
        ("04/04/2027", None, date(2027, 4, 4)),
        ("03/04/2027", "D/M/Y", date(2027, 4, 3)),
        ("03/04/2027", "M/D/Y", date(2027, 3, 4)),
        ("03-04-2027 00:00", "D/M/Y", date(2027, 4, 3)),
        (datetime(2027, 4, 25, 13), None, date(2027, 4, 25)),  # noqa: DTZ001 - as a sheet has it
        (date(2027, 4, 25), None, date(2027, 4, 25)),
    ],
)
def test_a_date_is_read_as_it_is_written(given: str | date, dates: Dates | None, day: date) -> None:
    assert day_of(given, dates) == day


@pytest.mark.parametrize(
    ("given", "dates"),
    [
        ("03/04/2027", None),
        ("25/04/2027", "M/D/Y"),
        ("31/02/2027", "D/M/Y"),
        ("25/04/27", None),
        ("25/04-2027", None),
        ("46137", None),
        ("٢٠٢٧-٠٤-٢٥", None),
        ("2027-04-25 or so", None),
        ("", None),
    ],
)
def test_a_date_that_could_be_another_or_none_is_refused(given: str, dates: Dates | None) -> None:
    with pytest.raises(BadRenewal, match="due is"):
        day_of(given, dates)


def test_yes_and_no_are_known_in_three_languages() -> None:
    assert all(map(agreed_of, ("yes", "SÍ", "sim", "True", "1", "x", "X ")))
    assert not any(map(agreed_of, ("no", "NÃO", "false", "0", "", " ")))
    for given in ("perhaps", "?", "2"):
        with pytest.raises(BadRenewal, match="yes or no"):
            agreed_of(given)


def test_a_number_is_taken_as_people_write_it_if_it_says_its_country() -> None:
    for given in (
        "+34 600-000.001",
        "0034 600 000 001",
        "+34 (600) 000 001",
        "whatsapp:+34600000001",
        "+34\u00a0600000001",
    ):
        assert addresses({"whatsapp": given}) == {"whatsapp": "whatsapp:+34600000001"}
    for given in ("600 000 001", "34600000001", "+0600000001", "+34 600 00 00 01 ext 2", "+", "+٣٤٦٠٠٠٠٠٠٠١"):
        with pytest.raises(BadRenewal, match=r"as in \+34"):
            addresses({"whatsapp": given})
    assert (masked("whatsapp:+34600000001"), masked("user:7"), masked("-1001234567890")) == ("+34…01", "…", "-10…90")


# Sheets


def test_a_sheet_is_read_with_its_dates_and_numbers(folder: Folder) -> None:
    day = datetime(2027, 3, 1)  # noqa: DTZ001 - as a sheet has it
    rows: list[list[Any]] = [
        [None],
        ["subject", "due", "name", "whatsapp", "car", "agreed", "premium", "since", None],
        ["policy-17", day, "Ana", "+573001234567", "Fiat", True, 120.0, day, None],
        [None] * 8,
        [18, date(2027, 3, 1), "Luis", 573001234567, "Fiat", "no", 1.5, None, None],
        [19, 46137, "Luis", "+573001234567", "Fiat", "no", None, None, None],
        [20, day, "Luis", "+573001234567", "Fiat", "no", None, None, "more"],
    ]
    ((one,), broken) = folder.reads(a_book(*rows), "a.xlsx")
    assert one == Wanted(**{**_fields(WANTED), "fields": {"car": "Fiat", "premium": "120", "since": "2027-03-01"}})
    assert [line for line, _ in broken] == [5, 6, 7]
    assert "with a plus" in broken[0][1]
    assert "due is '46137'" in broken[1][1]


def _fields(wanted: Wanted) -> dict[str, Any]:
    return {name: getattr(wanted, name) for name in wanted.__slots__}


def test_one_of_several_sheets_is_read_by_its_name(folder: Folder) -> None:
    rows = list(csv.reader([HEAD, ANA]))
    book = a_book(["nothing"], Policies=rows)
    assert folder.reads(book, "a.xlsx", sheet="Policies") == ([WANTED], [])
    assert "there are: 'Sheet', 'Policies'" in folder.refused(book, "a.xlsx", sheet="None")
    assert "no column is the subject" in folder.refused(book, "a.xlsx")
    assert "the sheet is empty" in folder.refused(a_book(), "a.xlsx")


def patched(book: bytes, part: str, content: str | bytes) -> bytes:
    """Return a workbook with another part."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(book)) as before, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as after:
        for name in before.namelist():
            after.writestr(name, content if name == part else before.read(name))
    return out.getvalue()


SHEET = "xl/worksheets/sheet1.xml"
XMLNS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"


def a_sheet(rows: str, before: str = "") -> str:
    return f'<?xml version="1.0"?>{before}<worksheet xmlns="{XMLNS}"><sheetData>{rows}</sheetData></worksheet>'


def test_a_workbook_that_unpacks_to_gigabytes_is_refused_before_it_is_opened(folder: Folder) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(SHEET, "w", force_zip64=True) as part:
        for _ in range(300):
            part.write(bytes(1_000_000))
    assert len(out.getvalue()) < 1_000_000
    assert "larger than 256 MB" in folder.refused(out.getvalue(), "a.xlsx")


def test_a_workbook_of_nonsense_is_refused_in_words(folder: Folder) -> None:
    book = a_book(*csv.reader([HEAD, ANA]))
    laughs = "<!DOCTYPE x [<!ENTITY a 'ha'>" + "".join(
        f"<!ENTITY {after} '{f'&{before};' * 50}'>" for before, after in zip("abcdefgh", "bcdefghi", strict=True)
    )
    bombed = a_sheet('<row r="1"><c r="A1" t="inlineStr"><is><t>&i;</t></is></c></row>', f"{laughs}]>")
    for content in (
        b"",
        b"no zip at all",
        book[: len(book) // 2],
        patched(book, "xl/workbook.xml", "<a/>"),
        patched(book, "[Content_Types].xml", b"\xff"),
        patched(book, SHEET, "<worksheet"),
        patched(book, SHEET, a_sheet('<row r="1"><c r="A1" t="s"><v>99</v></c></row>')),
        patched(book, SHEET, a_sheet('<row r="one"><c/></row>')),
        patched(book, SHEET, bombed),
    ):
        assert "save it anew" in folder.refused(content, "a.xlsx")


def test_a_sheet_that_claims_more_rows_and_columns_than_it_has_is_read_all_the_same(folder: Folder) -> None:
    def row(number: int, cells: str) -> str:
        each = "".join(f'<c t="inlineStr"><is><t>{cell}</t></is></c>' for cell in cells.strip().split(","))
        return f'<row r="{number}">{each}</row>'

    far = patched(a_book(["x"]), SHEET, a_sheet(row(1, HEAD) + row(900_000, ANA)))
    assert folder.reads(far, "a.xlsx") == ([WANTED], [])
    beyond = patched(a_book(["x"]), SHEET, a_sheet(row(1, HEAD) + row(2_000_000_000, ANA)))
    assert folder.reads(beyond, "a.xlsx") == ([], [])
    wide = patched(
        a_book(["x"]), SHEET, a_sheet(row(1, HEAD) + '<row r="2"><c r="XFD2"><v>1</v></c></row>' + row(3, ANA))
    )
    assert folder.reads(wide, "a.xlsx") == ([WANTED], [])
    head = patched(a_book(["x"]), SHEET, a_sheet('<row r="1"><c r="A1"><v>1</v></c><c r="XFD1"><v>1</v></c></row>'))
    assert "no column is the subject" in folder.refused(head, "a.xlsx")


# Calendars


def test_events_of_a_calendar_are_renewals(folder: Folder) -> None:
    ((one,), broken) = folder.reads(a_calendar(EVENT), "a.ics")
    assert broken == []
    assert one == Wanted(**{**_fields(WANTED), "fields": {"summary": "Renew, please", "car": "Fiat"}, "agreed": False})
    for starts, day in (
        ("DTSTART:20270302T030000Z", date(2027, 3, 1)),  # in Bogota
        ("DTSTART;TZID=Europe/Madrid:20270302T003000", date(2027, 3, 2)),
        ("DTSTART;TZID=Nowhere:20270302T003000", date(2027, 3, 2)),
    ):
        ((one,), _) = folder.reads(a_calendar(EVENT.replace("DTSTART;VALUE=DATE:20270301", starts)), "a.ics")
        assert one.due == day


def test_what_of_an_event_is_what_may_be_said(folder: Folder) -> None:
    mapped = {"SUMMARY": "subject", "X-WHATSAPP": "", "ATTENDEE": "web", "DESCRIPTION": "name"}
    event = EVENT.replace("X-NAME:Ana", "ATTENDEE:MAILTO:ana@x.example\nDESCRIPTION:Ana")
    ((one,), _) = folder.reads(a_calendar(event), "a.ics", mapped=mapped)
    assert (one.subject, one.name, one.addresses) == ("Renew, please", "Ana", {"web": "user:ana@x.example"})
    assert one.fields == {"uid": "policy-17", "car": "Fiat"}


def test_an_event_that_cannot_be_taken_is_refused_by_its_line_and_the_next_is_read(folder: Folder) -> None:
    other = EVENT.replace("policy-17", "p2")
    for wrong, words in (
        (other.replace("END:", "RRULE:FREQ=YEARLY\nEND:"), "the event comes again"),
        (other.replace("END:", "RDATE:20280301\nEND:"), "the event comes again"),
        (other.replace("END:", "STATUS:CANCELLED\nEND:"), "the event is cancelled"),
        (other.replace("DTSTART;VALUE=DATE:20270301\n", ""), "it has no due day"),
        (other.replace("20270301", "tomorrow"), ""),
        (other.replace("UID:p2\n", ""), "it has no subject"),
        (other.replace("UID:p2", "UID:p\x002"), "subject is a text"),
        (other.replace("END:", "BEGIN:VALARM\nEND:VEVENT\nEND:"), ""),
        (other.replace("SUMMARY:", "SUMMARY:" + "x" * 2_000_000), f"it is longer than {LONGEST_LINE:,} bytes"),
        (other.replace("END:", "X-A:" + "x\n " * 600_000 + "\nEND:"), "longer than"),
    ):
        taken, broken = folder.reads(a_calendar(wrong, EVENT), "a.ics")
        assert [one.subject for one in taken] == ["policy-17"], wrong[:300]
        assert broken[0][0] == 3
        assert words in broken[0][1]


def test_what_is_no_calendar_is_refused(folder: Folder) -> None:
    for content in ("", "BEGIN:VCARD\n", b"\x00\xff" * 100, EVENT):
        assert "it is no calendar" in folder.refused(content, "a.ics")
    assert folder.reads(a_calendar().encode() + EVENT[:40].encode(), "a.ics")[1] == [
        (4, "the event is not ended: END:VEVENT is missing")
    ]
