"""What goes into one commit."""

import sqlite3
from dataclasses import dataclass, field

from duramen.serving.gateway.sessions import rows
from duramen.serving.gateway.sessions.pieces import LogPiece, add_to_log


@dataclass
class Batch:
    """What was put since the last commit. `reply_ids`: whose rows in the file would be half the
    truth if this is never written."""

    steps: list[rows.Step] = field(default_factory=list)
    pieces: list[LogPiece] = field(default_factory=list)
    reply_ids: set[int] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.steps or self.pieces)

    def write(self, db: sqlite3.Connection) -> bool:
        """False if something was left out, because the row that it hangs on is not there."""
        complete = True
        for sql, values in self.steps:
            wrote = db.execute(sql, values).rowcount > 0
            complete &= wrote or sql == rows.DROP_CHUNKS
        if self.pieces:
            complete &= add_to_log(db, self.pieces)
        return complete
