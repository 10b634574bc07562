package classify

import "regexp"

// mailbox matches texts that look like an e-mail address, also with %40 for the @. It may match too
// much, so that no part of an address is left.
var mailbox = regexp.MustCompile(`(?i)("[^"@]{1,64}"|[^\s"<>(){}\[\],;:=/?&|\\@]+)(@|%40)[^\s"<>(){},;/?&|\\@]+`)

// Redact replaces e-mail addresses in free text, such as the business context that people write.
// The result can be used where personal data is not allowed: in prompts, audit snapshots and
// bundles.
func Redact(text string) string { return mailbox.ReplaceAllString(text, "[e-mail]") }
