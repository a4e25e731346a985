"""The live view of `top`, drawn by textual. It only draws: what is shown and how comes from `picture` and `tables`.

One thread asks, one question after the other, so that a daemon that hangs never holds up a key. Whatever others
wrote is shown as text: cells are no strings, which the table would read as markup, and no widget parses any.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, ClassVar, Final

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static, Tab, Tabs

from claudemesh.cli.render import age, escape, text_width
from claudemesh.cli.top import tables
from claudemesh.cli.top.looking import Looker
from claudemesh.cli.top.picture import History, Look, derive_pause_s, derive_state, keep
from claudemesh.cli.top.tables import Row, Table
from claudemesh.kernel.clock import Clock
from claudemesh.kernel.errors import MeshError

TICK_S: Final = 1.0
WIDTH_MIN: Final = 20
CELL_MAX: Final = 60  # columns of a cell; the details have all of it

_CLASS_OF: Final = {"connected": "good", "catching up": "warn", "connecting": "warn", "degraded": "warn"}

HELP: Final = """\
claudemesh top shows how the daemon is; it changes nothing.

q, Ctrl-C     quit
tab, arrows   the next or the previous table; up and down move in it
enter         all about the row: of a dead message its trace
/             show only rows that hold these words; Esc shows all again
s, S          sort by the next column; the other way round
p             pause, and go on
r             look now
?             this help; Esc closes it"""


class Plain:
    """A text in a cell. A string would be read as markup there."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


