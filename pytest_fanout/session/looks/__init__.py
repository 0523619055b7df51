"""A new draw runs in looks: after each whole trial the judge is asked whether another one is needed."""
