package source

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	ber "github.com/go-asn1-ber/asn1-ber"
	"github.com/go-ldap/ldap/v3"
)

// The bounds on what a directory sends. The library makes an object of about 240 bytes for each
// element, and an element can be as short as two bytes: 8 MiB of them would take a gigabyte.
const (
	maxElements       = 1 << 17 // in one message: an entry can have about as many values
	maxElementsInAll  = 1 << 20 // in one connection
	largestLengthSize = 4       // bytes of the length of an element
)

var errFraming = errors.New("the message has too many elements, or is not in the form of RFC 4511")

// framed is a connection that counts the elements of the messages that it reads, before the library
// makes objects of them. It fails beyond the bounds, and on what LDAP does not use (RFC 4511, 5.1):
// indefinite lengths, and tags of more than one byte.
type framed struct {
	net.Conn
	head []byte // the tag and length of the current element, as far as they were read
	// left is how many bytes of the message are still to come, skip how many of the current value.
	left, skip int
	// elements counts the elements of the current message, all those of the connection.
	elements, all int
	err           error
}

// Read reads what the directory sent. It returns errFraming, and none of the bytes, if they break
// a bound.
func (f *framed) Read(p []byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	n, err := f.Conn.Read(p)
	if f.err = f.check(p[:n]); f.err != nil {
		return 0, f.err
	}
	return n, err
}

// check counts the elements that start in a part of the stream.
func (f *framed) check(part []byte) error {
	for len(part) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(part))
			f.skip, f.left, part = f.skip-n, f.left-n, part[n:]
			continue
		}
		f.head, part = append(f.head, part[0]), part[1:]
		length, whole, err := lengthOf(f.head)
		if err != nil {
			return err
		}
		if whole {
			if err := f.begin(length); err != nil {
				return err
			}
			f.head = f.head[:0]
		}
	}
	return nil
}

// begin counts an element whose tag and length were read. length is that of its value.
func (f *framed) begin(length int) error {
	constructed := f.head[0]&byte(ber.TypeConstructed) != 0
	f.all++
	if f.left == 0 { // a new message
		if f.left, f.elements = length, 1; !constructed {
			return errFraming
		}
	} else {
		f.left -= len(f.head)
		f.elements++
		if f.left < 0 || length > f.left {
			return errFraming
		}
		if !constructed {
			f.skip = length
		}
	}
	if f.elements > maxElements || f.all > maxElementsInAll || f.left > MaxBytes {
		return errFraming
	}
	return nil
}

// lengthOf reads the length of an element from its first bytes. whole is false if more bytes are
// needed.
func lengthOf(head []byte) (length int, whole bool, err error) {
	if head[0]&0x1f == 0x1f {
		return 0, false, errFraming
	}
	if len(head) < 2 {
		return 0, false, nil
	}
	if head[1] < 0x80 {
		return int(head[1]), true, nil
	}
	size := int(head[1] & 0x7f)
	if size == 0 || size > largestLengthSize {
		return 0, false, errFraming
	}
	if len(head) < 2+size {
		return 0, false, nil
	}
	for _, b := range head[2:] {
		length = length<<8 | int(b)
	}
	return length, true, nil
}

// startTLS is the StartTLS request (RFC 4511, 4.14.1), with the message id 1.
const startTLS = "\x30\x1d\x02\x01\x01\x77\x18\x80\x161.3.6.1.4.1.1466.20037"

// encrypt starts TLS on a connection: at once if implicit, or else after StartTLS. It does not use
// the library's own StartTLS, which would read the answer in clear without our bounds.
func encrypt(ctx context.Context, raw net.Conn, settings *tls.Config, implicit bool) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if !implicit {
		if _, err := raw.Write([]byte(startTLS)); err != nil {
			return nil, errNoStartTLS
		}
		answer, err := ber.ReadPacket(&framed{Conn: raw})
		if err != nil || ldap.GetLDAPError(answer) != nil {
			return nil, errNoStartTLS
		}
	}
	encrypted := tls.Client(raw, settings)
	if err := encrypted.HandshakeContext(ctx); err != nil {
		if !implicit {
			err = errNoStartTLS
		}
		return nil, err
	}
	return &framed{Conn: encrypted}, nil
}
