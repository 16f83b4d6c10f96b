"""Files that are either whole or absent, also after a crash."""

import json
import os
from pathlib import Path
from typing import Any


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file atomically: to a temporary beside it, synced, then renamed over it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically."""
    write_bytes(path, text.encode())


def write_json(path: Path, data: Any) -> None:
    """Write readable JSON atomically; NaN and infinity are written as null.

    JSON has no word for them, and a reader in another language must be able to parse the file.
    """
    text = json.dumps(finite(data), indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def finite(data: Any) -> Any:
    """The same data with NaN and infinities replaced by None."""
    if isinstance(data, float):
        return data if data == data and abs(data) != float("inf") else None
    if isinstance(data, dict):
        return {key: finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    return data
