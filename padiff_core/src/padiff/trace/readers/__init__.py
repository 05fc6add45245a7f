"""Read the runs that other tools recorded, as padiff's own records; nothing that is read is executed."""
