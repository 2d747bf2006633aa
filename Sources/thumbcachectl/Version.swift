/// What `--version` says. The daemon has the same.
let version = "0.1.0"
