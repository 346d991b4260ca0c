"""What was approved is a file each, so that a difference is read as one."""

import pytest
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode


class OneFile(SingleFileSnapshotExtension):
    file_extension = "txt"
    _write_mode = WriteMode.TEXT


@pytest.fixture
def approved(snapshot):
    return snapshot.use_extension(OneFile)
