"""The simulator: seeded faults in virtual time, and checks that no job was lost."""
