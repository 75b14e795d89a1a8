"""The checks of ``make gpu-check``, each a function from a target to a ``Check``.

target       what is checked, where, and the bounds
parity       codes and logits against the CPU in float32
invariance   one request, the same in any company, lane and process
stepping     no waiting inside a step; capture; memory that stays flat
pace         real-time factors, first audio, streams that never run dry
residence    memory and telemetry
"""
