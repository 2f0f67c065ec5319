"""Track one engine's log: proposals, the commit index, what is applied, what each follower holds."""
