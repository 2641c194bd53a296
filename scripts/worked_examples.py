"""Prints docs/worked-examples.md:

.venv/bin/python scripts/worked_examples.py > docs/worked-examples.md
"""

from duramen.experiments.studies.worked_examples import worked_examples
from duramen.experiments.studies.worked_examples_page import as_page

if __name__ == "__main__":
    print(as_page(worked_examples()), end="")
