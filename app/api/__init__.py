"""What a tenant's server calls, with the tenant's key: functions, tasks, follow-ups."""
