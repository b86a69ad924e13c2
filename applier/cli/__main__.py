"""``python -m applier.cli`` is the `compactor` command."""

from applier.cli import main

if __name__ == "__main__":
    main()
