"""The classes that are generated from proto/ackq/v1, which need protobuf 5.29.3 or newer."""

from google.protobuf import __version__ as _version

# An older one fails at its first import without a word on what to do, where no pip has looked at what
# ackq needs: on an executor that gets it as a zip.
if tuple(map(int, _version.split(".")[:2])) < (5, 29):
    raise ImportError(
        f"ackq needs protobuf 5.29.3 or newer, and finds {_version}: pip install 'protobuf>=5.29.3,<8'"
    )
