"""What every HTTP surface shares: routes, answers, the local guard, limits and the server itself."""
