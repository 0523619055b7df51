"""The control arm: the base commit's agent runs live beside the head's, on some of the same tasks."""
