"""The command line: what each command takes; the work is done elsewhere, imported on use.

stdout carries the result alone; progress, warnings and errors go to stderr. Exit codes are those of
`cluster.errors`.
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.errors import CorymbError, UsageError

if TYPE_CHECKING:
    from cluster.execute import Outcome

app = typer.Typer(
    name="corymb",
    help="Distributed training on Ray: one file describes a run, one command runs it.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

File = Annotated[Path, typer.Argument(help="Run file (YAML).", show_default=False)]
RunName = Annotated[
    str,
    typer.Argument(metavar="RUN", help="Path, id, unique start of an id, or 'last'."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=1", help="Change one value; can be repeated."),
]
Preset = Annotated[str | None, typer.Option(help="Use another preset than the file's.")]
Address = Annotated[
    str | None, typer.Option(help="Ray cluster to join; default RAY_ADDRESS, else embedded.")
]
Wait = Annotated[
    float | None,
    typer.Option("--wait-for-resources", metavar="SECONDS", help="Let the cluster grow first."),
]
Require = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME<=VALUE", help="Exit 6 if a figure misses this; can be repeated."),
]

DEFAULTS = Path("ray_config.yaml")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Distributed training on Ray: one file describes a run, one command runs it."""
    if version:
        from importlib.metadata import version as installed

        print(f"corymb {installed('corymb')}")
        raise typer.Exit


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the recipes."""
    from cluster.recipes import RECIPES

    if as_json:
        _print_json([{"name": r.name, "help": r.help, "paper": r.paper} for r in RECIPES.values()])
        return
    for recipe in RECIPES.values():
        print(f"{recipe.name:12} {recipe.help} ({recipe.paper})")


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write to.")],
    recipe: Annotated[str, typer.Option(help="Recipe of the example.")] = "fedgmm",
) -> None:
    """Write an example run file and its data into a folder; never overwrites."""
    from cluster.files import write_text
    from cluster.recipes import find

    files: dict[str, str] = find(recipe).package.example_files()
    taken = [name for name in files if (folder / name).exists()]
    if taken:
        raise UsageError(f"{folder} already has {', '.join(taken)}; choose another folder")
    for name, text in files.items():
        write_text(folder / name, text)
        print(folder / name)


@app.command()
def show(
    file: File,
    origins: Annotated[bool, typer.Option("--origins", help="Say where values come from.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema.")] = False,
    preset: Preset = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Print a run's configuration with every value filled in."""
    from cluster import config as configuration

    loaded = _load(file, preset, sets)
    if schema:
        _print_json(configuration.schema(loaded.config.recipe))
    elif as_json:
        _print_json({"config": loaded.config.model_dump(mode="json"), "origins": loaded.origins})
    elif origins:
        values = _leaves(loaded.config.model_dump(mode="json"))
        width = max(len(f"{key} = {value}") for key, value in values.items())
        for key, value in values.items():
            print(f"{f'{key} = {value}':{min(width, 70)}}  # {loaded.origins[key]}")
    else:
        print(configuration.dump(loaded.config), end="")


@app.command()
def validate(file: File, preset: Preset = None, sets: Sets = None, as_json: AsJson = False) -> None:
    """Check a run file and print every mistake with its line."""
    try:
        loaded = _load(file, preset, sets)
    except UsageError as error:
        if not as_json:
            raise
        _print_json({"valid": False, "problems": str(error).splitlines()})
        raise typer.Exit(error.exit_code) from None
    if as_json:
        _print_json({"valid": True, "problems": []})
    else:
        print(f"{file}: valid, recipe {loaded.config.recipe}, preset {loaded.config.preset}")


