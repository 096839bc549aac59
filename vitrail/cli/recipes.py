"""``vitrail recipes``."""

from vitrail.cli.console import Json, print_json, results, table
from vitrail.recipe import built_in, read_recipe


def recipes(as_json: Json = False) -> None:
    """List the built-in recipes: what each is for, and what it reached."""
    found = {name: read_recipe(name) for name in built_in()}
    if as_json:
        print_json([{"name": name, **recipe.model_dump(mode="json")} for name, recipe in found.items()])
        return
    listed = table("name", "about", "reached")
    for name, recipe in found.items():
        listed.add_row(name, recipe.about, recipe.reached)
    results().print(listed)
