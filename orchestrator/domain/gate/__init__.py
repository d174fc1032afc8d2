"""The release gate: a policy and frozen evidence become a verdict. Pure, and nothing else."""
