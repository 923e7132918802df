"""An example of every command, which its --help shows. tests/cli/test_examples_cli.py runs them, in this order."""

import argparse
from typing import Any

EXAMPLES = {
    "sketch": "zcat rows.svm.gz | fastsketch sketch - --n-features 20 -l 8 -o - | fastsketch info -",
    "groups": "fastsketch groups sales.csv --by shop -l 4 -o shops.fsk",
    "audit": "fastsketch sketch rows.npy -l 8 --center -o rows.fsk && fastsketch audit rows.fsk rows.npy",
    "refine": "fastsketch refine rows.fsk rows.npy -o refined.fsk",
    "transform": "fastsketch transform rows.fsk 'rows*.npy' -k 4 -o scores.npy",
    "merge": "fastsketch sketch more.npy -l 8 --center -o - | fastsketch merge rows.fsk - -o all.fsk",
    "export": "fastsketch export all.fsk --array components -o components.npy",
    "info": "fastsketch info all.fsk --json",
    "hash": "fastsketch hash 'rows*.npy' -b 16 -o hash.fsk",
    "quantize": "fastsketch quantize rows.npy -b 4 -o words.fsk",
    "encode": "fastsketch encode words.fsk rows.npy -o codes.npy",
    "decode": "fastsketch decode words.fsk codes.npy -o - > decoded.npy",
    "search": "fastsketch search words.fsk codes.npy more.npy -k 3 --rescore rows.npy",
    "index": "fastsketch index add shop.index rows.npy --model words.fsk",
    "index add": "fastsketch index add shop.index more.npy --ids new-ids.txt",
    "index remove": "fastsketch index remove shop.index 3 5 8",
    "index search": "fastsketch index search shop.index more.npy -k 3",
    "index reencode": "fastsketch index reencode shop.index --decoded",
    "index info": "fastsketch index info shop.index",
    "learn": "fastsketch learn customers.csv --target bought -o model.fsk",
    "predict": "fastsketch predict model.fsk customers.csv -o answers.csv",
    "score": "fastsketch score model.fsk customers.csv",
    "complete": "fastsketch complete ratings.csv -r 2 -o ratings.fsk",
    "items": "fastsketch items events.npz -l 4 --ridge 1 -o items.fsk",
    "recommend": "fastsketch recommend ratings.csv alice bob -n 3",
    "evaluate": "fastsketch evaluate ratings.csv --split random",
    "demo": "fastsketch demo --output pictures",
    "warm-up": "fastsketch warm-up",
}


class ExampleLast(argparse.HelpFormatter):
    """A help that ends with lines as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if not text.startswith("example:"):
            return super()._fill_text(text, width, indent)
        return "".join(f"{indent}{line}\n" for line in text.splitlines()).rstrip("\n")


def add_examples(parser: argparse.ArgumentParser, before: str = "") -> None:
    """Let the help of every command end with its example."""
    for name, command in commands_of(parser).items():
        verb = f"{before} {name}".strip()
        command.epilog = f"example:\n  {EXAMPLES[verb]}"
        command.formatter_class = ExampleLast
        add_examples(command, verb)


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """{name: parser} of the commands within a command."""
    found: Any = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]  # pyright: ignore[reportPrivateUsage]
    return dict(found[0].choices) if found else {}
