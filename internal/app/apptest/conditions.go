package apptest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// WaitForStatus waits until a GET of the path has the status.
func WaitForStatus(t testing.TB, c *Client, path string, status int, within time.Duration) *Response {
	t.Helper()
	var last *Response
	Eventually(t, within, func() error {
		res, err := c.Try("GET", path, nil)
		if err != nil {
			return err
		}
		if last = res; res.Status != status {
			return fmt.Errorf("%s answered %d, want %d: %s", path, res.Status, status, res.Body)
		}
		return nil
	})
	return last
}

// WaitForOutput waits until the output of a process contains the text.
func WaitForOutput(t testing.TB, p *Process, text string, within time.Duration) {
	t.Helper()
	Eventually(t, within, func() error {
		if !strings.Contains(p.Log.String(), text) {
			return fmt.Errorf("no %q in\n%s", text, p.Log)
		}
		return nil
	})
}
