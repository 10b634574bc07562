package llm

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"strings"
	"unicode/utf8"
)

// maxURL is the longest URL of a picture or document, in bytes.
const maxURL = 2048

// place is the position of a text: the member that holds it, and the member that holds the object
// around it. Elements of a list have the position of the list.
type place struct{ parent, key string }

// below returns the place of a member of an object at p.
func (p place) below(key string) place { return place{p.key, key} }

// mediaKeys are members that hold pictures, sounds or documents in any object, as base64 or as a
// URL.
var mediaKeys = map[string]bool{
	"image_url": true, "video_url": true, "audio_url": true, "file_url": true, "file_data": true, "fileData": true,
	"images": true, "image": true, "mask": true, "b64_json": true, "file_uri": true, "fileUri": true,
}

// mediaParents are members whose objects hold media in url, data, bytes or uri.
var mediaParents = map[string]bool{
	"image_url": true, "video_url": true, "audio_url": true, "source": true, "input_audio": true, "inputAudio": true, "inline_data": true,
	"inlineData": true, "audio": true, "image": true, "file": true, "file_data": true, "fileData": true, "document": true, "content": true,
}

// isMediaPlace reports whether providers expect media at p.
func isMediaPlace(p place) bool {
	switch p.key {
	case "url", "data", "bytes", "uri":
		return mediaParents[p.parent]
	}
	return mediaKeys[p.key]
}

// isMedia reports whether s is well-formed media in a place for media: base64 that begins like a
// file of a known format, with or without `data:` before it, or a URL. Anything else is text,
// however it begins.
func isMedia(p place, s string) bool {
	if !isMediaPlace(p) {
		return false
	}
	if strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://") {
		return isAddress(s)
	}
	payload, ok := encoded(s)
	return ok && isBase64(payload)
}

// encoded returns the base64 of a text that begins like media.
func encoded(s string) (payload string, ok bool) {
	payload = s
	if rest, data := strings.CutPrefix(s, "data:"); data {
		i := strings.Index(rest[:min(len(rest), 256)], ";base64,")
		if i < 0 || !isMediaType(rest[:i]) {
			return "", false
		}
		payload = rest[i+len(";base64,"):]
	}
	var head [24]byte
	n, _ := base64.StdEncoding.Decode(head[:], []byte(payload[:min(len(payload), 32)&^3]))
	return payload, IsFile(head[:n])
}

// isMediaType reports whether kind is a media type, with its parameters.
func isMediaType(kind string) bool {
	kind, _, _ = strings.Cut(strings.ToLower(kind), ";")
	class, name, ok := strings.Cut(kind, "/")
	if !ok || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.+-") != "" || name == "svg+xml" {
		return false // SVG contains text
	}
	return class == "image" || class == "audio" || class == "video" || kind == "application/pdf" || kind == "application/octet-stream"
}

// IsFile reports whether head is the beginning of a picture, a sound, a film or a document, by the
// format's signature.
func IsFile(head []byte) bool {
	for _, sign := range [...]string{
		"\x89PNG\r\n\x1a\n", "\xff\xd8\xff", "GIF87a", "GIF89a", "II*\x00", "MM\x00*", "%PDF-", "OggS", "fLaC", "ID3", "\x1aE\xdf\xa3", "PK\x03\x04",
		"\xff\xfb", "\xff\xf3", "\xff\xf2", "\xff\xf1", "\xff\xf9", "\x00\x00\x01\x00",
	} {
		if bytes.HasPrefix(head, []byte(sign)) {
			return true
		}
	}
	if len(head) < 12 {
		return false
	}
	form := string(head[8:12])
	return string(head[:4]) == "RIFF" && (form == "WEBP" || form == "WAVE" || form == "AVI ") || string(head[4:8]) == "ftyp"
}

func isBase64(s string) bool {
	s = strings.TrimRight(s, "=")
	for i := range len(s) {
		if !isBase64Byte(s[i]) {
			return false
		}
	}
	return s != ""
}

func isBase64Byte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '+' || c == '/'
}

// isAddress reports whether s is a URL as clients write it: without spaces, quotes and other
// characters that URLs do not have.
func isAddress(s string) bool {
	if len(s) > maxURL {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || strings.IndexByte("\"<>\\^`{|}", c) >= 0 {
			return false
		}
	}
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && u.User == nil
}

// pathOf returns the text of a URL after its host, or "" if it contains no words.
func pathOf(s string) string {
	if !strings.HasPrefix(s, "http") {
		return ""
	}
	_, rest, _ := strings.Cut(s, "://")
	_, rest, _ = strings.Cut(rest, "/")
	plain, err := url.QueryUnescape(rest)
	if err != nil || !utf8.ValidString(plain) || !IsWordy(plain) {
		return ""
	}
	return strings.NewReplacer("-", " ", "_", " ", "/", "\n", "?", "\n", "&", "\n", "=", "\n").Replace(plain)
}

// dataText returns the text of a data: URL that holds text.
func dataText(s string) string {
	rest, ok := strings.CutPrefix(s, "data:")
	if !ok {
		return ""
	}
	head, payload, ok := strings.Cut(rest, ",")
	if !ok {
		return ""
	}
	if !strings.HasSuffix(head, ";base64") {
		text, err := url.PathUnescape(payload)
		if err != nil {
			return ""
		}
		return text
	}
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(payload, "="))
	if err != nil || !utf8.Valid(text) {
		return ""
	}
	return string(text)
}
