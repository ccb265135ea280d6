"""Settings for all tests."""

from hypothesis import HealthCheck, settings

# Machines are noisy: how long an example takes says nothing.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
