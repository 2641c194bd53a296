"""Everything Duramen raises on purpose.

DuramenError                one clear line for the user; the command line prints it and exits with 2
├── LayoutError             a prompt cannot be laid out: bad segment, budget, block size
│   ├── TokenizerError      tokenizer files missing, unreadable or of a kind that cannot be exact
│   └── TemplateError       the chat template is invalid or refuses these messages
├── TrajectoryError         a recorded file is broken (says file and line)
│   └── UnknownForm         it is of no form that is read here
├── ModelError              a model is unknown, cannot be fetched or is incomplete
├── PriceError              a price or a cache rule is missing, or a price file is broken
└── EngineError             the engine cannot start, died, or answered what it must not
    ├── RequestError        the engine refused one request (context overflow, bad field)
    └── PromptMismatch      the engine ran other token ids than those sent, or does not say which

An assertion that fails is a bug of ours, never a mistake of the caller's.
"""


class DuramenError(Exception):
    """Root of the tree above."""


class LayoutError(DuramenError):
    pass


class TokenizerError(LayoutError):
    pass


class TemplateError(LayoutError):
    pass


class TrajectoryError(DuramenError):
    pass


class UnknownForm(TrajectoryError):
    pass


class ModelError(DuramenError):
    pass


class PriceError(DuramenError):
    pass


class EngineError(DuramenError):
    pass


class PromptMismatch(EngineError):
    pass


class RequestError(EngineError):
    """One request was refused; `status` is the HTTP status the engine gave, `reason` its own words
    and `param` the field that it names, if any."""

    def __init__(
        self, message: str, status: int, *, reason: str = "", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason or message
        self.param = param
