"""Plans from trace folders, printed and as pages."""
