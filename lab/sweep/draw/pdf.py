"""A text in Markdown as a PDF: the outline of a paper with its tables and figures."""

import html
import re
from pathlib import Path
from typing import TYPE_CHECKING

from lab.base.errors import UsageError, UserError

if TYPE_CHECKING:
    from fpdf import FPDF

_STYLES = {"": "", "B": "-Bold", "I": "-Oblique", "BI": "-BoldOblique"}
_TEXT, _CODE = "text", "code"  # fonts; sizes are in points
_SIZE, _SIZE_OF_TABLES, _SIZE_OF_CODE = 10, 8, 8
_WIDEST = 11.8  # inches, of a figure with two panels: it is as wide as the text, others by their share
_PARTS = re.compile(r"(<table>.*?</table>|<p>\s*<img\b[^>]*>\s*</p>|<img\b[^>]*>)", re.S)


def write_pdf(markdown: Path, target: Path) -> Path:
    """Write `target`, A4 with page numbers; images are found from the text's own folder.

    Raises:
        UsageError: there is no fpdf2.
        UserError: the text or one of its images cannot be read, or the PDF cannot be written.
    """
    try:
        import fpdf
        from fpdf.fonts import TextStyle
        from markdown import markdown as to_html
    except ImportError as error:
        raise UsageError(f"--pdf needs fpdf2 ({error}): python -m pip install fpdf2 markdown") from error

    class Page(fpdf.FPDF):
        def footer(self) -> None:
            self.set_y(-12)
            self.set_font(_TEXT, size=8)
            self.cell(0, 6, f"{self.page_no()}", align="C")

    headings = {
        name: TextStyle(_TEXT, "B", size, "#000000", t_margin=above, b_margin=0.3)
        for name, size, above in (("h1", 16, 0), ("h2", 13, 4), ("h3", 11, 3), ("h4", 10, 2))
    }
    looks = {**headings, "code": TextStyle(_CODE, "", 9), "pre": TextStyle(_CODE, "", _SIZE_OF_CODE, "#000000")}
    try:
        text = re.sub(r"<!--.*?-->", "", markdown.read_text(encoding="utf-8"), flags=re.S)
        pdf = Page(format="A4")
        pdf.set_margin(20)
        pdf.set_auto_page_break(auto=True, margin=18)
        _add_fonts(pdf)
        pdf.set_title(next(iter(re.findall(r"^#\s+(.*)", text, re.M)), markdown.stem))
        pdf.add_page()
        for part in _PARTS.split(to_html(text, extensions=["tables", "fenced_code"])):
            pdf.set_font(_TEXT, size=_SIZE)
            if part.startswith("<table>"):
                _table(pdf, part)
            elif image := re.search(r'<img\b[^>]*?src="([^"]*)"', part):
                _figure(pdf, markdown.parent / html.unescape(image[1]))
            elif part.strip():
                pdf.write_html(part, font_family=_TEXT, tag_styles=looks)
        pdf.output(str(target))
    except UnicodeDecodeError as error:
        raise UserError(f"{markdown} is not in UTF-8 ({error}): save it as UTF-8") from error
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot write {target}: {error.filename or markdown}: {reason}") from error
    return target


def _add_fonts(pdf: "FPDF") -> None:
    """Matplotlib's, because the fonts that every PDF viewer has know Latin-1 only."""
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    for style, ending in _STYLES.items():
        pdf.add_font(_TEXT, style, folder / f"DejaVuSans{ending}.ttf")
        pdf.add_font(_CODE, style, folder / f"DejaVuSansMono{ending}.ttf")


def _table(pdf: "FPDF", part: str) -> None:
    """Columns as wide as their longest words ask for; the header again on each page."""
    rows = [
        [
            html.unescape(re.sub(r"<[^>]+>", "", cell))
            for cell in re.findall(r"<t[hd]\b[^>]*>(.*?)</t[hd]>", row, re.S)
        ]
        for row in re.findall(r"<tr>(.*?)</tr>", part, re.S)
    ]
    pdf.set_font(_TEXT, size=_SIZE_OF_TABLES)
    words = [max(len(word) for row in rows for word in row[i].split() or [""]) for i in range(len(rows[0]))]
    most = [min(max(len(row[i]) for row in rows), 3 * longest) for i, longest in enumerate(words)]
    widths = tuple(max(longest + 2, wide) for longest, wide in zip(words, most, strict=True))
    with pdf.table(rows, col_widths=widths, borders_layout="HORIZONTAL_LINES", text_align="LEFT", line_height=4):
        pass
    pdf.ln(2)


def _figure(pdf: "FPDF", file: Path) -> None:
    """In the middle, and on the next page where it is too high for this one.

    Raises:
        UserError: it is not there, or no image.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file) as image:
            inches = image.width / float(image.info.get("dpi", (200, 200))[0])
            share = min(1.0, max(inches / _WIDEST, 0.25))
            width = pdf.epw * share
            height = width * image.height / image.width
    except FileNotFoundError as error:
        raise UserError(f"the text shows {file}, which is not there: draw it, or take it out") from error
    except UnidentifiedImageError as error:
        raise UserError(f"the text shows {file}, which is no image: draw it again, or take it out") from error
    if pdf.will_page_break(height):
        pdf.add_page()
    pdf.image(file, x=pdf.l_margin + (pdf.epw - width) / 2, w=width, h=height)
    pdf.ln(2)
