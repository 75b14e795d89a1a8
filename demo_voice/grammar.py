"""English sentences over the vocabulary, from a small context-free grammar.

Upper-case symbols are expanded, ``<category>`` is any word of it, the rest is spoken as it stands.
Productions nest, so that no sentence pattern comes often enough to be learnt by heart.
"""

from __future__ import annotations

import random
import re
from typing import Final

from demo_voice.words import CATEGORIES

MAX_DEPTH: Final = 7
"""Below it the first production of each symbol is taken: those do not nest."""
RULES: Final[dict[str, tuple[str, ...]]] = {
    "TEXT": (
        "CLAUSE.",
        "CLAUSE.",
        "CLAUSE.",
        "OPENER, CLAUSE.",
        "QUESTION?",
        "CLAUSE <joining> CLAUSE.",
        "ORDER.",
        "please ORDER.",
        "ORDER, please.",
        "OPENER, <name>.",
        "WHEN, CLAUSE.",
        "ORDER <joining> CLAUSE.",
        "CLAUSE, and CLAUSE.",
        "COUNT.",
        "OPENER.",
        "if CLAUSE, ORDER.",
        "NOUNS.",
        "CLAUSE, but CLAUSE.",
        "<question> CLAUSE?",
        "<name>, ORDER.",
    ),
    "CLAUSE": (
        "WHO VERBS",
        "WHO MODAL ACTION",
        "WHO <auxiliary> not ACTION",
        "THING BE STATE",
        "i'm STATE",
        "i'm WHERE",
        "it's STATE",
        "that's THING",
        "i'll ACTION",
        "let's ACTION",
        "don't ACTION",
        "WHO <past> THING",
        "there BE THING",
        "THING BE WHERE",
        "it is CLOCK",
        "this is <name> WHERE",
        "you have COUNT <plural>",
        "WHO MODAL ACTION WHEN",
        "WHO could not ACTION yet",
        "WHO think CLAUSE",
        "WHO know <question> CLAUSE",
        "WHO has <past> THING <adverb>",
        "WHEN BE STATE",
        "that is STATE",
        "WHO want to ACTION",
        "<name> and <name> <verb> THING",
        "the <time> BE STATE",
    ),
    "QUESTION": (
        "do you <verb> THING",
        "MODAL WHO ACTION",
        "BE THING STATE",
        "<question> BE THING",
        "<question> MODAL WHO ACTION",
        "did WHO ACTION",
        "have WHO <past> THING",
        "how many <plural> do WHO <verb>",
        "<question> <noun> BE STATE",
    ),
    "ORDER": (
        "<verb> THING",
        "ACTION",
        "ACTION WHEN",
        "<verb> <pronoun> THING",
        "do not ACTION",
        "tell WHO <question> to ACTION",
        "wait until WHEN",
        "ACTION and ACTION",
    ),
    "ACTION": (
        "<verb> THING",
        "<verb> THING",
        "<verb>",
        "<verb> THING PLACE",
        "<verb> THING to WHO",
        "<verb> <adverb>",
        "<verb> <preposition> THING",
        "<verb> and <verb> THING",
        "be STATE",
        "ask WHO for THING",
        "help WHO <verb> THING",
    ),
    "VERBS": (
        "<verb> THING",
        "<verb> <adverb>",
        "<past> THING",
        "<past> THING WHEN",
        "<auxiliary> STATE",
        "need THING",
        "work PLACE",
        "<adverb> <verb> THING",
    ),
    "WHO": (
        "<pronoun>",
        "i",
        "you",
        "we",
        "they",
        "<name>",
        "the <noun>",
        "<determiner> <noun>",
        "<name> or <name>",
        "the team",
        "<determiner> <adjective> <noun>",
    ),
    "THING": (
        "<determiner> <noun>",
        "the <noun>",
        "your <plural>",
        "<plural>",
        "<mass>",
        "<pronoun>",
        "<determiner> <adjective> <noun>",
        "<quantity> <plural>",
        "COUNT <plural>",
        "the <ordinal> <noun>",
        "<determiner> <noun> <preposition> THING",
        "the <product> <noun>",
        "<quantity> <adjective> <plural>",
        "the <noun> from <name>",
        "<adjective> <mass>",
    ),
    "NOUNS": ("<noun> and <plural>", "<noun>, <noun> or <noun>", "<number>, <number>, <number>"),
    "STATE": (
        "<adjective>",
        "<state>",
        "<past>",
        "<adverb> <adjective>",
        "not <adjective>",
        "<adjective> and <adjective>",
        "<state> <preposition> THING",
        "very <adjective>",
    ),
    "BE": ("is", "are", "was", "were", "will be", "must be"),
    "MODAL": ("can", "could", "will", "would", "should", "must", "cannot"),
    "OPENER": (
        "<opener>",
        "<opener>",
        "<opener>, <opener>",
        "good <time>",
        "all right",
        "thank you",
    ),
    "PLACE": ("<preposition> THING", "in the <place>", "at the <place>", "<place>", "from here"),
    "WHERE": ("<preposition> <determiner> <place>", "from <product>", "<place>", "PLACE"),
    "WHEN": (
        "<adverb>",
        "on <day>",
        "<time>",
        "in <month>",
        "at CLOCK",
        "next <time>",
        "this <time>",
        "on <day> <time>",
        "after <time>",
        "before <day>",
        "on <month> DATE",
        "COUNT <time> ago",
    ),
    "DATE": ("<ordinal>", "<number>", "<tens> <number>", "<tens> <ordinal>"),
    "CLOCK": ("<number>", "<number> o'clock", "<number> <tens>", "<number> o'clock"),
    "COUNT": (
        "<number>",
        "<tens>",
        "<tens> <number>",
        "<number> <large>",
        "<number> <large> <tens>",
        "<number> <large> and <tens> <number>",
    ),
}
_SYMBOL: Final = re.compile(r"<([a-z]+)>|([A-Z]+)")


def sentence(random_: random.Random) -> str:
    """One sentence; words are drawn evenly from their categories."""
    return capitalised(_expand("TEXT", 0, random_))


def capitalised(text: str) -> str:
    """Written as people do: the first letter, "I", days, months and names."""
    proper = {w for name in ("name", "day", "month") for w in CATEGORIES[name] if w != "may"}
    proper |= {"i", "i'm", "i'll", "autopilot"}
    words = re.sub(
        r"[a-z']+", lambda m: m[0].capitalize() if m[0] in proper else m[0], text
    ).replace("crm", "CRM")
    return words[0].upper() + words[1:]


def _expand(symbol: str, depth: int, random_: random.Random) -> str:
    rules = RULES[symbol]
    rule = random_.choice(rules) if depth < MAX_DEPTH else rules[0]

    def replaced(match: re.Match[str]) -> str:
        if match[1]:
            return random_.choice(CATEGORIES[match[1]])
        return _expand(match[2], depth + 1, random_)

    return _SYMBOL.sub(replaced, rule)
