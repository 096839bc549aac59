"""``vitrail recipes``."""

from vitrail.cli.console import Json, print_json, results, table
from vitrail.tasks import built_in, read_recipe


def recipes(as_json: Json = False) -> None:
    """List the built-in recipes and the results they reached."""
    known = {name: read_recipe(name) for name in built_in()}
    if as_json:
        print_json([{"name": name, **recipe.model_dump(mode="json")} for name, recipe in known.items()])
        return
    listed = table("name", "about", "reached")
    for name, recipe in known.items():
        listed.add_row(name, recipe.about, recipe.reached)
    results().print(listed)
