"""How a stack stands under a load of its own making: ``psionic-csm bench load``.

arrivals  who comes when, and for how much: Poisson, from a seed
drive     the callers: open-loop, whoever is late waits for nobody
watch     depth, estimates and health meanwhile
records   what was measured, frozen
model     first in, first out over lanes: what a refused call would have met
estimate  how wrong the published wait was, and what was refused for nothing
bounds    what was promised, and whether it holds
run       the whole run on one screen
show, plot  the tables and the picture
"""