@app.command()
def run(
    file: File,
    preset: Preset = None,
    sets: Sets = None,
    address: Address = None,
    wait: Wait = None,
    require: Require = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan only.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a file and print what was found and where the report is."""
    loaded = _load(file, preset, _with_cluster(sets, address, wait))
    _start(loaded, require, dry_run, as_json)


@app.command()
def demo(
    preset: Preset = "demo",
    sets: Sets = None,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Run a complete analysis of real data on this machine, in about a minute."""
    loaded = _load(None, preset, _with_cluster(sets, address, None), recipe="fedgmm")
    _start(loaded, None, False, as_json)


@app.command()
def resume(name: RunName, require: Require = None, as_json: AsJson = False) -> None:
    """Take up a run that was interrupted or failed, from its last checkpoint."""
    from cluster import execute
    from cluster.catalogue import locate

    requirements = [execute.Requirement.parse(text) for text in require or []]
    _finish(execute.resume(locate(name), requirements=requirements), as_json)


@app.command()
def rerun(
    name: RunName, sets: Sets = None, require: Require = None, as_json: AsJson = False
) -> None:
    """Repeat a run with its own configuration, in a new run directory."""
    from cluster import execute
    from cluster.catalogue import locate

    path = locate(name)
    requirements = [execute.Requirement.parse(text) for text in require or []]
    loaded = execute.stored(path, sets or [])
    _finish(execute.start(loaded, requirements=requirements, repeats=path.name), as_json)


@app.command()
def compare(
    names: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Two or more runs.")],
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put the figures of runs side by side, with what differs in their configuration."""
    from cluster.catalogue import locate
    from cluster.compare import compare as put_together

    if len(names) < 2:
        raise UsageError("compare needs at least two runs")
    comparison = put_together([locate(name) for name in names])
    if as_json:
        _print_json(comparison.to_json())
    else:
        print(comparison.to_markdown() if markdown else comparison.to_text())


@app.command()
def report(name: RunName) -> None:
    """Write a run's report.html again and print its path."""
    from cluster.catalogue import locate
    from cluster.report import write

    print(write(locate(name)))


@app.command()
def export(
    name: RunName,
    to: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to write to; default: in the run.")
    ] = None,
) -> None:
    """Write what a run learnt as files that other programs read, checked against the original."""
    from cluster import exports

    folder, differences = exports.export(name, to)
    for file, difference in differences.items():
        print(f"{folder / file}  differs from the original by {difference:.1e} at most")


@app.command()
def predict(
    name: Annotated[
        str, typer.Argument(metavar="RUN_OR_DIR", help="A run, or a folder that export wrote.")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE.csv", help="Rows to predict for.")],
    mode: Annotated[
        int | None, typer.Option(help="Mode of all rows, from 0; default: inferred from them.")
    ] = None,
    infer: Annotated[
        int | None,
        typer.Option(metavar="SAMPLES", help="Infer the mode from so many first samples only."),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="OUT.csv", help="File to write; default: stdout.")
    ] = None,
) -> None:
    """Apply what a run learnt to the rows of a CSV file."""
    from cluster import exports
    from cluster.files import write_text

    text = exports.predict(name, file, mode, infer)
    if to is None:
        print(text, end="")
        return
    write_text(to, text)
    print(to)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Examine this machine and installation, and say what to do about each finding."""
    from cluster.doctor import examine

    findings = examine()
    if as_json:
        _print_json([vars(f) for f in findings])
    else:
        for f in findings:
            print(f"{f.status:8} {f.name}: {f.found}")
            if f.advice:
                print(f"{'':8} -> {f.advice}")
    if any(f.status == "problem" for f in findings):
        raise typer.Exit(1)


@app.command()
def clean(
    older_than: Annotated[
        float, typer.Option(metavar="DAYS", min=0, help="Only older runs.")
    ] = 0.0,
    failed: Annotated[bool, typer.Option("--failed", help="Only runs without a result.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
    runs: Annotated[Path, typer.Option(help="Folder of run directories.")] = Path("runs"),
) -> None:
    """List old run directories and, once confirmed, remove them. Never touches a running one."""
    from cluster.catalogue import removable, remove

    found = removable(runs, older_than, failed)
    for path, size in found:
        print(f"{size / 2**20:9.1f} MB  {path}")
    if not found:
        print("nothing to remove", file=sys.stderr)
    elif yes or (sys.stdin.isatty() and typer.confirm(f"Remove {len(found)} runs?", err=True)):
        remove([path for path, _ in found])
        print(f"removed {len(found)} runs", file=sys.stderr)
    else:
        print("nothing removed; add --yes to remove these", file=sys.stderr)


def main() -> None:
    """Run the command line; every error of ours ends in one sentence and its exit code."""
    try:
        status = app(standalone_mode=False)  # the code of a typer.Exit comes back as the value
    except CorymbError as error:
        print(f"corymb: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:  # a full disk, a folder that cannot be written: no fault of the code
        print(f"corymb: {error}", file=sys.stderr)
        sys.exit(1)
    except Exception as error:
        sys.exit(_click_error(error))
    sys.exit(status if isinstance(status, int) else 0)


def _click_error(error: Exception) -> int:
    """Show an error of the argument parser; anything else is a bug and keeps its traceback."""
    import click

    if isinstance(error, click.exceptions.Exit):
        return int(error.exit_code)
    if isinstance(error, click.exceptions.Abort):
        return 130
    if isinstance(error, click.ClickException):
        error.show()
        return 2
    raise error


def _load(
    file: Path | None, preset: str | None, sets: list[str] | None, recipe: str | None = None
) -> Any:
    from cluster import config as configuration

    return configuration.load(
        file, recipe=recipe, preset=preset, sets=sets or [], environ=os.environ, defaults=DEFAULTS
    )


def _with_cluster(sets: list[str] | None, address: str | None, wait: float | None) -> list[str]:
    extra = [] if address is None else [f'cluster.address="{address}"']
    extra += [] if wait is None else [f"cluster.wait_for_resources={wait}"]
    return [*(sets or []), *extra]


def _start(loaded: Any, require: list[str] | None, dry_run: bool, as_json: bool) -> None:
    from cluster import execute, show

    requirements = [execute.Requirement.parse(text) for text in require or []]
    if dry_run:
        show.plan(loaded.config, as_json)
        return
    _finish(execute.start(loaded, requirements=requirements), as_json)


def _finish(done: "Outcome", as_json: bool) -> None:
    """Print the result, also of a run that missed a requirement; then say so."""
    from cluster import show

    show.outcome(done, as_json)
    done.check()


def _leaves(data: Any, path: str = "") -> dict[str, Any]:
    if not isinstance(data, dict) or not data:
        return {path: json.dumps(data, ensure_ascii=False)}
    found: dict[str, Any] = {}
    for key, value in data.items():
        found |= _leaves(value, f"{path}.{key}" if path else str(key))
    return found


def _print_json(data: Any) -> None:
    from cluster.files import finite

    print(json.dumps(finite(data), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
