"""Production's traces as expressions: from rows of spans to tasks of classes, wherever the rows are."""
