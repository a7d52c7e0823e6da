"""Plain data that the analysers pass to the renderers. Knows neither files nor torch."""
