"""``python -m applier.cli`` is the `compactor` command."""

from applier.cli.start import main

if __name__ == "__main__":
    main()
