"""What ``art keys`` prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from art_core.cli.run_view import print_json
from art_core.server.keys import KeyRecord, KeyStore, Limits


def create_key(root: Path, project: str, name: str, limits: Limits, *, as_json: bool) -> None:
    record, key = KeyStore(root).create(project, name, limits)
    if as_json:
        print_json({**_as_json(record), "key": key})
        return
    Console(stderr=True).print(f"Key {record.id} of project {project}; it isn't shown again:")
    typer.echo(key)


def print_keys(root: Path, *, as_json: bool) -> None:
    records = KeyStore(root).all()
    if as_json:
        print_json([_as_json(record) for record in records])
        return
    table = Table("id", "project", "name", "limits", "created", "state")
    for record in records:
        limits = record.limits.model_dump(exclude_none=True)
        table.add_row(
            record.id,
            record.project,
            record.name,
            ", ".join(f"{name} {value:g}" for name, value in limits.items()),
            f"{record.created_at:%Y-%m-%d}",
            "in use" if record.revoked_at is None else f"revoked {record.revoked_at:%Y-%m-%d}",
        )
    Console().print(table)


def revoke_key(root: Path, key_id: str) -> None:
    record = KeyStore(root).revoke(key_id)
    Console(stderr=True).print(f"Key {record.id} of project {record.project} is revoked.")


def _as_json(record: KeyRecord) -> dict[str, Any]:
    return record.model_dump(mode="json", exclude={"digest"})
