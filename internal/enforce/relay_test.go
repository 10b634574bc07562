package enforce

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// closing is a body that the server closes with its last byte, as it does when
// the head of the answer goes out.
type closing struct{ left string }

func (c *closing) Read(p []byte) (int, error) {
	if c.left == "" {
		return 0, http.ErrBodyReadAfterClose
	}
	n := copy(p, c.left)
	if c.left = c.left[n:]; c.left == "" {
		return n, io.EOF
	}
	return n, nil
}

func (c *closing) Close() error { return nil }

// A body at its end stays there: the transport, which looks whether there is
// more, must not find an error and give up the answer.
func TestBodyEndsOnce(t *testing.T) {
	body := &clientBody{ReadCloser: &closing{"abc"}, rc: http.NewResponseController(httptest.NewRecorder()), now: time.Now, began: time.Now()}
	data, err := io.ReadAll(body)
	if string(data) != "abc" || err != nil {
		t.Fatalf("%q %v", data, err)
	}
	if n, err := body.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("after its end: %d bytes, %v", n, err)
	}
}
