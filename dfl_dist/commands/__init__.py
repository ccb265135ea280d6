"""The commands of `dfl-dist`: one thin module each, a folder where a command has several."""
