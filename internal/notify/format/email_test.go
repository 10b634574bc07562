package format

import (
	"testing"
	"time"
)

// TestMailAddresses checks that only addresses are accepted that are unambiguous in an SMTP
// command.
func TestMailAddresses(t *testing.T) {
	accepts := func(setting string, value any) bool {
		settings := map[string]any{"from": "g@example.com", "to": "ann@example.com"}
		settings[setting] = value
		c := Channel{Endpoint: "smtp://mail.example.com", Settings: settings}
		_, err := Compose(c, Message{}, time.Time{})
		wrong := emailType().Check(c)
		if (err == nil) != (len(wrong) == 0) {
			t.Errorf("%s %v: Check = %v and Compose = %v, want both to accept it or neither", setting, value, wrong, err)
		}
		return err == nil
	}
	for address, want := range map[string]bool{
		"ann@example.com":                              true,
		"Ann <ann.b+c_d-e'f@mail.example.com>":         true,
		`"Ann, of <sales>" <ann@example.com>`:          true,
		"jürgen@example.com":                           true,
		"ann@localhost":                                true,
		`"ann> SIZE=1"@example.com`:                    false,
		`"ann b"@example.com`:                          false,
		`"a@evil.example x"@example.com`:               false,
		`"ann\\"@example.com`:                          false,
		`"<eve@example.com>"@example.com`:              false,
		"ann@[127.0.0.1]":                              false,
		"ann@example.com\r\nRCPT TO:<eve@example.com>": false,
		"ann\r\n@example.com":                          false,
		"ann@exa\x00mple.com":                          false,
		"ann@-example.com":                             false,
		"ann@münchen.example":                          false,
		"ann@example.com, eve@example.com":             false,
		"":                                             false,
	} {
		if got := accepts("from", address); got != want {
			t.Errorf("from %q is accepted: %v, want %v", address, got, want)
		}
		if got := accepts("to", []any{"bob@example.com", address}); got != want {
			t.Errorf("to %q is accepted: %v, want %v", address, got, want)
		}
	}
}
