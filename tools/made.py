"""What every page that is made from the code begins with."""

MADE = "<!-- Made from the code by `make docs`. Change the code, not this page. -->"
