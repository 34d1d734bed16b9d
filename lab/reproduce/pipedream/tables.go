package pipedream

import "embed"

// Numbers that the paper prints. Each file names its origin.
//
//go:embed tables/*.yaml
var files embed.FS
