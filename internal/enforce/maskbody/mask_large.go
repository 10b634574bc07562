package maskbody

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/enforce/bodies"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/mask"
	"github.com/gatehouse-dev/gatehouse/internal/enforce/request"
)

const (
	// LargeMaskers is how many large answers are masked at once. The others wait on disk.
	LargeMaskers = 2
	// copiesForPaths is how many copies of a document fit in memory while paths are
	// masked: the document, one hidden value, and its text.
	copiesForPaths = 3
	// CopiesForPrivacy is the same where personal data is searched too.
	CopiesForPrivacy = 5
)

// unmaskable refuses an answer that exceeds a limit.
func unmaskable(limit string, bytes int) *request.Refusal {
	return request.Refuse(http.StatusBadGateway, "mask_failed", "the application's answer could not be masked: it is larger than the limit \""+limit+"\" of "+strconv.Itoa(bytes)+" bytes")
}

// maskLarge masks a document that is larger than MaxHeld; prefix is the part that was
// read. The document is on disk before and after masking, so that neither a slow application
// nor a slow client costs memory. Nothing is sent before all of it is masked.
func (m *Masker) maskLarge(ctx context.Context, prefix []byte, rest io.Reader, rules *mask.Rules) (*bodies.File, *request.Refusal) {
	failed := request.Refuse(http.StatusBadGateway, "mask_failed", "the application's answer could not be masked")
	if rules.Rewrite != nil {
		return nil, unmaskable("tool_list", MaxHeld)
	}
	doc, tooLong, err := m.Bodies.Save(prefix, rest, bodies.MaxMasked)
	defer func() { doc.Close() }()
	switch {
	case tooLong:
		return nil, unmaskable("path_mask", bodies.MaxMasked)
	case errors.Is(err, bodies.ErrTooMany):
		m.Log.WarnContext(ctx, "an answer that must be masked could not be stored", "error", err)
		return nil, request.TooMany()
	case err != nil:
		return nil, failed
	}
	turn := time.NewTimer(m.UpstreamTimeout)
	defer turn.Stop()
	select {
	case m.turns <- struct{}{}:
		defer func() { <-m.turns }()
	case <-turn.C:
		return nil, request.TooMany()
	case <-ctx.Done():
		return nil, failed
	}
	masked, err := m.maskStored(doc, rules)
	switch {
	case errors.Is(err, bodies.ErrTooMany):
		return nil, request.TooMany()
	case errors.Is(err, mask.ErrHeld):
		return nil, unmaskable("value", mask.MaxHeld)
	case err != nil:
		return nil, failed
	}
	return masked, nil
}

// maskStored masks a document on disk into another one.
func (m *Masker) maskStored(doc *bodies.File, rules *mask.Rules) (*bodies.File, error) {
	copies := copiesForPaths
	if rules.MasksPersonalData() {
		copies = CopiesForPrivacy
	}
	room := m.Bodies.NewReservation()
	defer room.Release()
	if !room.Grow(copies * int(doc.Length())) {
		return nil, bodies.ErrTooMany
	}
	whole := make([]byte, doc.Length())
	if _, err := io.ReadFull(doc.Open(), whole); err != nil {
		return nil, err
	}
	masked, err := m.Bodies.Create()
	if err != nil {
		return nil, err
	}
	err = m.Panics.Run("a mask panicked", func() error {
		return rules.JSONInto(whole, func(p []byte) error {
			_, err := masked.Write(p)
			return err
		})
	})
	if err != nil {
		masked.Close()
		return nil, err
	}
	return masked, nil
}

// sendStored sends a masked document as the body of the answer.
func (m *Masker) sendStored(w http.ResponseWriter, status int, doc *bodies.File) {
	defer doc.Close()
	w.Header().Set("Content-Length", strconv.FormatInt(doc.Length(), 10))
	w.WriteHeader(status)
	rc, body := http.NewResponseController(w), doc.Open()
	buf := m.Buffers.Get()
	defer m.Buffers.Put(buf)
	for {
		n, err := body.Read(buf[:])
		if n > 0 {
			_ = rc.SetWriteDeadline(m.Now().Add(bodies.ClientWriteTimeout))
			if _, werr := w.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			m.Count.Aborted.Add(1)
			panic(http.ErrAbortHandler)
		}
	}
}
