"""The longest prefix that a prompt shares with anything sent, sampled or computed before it."""

from dataclasses import dataclass, field
from typing import NamedTuple

from duramen.experiments.study.keys import Ids
from duramen.serving.kv.radix import Node, RadixCache


class Lcp(NamedTuple):
    """`computed`: with what an engine has computed; `token`: with what was sent or sampled. They
    differ by one where a prompt goes on behind a sampled token, which is computed only then."""

    computed: int
    token: int


@dataclass
class Prefixes:
    """An infinite cache, over all sessions of one layout."""

    _tree: RadixCache = field(default_factory=RadixCache)
    _sampled: dict[Node, set[int]] = field(default_factory=dict)  # behind the end of a node

    def lcp(self, prompt: Ids) -> Lcp:
        num_tokens, node = self._tree.match(prompt)
        goes_on = num_tokens < len(prompt) and int(prompt[num_tokens]) in self._sampled.get(
            node, ()
        )
        return Lcp(num_tokens, num_tokens + goes_on)

    def add(self, computed: Ids, last_sampled: int | None) -> None:
        self._tree.insert(computed)
        if last_sampled is not None:
            node = self._tree.match(computed).node
            self._sampled.setdefault(node, set()).add(last_sampled)
