"""The demo's tokenizer, trained here on a page of our own sentences."""

from __future__ import annotations

from typing import Final

from tokenizers import (  # type: ignore[import-untyped]
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    trainers,
)

from gpu_worker.prompt import BEGIN, END

TEXT_IDS: Final = 800
"""Ids 0..799 are text; begin and end of text follow, then the other special tokens."""
TRANSCRIPT: Final = "This short tone stands in for a voice until the real weights are here."

# Llama 3.2's order, cut to the first few.
SPECIAL_TOKENS: Final = (
    BEGIN,
    END,
    "<|reserved_special_token_0|>",
    "<|reserved_special_token_1|>",
    "<|finetune_right_pad_id|>",
    "<|reserved_special_token_2|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
)

# How Llama 3 cuts text into words before byte-pair merges.
SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

SENTENCES: Final = """
I can help you review contacts and prepare outreach for this week.
Your calendar is clear after three, so I moved the call to half past four.
I could not complete that safely yet, and nothing has been sent.
There are seven new messages, and two of them ask for an answer today.
Let me read the summary first, then we can decide what to change.
The report is ready. Shall I share it with the whole team or only with you?
Please wait a moment while I look for the latest version of the document.
I found three companies that match your notes about the spring campaign.
That meeting was cancelled, but the organiser suggested Thursday morning instead.
Good morning! Here is what happened while you were away from your desk.
The customer prefers a short phone call rather than another long email.
I have written a first draft; tell me which parts sound wrong to you.
Everything is saved, and you may undo the last step at any time.
Payment for the second invoice arrived yesterday with the correct reference number.
We are running late, so I will tell the others that you need ten more minutes.
Is there anything else that you would like me to remember about this project?
The weather looks rough near the coast; the early train might be the better choice.
Numbers first: revenue grew by twelve percent, costs by five, questions by a hundred.
My suggestion would be to ask before the budget closes at the end of the month.
Sorry, I did not catch that. Could you say the name of the person once more?
Hello from Psionic. This is a test of the speech worker and its queue.
A queue keeps every request in order, and a lane speaks one of them at a time.
When a worker disappears, another one takes over and continues the sentence.
Short answers should start quickly, because somebody is waiting for them.
Press the large button on the left, then choose the language from the list.
Our office moved to the third floor, beside the kitchen with the green door.
Nobody replied to the proposal, though several people opened it more than twice.
Turn right after the bridge and keep going until you see the old station.
""".strip().splitlines()


def train_tokenizer() -> str:
    """A byte-level BPE tokenizer with Llama's special tokens, as the text of a tokenizer.json."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=TEXT_IDS,
        min_frequency=1,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    if tokenizer.get_vocab_size() != TEXT_IDS:
        raise ValueError(f"training made {tokenizer.get_vocab_size()} ids, not {TEXT_IDS}")
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS]
    )
    text: str = tokenizer.to_str(pretty=True)
    return text
