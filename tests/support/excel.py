"""The smallest Excel file that holds a table: a sheet of inline texts and numbers."""

import math
import zipfile
from xml.sax.saxutils import escape

_TYPES = """<?xml version="1.0"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Default Extension="xml" ContentType="application/xml"/>
<Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>
<Override PartName="/xl/worksheets/sheet1.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/>
</Types>"""  # noqa: E501
_RELATION = """<?xml version="1.0"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
<Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/{kind}" Target="{target}"/>
</Relationships>"""  # noqa: E501
_BOOK = """<?xml version="1.0"?>
<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"
 xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships">
<sheets><sheet name="rows" sheetId="1" r:id="rId1"/></sheets></workbook>"""
_SHEET = """<?xml version="1.0"?>
<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>{rows}
</sheetData></worksheet>"""


def write_excel(frame, path):
    """Write a pandas frame of numbers and texts; what is missing is an empty cell."""
    rows = [frame.columns, *frame.itertuples(index=False)]
    write_sheet("".join(f"<row>{''.join(map(_cell, row))}</row>" for row in rows), path)


def write_vast_excel(path):
    """Write a file of a kilobyte and a half whose second cell is the last one that Excel has."""
    cell = '<row r="{row}"><c r="{name}"><v>1</v></c></row>'
    rows = cell.format(row=1, name="A1") + cell.format(row=1048576, name="XFD1048576")
    write_sheet(rows, path, zipfile.ZIP_DEFLATED)


def write_sheet(cells, path, compression=zipfile.ZIP_STORED):
    """Write a file with these rows of cells."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("[Content_Types].xml", _TYPES)
        archive.writestr(
            "_rels/.rels", _RELATION.format(kind="officeDocument", target="xl/workbook.xml")
        )
        archive.writestr("xl/workbook.xml", _BOOK)
        archive.writestr(
            "xl/_rels/workbook.xml.rels",
            _RELATION.format(kind="worksheet", target="worksheets/sheet1.xml"),
        )
        archive.writestr("xl/worksheets/sheet1.xml", _SHEET.format(rows=cells))


def _cell(value):
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "<c/>"
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
    return f"<c><v>{float(value)!r}</v></c>"
