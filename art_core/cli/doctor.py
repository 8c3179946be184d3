"""Say what this machine can do, and what to install for the rest."""

from __future__ import annotations

from art_core.cli.options import Json


def doctor(json: Json = False) -> None:
    """Say what this machine can do, and what to install for the rest."""
    from art_core.cli.doctor_view import print_report

    print_report(as_json=json)
