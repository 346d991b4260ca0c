"""The fixture of all approved texts."""

from tests.approval.test_approved import approved  # noqa: F401
