"""A picture of times for notebooks, as SVG."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

_NAMES, _BARS, _ROW = 260, 360, 22  # pixels


def bars(rows: Sequence[tuple[str, float | None, float | None]]) -> str:
    """A bar for each (name, seconds, least seconds that any schedule could take), on one scale. None is not known."""
    longest = max((max(seconds or 0, least or 0) for _, seconds, least in rows), default=0) or 1
    drawn = [_row(index, name, seconds, least, _BARS / longest) for index, (name, seconds, least) in enumerate(rows)]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{_NAMES + _BARS + 100}" height="{_ROW * len(rows) + 6}" '
            f'font-family="sans-serif" font-size="12" fill="currentColor">{"".join(drawn)}</svg>')


def _row(index: int, name: str, seconds: float | None, least: float | None, scale: float) -> str:
    top, width = _ROW * index + 4, (seconds or 0) * scale
    said = "not known" if seconds is None else f"{1e3 * seconds:.4g} ms"
    bound = "" if least is None else (f'<path stroke="currentColor" d="M{_NAMES + least * scale:.1f} {top - 2}v{_ROW - 4}">'
                                      f"<title>lower bound: {1e3 * least:.4g} ms</title></path>")
    return (f'<text x="{_NAMES - 8}" y="{top + 12}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{_NAMES}" y="{top}" width="{width:.1f}" height="{_ROW - 8}" fill="#4477aa"/>{bound}'
            f'<text x="{_NAMES + width + 8:.1f}" y="{top + 12}">{said}</text>')
