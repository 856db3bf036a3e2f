"""The console for programs: a JSON API that reads what the pages show, described by an OpenAPI document."""
