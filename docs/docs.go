// Package docs embeds the pages of this folder, so that a running server can show them.
package docs

import "embed"

// Pages are the pages in Markdown, by their path below docs.
//
//go:embed *.md integrations/*.md operations/*.md
var Pages embed.FS
