"""How fast engine and queue are, measured: ``psionic-csm bench`` and ``make gpu-check``.

records      what was measured, frozen
arithmetic   bytes of a frame, rates, ratios: pure functions
bounds       what was promised of each number, and whether it holds
material     the seeded artifact that is measured, at three sizes
rig          a loaded model with lanes, from the engine's public parts
timing       compared variants in turns, so that drift hits all alike
machine      the processor, its load, its memory's read bandwidth
speaking     frames, first audio, prefill, joins, the codec
oracle       transformers' CSM on the same weights
overhead     the share of a step outside kernels
products     three ways to multiply by the depth decoder's matrices
agreement    how far a quantized artifact says what its parent says, over what ``trace`` keeps
load_probe   loading, in a process of its own
engine       the whole run on one screen
show, plot   the tables and the picture
queue        what the queue costs: ``psionic-csm bench queue``
load         how it stands under a load: ``psionic-csm bench load``
target       the stack that is measured, client a caller that costs little, processes their time
paced        an engine that computes nothing, and ``paced_worker``, the real worker over it
books        whether a running deployment's books balance, read past the product's own code
gpu_check    the checks for a machine with CUDA; ``gpu`` holds them
"""
