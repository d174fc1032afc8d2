"""Rules on foreign reports: functions from a document to findings."""
