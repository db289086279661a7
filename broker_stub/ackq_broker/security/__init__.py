"""Who calls and what each may do (A1 to A8): users, permissions, limits, certificates, audit."""
