"""``vitrail recipes``."""

from vitrail.cli.console import Json, print_json
from vitrail.terminal.console import results, table


def recipes(as_json: Json = False) -> None:
    """List the built-in recipes and the results they reached."""
    from vitrail.tasks import built_in, read_recipe

    known = {name: read_recipe(name) for name in built_in()}
    if as_json:
        print_json([{"name": name, **recipe.model_dump(mode="json")} for name, recipe in known.items()])
        return
    listed = table("name", "about...", "reached...")
    for name, recipe in known.items():
        listed.add_row(name, recipe.about, recipe.reached)
    results().print(listed)
