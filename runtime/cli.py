"""The command line: `omnistage ...`, or `python -m omnistage.runtime ...`."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape
from rich.table import Table

from .client.address import find_address
from .client.client import RuntimeClient
from .config import load_config
from .protocol.errors import OmniStageError
from .version import omnistage_version

app = typer.Typer(
    help="A serving runtime for ComfyUI: stages of many prompts share one engine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="Look at the configuration.", no_args_is_help=True)
app.add_typer(config_app, name="config")

ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="TOML file with settings.")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=C", help="One setting; may be repeated."),
]
Models = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="ID=SOURCE", help="Serve a model; may be repeated."),
]
Address = Annotated[
    str | None, typer.Option(help="The runtime's address; default OMNISTAGE_ADDRESS.")
]


@app.command()
def serve(
    config: ConfigFile = None,
    assignments: Assignments = None,
    host: Annotated[str | None, typer.Option(help="Same as --set server.host=...")] = None,
    port: Annotated[int | None, typer.Option(help="Same as --set server.port=...")] = None,
    models: Models = None,
    tied: Annotated[bool, typer.Option(hidden=True)] = False,
    boot_id: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve models until interrupted."""
    from .server.serve import serve as run_server

    loaded = load_config(config, _all_assignments(assignments, host, port, models))
    _log_to_stderr()
    asyncio.run(run_server(loaded.config, tied=tied, boot_id=boot_id))


@config_app.command("show")
def show_config(
    config: ConfigFile = None, assignments: Assignments = None, models: Models = None
) -> None:
    """Print every setting, its value, and where it was set."""
    loaded = load_config(config, _all_assignments(assignments, None, None, models))
    table = Table("setting", "value", "origin", box=None)
    for setting in loaded.settings():
        table.add_row(*(escape(str(x)) for x in (setting.name, setting.value, setting.origin)))
    Console().print(table)


@app.command("models")
def list_models(address: Address = None) -> None:
    """List the models of a running runtime, and what is wrong with any."""
    asyncio.run(_list_models(address))


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help="Name of the benchmark.")],
    checkpoints: Annotated[
        Path | None, typer.Option(help="Folder of checkpoints, for the benchmark `families`.")
    ] = None,
) -> None:
    """Run a benchmark."""
    from .bench import run

    run(name, checkpoints=checkpoints)


@app.command()
def demo(
    comfyui: Annotated[Path, typer.Option(help="Folder of a ComfyUI with this pack in it.")],
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("demo-output"),
) -> None:
    """Show what the runtime does for a real ComfyUI."""
    from .bench.demo import run_demo

    run_demo(comfyui, out)


@app.command()
def version() -> None:
    """Print the version."""
    Console().print(omnistage_version())


def main() -> None:
    """Entry point; an error of ours ends with its words instead of a traceback."""
    try:
        app()
    except OmniStageError as error:
        Console(stderr=True).print(f"[bold red]error[/] {escape(error.message)}")
        sys.exit(1)


async def _list_models(address: str | None) -> None:
    found = find_address(address)
    async with RuntimeClient(found.url, found.token) as client:
        models, problems = await client.models(), await client.problems()
    table = Table("model", "family", "revision", "stages", box=None)
    for model in models:
        table.add_row(model.id, model.family, model.revision, ", ".join(model.stages))
    console = Console()
    console.print(table)
    for name, error in problems.items():
        console.print(f"[bold red]{escape(name)}[/] cannot be used: {escape(error.message)}")


def _all_assignments(
    assignments: list[str] | None, host: str | None, port: int | None, models: list[str] | None
) -> list[str]:
    """The short options as the assignments they stand for."""
    short = {"server.host": host, "server.port": port}
    texts = [f"{name}={value}" for name, value in short.items() if value is not None]
    for text in models or ():
        name, equals, source = text.partition("=")
        if not equals or "." in name:
            raise typer.BadParameter(f"{text!r} is not of the form ID=SOURCE (no dots in ID).")
        texts.append(f"models.{name}.source={source}")
    return [*texts, *(assignments or ())]


def _log_to_stderr() -> None:
    """Colours and columns for a person at a terminal, whole lines for a file."""
    handler: logging.Handler = logging.StreamHandler()
    form = "%(asctime)s %(levelname)s %(message)s"
    if sys.stderr.isatty():
        handler = RichHandler(console=Console(stderr=True), show_path=False)
        form = "%(message)s"
    logging.basicConfig(level=logging.INFO, format=form, handlers=[handler])
