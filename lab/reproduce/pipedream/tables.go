package pipedream

import "embed"

// What the paper prints: numbers only, each file with its origin.
//
//go:embed tables/*.yaml
var files embed.FS
