"""One measured run from collection to its records: joins meter and store, hands over to the gate."""
