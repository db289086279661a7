"""What can be read of the state: functions that change nothing."""