class Asking(threading.Thread):
    """Asks one question after the other, and hands each answer over."""

    def __init__(self, tell: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(name="top-asking", daemon=True)
        self._tell = tell
        self._questions: SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]]] = SimpleQueue()

    def put(self, question: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self._questions.put((question, then))

    def run(self) -> None:
        while True:
            question, then = self._questions.get()
            try:
                answer: Any = question()
            except Exception as error:  # noqa: BLE001 - told to whoever asked; the thread goes on
                answer = error
            self._tell(lambda then=then, answer=answer: then(answer))  # type: ignore[misc]  # bound as they are now


class Answered(Message):
    """An answer that came, to be shown by the thread that draws."""

    def __init__(self, show: Callable[[], None]) -> None:
        super().__init__()
        self.show = show


class Rows(DataTable[Plain]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,right", "app.turn(1)", "Next", key_display="tab"),
        Binding("shift+tab,left", "app.turn(-1)", "Previous", show=False),
    ]


class Details(ModalScreen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q,question_mark", "dismiss", "Close")]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="details"):
            yield Static(self._text, id="text", markup=False)

    def tell(self, text: str) -> None:
        self._text = text
        if self.is_mounted:
            self.query_one("#text", Static).update(text)


class TopApp(App[None]):
    ENABLE_COMMAND_PALETTE = False
    TITLE = "claudemesh top"
    CSS = """
    Screen { layout: vertical; }
    #state { height: 1; text-style: bold; padding: 0 1; }
    #state.good { background: $success; color: $text; }
    #state.warn { background: $warning; color: $text; }
    #state.bad { background: $error; color: $text; }
    #summary { height: auto; max-height: 50%; padding: 0 1; }
    #words { display: none; height: 1; border: none; padding: 0 1; }
    #empty { display: none; height: 1fr; padding: 1 2; }
    Rows { height: 1fr; }
    Rows.bare { height: 1; }
    Rows:nocolor > .datatable--cursor { text-style: reverse; }
    Details { align: center middle; }
    #details { width: 90%; height: 80%; border: round $primary; padding: 0 1; background: $surface; }
    #text { width: 1fr; height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("slash", "filter", "Filter", key_display="/", priority=True),  # before the next key is
        Binding("s", "sort", "Sort"),
        Binding("S", "reverse", "Reverse", show=False),
        Binding("p", "pause", "Pause"),
        Binding("r", "refresh", "Refresh"),
        Binding("escape", "clear", "Clear", show=False),
    ]

    def __init__(self, looker: Looker, clock: Clock, interval_s: float, *, no_color: bool = False) -> None:
        super().__init__(ansi_color=no_color)  # with the terminal's own colours textual can leave all of them out
        self._looker = looker
        self._clock = clock
        self._interval_s = interval_s
        self._history = History()
        self._asking = Asking(self._hand_over)
        self._is_asking = False
        self._is_paused = False
        self._last: Look | None = None  # with the daemon there
        self._shown: Look | None = None
        self._failures = 0
        self._due_ms = 0
        self._words = ""
        self._sorts: dict[str, tuple[int | None, bool]] = {}  # of each table: column, reversed
        self._table: Table | None = None
        self._rows: list[Row] = []
        self._columns: tuple[tuple[str, int], ...] = ()  # heads and widths

    # --- drawing -------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Static("asking…", id="state", markup=False)
        yield Static("", id="summary", markup=False)
        yield Tabs(*(Tab(name.title(), id=name) for name in ("peers", "dead", "queues", "relay", "ledger")))
        yield Input(placeholder="words that a row holds", id="words", select_on_focus=False)
        yield Rows(cursor_type="row", zebra_stripes=True)
        yield Static("", id="empty", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self._asking.start()
        self.query_one(Tabs).can_focus = False
        self.query_one(Rows).focus()
        self.set_interval(min(TICK_S, self._interval_s), self._tick)
        self._ask()

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)

    def _tick(self) -> None:
        if not self._is_paused and self._clock.monotonic_ms() >= self._due_ms:
            self._ask()
        self._draw_state()

    def _draw(self) -> None:
        look = self._shown
        if look is None or not self._has_place():
            return
        self._draw_state()
        width = max(self.size.width - 2, WIDTH_MIN)
        self.query_one("#summary", Static).update("\n".join(tables.summary(look, self._history, width)))
        found = tables.tables(look)
        for table in found:
            count = "" if table.count is None else f" {table.count}"
            self.query_one(f"#{table.name}", Tab).label = f"{table.title}{count}"
        active = self.query_one(Tabs).active or found[0].name
        self._draw_table(next(table for table in found if table.name == active))

    def _has_place(self) -> bool:
        """Whether there is anything to draw on: at the end an answer or a tick may come too late."""
        return bool(self.query("#state"))

    def _draw_state(self) -> None:
        look = self._shown
        if look is None or not self._has_place():
            return
        state = self.query_one("#state", Static)
        paused = "   (paused)" if self._is_paused else ""
        if self._failures:
            now_ms = self._clock.monotonic_ms()
            old = "" if look.is_away else f"   as of {age((now_ms - look.at_ms) // 1000)} ago"
            due_s = max(self._due_ms - now_ms, 0) // 1000
            again = "" if self._is_paused else f"   next try in {due_s}s"
            why = escape(look.errors.get("daemon", "it does not answer"))
            text, kind = f"daemon away{old}{again}   {why}", "bad"
        else:
            text, kind = tables.first_line(look), _CLASS_OF.get(derive_state(look), "bad")
        state.set_classes(kind)
        state.update(f"{text}{paused}")

    def _draw_table(self, table: Table) -> None:
        rows, empty = self.query_one(Rows), self.query_one("#empty", Static)
        column, is_reversed = self._sorts.get(table.name, (None, False))
        was = self._rows[rows.cursor_row].key if 0 <= rows.cursor_row < len(self._rows) else None
        is_other = self._table is None or self._table.name != table.name
        self._table, self._rows = table, tables.arrange(table, self._words, column, reverse=is_reversed)
        heads = [_marked(head, is_reversed) if at == column else head for at, head in enumerate(table.heads)]
        wide = [
            max(map(text_width, cells)) for cells in zip(heads, *(row.cells for row in self._rows), strict=True)
        ]
        columns = tuple(zip(heads, (min(width, CELL_MAX) for width in wide), strict=True))
        scrolled = rows.scroll_offset
        rows.clear(columns=columns != self._columns)
        if columns != self._columns:
            for head, width in columns:
                rows.add_column(head, width=width)
            self._columns = columns
        for row in self._rows:
            rows.add_row(*(Plain(cell) for cell in row.cells))
        empty.update(table.empty if not table.rows else f"no row holds: {escape(self._words)}")
        rows.set_class(not self._rows, "bare")  # it stays, since the keys are heard there
        empty.display = not self._rows
        if not is_other:  # the row that was under the cursor stays there, wherever it went
            at = next((number for number, row in enumerate(self._rows) if row.key == was), None)
            if at is not None:
                rows.move_cursor(row=at, scroll=False)
            rows.scroll_to(scrolled.x, scrolled.y, animate=False)

    # --- asking --------------------------------------------------------------------------------------

    def _ask(self) -> None:
        if not self._is_asking:
            self._is_asking = True
            self._asking.put(self._looker.look, self._take)

    def _take(self, look: Look | Exception) -> None:
        self._is_asking = False
        if isinstance(look, Exception):  # nothing of ours should raise; it is said, and the view goes on
            look = Look(
                at_ms=self._clock.monotonic_ms(), wall_ms=self._clock.wall_ms(), errors={"daemon": _why(look)}
            )
        self._failures = self._failures + 1 if look.is_away else 0
        self._due_ms = self._clock.monotonic_ms() + int(derive_pause_s(self._interval_s, self._failures) * 1000)
        self._history.note(look)
        self._shown = keep(self._last, look)
        if not look.is_away:
            self._last = look
        self._draw()

    def _hand_over(self, show: Callable[[], None]) -> None:
        self.post_message(Answered(show))

    def on_answered(self, message: Answered) -> None:
        message.show()

    # --- keys ----------------------------------------------------------------------------------------

    def action_turn(self, step: int) -> None:
        tabs = self.query_one(Tabs)
        (tabs.action_next_tab if step > 0 else tabs.action_previous_tab)()

    def on_tabs_tab_activated(self) -> None:
        self._draw()

    def action_refresh(self) -> None:
        self._ask()

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self._draw_state()

    def action_help(self) -> None:
        self.push_screen(Details(HELP))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002 - as it is called
        """Leave a slash that is typed among other words to where it is typed."""
        return action != "filter" or isinstance(self.focused, Rows)

    def action_filter(self) -> None:
        words = self.query_one("#words", Input)
        words.display = True  # at once, so that the next key is typed there
        self.set_focus(words)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._words = event.value
        self._draw()

    def on_input_submitted(self) -> None:
        self.set_focus(self.query_one(Rows))

    def action_clear(self) -> None:
        words = self.query_one("#words", Input)
        words.value = self._words = ""
        words.display = False
        self.set_focus(self.query_one(Rows))
        self._draw()

    def action_sort(self) -> None:
        if self._table is not None:
            column, _ = self._sorts.get(self._table.name, (None, False))
            following = 0 if column is None else column + 1
            self._sorts[self._table.name] = (following if following < len(self._table.heads) else None, False)
            self._draw()

    def action_reverse(self) -> None:
        if self._table is not None:
            column, is_reversed = self._sorts.get(self._table.name, (None, False))
            self._sorts[self._table.name] = (0 if column is None else column, not is_reversed)
            self._draw()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        if self._table is None or not 0 <= event.cursor_row < len(self._rows):
            return
        row, table = self._rows[event.cursor_row], self._table
        details = Details("\n".join(tables.value_lines(dict(zip(table.heads, row.cells, strict=True)))))
        self.push_screen(details)
        if row.detail is None:
            return
        asked = row.detail
        details.tell(f"asking about {escape(asked)}…")
        ask, lay_out = {
            "dead": (self._looker.trace, tables.trace_lines),
            "relay": (self._looker.envelope, tables.value_lines),
        }[table.name]
        self._asking.put(lambda: lay_out(ask(asked)), lambda lines: details.tell(_told(lines)))


def _marked(head: str, is_reversed: bool) -> str:  # noqa: FBT001 - of the column it is
    return f"{head} {'▼' if is_reversed else '▲'}"


def _told(lines: list[str] | Exception) -> str:
    return escape(_why(lines)) if isinstance(lines, Exception) else "\n".join(lines)


def _why(error: Exception) -> str:
    if isinstance(error, MeshError):
        return f"{error.title}: {error.detail}" if error.detail else error.title
    return f"{type(error).__name__}: {error}"
