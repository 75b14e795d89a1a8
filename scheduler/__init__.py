"""The rules of the queue, over Redis and RQ: who is admitted, who runs, and how a job ends."""
