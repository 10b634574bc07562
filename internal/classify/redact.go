package classify

import "regexp"

// mailbox is what looks like an e-mail address, also in a URL's escapes. It
// rather takes too much than leave a part of one.
var mailbox = regexp.MustCompile(`(?i)("[^"@]{1,64}"|[^\s"<>(){}\[\],;:=/?&|\\@]+)(@|%40)[^\s"<>(){},;/?&|\\@]+`)

// Redact takes e-mail addresses out of free text: business context is written
// by people, who write addresses into it. What it gives may go where personal
// data may not: prompts, audit snapshots, bundles.
func Redact(text string) string { return mailbox.ReplaceAllString(text, "[e-mail]") }
