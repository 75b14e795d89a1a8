"""How the demo's voice is made: from a word list to a trained CSM and Mimi in the artifact layout.

Not part of the service and not packaged. ``python -m demo_voice`` runs it, a stage at a time.

profiles     how much of everything: full, smoke
words        the vocabulary, by part of speech
grammar      English sentences over it
corpus       what is spoken for training; the sentences that are kept from it
flite        text to 16 kHz speech and its phones
alignment    which phones are which word's
grid         every word moved onto whole 80 ms frames
vocoder      flat speech on that grid: a frame is a function of its spectral envelope alone
pcm          16-bit samples and numbers
paths        where stages keep their files, and when those are void
progress     rates and the time that is left
speech       the corpus spoken, in shards
losses       how near two sounds are
codec        a small Mimi to train, in moshi's layout
autoencoder  its training without a quantiser
quantiser    its codebooks, fitted afterwards
decoder      its decoding half, trained again on the codes
encoding     the corpus as codes
tokens       one id a word
samples      training samples: spliced at words, with and without a prompt
history      what is damaged in what the model reads of its own past
batches      samples as tensors
model        CSM's own classes with gradients
objective    what is minimised
teacher      the CSM's training
loop         steps with a schedule, checkpoints and the time that is left
export       the artifact: weights in fp16, tokenizer, voices
manifests    what it says of itself
recogniser   what pocketsphinx hears
scores       word errors
hearing      both recognisers' word error rates
yardsticks   flite, the flat speech and the codec, heard
takes        sentences spoken by the engine, or by a gateway and all behind it
evaluation   those heard again, beside the yardsticks
spectrogram  a picture of a sound
"""
