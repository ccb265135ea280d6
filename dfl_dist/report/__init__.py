"""What run folders say, as tables: reads run folders only."""
