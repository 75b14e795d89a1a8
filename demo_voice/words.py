"""The vocabulary: common English words, picked by hand, by part of speech. No list was copied.

``PRONUNCIATIONS`` holds what pocketsphinx's dictionary lacks, in its phones.
"""

from __future__ import annotations

import re
from typing import Final

CATEGORIES: Final[dict[str, tuple[str, ...]]] = {
    name: tuple(words.split())
    for name, words in {
        "opener": "okay yes no sure thanks please sorry hello hi goodbye welcome thank great",
        "pronoun": "i you we they he she it me them ",
        "contraction": "i'm i'll it's that's don't let's",
        "determiner": "the a this that these those my your our their her",
        "quantity": "all any some every each more most many both only",
        "auxiliary": "am is are was were be do does did have has had"
        " can could will would should must cannot",
        "joining": "and or but if so because when while then",
        "question": "what who where why how which",
        "preposition": "in on at to from for with of about after before between until without",
        "place": "here there home office city room",
        "number": "zero one two three four five six seven eight nine ten eleven twelve thirteen"
        " fourteen fifteen sixteen seventeen eighteen nineteen",
        "tens": "twenty thirty forty fifty sixty seventy eighty ninety",
        "large": "hundred thousand percent",
        "ordinal": "first second third last next",
        "day": "monday tuesday wednesday thursday friday saturday sunday",
        "month": "january february march april may june july august september october"
        " november december",
        "time": "today tomorrow tonight yesterday morning afternoon evening night noon"
        " week month year hour minute minutes hours day days o'clock",
        "adverb": "now later soon again already always never almost still also just not yet"
        " safely quickly together really very ago right away up out",
        "name": "alice bob carol david emma frank grace henry maria john lucy sam anna peter",
        "verb": "review prepare send open check create update find start stop finish schedule"
        " cancel save share delete read move show run change help complete call ask"
        " tell know need want think make take give get go come see look try wait work"
        " speak say pay keep test repeat remember follow add remove close",
        "past": "sent found made done moved called asked finished closed said",
        "noun": "email message meeting report calendar file task note list account project"
        " invoice order draft plan reminder document summary server system payment wallet"
        " market network job request answer question result budget contract customer team"
        " phone number name problem music weather coffee car money price"
        " word people person friend test voice sound",
        "plural": "emails messages meetings reports files tasks notes orders reminders documents"
        " payments contacts requests answers questions jobs results invoices calls",
        "mass": "outreach data code news time",
        "adjective": "new old important quick safe good short long small big open easy ready"
        " late early busy free happy better daily weekly clear wrong fine",
        "state": "running working waiting online offline coming going",
        "product": "psionic autopilot crm driven operating surface",
    }.items()
}
VOCABULARY: Final[tuple[str, ...]] = tuple(
    sorted({word for words in CATEGORIES.values() for word in words})
)
PRONUNCIATIONS: Final[dict[str, tuple[str, ...]]] = {
    "autopilot": ("AO T OW P AY L AH T",),
    "crm": ("S IY AA R EH M",),
    "psionic": ("Z AH N IH K", "S AY AA N IH K", "ZH AH N IH K", "P Z IY AH N IH K"),
}
_WORD: Final = re.compile(r"[a-z']+")


def words_of(text: str) -> list[str]:
    """The words of a text, lower-case, without punctuation."""
    return _WORD.findall(text.lower())


def word_spans(text: str) -> list[tuple[int, int]]:
    """Begin and end of each word of ``text``, in characters."""
    return [match.span() for match in _WORD.finditer(text.lower())]


def unknown_words(text: str) -> list[str]:
    """The words of a text that are not in the vocabulary."""
    known = set(VOCABULARY)
    return [word for word in words_of(text) if word not in known]
