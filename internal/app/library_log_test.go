package app

import (
	"bytes"
	"io"
	stdlog "log"
	"strings"
	"testing"
)

// TestLibraryLog: net/http's message about unexpected bytes of a server is one line of the log,
// without the bytes.
func TestLibraryLog(t *testing.T) {
	var out bytes.Buffer
	library := stdlog.New(libraryLog{newLogger("info", &out)}, "", 0)
	library.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", "HTTP/1.1 400\r\n\r\nAuthorization: canary\n", io.EOF)
	library.Print("two\nlines, \x1b[31m and " + strings.Repeat("more", 1000))
	if got := out.String(); strings.Count(got, "\n") != 2 || strings.Contains(got, "canary") || strings.Contains(got, "\x1b") || !strings.Contains(got, "Unsolicited response") || len(got) > 1000 {
		t.Errorf("the log is %q, want 2 lines with the message and without the bytes", got)
	}
}
