"""Files with something wrong in them: seeded changes of bytes, and of the values of JSON."""

import json
import random

VALUES = [True, None, -1, 0, 2.5, 10**30, "", "abc", [], {}, [1, 2], {"a": 1}, "\x00", [[[]]]]


def mutated(data, seed):
    """The same bytes with one to three changes: flipped, zeroed, cut, doubled, inserted, taken out."""
    chance, data = random.Random(seed), bytearray(data)  # noqa: S311
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        if not data:
            break
        # Half of the changes near an end, where headers and directories are.
        edge = min(len(data), 600)
        place = chance.choice(
            (chance.randrange(len(data)), chance.randrange(edge), len(data) - 1 - chance.randrange(edge))
        )
        length = chance.choice((1, 1, 2, 4, 16, 200))
        match chance.randrange(7):
            case 0:
                data[place] ^= 1 << chance.randrange(8)
            case 1:
                data[place] = chance.choice((0, 1, 127, 128, 255))
            case 2:
                data[place : place + length] = bytes(len(data[place : place + length]))
            case 3:
                del data[place:]
            case 4:
                del data[place : place + length]
            case 5:
                data[place:place] = data[place : place + length]
            case 6:
                data[place:place] = chance.randbytes(length)
    return bytes(data)


def mutated_json(text, seed):
    """The same JSON with one value replaced, left out, or put under another name."""
    chance, value = random.Random(seed), json.loads(text)  # noqa: S311
    places = list(_places(value))
    holder, key = chance.choice(places)
    match chance.randrange(4):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        case _:
            holder[key] = chance.choice(VALUES)
    return json.dumps(value)


def _places(value):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)
