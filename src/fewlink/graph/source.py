"""Where a graph comes from and how it is read, and the report of what was found in its files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

from fewlink.core.errors import FewlinkError
from fewlink.core.words import plural
from fewlink.graph.columns import Columns, Layout

MAX_LISTED_PROBLEMS = 5  # the rest are likely of the same kind
MAX_LISTED_NAMES = 5  # more make a remark longer than a line
LITERALS = ("drop", "keep")
ON_ERROR = ("stop", "skip")


@dataclass(frozen=True)
class GraphSource:
    """A graph to open, and how to read it if it is one or several files of triples.

    files     files of triples; or a compiled graph, a benchmark, a name of the catalogue or a trained model
    columns   which columns of a table are head, relation and tail, if its header does not tell
    types     a file of `entity<TAB>type`
    names     a file of `id<TAB>readable name`, for entities and relations
    literals  "drop" leaves out relations whose tails are numbers, dates or truth values, "keep" reads them
    on_error  "stop" raises at the first bad line, "skip" leaves bad lines out and counts them
    bench     the benchmark of a trained model, if it has moved
    """

    files: tuple[str, ...]
    columns: Columns | None = None
    types: Path | None = None
    names: Path | None = None
    literals: str = "drop"
    on_error: str = "stop"
    bench: Path | None = None

    @classmethod
    def of(
        cls,
        file: str | Path | Sequence[str | Path] | GraphSource,
        *,
        columns: str | Mapping[str, str | int] | None = None,
        types: str | Path | None = None,
        names: str | Path | None = None,
        literals: str = "drop",
        on_error: str = "stop",
        bench: str | Path | None = None,
    ) -> GraphSource:
        """Check the options of a command or function, and make one value of them; a GraphSource has its own."""
        if isinstance(file, GraphSource):
            return file
        if literals not in LITERALS:
            raise FewlinkError(f"literals is '{literals}': use {' or '.join(LITERALS)}")
        if on_error not in ON_ERROR:
            raise FewlinkError(f"on-error is '{on_error}': use {' or '.join(ON_ERROR)}")
        files = [file] if isinstance(file, str | Path) else file
        return cls(
            tuple(map(str, files)),
            None if columns is None else Columns.of(columns),
            None if types is None else Path(types),
            None if names is None else Path(names),
            literals,
            on_error,
            None if bench is None else Path(bench),
        )

    @property
    def file(self) -> str:
        """The file, folder or name of a graph that is one."""
        return self.files[0]

    @property
    def paths(self) -> list[Path]:
        return [Path(file) for file in self.files]

    @property
    def skip(self) -> bool:
        return self.on_error == "skip"

    @property
    def keep_literals(self) -> bool:
        return self.literals == "keep"

    def given(self) -> list[str]:
        """The options for a file of triples that differ from the usual ones, as a user writes them."""
        usual = GraphSource(self.files, bench=self.bench)
        options = [each.name for each in fields(self) if getattr(self, each.name) != getattr(usual, each.name)]
        return [option.replace("_", "-") for option in options]


@dataclass
class FileFacts:
    """How a file was read, with notes on what is not obvious."""

    file: str
    format: str = ""
    encoding: str = ""
    separator: str = ""
    header: bool = False  # whether the first line names the columns
    names: list[str] = field(default_factory=list)  # of all columns
    columns: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, layout: Layout, blank: Collection[int] = ()) -> None:
        """Add the columns of a table; `blank` ones do not count."""
        self.names = list(layout.names)
        self.columns = layout.described()
        self.ignored = layout.ignored(blank)

    def remarks(self) -> list[str]:
        """What is not obvious, one line each."""
        lines = []
        if self.header:
            lines.append(f"the first line was read as a header: {', '.join(filter(None, self.names))}")
        if self.ignored:
            lines.append(f"columns not read: {', '.join(self.ignored)}")
        return lines + self.notes


@dataclass
class CompileReport:
    """The numbers of triples read, skipped and left out, and the problems found."""

    triples: int = 0
    skipped: int = 0
    literals: int = 0
    literal_relations: list[str] = field(default_factory=list)  # of literals in tables
    duplicates: int = 0
    self_loops: int = 0
    problems: list[str] = field(default_factory=list)  # the first few skipped lines
    files: list[FileFacts] = field(default_factory=list)
    has_rdf: bool = False  # whose IRIs are shortened to readable names

    def remarks(self) -> list[str]:
        """Remarks for the user, one for each kind of problem."""
        several = len(self.files) > 1
        lines = [f"{each.file}: {remark}" if several else remark for each in self.files for remark in each.remarks()]
        if self.skipped:
            lines.append(f"{plural(self.skipped, 'bad line')} skipped, the first:")
            lines += [f"  {problem}" for problem in self.problems]
        if self.literals:
            lines.append(self.literals_remark())
        if self.duplicates:
            lines.append(f"{plural(self.duplicates, 'duplicate triple')} left out")
        if self.self_loops:
            lines.append(f"{plural(self.self_loops, 'self-loop')} (head = tail) kept")
        return lines

    def literals_remark(self) -> str:
        """What was left out because it is no entity, and how to keep it."""
        relations = f" of {some_names(self.literal_relations)}" if self.literal_relations else ""
        left_out = f"{plural(self.literals, 'triple')}{relations} left out"
        return f"{left_out}, because tails are numbers, dates or text: read them with --literals keep"

    def no_triples(self, paths: Sequence[Path]) -> FewlinkError:
        """The error for files without triples."""
        reason = (
            ": the file is empty or has only a header or comments; write a head, a relation and a tail on each line"
        )
        if self.skipped:
            reason = f" ({plural(self.skipped, 'bad line')}, the first: {self.problems[0]})"
        elif self.literals:
            reason = f" but {self.literals:,} with a literal as tail: keep them with --literals keep"
        return FewlinkError(f"no triples in {', '.join(map(str, paths)) or 'no files'}{reason}")


def some_names(names: Sequence[str]) -> str:
    """The first names, quoted."""
    listed = ", ".join(map(repr, names[:MAX_LISTED_NAMES]))
    return f"{listed}, …" if len(names) > MAX_LISTED_NAMES else listed
