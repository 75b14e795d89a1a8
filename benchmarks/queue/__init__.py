"""What the queue costs, measured over engines that compute nothing: ``psionic-csm bench queue``.

records   what was measured, frozen
bounds    what was promised of each number, and whether it holds
asking    how it is asked for, and waited for
pickup    from POST to claim on an idle worker
cancels   from a cancel to the lane's next claim
door      admissions and refusals per second of a gateway's processor
costs     what a frame and a job cost Redis
rivals    the same model behind RQ's own worker and behind mosec
run       the whole run on one screen
show      the tables
"""
