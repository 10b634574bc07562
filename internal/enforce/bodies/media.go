package bodies

import (
	"mime"
	"strings"
)

// IsEvents reports whether a media type is a stream of server-sent events.
func IsEvents(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == "text/event-stream"
}

// IsUTF8 reports whether a charset is UTF-8 or missing.
func IsUTF8(charset string) bool {
	return charset == "" || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "utf8") || strings.EqualFold(charset, "us-ascii")
}

// IsJSON reports whether a media type is JSON in UTF-8: application/json, or
// any type with the +json suffix (RFC 6839).
func IsJSON(contentType string) bool {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	if !IsUTF8(params["charset"]) {
		return false
	}
	return media == "application/json" || strings.HasSuffix(media, "+json")
}
